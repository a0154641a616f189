//! The pods of the bench: generated, equal in every run, and different from each other.

use fastrand::Rng;
use serde_json::{Value, json};

/// The label by which lists select pods.
pub const APP_LABEL: &str = "app.kubernetes.io/name";
/// The number of namespaces with pods.
pub const NAMESPACES: u32 = 20;
/// The number of applications. Each owns 250 of 50,000 pods.
pub const APPS: u32 = 200;

/// The shape of the pods. Both shapes take about 5.15 KB of JSON with managedFields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// New pods: a long spec, and the API server's default status.
    Plain,
    /// Running pods: a shorter spec, and conditions, IPs, image digests and timestamps that all
    /// differ.
    Status,
}

/// All pods of a run.
#[derive(Clone, Copy, Debug)]
pub struct Corpus {
    /// Their shape.
    pub shape: Shape,
    /// Their number.
    pub count: u32,
}

/// One pod before its creation.
#[derive(Clone, Debug)]
pub struct NewPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The object to create.
    pub object: Value,
    /// The status to write afterwards.
    pub status: Option<Value>,
}

/// The name of a namespace.
#[must_use]
pub fn namespace(index: u32) -> String {
    format!("bench-{:02}", index % NAMESPACES)
}

/// The value of [`APP_LABEL`] of an application.
#[must_use]
pub fn app(index: u32) -> String {
    format!("app-{:03}", index % APPS)
}

impl Corpus {
    /// The namespace and the name of pod `index`.
    ///
    /// The pods of an application are spread over all namespaces, so that a list by label cannot
    /// profit from neighbouring pods.
    #[must_use]
    pub fn name(self, index: u32) -> (String, String) {
        let app = self.app_of(index);
        let mut rng = Rng::with_seed(u64::from(index));
        (
            namespace(index),
            format!("{}-{:010x}-{}", app, self.replica_set(index), word(&mut rng, 5)),
        )
    }

    /// Pod `index`.
    #[must_use]
    pub fn pod(self, index: u32) -> NewPod {
        let (namespace, name) = self.name(index);
        let mut rng = Rng::with_seed(u64::from(index) ^ 0x5eed_0000_0000);
        let app = self.app_of(index);
        let mut containers = vec![container(&app, "main", &mut rng)];
        if self.shape == Shape::Plain {
            containers.push(container(&app, "proxy", &mut rng));
            for container in &mut containers {
                lengthen(container, &mut rng);
            }
        }
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    APP_LABEL: app,
                    "app.kubernetes.io/instance": format!("{app}-{namespace}"),
                    "app.kubernetes.io/version": format!("1.{}.{}", index % 7, index % 13),
                    "pod-template-hash": format!("{:010x}", self.replica_set(index)),
                },
                "annotations": {
                    "checksum/config": hex(&mut rng, 64),
                },
                "ownerReferences": [{
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": format!("{app}-{:010x}", self.replica_set(index)),
                    "uid": uuid(&mut Rng::with_seed(self.replica_set(index))),
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "nodeName": format!("node-{:03}", rng.u32(..500)),
                "serviceAccountName": "default",
                "automountServiceAccountToken": false,
                "containers": containers,
                "tolerations": [
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                     "effect": "NoExecute", "tolerationSeconds": 300},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists",
                     "effect": "NoExecute", "tolerationSeconds": 300},
                ],
                "volumes": [{"name": "config", "configMap": {"name": format!("{app}-config")}}],
            },
        });
        if self.shape == Shape::Plain {
            let annotations = &mut object["metadata"]["annotations"];
            annotations["prometheus.io/scrape"] = "true".into();
            annotations["prometheus.io/port"] = "8080".into();
        }
        let status = (self.shape == Shape::Status).then(|| running(index, &mut rng));
        NewPod { namespace, name, object, status }
    }

    /// Of 50,000 pods, each 250 in a row belong to one application.
    fn app_of(self, index: u32) -> String {
        app(index / (self.count / APPS).max(1))
    }

    fn replica_set(self, index: u32) -> u64 {
        let app = u64::from(index / (self.count / APPS).max(1)) * u64::from(NAMESPACES);
        // Forty random bits, as in the ten characters of a template hash.
        Rng::with_seed(app + u64::from(index % NAMESPACES)).u64(..1 << 40)
    }
}

