//! Statuses and Events that kubewarm writes to a real API server.

use crate::world::{Failure, Outcome, World};
use jiff::Timestamp;
use kube::Client;
use kubewarm::status::{
    ClockReading, EventRecorder, InformerView, LiveState, ObservedProfile, ProfileEvent,
    StatusWrite, StatusWriteOutcome, StatusWriter, compute,
};
use kubewarm_api::{
    model::{AccountPolicyEnforcement, ProfileRef, ResolvedProfile},
    v1alpha1::{
        AccessStatus, CacheProfileStatus, InformerCounts, LatencyStatus, NamespaceRules,
        PolicyRule, QuantilesStatus, RelistStatus, ResolvedResourceStatus, ResourceScope,
        RulesCompleteness, TargetProblem, TargetStatus,
    },
};
use kubewarm_client::{ApiServerConnection, ConnectionOptions, NamespaceBuckets};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Instant;

/// The maximum number of targets of a profile.
const TARGETS: usize = 128;
/// A size in bytes just below the largest spec that kubewarm accepts, which has 40 KiB.
const SPEC: usize = 39 << 10;

/// A profile in its own namespace.
struct ProfileInNamespace {
    world: &'static World,
    profile: ProfileRef,
    uid: Arc<str>,
    spec: Value,
}

/// A spec with the maximum number of targets and almost the maximum size.
fn largest_spec() -> Value {
    let [long, short] = [63, 42].map(|length| "v".repeat(length));
    let target = |number: usize| {
        json!({
            "name": format!("{number:0>63}"), "resource": "pods",
            "labelSelector": {"matchLabels": {"a": long, "b": long, "c": short}},
        })
    };
    json!({"targets": (0..TARGETS).map(target).collect::<Vec<_>>()})
}

impl ProfileInNamespace {
    fn new(prefix: &str) -> Result<Self, Failure> {
        Self::with_spec(prefix, json!({"targets": [{"name": "pods", "resource": "pods"}]}))
    }

    fn with_spec(prefix: &str, spec: Value) -> Result<Self, Failure> {
        let world = World::shared()?;
        let namespace = world.namespace(prefix)?;
        let profile = ProfileRef { namespace: namespace.as_str().into(), name: "sample".into() };
        let mut subject = Self { world, profile, uid: "".into(), spec };
        subject.create()?;
        Ok(subject)
    }

    fn create(&mut self) -> Outcome {
        let manifest = json!({
            "apiVersion": "kubewarm.io/v1alpha1",
            "kind": "CacheProfile",
            "metadata": {"namespace": &*self.profile.namespace, "name": &*self.profile.name},
            "spec": self.spec,
        });
        self.world.cluster.apply(&manifest.to_string())?;
        self.uid = self.object()?["metadata"]["uid"].as_str().ok_or("no uid")?.into();
        Ok(())
    }

    fn object(&self) -> Result<Value, Failure> {
        self.world.get(&self.profile.namespace, "cprof", &self.profile.name)
    }

    fn write(&self, status: &CacheProfileStatus) -> StatusWrite {
        let (profile, uid) = (self.profile.clone(), Arc::clone(&self.uid));
        StatusWrite { profile, uid, status: Arc::new(status.clone()) }
    }

    fn client(&self) -> Result<Client, Failure> {
        let connection = ApiServerConnection::load(&ConnectionOptions::of_file(
            self.world.cluster.kubeconfig(),
        ))?;
        Ok(connection.client())
    }

    /// The status that kubewarm writes for this profile before any informer runs.
    fn first_status(&self) -> CacheProfileStatus {
        let (profile, uid) = (self.profile.clone(), Arc::clone(&self.uid));
        let declared = ResolvedProfile {
            authors: AccountPolicyEnforcement::Enforced,
            ..ResolvedProfile::without_targets(profile, uid, 1)
        };
        let now = Instant::now();
        let clock = ClockReading { wall: Timestamp::now(), mono: now, process_start: now };
        let observed =
            ObservedProfile::new(Arc::new(declared), kubewarm_api::manifests::NAMESPACE.into());
        let live = LiveState { informers: &|_| InformerView::default(), excess: &|_| None };
        compute(&observed, None, clock, live)
    }

