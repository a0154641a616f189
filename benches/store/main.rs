//! Measures the store with 50,000 synthetic pods: memory per object and time per delta.
//!
//! `cargo bench --bench store` prints one table. With `-- status`, pods have different, complete
//! statuses, otherwise they are all alike. `-- idle` measures an idle informer, and `-- namespaces`
//! the stores of 1,000 namespaces. `-- managed-fields` measures what managedFields cost.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::cast_precision_loss,
    reason = "a benchmark prints rounded figures, and may panic"
)]

mod managed_fields;
mod protobuf_pod;

use kubewarm_api::model::{
    DecodedObject, Delta, DeltaSink, FieldPath, FieldSelector, GroupResource, Identity,
    InformerKey, InformerScope, LabelRequirement, LabelSelector, LabelSelectorOperator,
    ManagedFieldsPolicy, Projection, ReplacePolicy, Resource, ResourceVersion, SecretDataPolicy,
    Uid,
};
use kubewarm_cache::store::{
    BodyPredicate, ObjectQuery, StoreCatalog, StoreReader, StoreWriter, StoredObjectView,
};
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    hint::black_box,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

const PODS: u32 = 50_000;
const NAMESPACES: u32 = 20;
const DEPLOYMENTS: u32 = 200;

/// The shape of the pods.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PodShape {
    Alike,
    WithStatus,
}

fn main() {
    if std::env::args().any(|arg| arg == "idle") {
        return idle_informers();
    }
    if std::env::args().any(|arg| arg == "namespaces") {
        return small_namespaces();
    }
    if std::env::args().any(|arg| arg == "managed-fields") {
        return managed_fields::measure();
    }
    let kind = if std::env::args().any(|arg| arg == "status") {
        PodShape::WithStatus
    } else {
        PodShape::Alike
    };
    let catalog = StoreCatalog::new();
    let key = informer();
    let base = memory("VmRSS");
    let mut writer = catalog.open(&key, &BTreeSet::new());
    let reader = catalog.reader(&key).expect("opened");
    let (bytes, took) = list(&mut writer, kind, 1, ReplacePolicy::Changed);
    println!("body                  {:>8.0} B", bytes as f64 / f64::from(PODS));
    println!("first list            {:>8.2} us an object", each(took));
    println!("  peak, until here    {:>8.0} B an object", per_object(memory("VmHWM"), base));
    let settled = Instant::now();
    catalog.wait_until_settled();
    println!("  upkeep after it     {:>8.0} ms", settled.elapsed().as_secs_f64() * 1e3);
    memory_line(&reader, base);
    let (_, took) = list(&mut writer, kind, 1, ReplacePolicy::Changed);
    println!("relist, unchanged     {:>8.2} us an object", each(took));
    memory_line(&reader, base);
    let (_, took) = list(&mut writer, kind, 2, ReplacePolicy::Changed);
    println!("relist, all changed   {:>8.2} us an object", each(took));
    println!("  peak, until here    {:>8.0} B an object", per_object(memory("VmHWM"), base));
    catalog.wait_until_settled();
    memory_line(&reader, base);
    reads(&reader);
    let path = FieldPath::parse("spec.containers[*].image").expect("valid");
    let built = Instant::now();
    catalog.set_indexes(&key, &BTreeSet::from([path.clone()]));
    catalog.wait_until_settled();
    println!("index built           {:>8.2} us an object", each(built.elapsed()));
    let value = "registry.example/app-7:1.4.7".into();
    let test = BodyPredicate::Field { path, absent: "".into(), is_equality: true, value };
    let by_index = ObjectQuery { tests: [test].into_iter().collect(), ..ObjectQuery::default() };
    println!("  objects found       {:>8}", list_of(&reader, &by_index, None));
    memory_line(&reader, base);
    let swept = Instant::now();
    writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
    writer.apply(Delta::ListDone(ResourceVersion::from(u64::MAX)));
    println!("sweep of everything   {:>8.2} ms", swept.elapsed().as_secs_f64() * 1e3);
    println!(
        "  usage {:?}, RSS {} KiB above the start",
        reader.usage(),
        (memory("VmRSS") - base) / 1024
    );
}

