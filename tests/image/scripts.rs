//! Runs the scripts that build the image, and builds test binaries for them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The reason why a test failed.
pub(crate) type Failure = Box<dyn Error>;

/// The result of a test.
pub(crate) type Outcome = Result<(), Failure>;

/// The path of a file in the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A script of `deploy/image`, without the environment variables that configure it.
pub(crate) fn script(name: &str) -> Command {
    let mut command = Command::new(file("deploy/image").join(name));
    for variable in ["KUBEWARM_REVISION", "KUBEWARM_SOURCE", "KUBEWARM_IMAGE_LIMIT_MIB"] {
        command.env_remove(variable);
    }
    command
}

/// The output of a command, or the reason of its failure.
pub(crate) fn printed(command: &mut Command) -> Result<String, Failure> {
    let Output { status, stdout, stderr } = command.output()?;
    if status.success() {
        return Ok(String::from_utf8(stdout)?);
    }
    let message = String::from_utf8_lossy(&stderr);
    Err(format!("{command:?} failed, {status}: {message}").into())
}

/// A static program that does nothing. A build of the real one takes minutes.
pub(crate) fn static_program(folder: &Path) -> Result<PathBuf, Failure> {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, "int main(void) { return 0; }\n")?;
    printed(Command::new("gcc").arg("-static").arg("-o").arg(&program).arg(&source))?;
    Ok(program)
}