fn container(app: &str, name: &str, rng: &mut Rng) -> Value {
    json!({
        "name": name,
        "image": format!("registry.example/{app}/{name}:1.{}.{}", rng.u32(..9), rng.u32(..30)),
        "args": ["--listen=:8080", format!("--shard={}", rng.u32(..64))],
        "resources": {
            "requests": {"cpu": format!("{}m", 10 * rng.u32(1..20)), "memory": "64Mi"},
            "limits": {"memory": "128Mi"},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": true}],
    })
}

/// Fields that make plain pods as long as pods with status.
fn lengthen(container: &mut Value, rng: &mut Rng) {
    container["env"] = json!([{"name": "TOKEN", "value": word(rng, 12)}]);
    container["ports"] = json!([{"name": "http", "containerPort": 8080, "protocol": "TCP"}]);
    container["readinessProbe"] =
        json!({"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": rng.u32(5..15)});
}

/// The status that a kubelet would write.
fn running(index: u32, rng: &mut Rng) -> Value {
    let second = |rng: &mut Rng| {
        format!(
            "2026-0{}-{:02}T{:02}:{:02}:{:02}Z",
            rng.u32(1..10),
            rng.u32(1..29),
            rng.u32(..24),
            rng.u32(..60),
            rng.u32(..60)
        )
    };
    let started = second(rng);
    let conditions: Vec<Value> =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .into_iter()
            .map(|kind| {
                json!({"type": kind, "status": "True", "observedGeneration": 1,
                    "lastProbeTime": null, "lastTransitionTime": second(rng)})
            })
            .collect();
    let ip = format!("10.{}.{}.{}", index >> 16 & 255, index >> 8 & 255, index & 255);
    let host = format!("172.16.{}.{}", rng.u32(..4), rng.u32(1..255));
    json!({
        "phase": "Running",
        "observedGeneration": 1,
        "conditions": conditions,
        "hostIP": host, "hostIPs": [{"ip": host}],
        "podIP": ip, "podIPs": [{"ip": ip}],
        "startTime": started,
        "containerStatuses": [{
            "name": "main",
            "image": "registry.example/main:1.0",
            "imageID": format!("registry.example/main@sha256:{}", hex(rng, 64)),
            "containerID": format!("containerd://{}", hex(rng, 64)),
            "ready": true, "started": true, "restartCount": rng.u32(..4),
            "lastState": {},
            "state": {"running": {"startedAt": second(rng)}},
        }],
    })
}

pub(crate) fn word(rng: &mut Rng, length: usize) -> String {
    (0..length)
        .map(|_| char::from(*rng.choice(b"bcdfghjklmnpqrstvwxz2456789").unwrap_or(&b'x')))
        .collect()
}

pub(crate) fn hex(rng: &mut Rng, digits: usize) -> String {
    (0..digits).map(|_| rng.digit(16)).collect()
}

pub(crate) fn uuid(rng: &mut Rng) -> String {
    format!("{}-{}-4{}-a{}-{}", hex(rng, 8), hex(rng, 4), hex(rng, 3), hex(rng, 3), hex(rng, 12))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn fifty_thousand_pods_have_different_names_and_250_share_an_app() {
        let corpus = Corpus { shape: Shape::Plain, count: 50_000 };
        let names: BTreeSet<_> = (0..corpus.count).map(|index| corpus.name(index)).collect();
        assert_eq!(names.len(), 50_000);
        let mut of_app = BTreeMap::<String, u32>::new();
        for index in 0..corpus.count {
            *of_app.entry(corpus.app_of(index)).or_default() += 1;
        }
        assert!(of_app.len() == 200 && of_app.values().all(|&pods| pods == 250));
    }

    #[test]
    fn a_pod_is_the_same_in_every_run() {
        let corpus = Corpus { shape: Shape::Status, count: 1000 };
        assert_eq!(corpus.pod(7).object, corpus.pod(7).object);
        assert_eq!(corpus.pod(7).status, corpus.pod(7).status);
        assert_ne!(corpus.pod(7).status, corpus.pod(8).status);
    }
}
