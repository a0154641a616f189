//! The requests of users in the API server's audit log.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use serde_json::Value;

use crate::object::text;
use crate::world::{Failure, NodeWorld};

/// The kinds that the programs list and watch.
const DECLARED: [&str; 9] = [
    "certificaterequests",
    "certificates",
    "clusterissuers",
    "configmaps",
    "issuers",
    "nodes",
    "pods",
    "sealedsecrets",
    "secrets",
];

/// A position in the audit log, from which on requests count.
#[derive(Clone, Copy)]
pub(crate) struct AuditMark(usize);

impl AuditMark {
    /// The end of the audit log.
    pub(crate) fn now(world: &NodeWorld) -> Result<Self, Failure> {
        Ok(Self(fs::read(world.cluster().audit_log())?.len()))
    }
}

/// A request that the API server has answered.
pub(crate) struct LoggedRequest {
    pub(crate) verb: String,
    /// With its subresource, for instance `pods/log`. Empty if there is none.
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) code: u64,
    /// With its query.
    pub(crate) path: String,
    /// Whether kubewarm itself sent the request, to fill its stores with this user's permissions.
    pub(crate) fills_stores: bool,
}

impl LoggedRequest {
    /// Whether a program read these objects at the API server, and not from kubewarm.
    fn is_read(&self) -> bool {
        ["get", "list", "watch"].contains(&self.verb.as_str())
            && DECLARED.contains(&self.resource.as_str())
            && !self.fills_stores
    }
}

/// The number of requests for each verb and resource.
pub(crate) struct RequestTally(BTreeMap<String, usize>);

impl fmt::Display for RequestTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.iter().map(|(request, count)| format!("{count} {request}"));
        f.write_str(&lines.collect::<Vec<_>>().join(", "))
    }
}

impl RequestTally {
    pub(crate) fn of(requests: &[LoggedRequest]) -> Self {
        let mut counts = BTreeMap::new();
        for LoggedRequest { verb, resource, fills_stores, .. } in requests {
            let sender = if *fills_stores { " by kubewarm" } else { "" };
            *counts.entry(format!("{verb} {resource}{sender}")).or_default() += 1;
        }
        Self(counts)
    }
}

/// The requests of users whose name starts with `user`. A watch counts once it is open.
pub(crate) fn requests(
    world: &NodeWorld,
    user: &str,
    since: AuditMark,
) -> Result<Vec<LoggedRequest>, Failure> {
    let log = fs::read(world.cluster().audit_log())?;
    let log = String::from_utf8_lossy(log.get(since.0..).unwrap_or_default());
    let mut requests = Vec::new();
    // The last line can be incomplete.
    for entry in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let verb = text(&entry, "/verb");
        // A watch that ends has two entries, and can have begun before the mark.
        let stage = if verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        let user_name = text(&entry, "/user/username");
        if !user_name.starts_with(user) || text(&entry, "/stage") != stage {
            continue;
        }
        let subresource = text(&entry, "/objectRef/subresource");
        let separator = if subresource.is_empty() { "" } else { "/" };
        let resource = text(&entry, "/objectRef/resource");
        requests.push(LoggedRequest {
            verb: verb.to_owned(),
            resource: format!("{resource}{separator}{subresource}"),
            name: text(&entry, "/objectRef/name").to_owned(),
            path: text(&entry, "/requestURI").to_owned(),
            fills_stores: text(&entry, "/userAgent").starts_with("kubewarm/"),
            code: entry["responseStatus"]["code"].as_u64().unwrap_or_default(),
        });
    }
    Ok(requests)
}

/// Checks that no object of this resource was created twice, and none was deleted. The caller has
/// checked that all exist.
///
/// A killed API server can have stored an object and not yet logged its creation. So no logged
/// creation is no error.
#[track_caller]
pub(crate) fn assert_created_once(
    requests: &[LoggedRequest],
    resource: &str,
    names: impl IntoIterator<Item = String>,
) {
    let of = |verb| {
        requests.iter().filter(move |request| {
            request.verb == verb && request.resource == resource && request.code < 300
        })
    };
    for name in names {
        let created = of("create").filter(|request| request.name == name).count();
        assert!(created <= 1, "{created} creations of {resource} {name}");
    }
    assert_eq!(of("delete").count(), 0, "no {resource} was deleted");
}

/// Checks that no program read objects of declared kinds at the API server.
#[track_caller]
pub(crate) fn assert_no_reads(requests: &[LoggedRequest]) {
    let reads = requests.iter().filter(|request| request.is_read());
    let reads: Vec<_> = reads.map(|read| format!("{} {}", read.verb, read.path)).collect();
    assert_eq!(reads, [""; 0], "kubewarm serves these reads");
}
