//! The composition root: it runs the commands and connects all layers of the operator.

mod access_checker;
mod api_ca;
mod callers;
mod certificate_secret;
mod core_dumps;
mod fail_open;
mod file_limit;
mod injection_parameters;
mod leader_loop;
mod listener_certificates;
mod memory;
#[cfg(test)]
mod namespace_buckets_tests;
mod operator;
mod operator_identity;
mod operator_view;
mod rbac;
mod reads;
mod supervise;

use crate::{
    cli::{self, Cli},
    commands, metrics, telemetry,
};
use jiff::Timestamp;
use kubewarm_api::model;
use kubewarm_serve::ServeError;
use std::process::ExitCode;

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A command other than `run` failed.
    #[error(transparent)]
    Client(#[from] commands::CommandError),

    #[error("cannot start the log")]
    Telemetry(#[from] telemetry::TelemetryError),

    #[error("cannot find a cluster to connect to")]
    Connect(#[from] kubewarm_client::ConnectError),

    #[error("cannot serve the admin address")]
    Serve(#[source] ServeError),

    #[error("cannot serve the read API")]
    Read(#[source] ServeError),

    /// Two flags of `run` exclude each other. The field is the error message.
    #[error("{0}")]
    Flags(&'static str),

    /// A metric is invalid, which is a bug.
    #[error("cannot register the metrics")]
    Metrics(#[from] metrics::MetricsError),

    /// The name of a resource in kubewarm's own code is invalid, which is a bug.
    #[error("the name of a resource in kubewarm's code is invalid")]
    Name(#[from] model::ValidationError),

    #[error("cannot listen for signals")]
    Signal(#[source] std::io::Error),

    /// A task returned before the shutdown. The field is the task's name.
    #[error("the task {0} ended before the shutdown")]
    TaskEnded(&'static str),

    #[error("a task panicked")]
    TaskPanicked(#[source] tokio::task::JoinError),

    /// Tasks still ran 20 s after kubewarm had cancelled them. The field is their number.
    #[error("{0} tasks did not end in time")]
    Undrained(usize),
}

/// Runs the command in `cli`.
///
/// # Errors
///
/// Returns an [`AppError`]. `main` prints its message and its causes to the user.
pub async fn execute(cli: Cli) -> Result<ExitCode, AppError> {
    match cli {
        Cli::Run(args) => operator::run(args).await.map(|()| ExitCode::SUCCESS),
        Cli::Rbac(args) => Ok(commands::rbac(&args).await?.into()),
        Cli::Profile(args) => Ok(Box::pin(commands::profile(&args)).await?.into()),
        Cli::Plan(args) => Ok(Box::pin(commands::plan(&args)).await?.into()),
        Cli::Crd(args) => Ok(commands::crd(&args)?.into()),
        Cli::Status(args) => Ok(commands::status(args, Timestamp::now).await?.into()),
        Cli::Wait(args) => Ok(commands::wait(args, Timestamp::now).await?.into()),
        Cli::Check(args) => Ok(commands::check(&args, Timestamp::now).await?.into()),
        Cli::Forwarded(args) => {
            Ok(Box::pin(commands::forwarded(&args, Timestamp::now)).await?.into())
        }
        Cli::Inject(args) => Ok(Box::pin(commands::inject(&args, Timestamp::now)).await?.into()),
        Cli::RotateCa(args) => Ok(Box::pin(commands::rotate_ca(&args)).await?.into()),
        Cli::Get(args) => Ok(Box::pin(commands::get(&args, Timestamp::now)).await?.into()),
        Cli::Kubeconfig(args) => Ok(commands::kubeconfig(&args).await?.into()),
        Cli::Version(args) => Ok(commands::version(&args).await?.into()),
        Cli::Completion { shell } => print(&cli::script(shell)),
    }
}

fn print(text: &str) -> Result<ExitCode, AppError> {
    commands::print(text)?;
    Ok(ExitCode::SUCCESS)
}
