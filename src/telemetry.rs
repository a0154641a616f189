//! Sets up logging to standard error, as text or JSON, with a filter that can change at run time.

use crate::cli::LogFormat;
use std::{
    io::{self, IsTerminal as _},
    panic::{self, PanicHookInfo},
    thread,
};
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::ParseError,
    fmt::{
        self, MakeWriter,
        format::{DefaultFields, Format},
    },
    layer::SubscriberExt as _,
    registry::LookupSpan,
    reload,
    util::{SubscriberInitExt as _, TryInitError},
};

/// Handle to the active log filter. All clones of a handle change the same filter.
#[derive(Clone, Debug)]
pub struct LogFilter {
    handle: reload::Handle<EnvFilter, Registry>,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "log filter {filter:?} is not a list of directives such as \"info,kube_client=warn,kube_runtime=warn\""
    )]
    Filter {
        filter: String,
        #[source]
        source: ParseError,
    },
    /// The process already has a global log subscriber.
    #[error("logging cannot start")]
    Taken(#[from] TryInitError),
    /// The log subscriber no longer exists, because the process ends.
    #[error("the log filter cannot be changed any more")]
    Gone(#[from] reload::Error),
}

/// Starts logging to standard error, and logs the panics of all threads.
///
/// # Errors
///
/// Returns [`TelemetryError::Filter`] for an invalid filter. Returns [`TelemetryError::Taken`] if
/// the process already has a global log subscriber.
pub fn start(filter: &str, format: LogFormat) -> Result<LogFilter, TelemetryError> {
    let (filter, handle) = reload::Layer::new(parse(filter)?);
    let layer = fmt::layer().with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
    let lines = lines(format, layer);
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    panic::set_hook(Box::new(log_panic));
    Ok(LogFilter { handle })
}

fn lines<S, W>(
    format: LogFormat,
    layer: fmt::Layer<S, DefaultFields, Format, W>,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    }
}

impl LogFilter {
    /// Replaces the log filter. If `filter` is invalid, the current filter stays active.
    ///
    /// # Errors
    ///
    /// Returns [`TelemetryError::Filter`] for an invalid filter, or [`TelemetryError::Gone`] if the
    /// log subscriber no longer exists.
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

/// Returns the panic message if the message is a literal, or else a fixed text. A formatted message
/// can contain parts of a Kubernetes object, and kubewarm must not log objects.
fn message(payload: &(dyn std::any::Any + Send)) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("withheld: it may quote an object")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek as _, SeekFrom};

    #[test]
    fn a_formatted_panic_message_is_not_logged() {
        assert_eq!(message(&"out of ideas"), "out of ideas");
        let quoting = "password: hunter2".to_owned();
        assert!(!message(&quoting).contains("hunter2"));
    }

    fn logged(format: LogFormat, log: impl FnOnce()) -> String {
        let mut read = tempfile::tempfile().unwrap();
        let layer = fmt::layer().with_ansi(false).with_writer(read.try_clone().unwrap());
        let lines = lines(format, layer);
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, log);
        read.seek(SeekFrom::Start(0)).unwrap();
        io::read_to_string(read).unwrap()
    }

    #[test]
    fn a_json_log_line_has_its_fields_next_to_the_message() {
        let text = logged(LogFormat::Json, || tracing::warn!(objects = 3, "list\nfailed"));
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &"list\nfailed".into()));
        assert_eq!(line["objects"], 3);
        assert!(line["timestamp"].is_string());
    }

    #[test]
    fn text_logs_without_a_terminal_have_no_colours() {
        let text = logged(LogFormat::Text, || tracing::warn!(objects = 3, "list failed"));
        assert!(text.ends_with("list failed objects=3\n"), "{text:?}");
        assert!(!text.contains('\x1b'), "{text:?}");
    }

    #[test]
    fn an_invalid_filter_leaves_the_old_one() {
        // A global filter would change the log output of tests that run in parallel in this
        // process. This test therefore installs none.
        let (layer, handle) =
            reload::Layer::new(parse("info,kube_client=warn,kube_runtime=warn").unwrap());
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
