//! Parse, execute, print the error chain, exit code.

use kubewarm::{app, cli::Cli, commands::as_called};
use kubewarm_api::model::escape;
use std::{error::Error, iter::successors, process::ExitCode};

/// "Failed", for every command: 1 means "not ready".
const FAILED: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    // Boxed: it is as large as the largest command.
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
