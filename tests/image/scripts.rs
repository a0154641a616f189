//! The scripts that make the image, and binaries to give them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Why a test cannot go on.
pub(crate) type Failure = Box<dyn Error>;

/// What a test ends with.
pub(crate) type Outcome = Result<(), Failure>;

/// A file of the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A script of `deploy/image`, without what whoever runs the tests has set for it.
pub(crate) fn script(name: &str) -> Command {
    let mut command = Command::new(file("deploy/image").join(name));
    for variable in ["KUBEWARM_REVISION", "KUBEWARM_SOURCE", "KUBEWARM_IMAGE_LIMIT_MIB"] {
        command.env_remove(variable);
    }
    command
}

/// What a command printed, or why it failed.
pub(crate) fn printed(command: &mut Command) -> Result<String, Failure> {
    let Output { status, stdout, stderr } = command.output()?;
    if status.success() {
        return Ok(String::from_utf8(stdout)?);
    }
    let said = String::from_utf8_lossy(&stderr);
    Err(format!("{command:?} failed, {status}: {said}").into())
}

/// A program without shared libraries that does nothing: the real one takes minutes to build.
pub(crate) fn static_program(folder: &Path) -> Result<PathBuf, Failure> {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, "int main(void) { return 0; }\n")?;
    printed(Command::new("gcc").arg("-static").arg("-o").arg(&program).arg(&source))?;
    Ok(program)
}
