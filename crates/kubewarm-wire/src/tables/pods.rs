//! Prints pods. Computes a pod's status from the states of its containers.

use super::{
    age,
    json_view::{JsonView, PrintInput},
};
use jiff::Timestamp;
use serde_json::{Value, json};

const NONE: &str = "<none>";

/// The number of restarts of containers, and the time of the last restart.
#[derive(Clone, Copy, Debug, Default)]
struct ContainerRestarts {
    count: i64,
    last: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct ContainerSummary {
    ready: i64,
    reason: String,
    restarts: ContainerRestarts,
}

impl ContainerRestarts {
    fn add(&mut self, container: JsonView<'_>) {
        self.count += container.at("restartCount").int();
        let finished = container.at("lastState.terminated.finishedAt").text().parse().ok();
        self.last = self.last.max(finished);
    }
}

pub(super) fn pods(object: &PrintInput<'_>) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let restartable = restartable(spec);
    let total = spec.at("containers").len() + i64::try_from(restartable.len()).unwrap_or_default();
    let ContainerSummary { ready, mut reason, restarts } = sum(object, &restartable);
    if object.is_going() {
        let is_over = matches!(status.at("phase").text(), "Succeeded" | "Failed");
        if status.at("reason").text() == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !is_over {
            "Terminating".clone_into(&mut reason);
        }
    }
    let restarts = match restarts {
        ContainerRestarts { count, last: Some(last) } if count != 0 => {
            format!("{count} ({} ago)", age::human(object.now.duration_since(last)))
        }
        ContainerRestarts { count, .. } => count.to_string(),
    };
    let address =
        status.at("podIPs").items().next().unwrap_or(JsonView(None)).at("ip").text_or(NONE);
    vec![
        object.name(),
        format!("{ready}/{total}").into(),
        reason.into(),
        restarts.into(),
        object.age(),
        address.into(),
        spec.at("nodeName").text_or(NONE).into(),
        status.at("nominatedNodeName").text_or(NONE).into(),
        gates(spec, status).into(),
    ]
}

/// Returns the `conditions` of a table row, which mark the row of a finished pod; `None` for a pod
/// that has neither succeeded nor failed.
pub(super) fn conditions(phase: &str) -> Option<Value> {
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

/// Returns the names of a pod's sidecars: init containers with the restart policy `Always`.
fn restartable(spec: JsonView<'_>) -> Vec<&str> {
    let all = spec.at("initContainers").items();
    let kept = all.filter(|container| container.at("restartPolicy").text() == "Always");
    kept.map(|container| container.at("name").text()).collect()
}

fn sum(object: &PrintInput<'_>, restartable: &[&str]) -> ContainerSummary {
    let status = object.at("status");
    let conditions = status.at("conditions");
    let mut sum = ContainerSummary::default();
    status.at("reason").text_or(status.at("phase").text()).clone_into(&mut sum.reason);
    let is_gated = conditions.items().any(|condition| {
        condition.at("type").text() == "PodScheduled"
            && condition.at("reason").text() == "SchedulingGated"
    });
    if is_gated {
        "SchedulingGated".clone_into(&mut sum.reason);
    }
    let (is_initializing, of_sidecars) = initialize(object, restartable, &mut sum);
    if !is_initializing || conditions.of_type("Initialized").at("status").text() == "True" {
        sum.restarts = of_sidecars;
        run(status, &mut sum);
    }
    sum
}

/// Adds a pod's init containers to `sum`, up to the first init container that still blocks the
/// start of the next container. Returns whether an init container blocks, and the restarts of the
/// sidecars.
fn initialize(
    object: &PrintInput<'_>,
    restartable: &[&str],
    sum: &mut ContainerSummary,
) -> (bool, ContainerRestarts) {
    let mut of_sidecars = ContainerRestarts::default();
    let total = object.at("spec.initContainers").len();
    for (number, container) in object.at("status.initContainerStatuses").items().enumerate() {
        sum.restarts.add(container);
        let is_sidecar = restartable.contains(&container.at("name").text());
        if is_sidecar {
            of_sidecars.add(container);
        }
        let ended = container.at("state.terminated");
        if ended.is_set() && ended.at("exitCode").int() == 0 {
            continue;
        }
        if is_sidecar && container.at("started").is_true() {
            sum.ready += i64::from(container.at("ready").is_true());
            continue;
        }
        let waiting = container.at("state.waiting.reason").text();
        sum.reason = if ended.is_set() {
            format!("Init:{}", end(ended))
        } else if !matches!(waiting, "" | "PodInitializing") {
            format!("Init:{waiting}")
        } else {
            format!("Init:{number}/{total}")
        };
        return (true, of_sidecars);
    }
    (false, of_sidecars)
}

/// Adds a pod's containers to `sum`, from the last to the first. Each container overwrites the
/// reason, so the first container's reason remains, as in the API server.
fn run(status: JsonView<'_>, sum: &mut ContainerSummary) {
    let mut is_running = false;
    let mut failure = None;
    for container in status.at("containerStatuses").items().rev() {
        sum.restarts.add(container);
        let waiting = container.at("state.waiting.reason").text();
        let ended = container.at("state.terminated");
        if !waiting.is_empty() {
            waiting.clone_into(&mut sum.reason);
        } else if ended.is_set() {
            sum.reason = end(ended);
            if ended.at("exitCode").int() != 0 {
                failure = Some(sum.reason.clone());
            }
        } else if container.at("ready").is_true() && container.at("state.running").is_set() {
            is_running = true;
            sum.ready += 1;
        }
    }
    if sum.reason == "Completed" {
        let is_ready = status.at("conditions").items().any(|condition| {
            condition.at("type").text() == "Ready" && condition.at("status").text() == "True"
        });
        if is_running && is_ready {
            "Running".clone_into(&mut sum.reason);
        } else if let Some(failure) = failure {
            sum.reason = failure;
        } else if is_running {
            "NotReady".clone_into(&mut sum.reason);
        }
    }
}

/// Returns the reason why a container terminated. Without a reason, returns the container's signal
/// or exit code.
fn end(ended: JsonView<'_>) -> String {
    match (ended.at("reason").text(), ended.at("signal").int()) {
        ("", 0) => format!("ExitCode:{}", ended.at("exitCode").int()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Returns how many readiness gates of a pod are true, and how many it has, such as `1/2`.
fn gates(spec: JsonView<'_>, status: JsonView<'_>) -> String {
    let gates = spec.at("readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let is_open = |gate: &JsonView<'_>| {
        let condition = status.at("conditions").of_type(gate.at("conditionType").text());
        condition.at("status").text() == "True"
    };
    format!("{}/{}", gates.items().filter(is_open).count(), gates.len())
}
