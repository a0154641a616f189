use super::{
    json_view::{JsonView, PrintInput},
    selectors::{first_of, labels, selector},
};
use serde_json::Value;
use std::collections::BTreeSet;

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
/// Maximum number of addresses, ports or hosts in a cell, as in the API server. If an object has
/// more, the cell ends with the number of omitted ones, such as `+ 2 more...`.
const MAX: usize = 3;

pub(super) fn services(object: &PrintInput<'_>) -> Vec<Value> {
    let spec = object.at("spec");
    let address = spec.at("clusterIPs").items().next().map_or(NONE, JsonView::text);
    let ports = spec.at("ports").items().map(|port| {
        let (number, protocol) = (port.at("port").int(), port.at("protocol").text());
        match port.at("nodePort").int() {
            node if node > 0 => format!("{number}:{node}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    let ports = ports.collect::<Vec<_>>().join(",");
    vec![
        object.name(),
        spec.at("type").text().into(),
        address.into(),
        external(object).into(),
        if ports.is_empty() { NONE.into() } else { ports.into() },
        object.age(),
        labels(spec.at("selector")).into(),
    ]
}

fn external(object: &PrintInput<'_>) -> String {
    let spec = object.at("spec");
    let external = spec.at("externalIPs").joined(",");
    match spec.at("type").text() {
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => {
            let balanced = balanced(object);
            match (balanced.is_empty(), external.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (true, false) => external,
                (false, true) => balanced,
                (false, false) => format!("{balanced},{external}"),
            }
        }
        "ExternalName" => spec.at("externalName").text().to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Returns the addresses of a service's or ingress's load balancer, sorted, without duplicates,
/// joined with commas.
fn balanced(object: &PrintInput<'_>) -> String {
    let all = object.at("status.loadBalancer.ingress").items();
    let all = all.map(|ingress| ingress.at("ip").text_or(ingress.at("hostname").text()));
    let all: BTreeSet<_> = all.filter(|address| !address.is_empty()).collect();
    all.into_iter().collect::<Vec<_>>().join(",")
}

pub(super) fn ingresses(object: &PrintInput<'_>) -> Vec<Value> {
    let spec = object.at("spec");
    let is_encrypted = !spec.at("tls").is_empty();
    vec![
        object.name(),
        spec.at("ingressClassName").given_or(NONE).into(),
        hosts(spec.at("rules")).into(),
        balanced(object).into(),
        if is_encrypted { "80, 443" } else { "80" }.into(),
        object.age(),
    ]
}

fn hosts(rules: JsonView<'_>) -> String {
    let mut hosts = Vec::new();
    let mut has_more = false;
    for rule in rules.items() {
        has_more |= hosts.len() == MAX;
        let host = rule.at("host").text();
        if !has_more && !host.is_empty() {
            hosts.push(host);
        }
    }
    let all = hosts.join(",");
    match (hosts.is_empty(), has_more) {
        (true, _) => "*".to_owned(),
        (false, false) => all,
        // As in the API server, the number of omitted hosts also counts the ingress's rules without
        // a host.
        (false, true) => format!("{all} + {} more...", rules.items().len().saturating_sub(MAX)),
    }
}

pub(super) fn ingress_classes(object: &PrintInput<'_>) -> Vec<Value> {
    let is_default =
        object.annotation("ingressclass.kubernetes.io/is-default-class").text() == "true";
    let of_parameters = object.at("spec.parameters");
    let parameters = if of_parameters.is_set() {
        let kind = of_parameters.at("kind").text();
        let name = of_parameters.at("name").text();
        match of_parameters.at("apiGroup") {
            group if group.is_set() => format!("{kind}.{}/{name}", group.text()),
            _ => format!("{kind}/{name}"),
        }
    } else {
        NONE.to_owned()
    };
    vec![
        marked(object, is_default),
        object.at("spec.controller").text().into(),
        parameters.into(),
        object.age(),
    ]
}

pub(super) fn marked(object: &PrintInput<'_>, is_default: bool) -> Value {
    let name = object.at("metadata.name").text();
    if is_default { format!("{name} (default)").into() } else { name.into() }
}

pub(super) fn endpoints(object: &PrintInput<'_>) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in object.at("subsets").items() {
        let addresses = || subset.at("addresses").items().map(|address| address.at("ip").text());
        if subset.at("ports").is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in subset.at("ports").items() {
            let port = port.at("port").int();
            all.extend(addresses().map(|ip| {
                if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
            }));
        }
    }
    let is_empty = object.at("subsets").is_empty();
    let text = if is_empty { NONE.to_owned() } else { first_of(&all, MAX, ",") };
    vec![object.name(), text.into(), object.age()]
}

pub(super) fn endpoint_slices(object: &PrintInput<'_>) -> Vec<Value> {
    let ports = object.at("ports").items().map(|port| match port.at("port") {
        number if number.is_set() => number.int().to_string(),
        _ => port.at("name").given_or("*").to_owned(),
    });
    let addresses =
        object.at("endpoints").items().flat_map(|endpoint| endpoint.at("addresses").items());
    let addresses = addresses.map(|address| address.text().to_owned());
    vec![
        object.name(),
        object.at("addressType").text().into(),
        some_of(&ports.collect::<Vec<_>>()).into(),
        some_of(&addresses.collect::<Vec<_>>()).into(),
        object.age(),
    ]
}

fn some_of(all: &[String]) -> String {
    match first_of(all, MAX, ",") {
        text if text.is_empty() => UNSET.to_owned(),
        text => text,
    }
}

pub(super) fn network_policies(object: &PrintInput<'_>) -> Vec<Value> {
    vec![object.name(), selector(object.at("spec.podSelector")).into(), object.age()]
}

pub(super) fn service_cidrs(object: &PrintInput<'_>) -> Vec<Value> {
    vec![object.name(), object.at("spec.cidrs").joined(",").into(), object.age()]
}

/// Prints `IPAddress` objects. As in the API server, each row ends with the age, although the kind
/// has no column for the age.
pub(super) fn ip_addresses(object: &PrintInput<'_>) -> Vec<Value> {
    let parent = object.at("spec.parentRef");
    let text = if parent.is_set() {
        let resource = parent.at("resource").text();
        let resource = match parent.at("group").text() {
            "" => resource.to_owned(),
            group => format!("{resource}.{group}"),
        };
        let mut text = resource.to_lowercase();
        let within = parent.at("namespace").text();
        for part in
            [within, parent.at("name").text()].into_iter().skip(usize::from(within.is_empty()))
        {
            text.push('/');
            text.push_str(part);
        }
        text
    } else {
        NONE.to_owned()
    };
    vec![object.name(), text.into(), object.age()]
}
