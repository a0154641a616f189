//! Network policies that let pods reach the API server, but not kubewarm.

use k8s_openapi::{
    api::{
        core::v1::Pod,
        networking::v1::{NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyPeer},
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use std::{collections::BTreeMap, net::IpAddr};

type Labels = BTreeMap<String, String>;

/// Where kubewarm's pods are, as a network policy sees them.
#[derive(Clone, Debug, Default)]
pub(super) struct KubewarmPeer {
    pub(super) namespace: String,
    pub(super) namespace_labels: Labels,
    pub(super) pod_labels: Labels,
    pub(super) ips: Vec<IpAddr>,
    /// The container port of the read API, and its name.
    pub(super) port: (i32, String),
}

impl KubewarmPeer {
    /// The peer of kubewarm's pods, or `None` without a pod.
    pub(super) fn new(
        namespace: &str,
        namespace_labels: Labels,
        pods: &[Pod],
        port: &IntOrString,
    ) -> Option<Self> {
        let pod = pods.first()?;
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
        let port = ports.find(|one| match port {
            IntOrString::Int(number) => one.container_port == *number,
            IntOrString::String(name) => one.name.as_ref() == Some(name),
        })?;
        let ips = pods.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok());
        Some(Self {
            namespace: namespace.to_owned(),
            namespace_labels,
            pod_labels: pod.metadata.labels.clone().unwrap_or_default(),
            ips: ips.collect(),
            port: (port.container_port, port.name.clone().unwrap_or_default()),
        })
    }

    /// The reason why pods with `labels` in `namespace` cannot reach kubewarm, with the rule to
    /// add. Pods that no policy selects reach everything.
    pub(super) fn refusal(
        &self,
        policies: &[NetworkPolicy],
        namespace: &str,
        labels: &Labels,
    ) -> Option<String> {
        let selecting = policies.iter().filter_map(|policy| {
            let spec = policy.spec.as_ref()?;
            let types = spec.policy_types.as_deref().unwrap_or_default();
            let has_egress = types.iter().any(|one| one == "Egress");
            let selects = spec.pod_selector.as_ref().is_none_or(|all| selects(all, labels));
            (has_egress && selects).then_some((policy, spec))
        });
        let selecting: Vec<_> = selecting.collect();
        let mut rules = selecting.iter().flat_map(|(_, spec)| spec.egress.iter().flatten());
        if selecting.is_empty() || rules.any(|rule| self.is_allowed(rule, namespace)) {
            return None;
        }
        let name = selecting.first()?.0.metadata.name.as_deref().unwrap_or_default();
        let rule = serde_json::json!({
            "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}}],
            "ports": [{"protocol": "TCP", "port": self.port.0}],
        });
        Some(format!(
            "NetworkPolicy {namespace}/{name} lets its pods not reach kubewarm; add to its spec.egress: - {rule}"
        ))
    }

    fn is_allowed(&self, rule: &NetworkPolicyEgressRule, namespace: &str) -> bool {
        let ports = rule.ports.as_deref().unwrap_or_default();
        let has_port = ports.is_empty()
            || ports.iter().any(|port| {
                let is_tcp = port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
                is_tcp
                    && match &port.port {
                        None => true,
                        Some(IntOrString::Int(first)) => {
                            (*first..=port.end_port.unwrap_or(*first)).contains(&self.port.0)
                        }
                        Some(IntOrString::String(name)) => *name == self.port.1,
                    }
            });
        let peers = rule.to.as_deref().unwrap_or_default();
        has_port && (peers.is_empty() || peers.iter().any(|peer| self.is_peer(peer, namespace)))
    }

    fn is_peer(&self, peer: &NetworkPolicyPeer, namespace: &str) -> bool {
        if let Some(block) = &peer.ip_block {
            let except = block.except.as_deref().unwrap_or_default();
            let allows = |ip: &IpAddr| {
                contains(&block.cidr, *ip) && !except.iter().any(|cidr| contains(cidr, *ip))
            };
            return !self.ips.is_empty() && self.ips.iter().all(allows);
        }
        let is_namespace = match &peer.namespace_selector {
            Some(selector) => selects(selector, &self.namespace_labels),
            None => self.namespace == namespace,
        };
        let is_pod = peer.pod_selector.as_ref().is_none_or(|all| selects(all, &self.pod_labels));
        is_namespace && is_pod
    }
}

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let mut pairs = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    pairs.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|one| {
            let value = labels.get(&one.key);
            let is_in =
                || value.is_some_and(|value| one.values.iter().flatten().any(|v| v == value));
            match one.operator.as_str() {
                "In" => is_in(),
                "NotIn" => !is_in(),
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}

/// Whether the network `cidr`, such as `10.0.0.0/8`, contains the address.
fn contains(cidr: &str, ip: IpAddr) -> bool {
    let parsed = cidr.split_once('/').and_then(|(network, bits)| {
        Some((network.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?))
    });
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    parsed.is_some_and(|(network, length)| {
        let ((network, max), (ip, width)) = (bits(network), bits(ip));
        let mask = u128::MAX.checked_shl(128 - length.min(max)).unwrap_or_default();
        max == width && network & mask == ip & mask
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn peer() -> KubewarmPeer {
        let pod = json!({
            "metadata": {"labels": {"app": "kubewarm"}},
            "spec": {"containers": [{"name": "kubewarm", "ports": [{"name": "api", "containerPort": 6443}]}]},
            "status": {"podIP": "10.1.2.3"},
        });
        let labels = [("kubernetes.io/metadata.name".to_owned(), "kubewarm-system".to_owned())];
        let pods = [serde_json::from_value(pod).unwrap()];
        let port = IntOrString::String("api".to_owned());
        KubewarmPeer::new("kubewarm-system", labels.into(), &pods, &port).unwrap()
    }

    fn refusal(policies: &Value) -> Option<String> {
        let policies: Vec<NetworkPolicy> = serde_json::from_value(policies.clone()).unwrap();
        let labels = [("app".to_owned(), "shop".to_owned())].into();
        peer().refusal(&policies, "shop", &labels)
    }

    fn policy(selector: &Value, egress: &Value) -> Value {
        json!({
            "metadata": {"name": "strict"},
            "spec": {"podSelector": selector, "policyTypes": ["Egress"], "egress": egress},
        })
    }

    #[test]
    fn pods_without_an_egress_policy_reach_kubewarm() {
        let ingress = json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
        let of_others = policy(&json!({"matchLabels": {"app": "other"}}), &json!([]));
        for policies in [json!([]), json!([ingress, of_others])] {
            assert_eq!(refusal(&policies), None);
        }
    }

    #[test]
    fn a_policy_must_allow_the_pods_and_the_port() {
        let kubewarm = json!({"namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["kubewarm-system"]},
        ]}});
        for (egress, is_allowed) in [
            (json!([]), false),
            (json!([{}]), true),
            (json!([{"to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}]}]), false),
            (json!([{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]), true),
            (
                json!([{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.1.0.0/16"]}}]}]),
                false,
            ),
            (json!([{"to": [{"ipBlock": {"cidr": "::/0"}}]}]), false),
            (json!([{"to": [{"podSelector": {}}]}]), false),
            (json!([{"to": [kubewarm]}]), true),
            (json!([{"to": [kubewarm], "ports": [{"port": 443}]}]), false),
            (json!([{"to": [kubewarm], "ports": [{"port": 6000, "endPort": 7000}]}]), true),
            (
                json!([{"to": [kubewarm], "ports": [{"port": "api", "protocol": "UDP"}, {"port": "api"}]}]),
                true,
            ),
        ] {
            let found =
                refusal(&json!([policy(&json!({"matchLabels": {"app": "shop"}}), &egress)]));
            assert_eq!(found.is_none(), is_allowed, "{egress}");
            if let Some(found) = found {
                assert!(found.contains("shop/strict") && found.contains("6443"), "{found}");
            }
        }
    }
}
