//! Measures what managedFields cost: memory, and time to store and to read an object.

use super::{
    DEPLOYMENTS, NAMESPACES, PODS, PodShape, informer, list_of, mix, pod, processor_seconds,
    protobuf_pod::protobuf_pod, uid,
};
use kubewarm_api::model::{
    DecodedObject, Delta, DeltaSink as _, ObjectEncoding, ResourceVersion, Uid,
};
use kubewarm_cache::store::{ObjectQuery, StoreCatalog};
use kubewarm_wire::protobuf::message_of_kind;
use std::{collections::BTreeSet, fmt::Write as _};

/// The managedFields of the pods.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldsShape {
    Dropped,
    /// All pods have the same fields. Times, owners and IPs differ.
    Equal,
    /// The pods of each Deployment have other fields.
    Different,
}

/// Prints one line for each encoding, shape and kind of managedFields.
pub(crate) fn measure() {
    let message = message_of_kind("v1", "Pod").expect("known");
    for (encoding, name) in
        [(ObjectEncoding::Json, "JSON"), (ObjectEncoding::Protobuf(message), "protobuf")]
    {
        for (shape, label) in [(PodShape::Alike, "plain"), (PodShape::WithStatus, "with status")] {
            let mut dropped = 0.0;
            for (fields, managed) in [
                (FieldsShape::Dropped, "Drop"),
                (FieldsShape::Equal, "Keep, equal"),
                (FieldsShape::Different, "Keep, 200 different"),
            ] {
                let [body, bytes, packed, unpacked] = measure_one(encoding, shape, fields);
                if fields == FieldsShape::Dropped {
                    dropped = bytes;
                }
                println!(
                    "{name:8} {label:11} {managed:19} {body:>5.0} B, {bytes:>5.0} B stored ({:.3} of Drop), {packed:>5.2} us to store, {unpacked:>5.2} us to read",
                    bytes / dropped
                );
            }
        }
    }
}

/// Returns bytes of a pod and its bytes in the store, and processor time in microseconds to store
/// it and to read it.
fn measure_one(encoding: ObjectEncoding, shape: PodShape, fields: FieldsShape) -> [f64; 4] {
    let catalog = StoreCatalog::new();
    let key = informer();
    let mut writer = catalog.open(&key, &BTreeSet::new());
    writer.apply(Delta::Encoding(encoding));
    let (mut body_bytes, mut stored) = (0, 0.0);
    let mut body = Vec::new();
    // Each pod is stored twice, because only the second version is stored with the trained
    // dictionary.
    for version in 1..=2 {
        stored = 0.0;
        body_bytes = 0;
        for n in 0..PODS {
            let namespace = format!("team-{:02}", n / (PODS / NAMESPACES));
            let deployment =
                n % (PODS / NAMESPACES) * DEPLOYMENTS / PODS * NAMESPACES + n / (PODS / NAMESPACES);
            let hash = mix(deployment);
            let name = format!("app-{deployment}-{hash:08x}-{:08x}", mix(n));
            body.clear();
            if encoding == ObjectEncoding::Json {
                let mut json = String::new();
                pod(&mut json, shape, n, version, &namespace, &name, deployment);
                if let Some(entries) = json_entries(shape, fields, n, deployment) {
                    let end = json.find("},\"spec\":").expect("a pod");
                    json.insert_str(end, &format!(",\"managedFields\":{entries}"));
                }
                body.extend_from_slice(json.as_bytes());
            } else {
                let entries = entries(shape, fields, n, deployment);
                protobuf_pod(
                    &mut body,
                    shape,
                    n,
                    version,
                    [&namespace, &name],
                    deployment,
                    &entries,
                );
            }
            body_bytes += body.len();
            let item = DecodedObject {
                namespace: namespace.into(),
                name: name.into(),
                uid: Uid::parse(&uid(n)),
                version: Some(ResourceVersion::from(version * 1_000_000 + u64::from(n))),
                body: &body,
            };
            let started = std::time::Instant::now();
            writer.apply(Delta::Upsert(item));
            stored += started.elapsed().as_secs_f64();
        }
        catalog.wait_until_settled();
    }
    let reader = writer.reader();
    let started = processor_seconds();
    for _ in 0..2 {
        assert_eq!(list_of(&reader, &ObjectQuery::default(), None), PODS as usize);
    }
    let read = (processor_seconds() - started) / 2.0;
    let pods = f64::from(PODS);
    let bytes = reader.usage().bytes as f64;
    [body_bytes as f64 / pods, bytes / pods, stored * 1e6 / pods, read * 1e6 / pods]
}

/// One entry of a pod's managedFields: manager, subresource, seconds, and `fieldsV1`.
pub(crate) struct PodEntry {
    pub(crate) manager: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) seconds: u32,
    pub(crate) fields: String,
}

