use crate::{
    access::InformerAccess,
    status::{ClockReading, ExcessByNamespace, InformerView, LiveState, ObservedProfile, compute},
};
use jiff::{SignedDuration, Timestamp};
use kubewarm_api::{
    model::{
        AccountPolicyEnforcement, FaultReason, GroupResource, InformerKey, InformerScope,
        InformerSpec, ManagedFieldsPolicy, ProfileRef, Projection, ResolvedProfile, ResolvedTarget,
        Resource, ResourceInfo, TargetInformers, TargetRequirement,
    },
    v1alpha1::{AccessStatus, CacheProfileStatus},
};
use kubewarm_cache::{
    informer::{
        FirstSync, FirstSyncMethod, InformerFault, InformerPhase, InformerReport, PermissionState,
        Verb,
    },
    store::StoreUsage,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

pub(super) const SUBJECT: &str = "system:serviceaccount:kubewarm-system:kubewarm";
/// The command that messages name for the profile `checkout`.
pub(super) const RBAC: &str =
    "kubectl warm rbac checkout -n shop --operator-namespace kubewarm-system";

/// The running informers with their reports and permission states, and the current time.
#[derive(Clone, Debug)]
pub(in crate::status) struct StatusWorld {
    pub(in crate::status) clock: ClockReading,
    pub(super) informers: HashMap<InformerKey, InformerView>,
    pub(super) excess: Option<ExcessByNamespace>,
}

impl StatusWorld {
    /// Returns a `StatusWorld` without running informers. Its current time is 100 seconds after the
    /// start of the process.
    pub(in crate::status) fn new() -> Self {
        let process_start = Instant::now();
        let clock = ClockReading {
            wall: Timestamp::from_second(1_000_000).unwrap(),
            mono: process_start + Duration::from_secs(100),
            process_start,
        };
        Self { clock, informers: HashMap::new(), excess: None }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.clock.wall += SignedDuration::try_from(time).unwrap();
        self.clock.mono += time;
    }

    pub(super) fn runs(&mut self, key: InformerKey, report: InformerReport) {
        let usage = StoreUsage { objects: 10, bytes: 3 << 20 };
        let report = Some(InformerReport { usage, ..report });
        self.informers.insert(
            key,
            InformerView { report, access: Some(self.granted()), ..InformerView::default() },
        );
    }

    pub(super) fn compute(
        &self,
        profile: &ResolvedProfile,
        previous: Option<&CacheProfileStatus>,
    ) -> CacheProfileStatus {
        let access = AccessStatus {
            subject: Some(SUBJECT.to_owned()),
            manifests: Some("kind: Role".to_owned()),
            manifests_elevated: Some("kind: Role".to_owned()),
            ..AccessStatus::default()
        };
        let profile = Arc::new(profile.clone());
        let observed = ObservedProfile {
            access: Some(Arc::new(access)),
            ..ObservedProfile::new(profile, kubewarm_api::manifests::NAMESPACE.into())
        };
        self.compute_of(&observed, previous)
    }

    pub(super) fn compute_of(
        &self,
        observed: &ObservedProfile,
        previous: Option<&CacheProfileStatus>,
    ) -> CacheProfileStatus {
        let informers = |key: &InformerKey| self.informers.get(key).cloned().unwrap_or_default();
        let excess = |_: &ResolvedProfile| self.excess.clone();
        let live = LiveState { informers: &informers, excess: &excess };
        compute(observed, previous, self.clock, live)
    }

    /// Returns the permission state of an informer whose access was confirmed at the current time.
    pub(super) fn granted(&self) -> InformerAccess {
        InformerAccess {
            state: PermissionState::Granted { verified_at: self.clock.wall, is_by_review: false },
            overruled: None,
            is_late: false,
            failed: None,
        }
    }

    pub(super) fn set_access(&mut self, key: &InformerKey, access: InformerAccess) {
        self.informers.get_mut(key).unwrap().access = Some(access);
    }

    pub(super) fn listing(&self) -> InformerReport {
        InformerReport { phase: InformerPhase::Listing, ..InformerReport::queued(self.clock.wall) }
    }

    /// Returns the report of an informer that started 90 seconds after the start of the process and
    /// synced two seconds later.
    pub(super) fn watching(&self) -> InformerReport {
        let started = self.clock.wall - SignedDuration::from_secs(10);
        let synced = started + SignedDuration::from_secs(2);
        InformerReport {
            phase: InformerPhase::Watching,
            warmed: Some(FirstSync {
                started,
                synced,
                took: Duration::from_secs(2),
                strategy: FirstSyncMethod::List,
            }),
            synced_at: Some(synced),
            version: Some(77.into()),
            current_at: Some(self.clock.mono),
            current_time: Some(self.clock.wall),
            ..self.listing()
        }
    }

    /// Returns `report` with a failed request as its fault, which began a minute ago.
    pub(super) fn failing(
        &self,
        report: InformerReport,
        reason: FaultReason,
        verb: Verb,
    ) -> InformerReport {
        let since = self.clock.wall - SignedDuration::from_mins(1);
        let fault = InformerFault {
            reason,
            verb,
            message: "the server's words".into(),
            at: self.clock.wall,
            since,
            attempts: 3,
            next_retry: Some(self.clock.wall + SignedDuration::from_secs(5)),
        };
        InformerReport { phase: InformerPhase::Failing, fault: Some(fault), ..report }
    }
}

/// Returns these informers and no excess permissions.
pub(super) fn live(informers: &dyn Fn(&InformerKey) -> InformerView) -> LiveState<'_> {
    LiveState { informers, excess: &|_| None }
}

