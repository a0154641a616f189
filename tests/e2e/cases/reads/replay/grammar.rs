//! Draws random requests: all methods, paths with empty, encoded and unknown segments, and
//! parameters and headers that are valid, invalid or doubled. The same seed draws the same
//! requests.

use fastrand::Rng;

use super::authorization::Authorization;
use super::corpus::{KINDS, ReplayRequest, get};
use super::difference::Difference::{self, *};
use crate::accept::{ANY, KUBECTL, METADATA, METADATA_LIST, TABLE};

/// Permitted differences between the responses to a drawn request. The last [`OF_CHANGED_PATHS`]
/// are permitted only if the path was changed. On an unchanged path, a 400 or 421 that the API
/// server does not return is a fault.
const DIFFERENCES: &[Difference] = &[
    Ages,
    ContinueToken,
    ContinueWords,
    ExactVersion,
    FutureVersion,
    ListVersion,
    MediaTypes,
    NoNumber,
    UnusualPath,
    UnknownPath,
    Unserved,
];
const OF_CHANGED_PATHS: usize = 3;

/// Permitted differences with `--forward`, all between a store and the API server. The API server
/// itself answers each request that kubewarm's parser rejects, so the parser causes none.
const OF_STORES: &[Difference] = &[Ages, ContinueToken, ExactVersion, FutureVersion, ListVersion];
/// Methods that the Kubernetes API does not have. kubewarm rejects them also with `--forward`.
const UNKNOWN_METHODS: &[&str] = &["TRACE", "LOCK", "NONE", "get"];

const ACCEPTED: &[&str] = &[
    ANY,
    "application/json",
    "application/json;pretty=1",
    "text/html, */*;q=0.1",
    "application/vnd.kubernetes.protobuf,application/json;q=0.5",
    KUBECTL,
    TABLE,
    METADATA,
    METADATA_LIST,
];

