//! Computes the samples of `kubewarm status` that docs/quick-start.md and the client's own tests
//! contain, and tests that they are up to date. `BLESS=1 cargo test` rewrites both.

#![expect(clippy::expect_used, reason = "a test may panic")]

use jiff::{SignedDuration, Timestamp};
use kubewarm::{
    access::InformerAccess,
    commands::{ReportFormat, TerminalLayout, overview, render},
    status::{ClockReading, InformerView, LiveState, ObservedProfile, compute},
};
use kubewarm_api::{
    model::{
        AccountPolicyEnforcement, FaultReason, FieldSelector, GroupResource, Identity, InformerKey,
        InformerScope, InformerSpec, LabelSelector, ManagedFieldsPolicy, ProfileRef, Projection,
        Refusal, ResolvedProfile, ResolvedTarget, Resource, ResourceInfo, SecretDataPolicy,
        TargetInformers, TargetRequirement, Verb,
    },
    v1alpha1::{AccessStatus, CacheProfile, CacheProfileStatus},
};
use kubewarm_cache::{
    informer::{
        FirstSync, FirstSyncMethod, InformerFault, InformerPhase, InformerReport, PermissionDenial,
        PermissionState, RelistReason, RelistReport,
    },
    store::StoreUsage,
};
use kubewarm_client::ServedResources;
use serde_json::json;
use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The sample that the client's tests read.
const CLIENT: &str = "src/commands/warming.json";

/// The informers of a sample, and the identity with which they read.
struct SampleWorld {
    clock: ClockReading,
    identity: Identity,
    subject: &'static str,
    informers: BTreeMap<InformerKey, InformerView>,
}

impl SampleWorld {
    /// The sample's time: noon, 100 seconds after the start of the process.
    fn new(identity: Identity, subject: &'static str) -> Self {
        let process_start = Instant::now();
        let clock = ClockReading {
            wall: "2026-03-01T12:00:00Z".parse().expect("a time"),
            mono: process_start + Duration::from_secs(100),
            process_start,
        };
        Self { clock, identity, subject, informers: BTreeMap::new() }
    }

    fn ago(&self, seconds: i64) -> Timestamp {
        self.clock.wall - SignedDuration::from_secs(seconds)
    }

    /// An informer that is synced and fresh.
    fn watching(&self) -> InformerReport {
        InformerReport {
            phase: InformerPhase::Watching,
            warmed: Some(FirstSync {
                started: self.ago(10),
                synced: self.ago(8),
                took: Duration::from_millis(2_480),
                strategy: FirstSyncMethod::List,
            }),
            synced_at: Some(self.ago(8)),
            current_at: Some(self.clock.mono),
            ..InformerReport::queued(self.ago(60))
        }
    }

    /// An informer without permission for `verb`. It sends no request until access returns.
    fn refused(&self, key: &InformerKey, verb: Verb) -> InformerReport {
        let (resource, verb_word) = (key.resource.resource(), verb.as_str());
        let kind = key.resource.group_resource();
        let namespace = key.scope.namespace().unwrap_or_default();
        let message = format!(
            "{kind} is forbidden: User {:?} cannot {verb_word} resource {resource:?} in API group \
             {:?} in the namespace {namespace:?}",
            self.subject,
            key.resource.group(),
        );
        let fault = InformerFault {
            reason: FaultReason::Forbidden,
            verb,
            message: message.into(),
            at: self.ago(60),
            since: self.ago(60),
            attempts: 1,
            next_retry: None,
        };
        InformerReport {
            phase: InformerPhase::Blocked,
            fault: Some(fault),
            ..InformerReport::queued(self.ago(60))
        }
    }

    /// An informer whose first list gets no answer.
    fn failing(&self) -> InformerReport {
        let fault = InformerFault {
            reason: FaultReason::TimedOut,
            verb: Verb::List,
            message: "no answer within 10 s".into(),
            at: self.ago(18),
            since: self.ago(60),
            attempts: 3,
            next_retry: Some(self.clock.wall + SignedDuration::from_secs(12)),
        };
        InformerReport {
            phase: InformerPhase::Failing,
            fault: Some(fault),
            ..InformerReport::queued(self.ago(60))
        }
    }

    fn key(&self, group: &str, resource: &str, namespace: &str) -> InformerKey {
        let resource = GroupResource::new(group, resource).expect("a name");
        InformerKey {
            resource: Resource::new(resource, "v1").expect("a version"),
            scope: InformerScope::Namespace(namespace.into()),
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            projection: Projection::Full(ManagedFieldsPolicy::Keep),
            secret_data: SecretDataPolicy::Deny,
            identity: self.identity.clone(),
            declared_in: None,
        }
    }