fn reads(reader: &StoreReader) {
    let app = LabelRequirement::new("app", LabelSelectorOperator::In, ["app-7"]).expect("valid");
    let by_label = ObjectQuery { labels: LabelSelector::new([app]), ..ObjectQuery::default() };
    let objects = list_of(reader, &by_label, None);
    println!(
        "by label, {objects} found  {:>8.1} us, median of 201",
        median(|| {
            black_box(list_of(reader, &by_label, None));
        })
    );
    println!(
        "page of 500           {:>8.1} us, median of 201",
        median(|| {
            black_box(list_of(reader, &ObjectQuery::default(), Some(500)));
        })
    );
    let keys = reader.versions(None, 50_000);
    let mut at = 0;
    println!(
        "get                   {:>8.2} us, median of 201",
        median(|| {
            at = (at + 12_347) % keys.len();
            black_box(reader.get(&keys.get(at).expect("in range").0));
        })
    );
}

/// Selects and unpacks objects as a list request does. Returns the number of objects.
fn list_of(reader: &StoreReader, wanted: &ObjectQuery, limit: Option<usize>) -> usize {
    let (mut selected, mut objects) = (reader.select(wanted, None, limit), 0);
    while selected.filter_next() {}
    let mut count = |object: StoredObjectView<'_>| {
        black_box(object.body);
        objects += 1;
        ControlFlow::Continue(())
    };
    while selected.visit_next(&mut count) {}
    objects
}

fn idle_informers() {
    let catalog = StoreCatalog::new();
    let before = memory("VmRSS");
    let writers: Vec<_> = (0..2000)
        .map(|n| {
            let namespace = format!("namespace-{n}");
            let key = InformerKey {
                scope: InformerScope::Namespace(namespace.as_str().into()),
                ..informer()
            };
            catalog.open(&key, &BTreeSet::new())
        })
        .collect();
    println!("2,000 idle informers  {:>8} B each", (memory("VmRSS").saturating_sub(before)) / 2000);
    drop(writers);
}

/// Prints the memory of 1,000 namespaces' stores: first of one profile that reads all, then of one
/// profile for each.
fn small_namespaces() {
    for pods in [50, 500] {
        for is_each in [false, true] {
            let (catalog, started) = (StoreCatalog::new(), processor_seconds());
            let mut writers = Vec::new();
            let mut body = String::new();
            for number in 0..1_000 {
                let namespace: Arc<str> = format!("team-{number:03}").into();
                let declared_in = if is_each { Arc::clone(&namespace) } else { "all".into() };
                let key = InformerKey {
                    scope: InformerScope::Namespace(Arc::clone(&namespace)),
                    declared_in: Some(declared_in),
                    ..informer()
                };
                let mut writer = catalog.open(&key, &BTreeSet::new());
                for at in 0..pods {
                    // Ten pods of each of up to 20 Deployments.
                    let (n, deployment) = (number * pods + at, number * 20 + at / 10 % 20);
                    let name = format!("app-{deployment}-{:08x}-{:05x}", mix(deployment), mix(n));
                    body.clear();
                    pod(&mut body, PodShape::WithStatus, n, 1, &namespace, &name, deployment);
                    writer.apply(Delta::Upsert(DecodedObject {
                        namespace: (&*namespace).into(),
                        name: name.into(),
                        uid: Uid::parse(&uid(n)),
                        version: Some(ResourceVersion::from(u64::from(n) + 1)),
                        body: body.as_bytes(),
                    }));
                }
                writers.push(writer);
            }
            catalog.wait_until_settled();
            let usage = catalog.usage();
            let bytes: u64 = usage.iter().map(|(_, usage)| usage.bytes).sum();
            println!(
                "1,000 namespaces, {pods} pods each, {}: {:>6.1} MiB, {:>5.0} B a pod, {:>5.1} s of processor",
                if is_each { "1,000 profile namespaces" } else { "one profile namespace   " },
                bytes as f64 / f64::from(1 << 20),
                bytes as f64 / f64::from(pods * 1_000),
                processor_seconds() - started,
            );
        }
    }
}