/// The methods except GET. The token permits only reads, so that no drawn request changes an
/// object.
const METHODS: &[&str] =
    &["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "LOCK", "NONE", "get"];

const AGENTS: &[&str] = &["curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "kubectl/v1.36.4", ""];

/// Headers that name another user, or belong to one connection. The token may impersonate no user.
const HEADERS: &[(&str, &str)] = &[
    ("impersonate-user", "admin"),
    ("impersonate-group", "system:masters"),
    ("x-remote-user", "admin"),
    ("x-remote-group", "system:masters"),
    ("connection", "authorization"),
    ("te", "trailers"),
    ("transfer-encoding", "chunked"),
];

/// A parameter, and some of its values.
const PARAMETERS: &[(&str, &[&str])] = &[
    (
        "labelSelector",
        &["app%3Dweb", "app", "", "%21app", "app+in+(web,api)", "tier%3E1", "-", "app%3D%3D%3Dx"],
    ),
    (
        "fieldSelector",
        &["metadata.name%3Dred", "", "metadata.name!%3Dred", "metadata.name", "x%3Dy"],
    ),
    ("limit", &["1", "2", "0", "-1", "abc", "", "9223372036854775808"]),
    ("resourceVersion", &["", "0", "1", "abc", "-1"]),
    ("resourceVersionMatch", &["", "NotOlderThan", "Exact", "Never"]),
    ("continue", &["", "garbage"]),
    ("timeout", &["30", "30s", "0", "", "-1h", "1d", ".", "1m30"]),
    ("timeoutSeconds", &["5", "x", ""]),
    ("pretty", &["true", "false", "1", "0", "", "yes"]),
    ("sendInitialEvents", &["true", "false", ""]),
    ("includeObject", &["None", "Object", "all", ""]),
    ("watch", &["false", "0"]),
    ("dryRun", &["All", "all", ""]),
    ("unknown", &["x", "%2F", ""]),
];

/// Segments that replace or follow a segment of a path.
const SEGMENTS: &[&str] = &[
    "",
    "..",
    ".",
    "%2F",
    "%2E%2E",
    "a%2Fb",
    "a%25b",
    "%09",
    "a%0Ab",
    "A",
    "none",
    "status",
    "namespaces",
    "%C3%A9",
    "a+b",
    "a:b",
    "a.b",
];

/// Returns a request for an object or a list. Most requests are GETs with a valid token.
pub(super) fn draw(rng: &mut Rng, a: &str) -> ReplayRequest {
    let kind = &KINDS[rng.usize(..KINDS.len())];
    let namespace = ["", a, "zone", "none"][rng.usize(..4)];
    let mut path = match rng.u8(..8) {
        0 => kind.all(),
        1 if kind.is_namespaced => {
            format!("{}/namespaces/{namespace}/{}", kind.group, kind.resource)
        }
        2 if kind.is_namespaced => {
            format!("{}/namespaces/{namespace}/{}/{}", kind.group, kind.resource, kind.name)
        }
        3 => format!("{}/{}", kind.own(a), kind.name),
        4 => format!("{}/none", kind.own(a)),
        _ => kind.own(a),
    };
    let is_changed = rng.u8(..3) == 0;
    if is_changed {
        path = change(rng, &path);
    }
    let is_unusual = is_changed || namespace.is_empty();
    let permitted = DIFFERENCES.len() - if is_unusual { 0 } else { OF_CHANGED_PATHS };
    let mut parameters = Vec::new();
    for _ in 0..rng.u8(..4) {
        let (name, values) = PARAMETERS[rng.usize(..PARAMETERS.len())];
        for _ in 0..=usize::from(rng.u8(..8) == 0) {
            parameters.push(format!("{name}={}", values[rng.usize(..values.len())]));
        }
    }
    if !parameters.is_empty() {
        path = format!("{path}?{}", parameters.join("&"));
    }
    let accept = if rng.bool() { ANY } else { ACCEPTED[rng.usize(..ACCEPTED.len())] };
    let agent = rng.bool().then(|| AGENTS[rng.usize(..AGENTS.len())]);
    let mut but = DIFFERENCES[..permitted].to_vec();
    let method = if rng.u8(..10) == 0 { METHODS[rng.usize(..METHODS.len())] } else { "GET" };
    but.extend((method != "GET").then_some(OnlyReads));
    but.extend((method == "HEAD").then_some(HeadRequests));
    let others = Authorization::ALL;
    let is_other = rng.u8(..10) == 0;
    let authorization =
        if is_other { others[rng.usize(..others.len())] } else { Authorization::Token };
    but.extend(authorization.differences());
    let gzip = rng.u8(..16) == 0;
    let header = (rng.u8(..8) == 0).then(|| HEADERS[rng.usize(..HEADERS.len())]);
    but.extend(header.filter(|(name, _)| name.starts_with("impersonate-")).map(|_| Impersonation));
    ReplayRequest { method, authorization, gzip, agent, header, but, ..get(path, accept, &[]) }
}

/// Keeps only the permitted differences that can occur with `--forward`.
pub(super) fn keep_differences_of_stores(request: &mut ReplayRequest) {
    // kubewarm itself answers a request with an unknown method.
    if !UNKNOWN_METHODS.contains(&request.method) {
        request.but.retain(|difference| OF_STORES.contains(difference));
    }
}

fn change(rng: &mut Rng, path: &str) -> String {
    let mut segments: Vec<_> = path.split('/').skip(1).collect();
    let segment = SEGMENTS[rng.usize(..SEGMENTS.len())];
    // Only the segments from the third on are changed. The first segments select an API group, and
    // the API server answers paths like `/healthz` in a different form.
    let at = rng.usize(2..=segments.len());
    match rng.u8(..3) {
        // No empty segment replaces the last one: the path would then name a discovery document.
        0 if at < segments.len() && !segment.is_empty() => segments[at] = segment,
        1 => segments.push(""),
        _ => segments.insert(at, segment),
    }
    format!("/{}", segments.join("/"))
}
