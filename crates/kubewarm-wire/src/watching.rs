//! Options of a watch: where it begins, when it ends, and whether it tells how far it has come.

use super::{
    At, Failure,
    failure::{forbidden, unsupported},
    options::{self, MATCH, NOT_OLDER_THAN, match_with_continue},
    query::{Parameter, Query},
};
use kubewarm_api::model::ResourceVersion;
use std::time::Duration;

/// What a watch is asked for beside what it selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watching {
    /// Where it begins.
    pub begin: Begin,
    /// Whether bookmarks are wanted.
    pub bookmarks: bool,
    /// When it ends; `None`: that is for the server to say. At most a year.
    pub timeout: Option<Duration>,
}

/// Where a watch begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With what there is, as if it were added then.
    State,
    /// With what happens from now on.
    Now,
    /// With what happened after this version, which may be of the future.
    After(ResourceVersion),
}

/// As long as nobody watches without asking anew.
const LONGEST: u64 = 365 * 24 * 60 * 60;

/// How new what it begins with has to be, and the rest.
///
/// # Errors
///
/// 422 for what does not go together; 400 for what is no version.
pub(super) fn of(query: &Query, timeout: Option<i64>) -> Result<(At, Watching), Failure> {
    check(query)?;
    let given = query.text(Parameter::ResourceVersion);
    let version = options::version(given)?;
    let initial = query.given(Parameter::SendInitialEvents);
    // Without a word about it, the state comes first where no version is given.
    let wants_state = initial.map(|_| query.is_set(Parameter::SendInitialEvents));
    let (at, begin) = match (version, wants_state) {
        (None, Some(true) | None) => (At::Latest, Begin::State),
        (Some(0), Some(true) | None) => (At::Any, Begin::State),
        (Some(version), Some(true)) => (At::NotOlderThan(version.into()), Begin::State),
        (None, Some(false)) => (At::Latest, Begin::Now),
        (Some(0), Some(false)) => (At::Any, Begin::Now),
        (Some(version), Some(false) | None) => (At::Any, Begin::After(version.into())),
    };
    // As with the API server, 0 is no timeout, and what is over before it began ends at once.
    let timeout = timeout.filter(|seconds| *seconds != 0);
    let timeout =
        timeout.map(|it| Duration::from_secs(u64::try_from(it).unwrap_or(0).min(LONGEST)));
    let bookmarks = query.is_set(Parameter::AllowWatchBookmarks);
    Ok((at, Watching { begin, bookmarks, timeout }))
}

/// `validateWatchOptions` of apimachinery.
fn check(query: &Query) -> Result<(), Failure> {
    let matched = query.text(Parameter::ResourceVersionMatch);
    let is_matched = !matched.is_empty();
    let is_initial_given = query.given(Parameter::SendInitialEvents).is_some();
    Failure::check_options([
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

    fn read(query: &str) -> Result<(At, Watching), Failure> {
        of(&Query::parse(Some(query)).unwrap(), None)
    }

    #[test]
    fn a_watch_begins_where_it_does_with_the_api_server() {
        let initial = "resourceVersionMatch=NotOlderThan&sendInitialEvents";
        for (query, at, begin) in [
            (String::new(), At::Latest, Begin::State),
            ("resourceVersion=0".into(), At::Any, Begin::State),
            ("resourceVersion=7".into(), At::Any, Begin::After(7.into())),
            (format!("{initial}=true"), At::Latest, Begin::State),
            (format!("{initial}=1&resourceVersion=0"), At::Any, Begin::State),
            (format!("{initial}=true&resourceVersion=7"), At::NotOlderThan(7.into()), Begin::State),
            (format!("{initial}=false"), At::Latest, Begin::Now),
            (format!("{initial}=0&resourceVersion=0"), At::Any, Begin::Now),
            (format!("{initial}=false&resourceVersion=7"), At::Any, Begin::After(7.into())),
        ] {
            let (is_at, watching) = read(&query).unwrap();
            assert_eq!((is_at, watching.begin), (at, begin), "{query}");
            assert!(!watching.bookmarks);
        }
        assert!(read("allowWatchBookmarks=true").unwrap().1.bookmarks);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
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
    fn a_timeout_is_of_seconds_and_none_where_it_is_nothing() {
        let query = Query::parse(None).unwrap();
        let read = |timeout| of(&query, timeout).unwrap().1.timeout;
        assert_eq!(read(None), None);
        assert_eq!(read(Some(0)), None);
        assert_eq!(read(Some(-1)), Some(Duration::ZERO));
        assert_eq!(read(Some(290)), Some(Duration::from_secs(290)));
        assert_eq!(read(Some(i64::MAX)), Some(Duration::from_secs(LONGEST)));
    }
}
