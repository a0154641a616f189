//! Prints `Table` rows for nodes, namespaces, events, configuration, RBAC, admission and flow
//! control objects.

use super::{
    age,
    json_view::{JsonView, PrintInput},
};
use serde_json::Value;
use std::{collections::BTreeSet, fmt::Write as _};

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";

pub(super) fn nodes(object: &PrintInput<'_>) -> Vec<Value> {
    let status = object.at("status");
    // As in the API server, the last condition of the type `Ready` counts, if a node has several.
    let is_ready = |condition: &JsonView<'_>| condition.at("type").text() == "Ready";
    let state = match status.at("conditions").items().rfind(is_ready) {
        Some(ready) if ready.at("status").text() == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let is_closed = object.at("spec.unschedulable").is_true();
    let state = if is_closed { format!("{state},SchedulingDisabled") } else { state.to_owned() };
    let roles = object.at("metadata.labels").entries().filter_map(|(key, value)| {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.text(),
            None => "",
        };
        (!role.is_empty()).then_some(role)
    });
    let roles = roles.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",");
    let about = |field: &str| status.at("nodeInfo").at(field);
    let address = |kind: &str| {
        let address = status.at("addresses").of_type(kind);
        address.at("address").given_or(NONE)
    };
    let mut kernel = about("kernelVersion").text_or(UNKNOWN).to_owned();
    let machine = about("architecture").text();
    if !machine.is_empty() {
        let _written = write!(kernel, " ({machine})");
    }
    vec![
        object.name(),
        state.into(),
        if roles.is_empty() { NONE.into() } else { roles.into() },
        object.age(),
        about("kubeletVersion").text().into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        about("osImage").text_or(UNKNOWN).into(),
        kernel.into(),
        about("containerRuntimeVersion").text_or(UNKNOWN).into(),
    ]
}

pub(super) fn namespaces(object: &PrintInput<'_>) -> Vec<Value> {
    vec![object.name(), object.at("status.phase").text().into(), object.age()]
}

