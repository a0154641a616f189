//! The composition root: the only file that sees every layer.

use crate::{
    cli::{self, Cli, Command},
    client::{self, Verdict},
    manifests,
};
use jiff::Timestamp;
use std::process::ExitCode;

/// Why the process ends without having done what it was called for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command for people or scripts failed.
    #[error(transparent)]
    Client(#[from] client::Error),

    /// A manifest cannot be written.
    #[error("cannot write the CustomResourceDefinition")]
    Manifest(#[from] manifests::Unwritable),
}

/// Carries out `cli`.
///
/// # Errors
///
/// [`Error`], whose chain is for a person.
pub async fn execute(cli: Cli) -> Result<ExitCode, Error> {
    match cli.command {
        Command::Run(_) => Ok(ExitCode::FAILURE),
        Command::Crd => say(&manifests::crd_yaml()?),
        Command::Rbac(args) => say(&client::rbac(&args)?),
        Command::Status(args) => Ok(client::status(args, Timestamp::now).await?.into()),
        Command::Wait(args) => Ok(client::wait(args).await?.into()),
        Command::Version => say(concat!("kubewarm ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Completion { shell } => say(&cli::completion(shell)),
    }
}

fn say(text: &str) -> Result<ExitCode, Error> {
    client::print(text)?;
    Ok(Verdict::Ready.into())
}
