//! The objects of a large cluster, the agents' pods among them, and the agents' permissions and
//! tokens.

use crate::{
    cluster::Cluster,
    corpus::{self, Corpus, Shape},
    load, operator,
};
use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use std::{fmt::Write as _, fs, path::Path};

/// The cluster's pods, about 2 KB each. The agents' own pods come in addition. The API server drops
/// the status of a new pod, so these pods have none.
pub(crate) const PODS: Corpus = Corpus { shape: Shape::Status, count: 20_000 };
/// The smallest number of nodes. Each agent has a node of its own, so more agents have more nodes.
const NODES: u32 = 2_000;
pub(crate) const SERVICES: u32 = 200;
pub(crate) const NAMESPACES: u32 = 50;
/// The namespace of the agents.
pub(crate) const AGENTS: &str = "agents";
/// The ServiceAccount of all agents.
pub(crate) const ACCOUNT: &str = "agent";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A cluster with an agent on each of its first nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Population {
    /// The number of agents.
    pub(crate) agents: u32,
}

impl Population {
    pub(crate) fn nodes(self) -> u32 {
        self.agents.max(NODES)
    }

    /// Creates all objects.
    ///
    /// # Errors
    ///
    /// The first request that failed.
    ///
    /// # Cost
    ///
    /// About a minute on two cores.
    pub(crate) async fn create(self, cluster: &Cluster) -> Result<()> {
        let client = cluster.client();
        // `kube-system` and three others exist from the start.
        let of_agents_and_operator = 2;
        for index in 0..NAMESPACES - 4 - of_agents_and_operator {
            load::namespace(client, &namespace(index)).await?;
        }
        load::namespace(client, AGENTS).await?;
        load::create(
            client,
            &format!("/api/v1/namespaces/{AGENTS}/serviceaccounts"),
            &json!({"metadata": {"name": ACCOUNT}}),
        )
        .await?;
        self.permit(cluster).await?;
        load::objects(client, (0..SERVICES).map(service)).await?;
        load::objects(client, (0..self.agents).map(agent_pod)).await?;
        load::objects(client, (0..PODS.count).map(|index| self.pod(index))).await
    }

    async fn permit(self, cluster: &Cluster) -> Result<()> {
        let role = json!({
            "metadata": {"name": ACCOUNT},
            "rules": [{
                "apiGroups": [""],
                "resources": ["pods", "services", "namespaces"],
                "verbs": ["get", "list", "watch"],
            }],
        });
        load::create(cluster.client(), &format!("{RBAC}/clusterroles"), &role).await?;
        let binding = json!({
            "metadata": {"name": ACCOUNT},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT,
            },
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": AGENTS}],
        });
        load::create(cluster.client(), &format!("{RBAC}/clusterrolebindings"), &binding).await
    }

    /// Writes a line of JSON with the node and the token of each agent. Each token is bound to the
    /// agent's pod.
    ///
    /// # Errors
    ///
    /// The first request that failed, or a file that cannot be written.
    pub(crate) async fn write_identities(self, cluster: &Cluster, file: &Path) -> Result<()> {
        let tokens: Vec<String> = stream::iter(0..self.agents)
            .map(
                |index| async move { cluster.pod_token(AGENTS, ACCOUNT, &agent_name(index)).await },
            )
            .buffered(load::CONNECTIONS)
            .try_collect()
            .await?;
        let mut lines = String::new();
        for (index, token) in (0..).zip(tokens) {
            writeln!(lines, "{}", json!({"node": node(index), "token": token}))?;
        }
        Ok(fs::write(file, lines)?)
    }

    fn pod(self, index: u32) -> (String, Value) {
        let mut object = PODS.pod(index).object;
        object["spec"]["nodeName"] = node(index % self.nodes()).into();
        let namespace = PODS.name(index).0;
        (format!("/api/v1/namespaces/{namespace}/pods"), object)
    }

    /// The path at which the kubelet of one of the first `agents` nodes writes a pod's status.
    /// Successive numbers belong to successive nodes.
    pub(crate) fn status_path(self, number: u32, agents: u32) -> String {
        // Each node has at least one pod only while there are fewer nodes than pods.
        let of_node = (PODS.count / self.nodes()).max(1);
        let index = number % agents + self.nodes() * (number / agents % of_node);
        let (namespace, name) = PODS.name(index % PODS.count);
        format!("/api/v1/namespaces/{namespace}/pods/{name}/status?fieldManager=kubelet")
    }
}

/// The profile of the kinds that the agents read.
pub(crate) fn profile() -> Value {
    let everywhere = json!({"type": "AllNamespaces"});
    json!({
        "apiVersion": "kubewarm.io/v1alpha1",
        "kind": "CacheProfile",
        "metadata": {"name": "agents", "namespace": operator::NAMESPACE},
        "spec": {"targets": [
            {"name": "pods", "resource": "pods", "scope": everywhere},
            {"name": "services", "resource": "services", "scope": everywhere},
            {"name": "namespaces", "resource": "namespaces", "scope": {"type": "Cluster"}},
        ]},
    })
}

fn node(index: u32) -> String {
    format!("node-{index:04}")
}

fn agent_name(index: u32) -> String {
    format!("agent-{index:04}")
}

/// The first namespaces have the pods.
fn namespace(index: u32) -> String {
    if index < corpus::NAMESPACES { corpus::namespace(index) } else { format!("empty-{index:02}") }
}

fn service(index: u32) -> (String, Value) {
    let app = corpus::app(index);
    let object = json!({
        "metadata": {"name": app, "labels": {corpus::APP_LABEL: app}},
        "spec": {
            // Without an address, because the address range of this control plane is small.
            "clusterIP": "None",
            "selector": {corpus::APP_LABEL: app},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    });
    (format!("/api/v1/namespaces/{}/services", corpus::namespace(index)), object)
}

fn agent_pod(index: u32) -> (String, Value) {
    let object = json!({
        "metadata": {"name": agent_name(index), "labels": {corpus::APP_LABEL: "agent"}},
        "spec": {
            "nodeName": node(index),
            "serviceAccountName": ACCOUNT,
            "containers": [{"name": "agent", "image": "registry.example/agent:1.0"}],
        },
    });
    (format!("/api/v1/namespaces/{AGENTS}/pods"), object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn changes_are_spread_over_the_nodes_of_the_agents() {
        let population = Population { agents: 5_000 };
        let nodes: BTreeMap<_, _> =
            (0..PODS.count).map(|index| (PODS.name(index).1, node(index % 5_000))).collect();
        let mut paths = BTreeSet::new();
        for number in 0..1_200 {
            let path = population.status_path(number, 300);
            assert_eq!(nodes[path.split('/').nth(6).unwrap()], node(number % 300));
            paths.insert(path);
        }
        assert_eq!(paths.len(), 1_200, "each node has four pods");
    }

    #[test]
    fn a_pod_is_on_its_node_and_has_two_kilobytes() {
        let (_, object) = Population { agents: 300 }.pod(2_001);
        assert_eq!(object["spec"]["nodeName"], node(1));
        let bytes = object.to_string().len();
        assert!((1_000..2_000).contains(&bytes), "{bytes} bytes without managedFields");
    }
}
