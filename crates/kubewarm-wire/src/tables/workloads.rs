use super::{
    age,
    json_view::{JsonView, PrintInput},
    selectors::{containers, first_of, labels, selector},
};
use jiff::Timestamp;
use serde_json::Value;

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";
/// Maximum number of metrics in the `Targets` cell of an autoscaler, as in the API server. If there
/// are more, the cell ends with the number of omitted metrics.
const MAX_METRICS: usize = 2;

pub(super) fn deployments(object: &PrintInput<'_>) -> Vec<Value> {
    let status = object.at("status");
    let [names, images] = containers(object.at("spec.template.spec"));
    let selector = selector(object.at("spec.selector"));
    vec![
        object.name(),
        format!("{}/{}", status.at("readyReplicas").int(), object.at("spec.replicas").int()).into(),
        status.at("updatedReplicas").int().into(),
        status.at("availableReplicas").int().into(),
        object.age(),
        names.into(),
        images.into(),
        // The API server prints an empty text, not `<none>`, for a deployment without a selector.
        selector.strip_prefix(NONE).unwrap_or(&selector).into(),
    ]
}

/// Prints `ReplicaSets`.
pub(super) fn replicas(object: &PrintInput<'_>) -> Vec<Value> {
    replicated(object, selector(object.at("spec.selector")))
}

/// Prints `ReplicationControllers`, whose selectors are plain labels.
pub(super) fn controllers(object: &PrintInput<'_>) -> Vec<Value> {
    replicated(object, labels(object.at("spec.selector")))
}

fn replicated(object: &PrintInput<'_>, selector: String) -> Vec<Value> {
    let [names, images] = containers(object.at("spec.template.spec"));
    vec![
        object.name(),
        object.at("spec.replicas").int().into(),
        object.at("status.replicas").int().into(),
        object.at("status.readyReplicas").int().into(),
        object.age(),
        names.into(),
        images.into(),
        selector.into(),
    ]
}

pub(super) fn stateful_sets(object: &PrintInput<'_>) -> Vec<Value> {
    let [names, images] = containers(object.at("spec.template.spec"));
    let (ready, all) = (object.at("status.readyReplicas").int(), object.at("spec.replicas").int());
    vec![object.name(), format!("{ready}/{all}").into(), object.age(), names.into(), images.into()]
}

pub(super) fn daemon_sets(object: &PrintInput<'_>) -> Vec<Value> {
    let status = |field: &str| Value::from(object.at("status").at(field).int());
    let [names, images] = containers(object.at("spec.template.spec"));
    vec![
        object.name(),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        labels(object.at("spec.template.spec.nodeSelector")).into(),
        object.age(),
        names.into(),
        images.into(),
        selector(object.at("spec.selector")).into(),
    ]
}

pub(super) fn pod_templates(object: &PrintInput<'_>) -> Vec<Value> {
    let [names, images] = containers(object.at("template.spec"));
    vec![
        object.name(),
        names.into(),
        images.into(),
        labels(object.at("template.metadata.labels")).into(),
    ]
}

pub(super) fn controller_revisions(object: &PrintInput<'_>) -> Vec<Value> {
    let mut owners = object.at("metadata.ownerReferences").items();
    let owner = owners.find(|owner| owner.at("controller").is_true()).map(|owner| {
        let kind = owner.at("kind").text();
        let kind = match owner.at("apiVersion").text().split_once('/') {
            Some((group, _)) => format!("{kind}.{group}"),
            None => kind.to_owned(),
        };
        format!("{}/{}", kind.to_lowercase(), owner.at("name").text())
    });
    let owner = owner.unwrap_or_else(|| NONE.to_owned());
    vec![object.name(), owner.into(), object.at("revision").int().into(), object.age()]
}

pub(super) fn jobs(object: &PrintInput<'_>) -> Vec<Value> {
    let (spec, status) = (object.at("spec"), object.at("status"));
    let done = status.at("succeeded").int();
    let parallel = spec.at("parallelism").int();
    let completions = if spec.at("completions").is_set() {
        format!("{done}/{}", spec.at("completions").int())
    } else if parallel > 1 {
        format!("{done}/1 of {parallel}")
    } else {
        format!("{done}/1")
    };
    let time = |field: &str| status.at(field).text().parse::<Timestamp>().ok();
    let took = time("startTime")
        .map(|from| age::human(time("completionTime").unwrap_or(object.now).duration_since(from)));
    let is = |kind: &str| status.at("conditions").of_type(kind).at("status").text() == "True";
    let state = match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if object.is_going() => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let [names, images] = containers(spec.at("template.spec"));
    vec![
        object.name(),
        state.into(),
        completions.into(),
        took.unwrap_or_default().into(),
        object.age(),
        names.into(),
        images.into(),
        selector(spec.at("selector")).into(),
    ]
}

