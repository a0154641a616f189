//! The pods of the scripted server, in Kubernetes protobuf: equal in every run, and different from
//! each other.

use crate::{
    corpus::{APP_LABEL, hex, uuid, word},
    lag::WRITTEN_AT,
};
use fastrand::Rng;
use kubewarm_api::model::ObjectEncoding;
use kubewarm_wire::{
    JsonBuffer, ObjectBody,
    protobuf::{item_length, message_of_kind, write_bytes, write_number},
};

/// The number of pods of one application, which a list by label returns. They are spread over 20
/// namespaces.
const OF_APP: u32 = 250;
const APP_NAMESPACES: u32 = 20;
/// 2026-01-01 in seconds since 1970, from which the times in pods count.
const YEAR: u64 = 1_767_225_600;

/// The objects of the scripted server. Its pods are in etcd's order.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ScriptedCluster {
    /// The number of namespaces; a multiple of 20 gives each application 250 pods.
    #[arg(long)]
    pub namespaces: u32,
    /// The number of pods in each namespace; a multiple of 25.
    #[arg(long)]
    pub per_namespace: u32,
    /// The number of profiles: one for all namespaces, or one for each namespace.
    #[arg(long)]
    pub profiles: u32,
}

pub(crate) fn namespace(index: u32) -> String {
    format!("scale-{index:05}")
}

/// A message in protobuf. `number: value` is a text or a message, `number = value` an integer.
macro_rules! message {
    (@ : $number:literal $value:expr, $out:ident) => {
        write_bytes($number, AsRef::<[u8]>::as_ref(&$value), &mut $out)
    };
    (@ = $number:literal $value:expr, $out:ident) => {
        write_number($number, $value, &mut $out)
    };
    ($($number:literal $kind:tt $value:expr),* $(,)?) => {{
        let mut out = Vec::new();
        $(message!(@ $kind $number $value, out);)*
        out
    }};
}

fn entry(key: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    message![1: key, 2: value]
}

fn time(rng: &mut Rng) -> Vec<u8> {
    message![1 = YEAR + rng.u64(..20_000_000), 2 = 0]
}

/// The JSON of a pod; empty if the field tables lack one of its fields.
pub(crate) fn to_json(pod: &[u8]) -> Vec<u8> {
    let encoding = message_of_kind("v1", "Pod").map(ObjectEncoding::Protobuf).unwrap_or_default();
    let body = ObjectBody { encoding, bytes: pod };
    body.to_json(&mut JsonBuffer::default()).unwrap_or_default().to_vec()
}

impl ScriptedCluster {
    pub(crate) fn count(self) -> u32 {
        self.namespaces * self.per_namespace
    }

    /// The application of pod `index`, and the pod's name, which begins with it.
    fn names(self, index: u32) -> (String, String) {
        let (namespace, place) = (index / self.per_namespace, index % self.per_namespace);
        let apps = self.per_namespace * APP_NAMESPACES / OF_APP;
        // A namespace has 12 or 13 pods of an application. Whether 12 or 13 alternates between
        // namespaces, so that each application has 250 pods.
        let app = (place * apps + namespace % 2 * apps / 2) / self.per_namespace;
        let app = format!("app-{:05}", namespace / APP_NAMESPACES * apps + app);
        let random = word(&mut Rng::with_seed(u64::from(index)), 5);
        let name = format!("{app}-{place:05}-{random}");
        (app, name)
    }

    /// The paths of lists by label, one for each of `count` applications.
    pub(crate) fn lists_by_label(self, count: u32) -> Vec<String> {
        let step = self.count() / OF_APP / count;
        let app = |at| format!("app-{:05}", at * step);
        let list =
            |app| format!("/api/v1/pods?labelSelector={APP_LABEL}%3D{app}&resourceVersion=0");
        (0..count).map(app).map(list).collect()
    }

