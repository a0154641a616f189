//! Declared profiles and reports of informers for the status tests.

use crate::{
    access::{CellAccess, Standing},
    status::{CellView, Clock, Excesses, Observed, compute},
};
use jiff::{SignedDuration, Timestamp};
use kubewarm_api::{
    model::{
        AuthorCheck, CellKey, CellSpec, Declared, DeclaredTarget, Extent, GroupResource, Limits,
        ManagedFields, Mode, OnAccessLost, ProfileRef, Projection, ReadTerms, Reason, Requirement,
        Resource, ResourceInfo, Serving,
    },
    v1alpha1::{AccessStatus, CacheProfileStatus},
};
use kubewarm_cache::{
    informer::{CellFault, CellReport, ListMethod, Phase, Verb, Warmed},
    store::Usage,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

pub(super) const SUBJECT: &str = "system:serviceaccount:kubewarm-system:kubewarm";

/// All informers with their state, and the current time.
#[derive(Clone, Debug)]
pub(in crate::status) struct World {
    pub(in crate::status) clock: Clock,
    pub(super) cells: HashMap<CellKey, CellView>,
    pub(super) excess: Option<Excesses>,
}

impl World {
    /// A world 100 seconds after the start of the process, without running informers.
    pub(in crate::status) fn new() -> Self {
        let process_start = Instant::now();
        let clock = Clock {
            wall: Timestamp::from_second(1_000_000).unwrap(),
            mono: process_start + Duration::from_secs(100),
            process_start,
        };
        Self { clock, cells: HashMap::new(), excess: None }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.clock.wall += SignedDuration::try_from(time).unwrap();
        self.clock.mono += time;
    }

    pub(super) fn runs(&mut self, key: CellKey, report: CellReport) {
        let usage = Usage { objects: 10, bytes: 3 << 20 };
        let report = Some(CellReport { usage, ..report });
        self.cells.insert(key, CellView { report, access: Some(self.granted()) });
    }

    pub(super) fn compute(
        &self,
        declared: &Declared,
        previous: Option<&CacheProfileStatus>,
    ) -> CacheProfileStatus {
        let access = AccessStatus {
            subject: Some(SUBJECT.to_owned()),
            manifests: Some("kind: Role".to_owned()),
            manifests_elevated: Some("kind: Role".to_owned()),
            ..AccessStatus::default()
        };
        let (access, excess) = (Some(Arc::new(access)), self.excess.clone());
        let declared = Arc::new(declared.clone());
        let observed = Observed { access, excess, ..Observed::new(declared) };
        compute(&observed, previous, self.clock, &|key| {
            self.cells.get(key).cloned().unwrap_or_default()
        })
    }

    /// Permission state confirmed at the current time.
    pub(super) fn granted(&self) -> CellAccess {
        CellAccess {
            standing: Standing::Granted { verified_at: self.clock.wall, is_by_review: false },
            overruled: None,
            is_late: false,
            failed: None,
        }
    }

    /// Replaces the permission state of an informer.
    pub(super) fn set_access(&mut self, key: &CellKey, access: CellAccess) {
        self.cells.get_mut(key).unwrap().access = Some(access);
    }

    /// Report of an informer in its first list.
    pub(super) fn listing(&self) -> CellReport {
        CellReport { phase: Phase::Listing, ..CellReport::queued(self.clock.wall) }
    }

    /// Report of an informer that synced two seconds after its declaration, which was 90 seconds
    /// after the start.
    pub(super) fn watching(&self) -> CellReport {
        let started = self.clock.wall - SignedDuration::from_secs(10);
        let synced = started + SignedDuration::from_secs(2);
        CellReport {
            phase: Phase::Watching,
            warmed: Some(Warmed {
                started,
                synced,
                took: Duration::from_secs(2),
                strategy: ListMethod::List,
            }),
            synced_at: Some(synced),
            version: Some(77.into()),
            current_at: Some(self.clock.mono),
            current_time: Some(self.clock.wall),
            ..self.listing()
        }
    }

    /// `report` with a fault that began a minute ago.
    pub(super) fn failing(&self, report: CellReport, reason: Reason, verb: Verb) -> CellReport {
        let since = self.clock.wall - SignedDuration::from_mins(1);
        let fault = CellFault {
            reason,
            verb,
            message: "the server's words".into(),
            at: self.clock.wall,
            since,
            attempts: 3,
            next_retry: Some(self.clock.wall + SignedDuration::from_secs(5)),
        };
        CellReport { phase: Phase::Failing, fault: Some(fault), ..report }
    }
}

pub(super) fn key(resource: &str, extent: Extent) -> CellKey {
    CellKey::all(
        Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        extent,
        Projection::Full(ManagedFields::Drop),
    )
}

pub(super) fn pods(namespace: &str) -> CellKey {
    key("pods", Extent::Namespace(namespace.into()))
}

pub(super) fn spec(key: &CellKey) -> CellSpec {
    CellSpec::new(key.clone(), ProfileRef { namespace: "shop".into(), name: "checkout".into() })
}

/// A resolved required target of `cells` that no informer serves yet.
pub(super) fn target(name: &str, cells: &[CellKey]) -> DeclaredTarget {
    let resource = cells.first().map_or_else(|| pods("x").resource, |key| key.resource.clone());
    DeclaredTarget {
        name: name.into(),
        requirement: Requirement::Required,
        declared_as: resource.group_resource().to_string().into(),
        resolved: Some(Ok(ResourceInfo {
            verbs: Arc::new(["list".into(), "watch".into()]),
            ..ResourceInfo::new(resource, "Pod")
        })),
        cells: cells.iter().map(spec).collect(),
        namespaces: None,
        serving: None,
        named: [].into(),
        left_out: [].into(),
        limited: None,
    }
}

pub(super) fn serving(
    target: DeclaredTarget,
    generation: i64,
    cells: &[CellKey],
) -> DeclaredTarget {
    let kind = ResourceInfo::new(cells[0].resource.clone(), "Pod");
    let serving = Serving { generation, kind, cells: cells.iter().map(spec).collect() };
    DeclaredTarget { serving: Some(serving), ..target }
}

/// A profile that was accepted 90 seconds after the start, with generation 3.
pub(super) fn declared(targets: Vec<DeclaredTarget>) -> Declared {
    Declared {
        profile: ProfileRef { namespace: "shop".into(), name: "checkout".into() },
        uid: "u1".into(),
        generation: 3,
        refused: None,
        service_account: None,
        authors: AuthorCheck::Enforced,
        mode: Mode::Active,
        targets,
        warmup_deadline: None,
        max_staleness: Duration::from_mins(2),
        on_access_lost: OnAccessLost::default(),
        reads: ReadTerms::default(),
        limits: Limits::default(),
        accepted_at: Duration::from_secs(90),
    }
}

/// Returns `status/reason` of a condition.
pub(super) fn state(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    type_: &str,
) -> String {
    let found = conditions.iter().find(|condition| condition.type_ == type_);
    found.map_or_else(String::new, |found| format!("{}/{}", found.status, found.reason))
}

/// Returns `Ready`, `Warm` and `Fresh` of a profile.
pub(super) fn summary(status: &CacheProfileStatus) -> [String; 3] {
    ["Ready", "Warm", "Fresh"].map(|type_| state(&status.conditions, type_))
}

pub(super) fn message(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    type_: &str,
) -> String {
    let found = conditions.iter().find(|condition| condition.type_ == type_);
    found.map(|found| found.message.clone()).unwrap_or_default()
}

/// Returns the status of a profile with the single informer `pods("a")`.
pub(super) fn one(world: &mut World, report: CellReport) -> CacheProfileStatus {
    world.runs(pods("a"), report);
    world.compute(&declared(vec![target("pods", &[pods("a")])]), None)
}
