//! Invalid and unusual requests: the requests of `tests/data/requests.txt` with random changes.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use proptest::{collection::vec, option, prelude::*, sample::Index};
use std::fmt;

/// A read request.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The HTTP method, such as `GET`.
    pub method: String,
    /// The path and query, percent-encoded or not.
    pub target: String,
    /// The `Accept` header, if there is one.
    pub accept: Option<String>,
}

/// Query parameters that a read API supports, and some that it does not.
pub const PARAMETERS: [&str; 16] = [
    "labelSelector",
    "fieldSelector",
    "watch",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "limit",
    "continue",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "includeObject",
    "hash",
    "dryRun",
    "pretty",
    "timeout",
    "LABELSELECTOR",
];
/// Values of parameters that are at a limit, or malformed.
const EDGES: [&str; 40] = [
    "",
    "0",
    "-0",
    "-1",
    "1",
    "00",
    "+1",
    "%2B1",
    "1e3",
    "0x10",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "NaN",
    "true",
    "False",
    "null",
    "Exact",
    "NotOlderThan",
    "None",
    "%",
    "%zz",
    "%00",
    "%0d%0aX:%20y",
    "%ff%fe",
    "%c3%28",
    "%2e%2e%2f",
    "%252e",
    "..",
    "*",
    ";",
    "%5c",
    "%5c%2c",
    "metadata.name%3D..%2F..",
    "a%20in%20%28%29",
    "%F0%9F%A6%80",
];
/// A regular expression for random texts from the characters and words of selectors, queries and
/// media types.
const SIGNS: &str = r"([a-z]|app|in|notin|metadata\.name|application/json|as=Table|[=!<>(),;&?/.*+ \\-]|%3D|%2C|%28|%29|%21|%00|%u|é|🦀){0,24}";

impl Request {
    /// Parses a line of the corpus.
    fn of(line: &str) -> Option<Self> {
        let (request, accept) = match line.split_once('|') {
            Some((request, accept)) => (request, Some(accept.trim().to_owned())),
            None => (line, None),
        };
        let (method, target) = request.trim().split_once(' ')?;
        Some(Self { method: method.to_owned(), target: target.to_owned(), accept })
    }

    /// The target without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The text after the first question mark.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }
}

/// Printed as a line of the corpus.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.target.escape_debug())?;
        match &self.accept {
            Some(accept) => write!(f, " | {}", accept.escape_debug()),
            None => Ok(()),
        }
    }
}

/// The requests of the corpus.
#[must_use]
pub fn corpus() -> Vec<Request> {
    lines().filter_map(Request::of).collect()
}