/// Returns the entries that Kubernetes 1.36 writes for a pod of a `ReplicaSet`.
fn entries(shape: PodShape, fields: FieldsShape, n: u32, deployment: u32) -> Vec<PodEntry> {
    if fields == FieldsShape::Dropped {
        return Vec::new();
    }
    let app = if fields == FieldsShape::Different { deployment } else { 0 };
    let mut controller = format!(
        r#"{{"f:metadata":{{"f:annotations":{{".":{{}},"f:checksum/config-{app}":{{}},"f:prometheus.io/port":{{}},"f:prometheus.io/scrape":{{}}}},"f:generateName":{{}},"f:labels":{{".":{{}},"f:app":{{}},"f:pod-template-hash":{{}},"f:team-{app}":{{}},"f:tier":{{}}}},"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"{}\"}}":{{}}}}}},"f:spec":{{"f:containers":{{"#,
        uid(deployment + 1_000_000)
    );
    for container in ["app", "proxy"] {
        let _ = write!(
            controller,
            r#""k:{{\"name\":\"{container}-{app}\"}}":{{".":{{}},"f:env":{{".":{{}},"k:{{\"name\":\"DATABASE_URL_{app}\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}},"k:{{\"name\":\"LOG_LEVEL\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}}}},"f:image":{{}},"f:imagePullPolicy":{{}},"f:livenessProbe":{{".":{{}},"f:failureThreshold":{{}},"f:httpGet":{{".":{{}},"f:path":{{}},"f:port":{{}},"f:scheme":{{}}}},"f:periodSeconds":{{}},"f:successThreshold":{{}},"f:timeoutSeconds":{{}}}},"f:name":{{}},"f:ports":{{".":{{}},"k:{{\"containerPort\":8080,\"protocol\":\"TCP\"}}":{{".":{{}},"f:containerPort":{{}},"f:name":{{}},"f:protocol":{{}}}}}},"f:resources":{{".":{{}},"f:limits":{{".":{{}},"f:cpu":{{}},"f:memory":{{}}}},"f:requests":{{".":{{}},"f:cpu":{{}},"f:memory":{{}}}}}},"f:terminationMessagePath":{{}},"f:terminationMessagePolicy":{{}},"f:volumeMounts":{{".":{{}},"k:{{\"mountPath\":\"/etc/app-{app}\"}}":{{".":{{}},"f:mountPath":{{}},"f:name":{{}},"f:readOnly":{{}}}}}}}},"#
        );
    }
    controller.pop();
    let _ = write!(
        controller,
        r#"}},"f:dnsPolicy":{{}},"f:enableServiceLinks":{{}},"f:restartPolicy":{{}},"f:schedulerName":{{}},"f:securityContext":{{".":{{}},"f:runAsNonRoot":{{}}}},"f:serviceAccount":{{}},"f:serviceAccountName":{{}},"f:terminationGracePeriodSeconds":{{}},"f:volumes":{{".":{{}},"k:{{\"name\":\"config-{app}\"}}":{{".":{{}},"f:configMap":{{".":{{}},"f:defaultMode":{{}},"f:name":{{}}}},"f:name":{{}}}}}}}}}}"#
    );
    let created = 1_778_000_000 + mix(n) % 10_000_000;
    let manager = "kube-controller-manager";
    let mut entries =
        vec![PodEntry { manager, subresource: "", seconds: created, fields: controller }];
    if shape == PodShape::WithStatus {
        let ip = format!("10.{}.{}.{}", n % 256, n / 256 % 256, mix(n) % 256);
        let mut kubelet = r#"{"f:status":{"f:conditions":{"#.to_owned();
        for kind in ["ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"] {
            let _ = write!(
                kubelet,
                r#""k:{{\"type\":\"{kind}\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}},"#
            );
        }
        kubelet.pop();
        let _ = write!(
            kubelet,
            r#"}},"f:containerStatuses":{{}},"f:hostIP":{{}},"f:hostIPs":{{}},"f:phase":{{}},"f:podIP":{{}},"f:podIPs":{{".":{{}},"k:{{\"ip\":\"{ip}\"}}":{{".":{{}},"f:ip":{{}}}}}},"f:startTime":{{}}}}}}"#
        );
        let seconds = created + mix(n + 1) % 1_000_000;
        entries.push(PodEntry {
            manager: "kubelet",
            subresource: "status",
            seconds,
            fields: kubelet,
        });
    }
    entries
}

fn json_entries(shape: PodShape, fields: FieldsShape, n: u32, deployment: u32) -> Option<String> {
    let entries = entries(shape, fields, n, deployment);
    let mut json = String::new();
    for PodEntry { manager, subresource, seconds, fields } in &entries {
        let seconds = u64::from(*seconds);
        let (day, hour, minute) =
            (seconds / 86_400 % 28 + 1, seconds / 3600 % 24, seconds / 60 % 60);
        let subresource = match *subresource {
            "" => String::new(),
            name => format!(r#","subresource":"{name}""#),
        };
        let _ = write!(
            json,
            r#"{}{{"manager":"{manager}","operation":"Update","apiVersion":"v1","time":"2026-05-{day:02}T{hour:02}:{minute:02}:{:02}Z","fieldsType":"FieldsV1","fieldsV1":{fields}{subresource}}}"#,
            if json.is_empty() { "" } else { "," },
            seconds % 60,
        );
    }
    (!json.is_empty()).then(|| format!("[{json}]"))
}