    /// Adds an informer with its report. `verbs` lists its missing permissions.
    fn runs(
        &mut self,
        key: &InformerKey,
        report: InformerReport,
        verbs: &[Verb],
        (objects, bytes): (u64, u64),
    ) {
        let verified_at = self.ago(8);
        let state = match verbs {
            [] => PermissionState::Granted { verified_at, is_by_review: false },
            verbs => PermissionState::Refused(PermissionDenial {
                verbs: verbs.to_vec(),
                reason: FaultReason::Forbidden,
                message: "".into(),
                verified_at,
                revoked: None,
            }),
        };
        let access = InformerAccess { state, overruled: None, is_late: false, failed: None };
        let report = InformerReport { usage: StoreUsage { objects, bytes }, ..report };
        let view =
            InformerView { report: Some(report), access: Some(access), ..InformerView::default() };
        self.informers.insert(key.clone(), view);
    }

    fn compute(&self, declared: &ResolvedProfile) -> CacheProfileStatus {
        let access = AccessStatus {
            subject: Some(self.subject.to_owned()),
            manifests: Some("kind: Role\n".to_owned()),
            ..AccessStatus::default()
        };
        let access = Some(Arc::new(access));
        let observed = ObservedProfile {
            access,
            ..ObservedProfile::new(
                Arc::new(declared.clone()),
                kubewarm_api::manifests::NAMESPACE.into(),
            )
        };
        let informers = |key: &InformerKey| self.informers.get(key).cloned().unwrap_or_default();
        let live = LiveState { informers: &informers, excess: &|_| None };
        compute(&observed, None, self.clock, live)
    }
}

fn spec(key: &InformerKey) -> InformerSpec {
    InformerSpec::new(key.clone(), ProfileRef { namespace: "shop".into(), name: "checkout".into() })
}

fn target(name: &str, kind: &str, informers: &[InformerKey]) -> ResolvedTarget {
    let resource = informers.first().expect("an informer").resource.clone();
    ResolvedTarget {
        name: name.into(),
        requirement: TargetRequirement::Required,
        declared_as: resource.group_resource().to_string().into(),
        resolved: Some(Ok(ResourceInfo {
            verbs: Arc::new(["list".into(), "watch".into()]),
            ..ResourceInfo::new(resource, kind)
        })),
        informers: informers.iter().map(spec).collect(),
        namespaces: None,
        serving: None,
        named: [].into(),
        left_out: [].into(),
        limited: None,
    }
}

/// A profile that kubewarm accepted 10 seconds ago.
fn declared(name: &str, generation: i64, targets: Vec<ResolvedTarget>) -> ResolvedProfile {
    let profile = ProfileRef { namespace: "shop".into(), name: name.into() };
    ResolvedProfile {
        authors: AccountPolicyEnforcement::Enforced,
        targets,
        warmup_deadline: Some(Duration::from_secs(10)),
        accepted_at: Duration::from_secs(90),
        ..ResolvedProfile::without_targets(profile, "u-1".into(), generation)
    }
}

fn profile(declared: &ResolvedProfile, status: &CacheProfileStatus) -> serde_json::Value {
    json!({
        "apiVersion": "kubewarm.io/v1alpha1",
        "kind": "CacheProfile",
        "metadata": {
            "namespace": &*declared.profile.namespace,
            "name": &*declared.profile.name,
            "generation": declared.generation,
            "uid": &*declared.uid,
        },
        "spec": {
            "targets": [{ "name": "pods", "resource": "pods" }],
            "warmup": { "deadlineSeconds": 10 },
        },
        "status": status,
    })
}

