//! Watches of the replay: every way to select the start, and invalid requests.

use super::corpus::{ReplayRequest, get};
use super::difference::Difference::{self, *};
use crate::accept::{ANY, METADATA};

/// The end of each watch: more than ten times what both servers need to send the events.
const TIMEOUT: &str = "timeoutSeconds=5";
const VERSIONS: &[&str] =
    &["", "&resourceVersion=0", "&resourceVersion=1", NOW, "&resourceVersion=99999999999"];
/// A parameter whose value NOW the replay replaces by the newest version of kubewarm's store.
pub(super) const NOW: &str = "&resourceVersion=NOW";
const INITIAL: &[&str] = &["", "&sendInitialEvents=true", "&sendInitialEvents=false"];
const NOT_OLDER_THAN: &str = "&resourceVersionMatch=NotOlderThan";
const NOT_FOR_WATCHES: &[&str] =
    &["&resourceVersionMatch=Exact", "&resourceVersionMatch=Never", "&resourceVersionMatch=exact"];

/// Further parameters of watches that both servers reject.
const REFUSED: &[&str] = &[
    "labelSelector=%3D%3D",
    "fieldSelector=data.x%3Dy",
    "timeoutSeconds=abc",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x",
    "resourceVersionMatch=Exact&continue=x",
];

/// Parameters of invalid watches, with the permitted differences.
pub(super) fn refused() -> Vec<(String, &'static [Difference])> {
    let mut all: Vec<_> = REFUSED.iter().map(|query| ((*query).to_owned(), &[][..])).collect();
    for version in ["", "&resourceVersion=0", "&resourceVersion=1", "&resourceVersion=abc"] {
        let more = |query: String| (format!("{TIMEOUT}{version}{query}"), &[][..]);
        // `resourceVersionMatch` without `sendInitialEvents`, and `sendInitialEvents` without
        // `resourceVersionMatch`.
        all.push(more(NOT_OLDER_THAN.to_owned()));
        for initial in INITIAL.iter().filter(|initial| !initial.is_empty()) {
            all.push(more((*initial).to_owned()));
            all.push(more(format!("{initial}&resourceVersionMatch=")));
        }
        for matched in NOT_FOR_WATCHES {
            all.extend(INITIAL.iter().map(|initial| more(format!("{initial}{matched}"))));
        }
    }
    for initial in INITIAL {
        let matched = if initial.is_empty() { "" } else { NOT_OLDER_THAN };
        all.push((format!("{TIMEOUT}&resourceVersion=abc{initial}{matched}"), &[NoNumber]));
    }
    all
}

/// Valid watches, which end by themselves.
pub(super) fn begun(a: &str) -> Vec<ReplayRequest> {
    let settings = format!("/api/v1/namespaces/{a}/configmaps");
    let mut all = Vec::new();
    for (path, accept) in
        [(&*settings, ANY), (&settings, METADATA), ("/apis/example.com/v1/planets", ANY)]
    {
        for version in VERSIONS {
            for initial in INITIAL {
                let matches: &[&str] = if initial.is_empty() {
                    &["", "&resourceVersionMatch="]
                } else {
                    &[NOT_OLDER_THAN]
                };
                for matched in matches {
                    let query = format!("watch=true&{TIMEOUT}{initial}{matched}{version}");
                    let bookmarks = "&allowWatchBookmarks=true";
                    let path = format!("{path}?{query}{bookmarks}");
                    all.push(get(path, accept, &[ForgottenVersion, FutureVersion]));
                }
            }
        }
    }
    all
}
