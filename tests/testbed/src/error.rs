//! Errors of the testbed, written for a person who reads a failed test.

use std::path::PathBuf;
use std::{fmt, io};

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the control plane could not be built, started or used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A required program is not installed.
    #[error("`{program}` is missing: {remedy}")]
    Missing {
        /// The name of the program that `PATH` does not contain.
        program: &'static str,
        /// The way to install the program.
        remedy: &'static str,
    },
    /// The operating system refused an operation.
    #[error("cannot {action}: {source}")]
    Io {
        /// The operation, with its path.
        action: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A command failed.
    #[error("`{command}` failed, {status}:\n{output}")]
    Command {
        /// The command line.
        command: String,
        /// The exit status.
        status: std::process::ExitStatus,
        /// Its standard error, or its standard output if that is empty.
        output: String,
    },
    /// A process ended before it was ready, or was not ready in time.
    #[error("{process} is not ready: {reason}; its log {} ends:\n{tail}", log.display())]
    NotReady {
        /// The testbed's name of the process.
        process: String,
        /// Whether the process ended or the time ran out.
        reason: String,
        /// The path of the complete log.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A server returned an unexpected response.
    #[error("asked {asked}: {answer}")]
    Answer {
        /// The server and the request.
        asked: String,
        /// The response.
        answer: String,
    },
    /// A certificate or key could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// `Debug` prints the same text as `Display`, so that `unwrap` in a test prints a readable log
/// tail.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Adds the operation to an error of the operating system.
pub(crate) trait Action<T> {
    /// # Errors
    /// The same error, with `action` in front.
    fn action(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Action<T> for io::Result<T> {
    fn action(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { action: action(), source })
    }
}

impl<T> Action<T> for rustix::io::Result<T> {
    fn action(self, action: impl FnOnce() -> String) -> Result<T> {
        io::Result::action(self.map_err(Into::into), action)
    }
}
