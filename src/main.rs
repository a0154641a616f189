//! The `kubewarm` program: parses the arguments, runs the command, prints the error chain and sets
//! the exit code.

use kubewarm::{app, cli::Cli, commands::as_called};
use kubewarm_api::model::escape;
use std::{error::Error, iter::successors, process::ExitCode};

/// Exit code of a command that returned an error. Exit code 1 belongs to a command that ran and
/// found a problem, for instance a profile that is not ready.
const FAILED: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    // The future of `app::execute` is as large as the future of the largest command. `Box::pin`
    // keeps that future on the heap.
    Box::pin(app::execute(Cli::from_env())).await.unwrap_or_else(|error| {
        report(&error);
        ExitCode::from(FAILED)
    })
}

#[expect(clippy::print_stderr, reason = "the log subscriber may not be installed yet")]
fn report(error: &dyn Error) {
    eprintln!("error: {}", escape(&as_called(&error.to_string())));
    for cause in successors(error.source(), |&cause| cause.source()) {
        eprintln!("  caused by: {}", escape(&as_called(&cause.to_string())));
    }
}