    /// A status of this number of targets, with the maximum size of every field and of most lists.
    /// With more than 16 targets, the written status lacks problems, and then parts of messages.
    fn largest_status(&self, targets: usize) -> CacheProfileStatus {
        let mut status = self.first_status();
        for condition in &mut status.conditions {
            condition.message = "é".repeat(512);
        }
        let problem = |number: usize| TargetProblem {
            // Only the object's name differs between the problems, as if several objects could not
            // be decoded.
            namespace: "n".repeat(63),
            reason: "Undecodable".into(),
            object: format!("{number:0>253}"),
            message: Some("x".repeat(512)),
            next_retry_time: Some(condition_time()),
        };
        let quantiles = || Some(QuantilesStatus { p50: 1, p99: i32::MAX });
        let target = |number: usize| TargetStatus {
            name: format!("{number:0>63}"),
            conditions: status.conditions.clone(),
            serving_generation: Some(i64::MAX),
            objects: Some(i64::MAX),
            memory: Some("17592186044416Mi".into()),
            time_to_warm_milliseconds: Some(i64::MAX),
            last_confirmed_time: Some(condition_time()),
            problems: (0..16).map(problem).collect(),
            resolved: Some(ResolvedResourceStatus {
                version: Some("v1".into()),
                kind: Some("Pod".into()),
                scope: Some(ResourceScope::Namespaced),
                namespace_count: Some(i32::MAX),
            }),
            informers: Some(InformerCounts { total: i32::MAX, ..InformerCounts::default() }),
            latency_milliseconds: Some(LatencyStatus {
                list_page: quantiles(),
                event: quantiles(),
                read: quantiles(),
            }),
            last_relist: Some(RelistStatus {
                time: condition_time(),
                reason: "Rollback".into(),
                replaced_objects: 0,
                deleted_objects: 0,
            }),
        };
        status.targets = (0..targets).map(target).collect();
        let pods = PolicyRule {
            api_groups: vec![String::new()],
            resources: vec!["pods".into()],
            resource_names: Vec::new(),
            verbs: vec!["list".into(), "watch".into()],
        };
        let role = |number: usize| NamespaceRules {
            namespace: format!("{number:0>63}"),
            rules: vec![pods.clone(); 32],
        };
        status.access = Some(AccessStatus {
            subject: Some("s".repeat(512)),
            last_verified_time: Some(condition_time()),
            missing: (0..128).map(role).collect(),
            excess: (0..128).map(role).collect(),
            excess_completeness: Some(RulesCompleteness::Incomplete),
            manifests: Some("m".repeat(64 << 10)),
            manifests_elevated: Some("e".repeat(64 << 10)),
        });
        status
    }
}

fn condition_time() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH)
}

#[tokio::test]
async fn a_status_is_written_once_and_again_only_for_the_same_uid() -> Outcome {
    let mut subject = ProfileInNamespace::new("status-uid")?;
    let writer = StatusWriter::new(&subject.client()?);
    let write = subject.write(&subject.first_status());
    assert_eq!(writer.write(&write).await, StatusWriteOutcome::Written);
    let first = subject.object()?;
    assert_eq!(first["status"], serde_json::to_value(&*write.status)?, "a field was pruned");
    // Before the operator runs, the conditions are Unknown.
    let unknown = "--for=condition=Accepted=Unknown";
    let wait = ["wait", unknown, "cprof/sample", "--timeout=10s", "-n"];
    let namespace: &str = &subject.profile.namespace;
    subject.world.cluster.run(wait.into_iter().chain([namespace]))?;

    assert_eq!(writer.write(&write).await, StatusWriteOutcome::Written);
    let again = subject.object()?;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&again), version(&first), "an equal status was written");

    subject.world.cluster.run(["delete", "cprof", "sample", "-n", namespace])?;
    assert_eq!(
        writer.write(&write).await,
        StatusWriteOutcome::NotFound,
        "a status created an object"
    );
    subject.create()?;
    assert_eq!(writer.write(&write).await, StatusWriteOutcome::NotFound, "another UID");
    Ok(())
}

