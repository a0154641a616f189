//! The program that the image holds.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::process::run;

/// kubewarm without any shared library, built as for the image but for the profile `dev`. It is larger
/// than an image may be, and says nothing of its commit.
///
/// # Errors
/// When it cannot be built.
///
/// # Cost
/// A build of everything, about 4 minutes on two cores; little where nothing has changed since the last.
/// Others that ask at the same time wait for this build.
pub fn static_program() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/image/build.sh");
    let printed = run(Command::new(script).arg("dev"))?;
    Ok(PathBuf::from(printed.trim()))
}
