//! Parses the options of a watch: its first events, its timeout and its bookmarks.

use super::{
    StatusError, VersionMatch,
    options::{self, MATCH, NOT_OLDER_THAN, match_with_continue},
    query_parameters::{QueryParameter, QueryParameters},
    status_error::{forbidden, unsupported},
};
use kubewarm_api::model::ResourceVersion;
use std::time::Duration;

/// The options of a watch, except its selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// The first events of the watch.
    pub start: WatchStart,
    /// Whether the client accepts bookmarks (`allowWatchBookmarks`).
    pub has_bookmarks: bool,
    /// Duration after which the watch ends, at most a year. With `None`, kubewarm chooses the
    /// duration.
    pub timeout: Option<Duration>,
}

/// The first events of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// The watch sends the current objects as `ADDED` events, then changes.
    State,
    /// The watch sends only changes after its start, and not the current objects.
    Now,
    /// The watch sends the changes after this resource version. If no store has reached the version
    /// yet, the request waits until one has.
    After(ResourceVersion),
}

/// Maximum timeout of a watch, in seconds: one year. kubewarm reduces a longer timeout to one year.
const LONGEST: u64 = 365 * 24 * 60 * 60;

/// Parses the options of a watch, and the resource version that its initial objects must have
/// (`resourceVersion`). `timeout` is the value of `timeoutSeconds`.
///
/// # Errors
///
/// - 422 for options that exclude each other
/// - 400 if `resourceVersion` is not a number
pub(super) fn parse(
    query: &QueryParameters,
    timeout: Option<i64>,
) -> Result<(VersionMatch, WatchOptions), StatusError> {
    check(query)?;
    let given = query.text(QueryParameter::ResourceVersion);
    let version = options::version(given)?;
    let initial = query.given(QueryParameter::SendInitialEvents);
    // Without `sendInitialEvents`, a watch sends the current objects first if `resourceVersion` is
    // absent or 0.
    let wants_state = initial.map(|_| query.is_set(QueryParameter::SendInitialEvents));
    let (at, begin) = match (version, wants_state) {
        (None, Some(true) | None) => (VersionMatch::Latest, WatchStart::State),
        (Some(0), Some(true) | None) => (VersionMatch::Any, WatchStart::State),
        (Some(version), Some(true)) => {
            (VersionMatch::NotOlderThan(version.into()), WatchStart::State)
        }
        (None, Some(false)) => (VersionMatch::Latest, WatchStart::Now),
        (Some(0), Some(false)) => (VersionMatch::Any, WatchStart::Now),
        (Some(version), Some(false) | None) => {
            (VersionMatch::Any, WatchStart::After(version.into()))
        }
    };
    // As in the API server, a timeout of 0 means no timeout, and a watch with a negative timeout
    // ends immediately.
    let timeout = timeout.filter(|seconds| *seconds != 0);
    let timeout = timeout
        .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(LONGEST)));
    let has_bookmarks = query.is_set(QueryParameter::AllowWatchBookmarks);
    Ok((at, WatchOptions { start: begin, has_bookmarks, timeout }))
}

/// Checks the rules of `validateWatchOptions` in apimachinery.
fn check(query: &QueryParameters) -> Result<(), StatusError> {
    let matched = query.text(QueryParameter::ResourceVersionMatch);
    let is_matched = !matched.is_empty();
    let is_initial_given = query.given(QueryParameter::SendInitialEvents).is_some();
    StatusError::check_options([
        (is_initial_given && matched != NOT_OLDER_THAN).then(|| {
            forbidden(
                MATCH,
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        }),
        (is_matched && !is_initial_given).then(|| {
            forbidden(
                MATCH,
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                 provided",
            )
        }),
        (is_matched && matched != NOT_OLDER_THAN)
            .then(|| unsupported(MATCH, matched, r#""NotOlderThan""#)),
        match_with_continue(query),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<(VersionMatch, WatchOptions), StatusError> {
        parse(&QueryParameters::parse(Some(query)).unwrap(), None)
    }

    #[test]
    fn a_watch_starts_with_the_same_events_as_in_the_api_server() {
        let initial = "resourceVersionMatch=NotOlderThan&sendInitialEvents";
        for (query, at, begin) in [
            (String::new(), VersionMatch::Latest, WatchStart::State),
            ("resourceVersion=0".into(), VersionMatch::Any, WatchStart::State),
            ("resourceVersion=7".into(), VersionMatch::Any, WatchStart::After(7.into())),
            (format!("{initial}=true"), VersionMatch::Latest, WatchStart::State),
            (format!("{initial}=1&resourceVersion=0"), VersionMatch::Any, WatchStart::State),
            (
                format!("{initial}=true&resourceVersion=7"),
                VersionMatch::NotOlderThan(7.into()),
                WatchStart::State,
            ),
            (format!("{initial}=false"), VersionMatch::Latest, WatchStart::Now),
            (format!("{initial}=0&resourceVersion=0"), VersionMatch::Any, WatchStart::Now),
            (
                format!("{initial}=false&resourceVersion=7"),
                VersionMatch::Any,
                WatchStart::After(7.into()),
            ),
        ] {
            let (is_at, watching) = read(&query).unwrap();
            assert_eq!((is_at, watching.start), (at, begin), "{query}");
            assert!(!watching.has_bookmarks);
        }
        assert!(read("allowWatchBookmarks=true").unwrap().1.has_bookmarks);
    }

    #[test]
    fn options_that_exclude_each_other_are_rejected() {
        for query in [
            "sendInitialEvents=true",
            "sendInitialEvents=false&resourceVersion=1",
            "sendInitialEvents=true&resourceVersionMatch=Exact",
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch=NotOlderThan&resourceVersion=1",
        ] {
            assert_eq!(read(query).unwrap_err().code(), 422, "{query}");
        }
        assert_eq!(read("resourceVersion=abc").unwrap_err().code(), 400);
    }

    #[test]
    fn a_timeout_is_in_seconds_and_0_means_none() {
        let query = QueryParameters::parse(None).unwrap();
        let read = |timeout| parse(&query, timeout).unwrap().1.timeout;
        assert_eq!(read(None), None);
        assert_eq!(read(Some(0)), None);
        assert_eq!(read(Some(-1)), Some(Duration::ZERO));
        assert_eq!(read(Some(290)), Some(Duration::from_secs(290)));
        assert_eq!(read(Some(i64::MAX)), Some(Duration::from_secs(LONGEST)));
    }
}
