//! The composition root: the only folder that sees every layer.

#[cfg(test)]
mod bucket;
mod callers;
mod dumps;
mod files;
mod learned;
mod memory;
mod operator;
mod reads;
mod supervise;
mod verified;
mod view;

use crate::{
    cli::{self, Cli},
    commands, metrics, telemetry,
};
use jiff::Timestamp;
use kubewarm_api::model;
use kubewarm_serve::ServeError;
use std::process::ExitCode;

/// Why the process ends without having done what it was called for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command for people or scripts failed.
    #[error(transparent)]
    Client(#[from] commands::Error),

    /// The log cannot be started.
    #[error("cannot start the log")]
    Telemetry(#[from] telemetry::TelemetryError),

    /// There is no cluster to talk to.
    #[error("cannot tell which cluster to run against")]
    Connect(#[from] kubewarm_client::ConnectError),

    /// The admin address cannot be served.
    #[error("cannot serve the admin address")]
    Serve(#[source] ServeError),

    /// The read address cannot be served.
    #[error("cannot serve the read API")]
    Read(#[source] ServeError),

    /// Flags that do not go together.
    #[error("{0}")]
    Flags(&'static str),

    /// A metric is wrong: a bug.
    #[error("cannot make the metrics")]
    Metrics(#[from] metrics::MetricsError),

    /// A name of our own is wrong: a bug.
    #[error("cannot name our own resource")]
    Name(#[from] model::Invalid),

    /// Signal handlers cannot be installed.
    #[error("cannot listen for signals")]
    Signal(#[source] std::io::Error),

    /// A task that should run for ever returned.
    #[error("the {0} ended by itself")]
    TaskEnded(&'static str),

    /// A task panicked.
    #[error("a task panicked")]
    TaskPanicked(#[source] tokio::task::JoinError),

    /// Tasks still ran at the end of the drain time.
    #[error("{0} tasks did not end in time")]
    Undrained(usize),
}

/// Carries out `cli`.
///
/// # Errors
///
/// [`Error`], whose chain is for a person.
pub async fn execute(cli: Cli) -> Result<ExitCode, Error> {
    match cli {
        Cli::Run(args) => operator::run(args).await.map(|()| ExitCode::SUCCESS),
        Cli::Rbac(args) => Ok(commands::rbac(&args).await?.into()),
        Cli::Plan(args) => Ok(Box::pin(commands::plan(&args)).await?.into()),
        Cli::Crd(args) => Ok(commands::crd(&args)?.into()),
        Cli::Status(args) => Ok(commands::status(args, Timestamp::now).await?.into()),
        Cli::Wait(args) => Ok(commands::wait(args).await?.into()),
        Cli::Check(args) => Ok(commands::check(&args, Timestamp::now).await?.into()),
        Cli::Get(args) => Ok(commands::get(&args, Timestamp::now).await?.into()),
        Cli::Kubeconfig(args) => Ok(commands::kubeconfig(&args).await?.into()),
        Cli::Version(args) => Ok(commands::version(&args)?.into()),
        Cli::Completion { shell } => say(&cli::script(shell)),
    }
}

fn say(text: &str) -> Result<ExitCode, Error> {
    commands::print(text)?;
    Ok(ExitCode::SUCCESS)
}