/// A profile with three targets. One is warm, and one has an unknown kind. The third is warming up:
/// one of its informers is refused, one lost its watch, and one gets no answer.
fn warming() -> serde_json::Value {
    let account =
        Identity::ServiceAccount { namespace: "shop".into(), name: "cache-reader".into() };
    let mut world = SampleWorld::new(account, "system:serviceaccount:shop:cache-reader");
    let pods: Vec<_> = (1..=12).map(|n| world.key("", "pods", &format!("team-{n}"))).collect();
    for (at, key) in pods.iter().enumerate() {
        let last_relist = (at == 0).then(|| RelistReport {
            at: world.ago(12),
            reason: RelistReason::Gone,
            replaced: 3,
            deleted_objects: 2,
        });
        let report = InformerReport { last_relist, ..world.watching() };
        world.runs(key, report, &[], if at == 0 { (50_000, 24 << 20) } else { (0, 0) });
    }
    let [shop, orders, payments, stock] = ["shop", "orders", "payments", "stock"]
        .map(|namespace| world.key("apps", "deployments", namespace));
    world.runs(&orders, world.watching(), &[], (300, 1 << 19));
    let broken = InformerReport { phase: InformerPhase::Reconnecting, ..world.watching() };
    world.runs(&payments, broken, &[], (45, 1 << 18));
    world.runs(&shop, world.refused(&shop, Verb::Watch), &[Verb::Watch], (0, 0));
    world.runs(&stock, world.failing(), &[], (0, 0));

    let edited = target("deployments", "Deployment", &[orders.clone(), payments, shop, stock]);
    let kind = ResourceInfo::new(orders.resource.clone(), "Deployment");
    let serving = Some(TargetInformers { generation: 1, kind, informers: [spec(&orders)].into() });
    let widgets = GroupResource::new("example.com", "widgets").expect("a name");
    let unknown =
        ServedResources::default().resolve(&widgets, None).expect_err("nothing is served");
    // The controller adds the name of the field to this message, so the sample does too.
    let unknown = Refusal { message: format!("targets[widgets].{}", unknown.message), ..unknown };
    let targets = vec![
        target("pods", "Pod", &pods),
        ResolvedTarget { serving, ..edited.clone() },
        ResolvedTarget {
            name: "widgets".into(),
            declared_as: widgets.to_string().into(),
            resolved: Some(Err(unknown)),
            informers: [].into(),
            ..edited
        },
    ];
    let declared = ResolvedProfile {
        service_account: Some("cache-reader".into()),
        ..declared("orders", 2, targets)
    };
    profile(&declared, &world.compute(&declared))
}

/// The profile of docs/quick-start.md, with the permissions for deployments only.
fn checkout() -> CacheProfile {
    let mut world =
        SampleWorld::new(Identity::Operator, "system:serviceaccount:kubewarm-system:kubewarm");
    let deployments = world.key("apps", "deployments", "shop");
    let configmaps = world.key("", "configmaps", "shop");
    world.runs(&deployments, world.watching(), &[], (12, 90_000));
    let refused = world.refused(&configmaps, Verb::List);
    world.runs(&configmaps, refused, &[Verb::List, Verb::Watch], (0, 0));
    let targets = vec![
        target("deployments", "Deployment", &[deployments]),
        target("configmaps", "ConfigMap", &[configmaps]),
    ];
    let declared = declared("checkout", 7, targets);
    serde_json::from_value(profile(&declared, &world.compute(&declared))).expect("its shape")
}

fn in_repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn is_blessed() -> bool {
    std::env::var_os("BLESS").is_some()
}

#[test]
fn the_clients_sample_matches_the_computed_status() {
    let computed = serde_json::to_string_pretty(&warming()).expect("JSON") + "\n";
    if is_blessed() {
        fs::write(in_repository(CLIENT), &computed).expect("the file can be written");
    }
    let committed = fs::read_to_string(in_repository(CLIENT)).unwrap_or_default();
    assert!(committed == computed, "{CLIENT} is stale; run `make generate` and commit the result");
}

#[test]
fn the_quick_start_shows_the_output_of_status() {
    const PAGE: &str = "docs/quick-start.md";
    const BEFORE: &str = "```text\n$ kubewarm status -n shop\n";
    let now = "2026-03-01T12:00:00Z".parse().expect("a time");
    let format = ReportFormat::Text(TerminalLayout { width: 100, ..TerminalLayout::default() });
    let drawn =
        render(&overview(&[checkout()], "kubewarm-system", now), format).expect("it is drawn");
    let page = fs::read_to_string(in_repository(PAGE)).expect("it is readable");
    let (head, rest) = page.split_once(BEFORE).expect("the sample is there");
    let (shown, tail) = rest.split_once("```\n").expect("it ends");
    if is_blessed() {
        let text = [head, BEFORE, &drawn, "```\n", tail].concat();
        fs::write(in_repository(PAGE), text).expect("the file can be written");
        return;
    }
    assert_eq!(shown, drawn, "{PAGE} is stale; run `make generate` and commit the result");
}