fn lines() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../../data/requests.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// One change of a request.
#[derive(Clone, Debug)]
enum RequestChange {
    /// Adds a parameter with this value, in front of an existing one.
    Parameter { name: &'static str, value: String },
    /// Replaces a segment of the path.
    Segment { at: Index, text: String },
    /// Replaces some characters of the target.
    Splice { at: Index, length: usize, text: String },
    /// Repeats a part of the target.
    Repeat { at: Index, length: usize, times: usize },
    /// Uses the query of another request.
    Query { source: Index },
    /// Uses another method.
    Method(&'static str),
    /// Uses another `Accept` header.
    Accept(Option<String>),
}

/// Requests of the corpus with up to four changes.
pub fn changed() -> impl Strategy<Value = Request> {
    let all = corpus();
    (any::<Index>(), vec(change(), 0..4)).prop_map(move |(start, changes)| {
        changes
            .into_iter()
            .fold(start.get(&all).clone(), |request, change| change.apply(request, &all))
    })
}

fn change() -> impl Strategy<Value = RequestChange> {
    let index = any::<Index>;
    let parameter = (proptest::sample::select(&PARAMETERS[..]), value())
        .prop_map(|(name, value)| RequestChange::Parameter { name, value });
    let methods = ["GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "POST", "get", "WATCH", ""];
    prop_oneof![
        8 => parameter,
        2 => (index(), value()).prop_map(|(at, text)| RequestChange::Segment { at, text }),
        3 => (index(), 0_usize..8, SIGNS)
            .prop_map(|(at, length, text)| RequestChange::Splice { at, length, text }),
        1 => (index(), 1_usize..40, 1_usize..400)
            .prop_map(|(at, length, times)| RequestChange::Repeat { at, length, times }),
        1 => index().prop_map(|source| RequestChange::Query { source }),
        1 => proptest::sample::select(methods.to_vec()).prop_map(RequestChange::Method),
        2 => option::of(prop_oneof![Just("*/*".to_owned()), SIGNS]).prop_map(RequestChange::Accept),
    ]
}

/// A value of a parameter or of a path segment.
fn value() -> impl Strategy<Value = String> {
    let encoded = |text: String| form_urlencoded::byte_serialize(text.as_bytes()).collect();
    prop_oneof![
        3 => proptest::sample::select(&EDGES[..]).prop_map(str::to_owned),
        3 => SIGNS,
        2 => SIGNS.prop_map(encoded),
        2 => token(),
        1 => ".{0,20}".prop_map(encoded),
        1 => "[a-z0-9.-]{1,80}",
    ]
}

/// Continue tokens: valid ones, and ones that only an attacker would send.
fn token() -> impl Strategy<Value = String> {
    let format =
        prop_oneof![4 => Just("meta.k8s.io/v1"), 1 => Just("meta.k8s.io/v2"), 1 => Just("")];
    let version = prop_oneof![
        Just("-1".to_owned()),
        Just("0".to_owned()),
        Just("\"5\"".to_owned()),
        Just("1e400".to_owned()),
        Just("9223372036854775808".to_owned()),
        (1..100_000_u32).prop_map(|version| version.to_string()),
    ];
    let start = r"(/?(team|kube-system|\.\.|a|é|\\u0000|\\ud800|%2F|/)){0,5}(\\u0000)?";
    let whole = (format, version, start).prop_map(|(format, version, start)| {
        format!(r#"{{"v":"{format}","rv":{version},"start":"{start}"}}"#)
    });
    let spoiled = (whole, option::weighted(0.3, any::<Index>()), any::<bool>());
    spoiled.prop_map(|(whole, cut, is_standard)| {
        let kept = cut.map_or(whole.len(), |at| at.index(whole.len()));
        let bytes = &whole.as_bytes()[..kept];
        if is_standard { STANDARD.encode(bytes) } else { URL_SAFE_NO_PAD.encode(bytes) }
    })
}

impl RequestChange {
    fn apply(self, mut request: Request, all: &[Request]) -> Request {
        match self {
            Self::Parameter { name, value } => {
                let query = request.query().unwrap_or_default();
                // The new parameter comes in front of an existing one with the same name, because
                // the first of two equal parameters counts.
                request.target = format!("{}?{name}={value}&{query}", request.path());
            }
            Self::Segment { at, text } => {
                let mut segments: Vec<_> = request.path().split('/').collect();
                let at = at.index(segments.len());
                if let Some(segment) = segments.get_mut(at) {
                    *segment = &text;
                }
                let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
                request.target = format!("{}{query}", segments.join("/"));
            }
            Self::Splice { at, length, text } => {
                let (front, rest) = parted(&request.target, at);
                let behind: String = rest.chars().skip(length).collect();
                request.target = format!("{front}{text}{behind}");
            }
            Self::Repeat { at, length, times } => {
                let (front, rest) = parted(&request.target, at);
                let part: String = rest.chars().take(length).collect();
                request.target = format!("{front}{}{rest}", part.repeat(times));
            }
            Self::Query { source } => {
                let query = source.get(all).query().unwrap_or_default();
                request.target = format!("{}?{query}", request.path());
            }
            Self::Method(method) => method.clone_into(&mut request.method),
            Self::Accept(accept) => request.accept = accept,
        }
        request
    }
}

/// Splits a text before one of its characters, or at its end.
fn parted(text: &str, at: Index) -> (&str, &str) {
    let places: Vec<_> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    text.split_at(*at.get(&places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_corpus_is_a_request() {
        let all = corpus();
        assert!(all.len() >= 30, "{} requests", all.len());
        assert_eq!(all.len(), lines().count());
        assert!(all.iter().all(|request| request.target.starts_with('/')), "{all:?}");
        assert!(all.iter().any(|request| request.accept.is_none()));
    }

    proptest! {
        #[test]
        fn a_request_is_printed_as_a_line_of_the_corpus(request in changed()) {
            let line = format!("{request:?}");
            prop_assert!(!line.contains('\n'));
        }
    }
}