    /// Pod `index`, a pod with status as in the corpus, and what the API server adds. `change` is
    /// its version and the time of writing. The version of an unchanged pod is at most
    /// [`count`](Self::count).
    pub(crate) fn encode(self, index: u32, change: Option<(u64, i128)>) -> Vec<u8> {
        let mut rng = Rng::with_seed(u64::from(index) ^ 0x5eed_0000_0000);
        let ((app, name), space) = (self.names(index), namespace(index / self.per_namespace));
        let version = change.map_or_else(|| u64::from(index) + 1, |(version, _)| version);
        let replica_set = u64::from(index / 12);
        let hash = hex(&mut Rng::with_seed(replica_set), 10);
        let mut metadata = message![
            1: name, 2: "", 3: space, 4: "", 5: uuid(&mut rng), 6: version.to_string(), 7 = 1,
            8: time(&mut rng), 11: entry("app.kubernetes.io/instance", format!("{app}-{space}")),
            11: entry(APP_LABEL, &app),
            11: entry("app.kubernetes.io/version", format!("1.{}.{}", index % 7, index % 13)),
            11: entry("pod-template-hash", &hash),
        ];
        if let Some((_, at)) = change {
            metadata.extend(message![12: entry(WRITTEN_AT, at.to_string())]);
        }
        metadata.extend(message![12: entry("checksum/config", hex(&mut rng, 64)), 13: message![
            1: "ReplicaSet", 3: format!("{app}-{hash}"), 4: uuid(&mut Rng::with_seed(!replica_set)),
            5: "apps/v1", 6 = 1, 7 = 1,
        ]]);
        let quantity = |resource: &str, amount: &str| entry(resource, message![1: amount]);
        let cpu = quantity("cpu", &format!("{}m", 10 * rng.u32(1..20)));
        let image = format!("registry.example/{app}/main:1.{}.{}", rng.u32(..9), rng.u32(..30));
        let container = message![
            1: "main", 2: image, 4: "--listen=:8080", 4: format!("--shard={}", rng.u32(..64)), 5: "",
            8: message![1: quantity("memory", "128Mi"), 2: cpu, 2: quantity("memory", "64Mi")],
            9: message![1: "config", 2 = 1, 3: "/etc/config", 4: "", 6: ""],
            13: "/dev/termination-log", 14: "IfNotPresent", 16 = 0, 17 = 0, 18 = 0, 20: "File",
        ];
        let toleration = |key: &str| message![1: key, 2: "Exists", 3: "", 4: "NoExecute", 5 = 300];
        let config = message![1: message![1: format!("{app}-config")], 3 = 420];
        let spec = message![
            1: message![1: "config", 2: message![19: config]], 2: container, 3: "Always", 4 = 30,
            6: "ClusterFirst", 8: "default", 9: "default", 10: format!("node-{:03}", rng.u32(..super::NODES)),
            11 = 0, 12 = 0, 13 = 0, 14: "", 16: "", 17: "", 19: "default-scheduler", 21 = 0,
            22: toleration("node.kubernetes.io/not-ready"),
            22: toleration("node.kubernetes.io/unreachable"), 24: "", 25 = 0, 30 = 1,
            31: "PreemptLowerPriority",
        ];
        let ip = format!("10.{}.{}.{}", index >> 16 & 255, index >> 8 & 255, index & 255);
        let host = format!("172.16.{}.{}", rng.u32(..4), rng.u32(1..255));
        let mut status = message![1: "Running"];
        for kind in
            ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        {
            let at = time(&mut rng);
            let condition = message![1: kind, 2: "True", 3: "", 4: at, 5: "", 6: "", 7 = 1];
            status.extend(message![2: condition]);
        }
        let container = message![
            1: "main", 2: message![2: message![1: time(&mut rng)]], 3: "", 4 = 1, 5 = rng.u64(..4),
            6: "registry.example/main:1.0",
            7: format!("registry.example/main@sha256:{}", hex(&mut rng, 64)),
            8: format!("containerd://{}", hex(&mut rng, 64)), 9 = 1,
        ];
        status.extend(message![
            3: "", 4: "", 5: host, 6: ip, 7: time(&mut rng), 8: container, 9: "Burstable", 11: "",
            12: message![1: ip], 14: "", 16: message![1: host], 17 = 1,
        ]);
        message![1: metadata, 2: spec, 3: status]
    }

    /// For each namespace, the bytes that its pods have in a list. A list in protobuf begins with
    /// its length, so the server must know this length before it generates the pods.
    pub(crate) fn lengths(self) -> Vec<usize> {
        let of_namespace = |namespace| {
            let first = namespace * self.per_namespace;
            let pods = first..first + self.per_namespace;
            pods.map(|index| item_length(self.encode(index, None).len())).sum()
        };
        (0..self.namespaces).map(of_namespace).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{Corpus, Shape};
    use kubewarm_wire::protobuf::check_message;
    use serde_json::Value;
    use std::collections::{BTreeMap, BTreeSet};

    const CLUSTER: ScriptedCluster =
        ScriptedCluster { namespaces: 40, per_namespace: 2_500, profiles: 1 };

    /// The paths of all texts, numbers and other values in `value`, each with whether it is a text.
    fn paths(path: &str, value: &Value) -> BTreeSet<String> {
        let below = |(key, one): (String, &Value)| paths(&format!("{path}/{key}"), one);
        match (value.as_object(), value.as_array()) {
            (Some(all), _) => {
                all.iter().map(|(key, one)| (key.clone(), one)).flat_map(below).collect()
            }
            (_, Some(all)) => {
                (0..).map(|at: u32| at.to_string()).zip(all).flat_map(below).collect()
            }
            _ => [format!("{path} {}", value.is_string())].into(),
        }
    }

    #[test]
    fn a_pod_has_all_fields_of_a_pod_of_the_corpus() {
        let message = message_of_kind("v1", "Pod").unwrap();
        for change in [None, Some((1_000_000, 12))] {
            let bytes = CLUSTER.encode(4_711, change);
            check_message(message, &bytes).unwrap();
            let json: Value = serde_json::from_slice(&to_json(&bytes)).unwrap();
            let mut pod = Corpus { shape: Shape::Status, count: 50_000 }.pod(4_711);
            pod.object["status"] = pod.status.unwrap();
            let lacking = &paths("", &pod.object) - &paths("", &json);
            assert_eq!(Vec::from_iter(lacking), ["/apiVersion true", "/kind true"], "{json}");
            let written = json["metadata"]["annotations"][WRITTEN_AT].as_str();
            assert_eq!(written, change.map(|_| "12"));
        }
    }

    #[test]
    fn pods_are_sorted_and_each_application_has_250() {
        let names = |index: u32| (index / CLUSTER.per_namespace, CLUSTER.names(index).1);
        assert!((0..CLUSTER.count()).map(names).is_sorted());
        let mut of_app = BTreeMap::<String, u32>::new();
        for index in 0..CLUSTER.count() {
            *of_app.entry(CLUSTER.names(index).0).or_default() += 1;
        }
        assert!(of_app.len() == 400 && of_app.values().all(|&pods| pods == OF_APP));
    }
}