pub(super) fn key(resource: &str, scope: InformerScope) -> InformerKey {
    InformerKey::all(
        Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        scope,
        Projection::Full(ManagedFieldsPolicy::Keep),
    )
}

pub(super) fn pods(namespace: &str) -> InformerKey {
    key("pods", InformerScope::Namespace(namespace.into()))
}

pub(super) fn spec(key: &InformerKey) -> InformerSpec {
    InformerSpec::new(key.clone(), ProfileRef { namespace: "shop".into(), name: "checkout".into() })
}

/// Returns a required target with these `informers`. The informers do not serve reads yet.
pub(super) fn target(name: &str, informers: &[InformerKey]) -> ResolvedTarget {
    let resource = informers.first().map_or_else(|| pods("x").resource, |key| key.resource.clone());
    ResolvedTarget {
        name: name.into(),
        requirement: TargetRequirement::Required,
        declared_as: resource.group_resource().to_string().into(),
        resolved: Some(Ok(ResourceInfo {
            verbs: Arc::new(["list".into(), "watch".into()]),
            ..ResourceInfo::new(resource, "Pod")
        })),
        informers: informers.iter().map(spec).collect(),
        namespaces: None,
        serving: None,
        named: [].into(),
        left_out: [].into(),
        limited: None,
    }
}

pub(super) fn serving(
    target: ResolvedTarget,
    generation: i64,
    informers: &[InformerKey],
) -> ResolvedTarget {
    let kind = ResourceInfo::new(informers[0].resource.clone(), "Pod");
    let serving =
        TargetInformers { generation, kind, informers: informers.iter().map(spec).collect() };
    ResolvedTarget { serving: Some(serving), ..target }
}

/// Returns a profile in generation 3, accepted 90 seconds after the start of the process.
pub(super) fn declared(targets: Vec<ResolvedTarget>) -> ResolvedProfile {
    let profile = ProfileRef { namespace: "shop".into(), name: "checkout".into() };
    ResolvedProfile {
        authors: AccountPolicyEnforcement::Enforced,
        targets,
        accepted_at: Duration::from_secs(90),
        ..ResolvedProfile::without_targets(profile, "u1".into(), 3)
    }
}

/// Returns `status/reason` of a condition.
pub(super) fn state(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    type_: &str,
) -> String {
    let condition = conditions.iter().find(|condition| condition.type_ == type_);
    condition
        .map_or_else(String::new, |condition| format!("{}/{}", condition.status, condition.reason))
}

pub(super) fn summary(status: &CacheProfileStatus) -> [String; 3] {
    ["Ready", "Warm", "Fresh"].map(|type_| state(&status.conditions, type_))
}

pub(super) fn message(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    type_: &str,
) -> String {
    let condition = conditions.iter().find(|condition| condition.type_ == type_);
    condition.map(|condition| condition.message.clone()).unwrap_or_default()
}

/// Returns the status of a profile with the single informer `pods("a")`.
pub(super) fn one(world: &mut StatusWorld, report: InformerReport) -> CacheProfileStatus {
    world.runs(pods("a"), report);
    world.compute(&declared(vec![target("pods", &[pods("a")])]), None)
}
