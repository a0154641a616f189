//! The operator's requests in the audit log of an API server.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::operator::NAMESPACE;

/// An answered request of the operator.
pub(crate) struct OperatorRequest {
    pub(crate) verb: String,
    pub(crate) resource: String,
    received: jiff::Timestamp,
    answered: jiff::Timestamp,
}

impl OperatorRequest {
    /// Returns whether the request is an informer's list of all its objects. Reads of a single
    /// object's version are lists too, but do not count.
    pub(crate) fn is_whole_list(&self) -> bool {
        self.verb == "list"
    }
}

/// Parses the operator's requests in a part of the audit log.
pub(crate) fn requests(log: &str) -> Vec<OperatorRequest> {
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // Access checks and freshness checks are left out: they run at their own times, so no test can
    // expect a number of them.
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
        let request = OperatorRequest {
            verb: text("/verb").to_owned(),
            resource: text("/objectRef/resource").to_owned(),
            received,
            answered,
        };
        // The audit log contains two entries for a watch. The first entry has the time of the
        // request.
        requests.entry(text("/auditID").to_owned()).or_insert(request);
    }
    requests.into_values().collect()
}

/// The largest number of `requests` that ran at the same time.
pub(crate) fn overlap(requests: &[&OperatorRequest]) -> usize {
    let at = |one: &&OperatorRequest| {
        requests.iter().filter(|r| r.received <= one.received && one.received < r.answered).count()
    };
    requests.iter().map(at).max().unwrap_or_default()
}