/// The processor time of this process.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields 14 and 15 are user and system time, in hundredths of a second.
    let ticks = stat.split_whitespace().skip(13).take(2);
    ticks.filter_map(|tick| tick.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn median(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<_> = (0..201)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(100).copied().unwrap_or_default()
}

fn memory_line(reader: &StoreReader, base: u64) {
    let usage = reader.usage();
    let counted = usage.bytes as f64 / usage.objects as f64;
    let resident = per_object(memory("VmRSS"), base);
    println!("  resident            {resident:>8.0} B an object, {counted:.0} B counted");
}

/// Applies one list of all pods at a version. Returns the bytes of all bodies, and the time in the
/// store.
fn list(
    writer: &mut StoreWriter,
    kind: PodShape,
    version: u64,
    reread: ReplacePolicy,
) -> (u64, Duration) {
    let (mut bytes, mut took) = (0, Duration::ZERO);
    let mut body = String::new();
    writer.apply(Delta::ListStarted(reread));
    for n in 0..PODS {
        let namespace = format!("team-{:02}", n / (PODS / NAMESPACES));
        let deployment =
            n % (PODS / NAMESPACES) * DEPLOYMENTS / PODS * NAMESPACES + n / (PODS / NAMESPACES);
        let name = format!("app-{deployment}-{:08x}-{:05x}", mix(deployment), mix(n) & 0xf_ffff);
        let uid = Uid::parse(&uid(n));
        body.clear();
        pod(&mut body, kind, n, version, &namespace, &name, deployment);
        bytes += body.len() as u64;
        let item = DecodedObject {
            namespace: namespace.into(),
            name: name.into(),
            uid,
            version: Some(ResourceVersion::from(version * 1_000_000 + u64::from(n))),
            body: body.as_bytes(),
        };
        let start = Instant::now();
        writer.apply(Delta::Upsert(item));
        took += start.elapsed();
    }
    let start = Instant::now();
    writer.apply(Delta::ListDone(ResourceVersion::from(version * 1_000_000 + u64::from(PODS))));
    (bytes, took + start.elapsed())
}

fn pod(
    to: &mut String,
    kind: PodShape,
    n: u32,
    version: u64,
    namespace: &str,
    name: &str,
    deployment: u32,
) {
    let (hash, uid, owner) = (mix(deployment), uid(n), uid(deployment + 1_000_000));
    let revision = version * 1_000_000 + u64::from(n);
    let at = format!("2026-05-{:02}T{:02}:{:02}:{:02}Z", n % 28 + 1, n % 24, n / 7 % 60, n % 60);
    let _ = write!(
        to,
        r#"{{"metadata":{{"name":"{name}","generateName":"app-{deployment}-{hash:08x}-","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{revision}","generation":1,"creationTimestamp":"{at}","labels":{{"app":"app-{deployment}","pod-template-hash":"{hash:08x}","team":"{namespace}","tier":"backend"}},"annotations":{{"checksum/config":"{owner}{owner}","prometheus.io/port":"8080","prometheus.io/scrape":"true"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-{deployment}-{hash:08x}","uid":"{owner}","controller":true,"blockOwnerDeletion":true}}]}},"spec":{{"volumes":[{{"name":"config","configMap":{{"name":"app-{deployment}-config","defaultMode":420}}}},{{"name":"kube-api-access","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}}],"defaultMode":420}}}}],"containers":["#
    );
    for (at, container) in ["app", "proxy"].into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(
            to,
            r#"{comma}{{"name":"{container}","image":"registry.example/{container}-{deployment}:1.4.{deployment}","ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}},{{"name":"metrics","containerPort":9090,"protocol":"TCP"}}],"env":[{{"name":"LOG_LEVEL","value":"info"}},{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.name"}}}}}},{{"name":"DATABASE_URL","value":"postgres://app-{deployment}.db.svc:5432/app"}}],"resources":{{"limits":{{"cpu":"500m","memory":"512Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"volumeMounts":[{{"name":"config","readOnly":true,"mountPath":"/etc/app"}},{{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"livenessProbe":{{"httpGet":{{"path":"/healthz","port":"http","scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}"#
        );
    }
    let _ = write!(
        to,
        r#"],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"app-{deployment}","serviceAccount":"app-{deployment}","nodeName":"node-{:03}","securityContext":{{"runAsNonRoot":true}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}},{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{{"#,
        mix(n) % 300
    );
    match kind {
        PodShape::Alike => to.push_str(r#""phase":"Pending","qosClass":"Burstable"}}"#),
        PodShape::WithStatus => status(to, n, deployment, &at),
    }
}

fn status(to: &mut String, n: u32, deployment: u32, at: &str) {
    let ip = format!("10.{}.{}.{}", n % 256, n / 256 % 256, mix(n) % 256);
    to.push_str(r#""phase":"Running","conditions":["#);
    for kind in
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    {
        let _ = write!(
            to,
            r#"{{"type":"{kind}","status":"True","lastProbeTime":null,"lastTransitionTime":"{at}"}},"#
        );
    }
    to.pop();
    let _ = write!(
        to,
        r#"],"hostIP":"192.168.{}.{}","podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],"startTime":"{at}","containerStatuses":["#,
        mix(n) % 16,
        mix(n) % 300 % 256
    );
    for container in 0..2 {
        let _ = write!(
            to,
            r#"{{"name":"{container}","state":{{"running":{{"startedAt":"{at}"}}}},"lastState":{{}},"ready":true,"restartCount":{},"image":"registry.example/app-{deployment}:1.4.{deployment}","imageID":"registry.example/app-{deployment}@sha256:{}","containerID":"containerd://{}","started":true}},"#,
            mix(n) % 3,
            digest(deployment),
            digest(n * 2 + container + 10_000_000)
        );
    }
    to.pop();
    to.push_str(r#"],"qosClass":"Burstable"}}"#);
}

fn digest(n: u32) -> String {
    (0..8).fold(String::new(), |mut text, at| {
        let _ = write!(text, "{:08x}", mix(n.wrapping_mul(8).wrapping_add(at)));
        text
    })
}

fn uid(n: u32) -> String {
    let [first, second, third, last] = [0, 0x5555, 0xaaaa, 0xffff].map(|salt| mix(n ^ salt));
    let (head, tail) = (second & 0xffff, second >> 20);
    format!(
        "{first:08x}-{head:04x}-4{tail:03x}-8{:03x}-{third:08x}{:04x}",
        last & 0xfff,
        last >> 16
    )
}

/// A reproducible hash, in place of random numbers.
fn mix(n: u32) -> u32 {
    let n = (n ^ 0x9e37_79b9).wrapping_mul(0x85eb_ca6b);
    let n = (n ^ (n >> 13)).wrapping_mul(0xc2b2_ae35);
    n ^ (n >> 16)
}

fn informer() -> InformerKey {
    InformerKey {
        resource: Resource::new(GroupResource::new("", "pods").expect("valid"), "v1")
            .expect("valid"),
        scope: InformerScope::AllNamespaces,
        labels: LabelSelector::default(),
        fields: FieldSelector::default(),
        projection: Projection::Full(ManagedFieldsPolicy::Drop),
        secret_data: SecretDataPolicy::Deny,
        identity: Identity::Operator,
        declared_in: None,
    }
}

/// A value of `/proc/self/status`, in bytes.
fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap_or_default();
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
    kib * 1024
}

fn per_object(bytes: u64, base: u64) -> f64 {
    bytes.saturating_sub(base) as f64 / f64::from(PODS)
}

fn each(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6 / f64::from(PODS)
}
