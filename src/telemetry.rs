//! Logs: to standard error, as text or JSON, with a filter that can change at run time.

use crate::cli::LogFormat;
use std::{
    io::{self, IsTerminal as _},
    panic::{self, PanicHookInfo},
    thread,
};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    filter::ParseError,
    fmt,
    layer::SubscriberExt as _,
    reload,
    util::{SubscriberInitExt as _, TryInitError},
};

/// The filter in force. Clones change the same one.
#[derive(Clone, Debug)]
pub struct LogFilter {
    handle: reload::Handle<EnvFilter, Registry>,
}

/// Logging cannot start, or the filter cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Not a filter.
    #[error("log filter {filter:?} is not a list of directives such as \"info,kube=warn\"")]
    Filter {
        /// As the user wrote it.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// Something else in the process took the logs first.
    #[error("logging cannot start")]
    Taken(#[from] TryInitError),
    /// The subscriber is gone: the process is ending.
    #[error("the log filter cannot be changed any more")]
    Gone(#[from] reload::Error),
}

/// Logs to standard error from here on, panics of any thread included.
///
/// # Errors
///
/// [`TelemetryError::Filter`], or [`TelemetryError::Taken`] the second time.
pub fn start(filter: &str, format: LogFormat) -> Result<LogFilter, TelemetryError> {
    let (filter, handle) = reload::Layer::new(parse(filter)?);
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    panic::set_hook(Box::new(log_panic));
    Ok(LogFilter { handle })
}

impl LogFilter {
    /// Puts another filter in force; the old one stays if this is none.
    ///
    /// # Errors
    ///
    /// [`TelemetryError::Filter`] or [`TelemetryError::Gone`].
    pub fn set(&self, filter: &str) -> Result<(), TelemetryError> {
        Ok(self.handle.reload(parse(filter)?)?)
    }
}

fn parse(filter: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(filter)
        .map_err(|source| TelemetryError::Filter { filter: filter.to_owned(), source })
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = thread::current().name().unwrap_or("unnamed").to_owned();
    tracing::error!(location, thread, message = message(panic.payload()), "panicked");
}

/// The message if it is a literal. One that was formatted may quote what was being parsed, and
/// bodies are not logged.
fn message(payload: &(dyn std::any::Any + Send)) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("withheld: it may quote an object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_panic_message_is_not_logged() {
        assert_eq!(message(&"out of ideas"), "out of ideas");
        let quoting = "password: hunter2".to_owned();
        assert!(!message(&quoting).contains("hunter2"));
    }

    #[test]
    fn a_refused_filter_leaves_the_old_one() {
        // Not started: the registry is one a process, and other tests log too.
        let (layer, handle) = reload::Layer::new(parse("info,kube=warn").unwrap());
        let _subscriber = tracing_subscriber::registry().with(layer);
        let filter = LogFilter { handle };
        let now = || filter.handle.with_current(ToString::to_string).unwrap();
        let before = now();
        let refused = filter.set("kube=loud,,=").unwrap_err();
        assert!(refused.to_string().contains("kube=loud"), "{refused}");
        assert_eq!(now(), before);
        filter.set("debug").unwrap();
        assert_eq!(now(), "debug");
    }
}
