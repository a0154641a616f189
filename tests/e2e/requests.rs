//! What the operator asked an API server for, by its audit log.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::operator::NAMESPACE;

/// A request of the operator's that the API server answered.
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) resource: String,
    received: jiff::Timestamp,
    answered: jiff::Timestamp,
}

impl Request {
    /// Whether it reads everything of a cell: not the single object that shows the newest version.
    pub(crate) fn is_whole_list(&self) -> bool {
        self.verb == "list"
    }
}

/// What the operator asked for, from a part of the audit log.
pub(crate) fn requests(log: &str) -> Vec<Request> {
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // Verification and probes go on by their own clocks, whatever happens.
    let is_check = |uri: &str| {
        let is_list = uri.contains("limit=1&") || uri.ends_with("limit=1");
        let is_short = uri.rsplit_once("timeoutSeconds=").is_some_and(|(_, time)| time.len() == 1);
        is_list || is_short || uri.contains("/selfsubject")
    };
    let mine = entries.filter(|entry| {
        let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        text("/user/username") == format!("system:serviceaccount:{NAMESPACE}:kubewarm")
            && !is_check(text("/requestURI"))
    });
    let mut requests = BTreeMap::new();
    for entry in mine {
        let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let time = |pointer| text(pointer).parse::<jiff::Timestamp>().ok();
        let (Some(received), Some(answered)) =
            (time("/requestReceivedTimestamp"), time("/stageTimestamp"))
        else {
            continue;
        };
        let request = Request {
            verb: text("/verb").to_owned(),
            resource: text("/objectRef/resource").to_owned(),
            received,
            answered,
        };
        // A watch is logged when it begins and when it ends: the first is what was asked.
        requests.entry(text("/auditID").to_owned()).or_insert(request);
    }
    requests.into_values().collect()
}

/// Most of `requests` that were under way at once.
pub(crate) fn overlap(requests: &[&Request]) -> usize {
    let at = |one: &&Request| {
        requests.iter().filter(|r| r.received <= one.received && one.received < r.answered).count()
    };
    requests.iter().map(at).max().unwrap_or_default()
}