pub(super) fn cron_jobs(object: &PrintInput<'_>) -> Vec<Value> {
    let spec = object.at("spec");
    let last = "status.lastScheduleTime";
    let last = if object.at(last).is_set() { object.since(last) } else { NONE.to_owned() };
    let suspended = match spec.at("suspend") {
        given if !given.is_set() => UNSET,
        given if given.is_true() => "True",
        _ => "False",
    };
    let [names, images] = containers(spec.at("jobTemplate.spec.template.spec"));
    vec![
        object.name(),
        spec.at("schedule").text().into(),
        spec.at("timeZone").given_or(NONE).into(),
        suspended.into(),
        object.at("status.active").len().into(),
        last.into(),
        object.age(),
        names.into(),
        images.into(),
        selector(spec.at("jobTemplate.spec.selector")).into(),
    ]
}

pub(super) fn disruption_budgets(object: &PrintInput<'_>) -> Vec<Value> {
    let given = |path: &str| match object.at(path) {
        given if given.is_set() => given.written(),
        _ => "N/A".to_owned(),
    };
    vec![
        object.name(),
        given("spec.minAvailable").into(),
        given("spec.maxUnavailable").into(),
        object.at("status.disruptionsAllowed").int().into(),
        object.age(),
    ]
}

pub(super) fn resource_claims(object: &PrintInput<'_>) -> Vec<Value> {
    let status = object.at("status");
    let state = match (status.at("allocation").is_set(), object.is_going()) {
        (false, false) => "pending",
        (false, true) => "deleted",
        (true, _) if status.at("reservedFor").is_empty() => "allocated",
        (true, _) => "allocated,reserved",
    };
    let state = match (status.at("allocation").is_set(), object.is_going()) {
        (true, true) => format!("deleted,{state}"),
        _ => state.to_owned(),
    };
    vec![object.name(), state.into(), object.age()]
}

pub(super) fn resource_slices(object: &PrintInput<'_>) -> Vec<Value> {
    let spec = |path: &str| Value::from(object.at("spec").at(path).text());
    vec![object.name(), spec("nodeName"), spec("driver"), spec("pool.name"), object.age()]
}

/// Prints `HorizontalPodAutoscalers` of `autoscaling/v2`.
pub(super) fn autoscalers(object: &PrintInput<'_>) -> Vec<Value> {
    let spec = object.at("spec");
    let target = spec.at("scaleTargetRef");
    let fewest = spec.at("minReplicas");
    let fewest = if fewest.is_set() { fewest.written() } else { UNSET.to_owned() };
    vec![
        object.name(),
        format!("{}/{}", target.at("kind").text(), target.at("name").text()).into(),
        metrics(spec.at("metrics"), object.at("status.currentMetrics")).into(),
        fewest.into(),
        spec.at("maxReplicas").int().into(),
        object.at("status.currentReplicas").int().into(),
        object.age(),
    ]
}

fn metrics(spec: JsonView<'_>, current: JsonView<'_>) -> String {
    if spec.is_empty() {
        return NONE.to_owned();
    }
    let all = spec
        .items()
        .enumerate()
        .map(|(number, spec)| metric(spec, current.items().nth(number).unwrap_or(JsonView(None))));
    first_of(&all.collect::<Vec<_>>(), MAX_METRICS, ", ")
}

/// Formats an autoscaler's metric with its current value and its target, such as `cpu: 7%/80%`.
fn metric(spec: JsonView<'_>, current: JsonView<'_>) -> String {
    let quantity =
        |value: JsonView<'_>| if value.is_set() { value.written() } else { "0".to_owned() };
    let or_unknown =
        |value: JsonView<'_>| if value.is_set() { value.written() } else { UNKNOWN.to_owned() };
    let percent = |value: JsonView<'_>, other: &str| match value {
        value if value.is_set() => format!("{}%", value.int()),
        _ => other.to_owned(),
    };
    let kind = spec.at("type").text();
    let (field, is_named) = match kind {
        "External" => ("external", false),
        "Object" => ("object", false),
        "Pods" => ("pods", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, current) = (spec.at(field), current.at(field));
    let (target, now) = (spec.at("target"), current.at("current"));
    let of_average = target.at("averageValue");
    if is_named {
        let name = spec.at("name").text();
        if of_average.is_set() {
            let is = or_unknown(now.at("averageValue"));
            return format!("{name}: {is}/{}", of_average.written());
        }
        let is = percent(now.at("averageUtilization"), UNKNOWN);
        return format!("{name}: {is}/{}", percent(target.at("averageUtilization"), "<auto>"));
    }
    if kind == "Pods" {
        let is = if current.is_set() { quantity(now.at("averageValue")) } else { UNKNOWN.into() };
        return format!("{is}/{}", quantity(of_average));
    }
    if of_average.is_set() {
        let is = or_unknown(now.at("averageValue"));
        return format!("{is}/{} (avg)", of_average.written());
    }
    let is = if current.is_set() { quantity(now.at("value")) } else { UNKNOWN.into() };
    format!("{is}/{}", quantity(target.at("value")))
}