#[tokio::test]
async fn the_largest_status_fits_and_the_next_small_one_replaces_it() -> Outcome {
    let subject = ProfileInNamespace::new("status-large")?;
    let writer = StatusWriter::new(&subject.client()?);
    let large = subject.largest_status(16);
    assert_eq!(writer.write(&subject.write(&large)).await, StatusWriteOutcome::Written);
    let stored = &subject.object()?["status"];
    assert_eq!(stored["targets"], serde_json::to_value(&large.targets)?, "a field was pruned");
    assert_eq!(
        stored["access"],
        json!({
            "subject": "s".repeat(512),
            "lastVerifiedTime": "1970-01-01T00:00:00Z",
            "excessCompleteness": "Incomplete",
        }),
        "for which there is a command"
    );
    let small = subject.first_status();
    assert_eq!(writer.write(&subject.write(&small)).await, StatusWriteOutcome::Written);
    assert_eq!(subject.object()?["status"], serde_json::to_value(&small)?, "an old field was left");
    Ok(())
}

/// The object's size is the sum of the spec, the status, and the managed fields, which repeat the
/// targets' names.
#[tokio::test]
async fn the_largest_status_of_128_targets_fits_next_to_the_largest_spec() -> Outcome {
    let spec = largest_spec();
    let bytes = spec.to_string().len();
    assert!((SPEC..40 << 10).contains(&bytes), "{bytes} bytes");
    let subject = ProfileInNamespace::with_spec("status-of-many", spec)?;
    let writer = StatusWriter::new(&subject.client()?);
    let large = subject.largest_status(TARGETS);
    assert_eq!(writer.write(&subject.write(&large)).await, StatusWriteOutcome::Written);
    let object = subject.object()?;
    let stored = object["status"]["targets"].as_array().ok_or("no targets")?;
    assert_eq!(stored.len(), TARGETS);
    for (stored, mut expected) in stored.iter().zip(large.targets) {
        expected.problems.clear();
        for (number, condition) in expected.conditions.iter_mut().enumerate() {
            let message = stored["conditions"][number]["message"].as_str().unwrap_or_default();
            assert!(message.starts_with('é') && message.len() < condition.message.len());
            message.clone_into(&mut condition.message);
        }
        assert_eq!(*stored, serde_json::to_value(&expected)?, "a field was pruned");
    }
    let small = subject.first_status();
    assert_eq!(writer.write(&subject.write(&small)).await, StatusWriteOutcome::Written);
    assert_eq!(subject.object()?["status"], serde_json::to_value(&small)?, "an old field was left");
    Ok(())
}

#[tokio::test]
async fn an_event_is_found_with_its_profile() -> Outcome {
    let subject = ProfileInNamespace::new("events")?;
    let notice = ProfileEvent {
        profile: subject.profile.clone(),
        uid: Arc::clone(&subject.uid),
        target: String::new(),
        type_: "Warning",
        reason: "NotReady",
        note: "é".repeat(512),
    };
    let recorder =
        EventRecorder::new(&subject.client()?, "kubewarm-0", NamespaceBuckets::default());
    recorder.send(&notice, Timestamp::now()).await;
    let namespace: &str = &subject.profile.namespace;
    let events = subject.world.cluster.run(["events", "--for=cprof/sample", "-n", namespace])?;
    assert!(events.contains("NotReady") && events.contains("Warning"), "{events}");
    Ok(())
}