/// Prints events of the core group and of the group `events.k8s.io`, which have different names for
/// the same fields.
pub(super) fn events(object: &PrintInput<'_>) -> Vec<Value> {
    let either = |first: &str, second: &str| match object.at(first) {
        value if value.is_set() => value,
        _ => object.at(second),
    };
    let since = |time: JsonView<'_>| age::since(time.text(), object.now);
    let first = either("firstTimestamp", "deprecatedFirstTimestamp");
    let first = since(if first.is_set() { first } else { object.at("eventTime") });
    let last = either("lastTimestamp", "deprecatedLastTimestamp");
    let last = if last.is_set() { since(last) } else { first.clone() };
    let series = object.at("series");
    let (last, count) = if series.is_set() {
        (since(series.at("lastObservedTime")), series.at("count").int())
    } else {
        let count = either("count", "deprecatedCount").int();
        (last, if count == 0 { 1 } else { count })
    };
    let about = either("involvedObject", "regarding");
    let kind = about.at("kind").text().to_lowercase();
    let subject = match about.at("name").text() {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = either("source", "deprecatedSource");
    let reporter = either("reportingComponent", "reportingController").text();
    let mut by = source.at("component").text_or(reporter).to_owned();
    let host = source.at("host").text_or(object.at("reportingInstance").text());
    if !host.is_empty() {
        let _written = write!(by, ", {host}");
    }
    vec![
        last.into(),
        object.at("type").text().into(),
        object.at("reason").text().into(),
        subject.into(),
        about.at("fieldPath").text().into(),
        by.into(),
        either("message", "note").text().trim().into(),
        first.into(),
        count.into(),
        object.name(),
    ]
}

pub(super) fn config_maps(object: &PrintInput<'_>) -> Vec<Value> {
    vec![
        object.name(),
        (object.at("data").len() + object.at("binaryData").len()).into(),
        object.age(),
    ]
}

pub(super) fn secrets(object: &PrintInput<'_>) -> Vec<Value> {
    vec![
        object.name(),
        object.at("type").text().into(),
        object.at("data").len().into(),
        object.age(),
    ]
}

/// Prints `RoleBindings` and `ClusterRoleBindings`.
pub(super) fn bindings(object: &PrintInput<'_>) -> Vec<Value> {
    let role = object.at("roleRef");
    let subjects = |kind: &str| {
        let all = object.at("subjects").items().filter(|subject| subject.at("kind").text() == kind);
        let names = all.map(|subject| match subject.at("namespace").text() {
            namespace if kind == "ServiceAccount" => {
                format!("{namespace}/{}", subject.at("name").text())
            }
            _ => subject.at("name").text().to_owned(),
        });
        Value::from(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        object.name(),
        format!("{}/{}", role.at("kind").text(), role.at("name").text()).into(),
        object.age(),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

pub(super) fn leases(object: &PrintInput<'_>) -> Vec<Value> {
    vec![object.name(), object.at("spec.holderIdentity").text().into(), object.age()]
}

pub(super) fn quotas(object: &PrintInput<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let quantity =
        |value: JsonView<'_>| if value.is_set() { value.written() } else { "0".to_owned() };
    for (resource, hard) in object.at("status.hard").entries() {
        let used = quantity(object.at("status.used").field(resource));
        let text = format!("{resource}: {used}/{}", quantity(hard));
        if resource.starts_with("limits.") { &mut limits } else { &mut requests }.push(text);
    }
    vec![object.name(), requests.join(", ").into(), limits.join(", ").into(), object.age()]
}

pub(super) fn priority_classes(object: &PrintInput<'_>) -> Vec<Value> {
    vec![
        object.name(),
        object.at("value").int().into(),
        object.at("globalDefault").is_true().into(),
        object.age(),
        object.at("preemptionPolicy").text().into(),
    ]
}

pub(super) fn runtime_classes(object: &PrintInput<'_>) -> Vec<Value> {
    vec![object.name(), object.at("handler").text().into(), object.age()]
}

pub(super) fn webhooks(object: &PrintInput<'_>) -> Vec<Value> {
    vec![object.name(), object.at("webhooks").len().into(), object.age()]
}

pub(super) fn validating_policies(object: &PrintInput<'_>) -> Vec<Value> {
    admission_policy(object, "spec.validations")
}

pub(super) fn mutating_policies(object: &PrintInput<'_>) -> Vec<Value> {
    admission_policy(object, "spec.mutations")
}

fn admission_policy(object: &PrintInput<'_>, rules: &str) -> Vec<Value> {
    let kind = object.at("spec.paramKind");
    let kind = if kind.is_set() {
        format!("{}/{}", kind.at("apiVersion").text(), kind.at("kind").text())
    } else {
        UNSET.to_owned()
    };
    vec![object.name(), object.at(rules).len().into(), kind.into(), object.age()]
}

/// Prints bindings of validating and mutating admission policies. If a binding selects its
/// parameters by label selector, the row contains `<unset>`, as in the API server.
pub(super) fn policy_bindings(object: &PrintInput<'_>) -> Vec<Value> {
    let parameter = object.at("spec.paramRef");
    let parameter = match parameter.at("name").text() {
        "" => UNSET.to_owned(),
        name => format!("{}/{name}", parameter.at("namespace").text_or("*")),
    };
    vec![object.name(), object.at("spec.policyName").text().into(), parameter.into(), object.age()]
}

pub(super) fn flow_schemas(object: &PrintInput<'_>) -> Vec<Value> {
    let spec = object.at("spec");
    let method = spec.at("distinguisherMethod");
    let dangling = object.at("status.conditions").of_type("Dangling");
    vec![
        object.name(),
        spec.at("priorityLevelConfiguration.name").text().into(),
        spec.at("matchingPrecedence").int().into(),
        if method.is_set() { method.at("type").text() } else { NONE }.into(),
        object.age(),
        if dangling.is_set() { dangling.at("status").text() } else { "?" }.into(),
    ]
}

pub(super) fn priority_levels(object: &PrintInput<'_>) -> Vec<Value> {
    let limited = object.at("spec.limited");
    let queuing = limited.at("limitResponse.queuing");
    let number = |within: JsonView<'_>, field: &str| match within {
        within if within.is_set() => Value::from(within.at(field).int()),
        _ => Value::from(NONE),
    };
    vec![
        object.name(),
        object.at("spec.type").text().into(),
        number(limited, "nominalConcurrencyShares"),
        number(queuing, "queues"),
        number(queuing, "handSize"),
        number(queuing, "queueLengthLimit"),
        object.age(),
    ]
}

pub(super) fn signing_requests(object: &PrintInput<'_>) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let has = |kind: &str| status.at("conditions").of_type(kind).is_set();
    let mut state = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !status.at("certificate").text().is_empty() {
        state.push_str(",Issued");
    }
    let lasts = spec.at("expirationSeconds");
    let lasts = if lasts.is_set() {
        age::human(jiff::SignedDuration::from_secs(lasts.int()))
    } else {
        NONE.to_owned()
    };
    vec![
        object.name(),
        object.age(),
        spec.at("signerName").text_or(NONE).into(),
        spec.at("username").text().into(),
        lasts.into(),
        state.into(),
    ]
}

pub(super) fn api_services(object: &PrintInput<'_>) -> Vec<Value> {
    let service = object.at("spec.service");
    let by = if service.is_set() {
        format!("{}/{}", service.at("namespace").text(), service.at("name").text())
    } else {
        "Local".to_owned()
    };
    let available = object.at("status.conditions").of_type("Available");
    let status = available.at("status").text_or("Unknown");
    let available = match available.at("reason").text() {
        "" => status.to_owned(),
        _ if status == "True" => status.to_owned(),
        reason => format!("{status} ({reason})"),
    };
    vec![object.name(), by.into(), available.into(), object.age()]
}
