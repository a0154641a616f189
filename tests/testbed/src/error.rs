//! What can go wrong with a control plane, as a person reads it in a failed test.

use std::path::PathBuf;
use std::{fmt, io};

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the control plane could not be built, started or used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program that has to be installed is not.
    #[error("`{program}` is missing: {remedy}")]
    Missing {
        /// What was looked for in `PATH`.
        program: &'static str,
        /// How to get it.
        remedy: &'static str,
    },
    /// The operating system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, with the path.
        action: String,
        /// What the system answered.
        source: io::Error,
    },
    /// A command ended with a failure.
    #[error("`{command}` failed, {status}:\n{output}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// Its standard error, or its standard output if that is empty.
        output: String,
    },
    /// A process did not come up.
    #[error("{process} is not ready: {reason}; its log {} ends:\n{tail}", log.display())]
    NotReady {
        /// The process as the testbed calls it.
        process: String,
        /// It ended, or time ran out.
        reason: String,
        /// The whole log.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A server answered what it should not.
    #[error("asked {asked}: {answer}")]
    Answer {
        /// Who, and for what.
        asked: String,
        /// The answer.
        answer: String,
    },
    /// A certificate or key could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// As displayed: `unwrap` in a test then prints a log tail, not one line full of `\n`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Says what was tried when the system refuses.
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
