//! The program that the image holds.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::process::run;

/// The program of the image that `make test-image` builds: without shared libraries and link-time optimization.
///
/// # Errors
/// When it cannot be built.
///
/// # Cost
/// A build of everything, some minutes on two cores; little where nothing has changed since the last.
/// Others that ask at the same time wait for this build.
pub fn static_program() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/image/build.sh");
    let printed = run(Command::new(script).arg("test-image"))?;
    Ok(PathBuf::from(printed.trim()))
}
