//! The binary of the image under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::process::run;

/// Returns the binary of the image that `make test-image` builds: a static binary without link-time
/// optimization.
///
/// # Errors
/// When the build fails.
///
/// # Cost
/// A complete build takes some minutes on two cores. A build without changes takes little.
/// Concurrent callers wait for one build.
pub fn static_program() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/image/build.sh");
    let printed = run(Command::new(script).arg("test-image"))?;
    Ok(PathBuf::from(printed.trim()))
}
