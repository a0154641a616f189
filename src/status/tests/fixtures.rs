//! Declared profiles and reports of cells, for tests.

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
    informer::{CellFault, CellReport, Phase, Strategy, Verb, Warmed},
    store::Usage,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

pub(super) const SUBJECT: &str = "system:serviceaccount:kubewarm-system:kubewarm";

/// What runs, and what time it is.
#[derive(Clone, Debug)]
pub(in crate::status) struct World {
    pub(in crate::status) clock: Clock,
    pub(super) cells: HashMap<CellKey, CellView>,
    pub(super) excess: Option<Excesses>,
}

impl World {
    /// 100 seconds after the start of the process; nothing runs.
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

    /// Verified now.
    pub(super) fn granted(&self) -> CellAccess {
        CellAccess {
            standing: Standing::Granted { verified_at: self.clock.wall, is_by_review: false },
            overruled: None,
            is_late: false,
            failed: None,
        }
    }

    /// Changes what is known of a cell's permissions.
    pub(super) fn knows(&mut self, key: &CellKey, access: CellAccess) {
        self.cells.get_mut(key).unwrap().access = Some(access);
    }

    /// In its first list.
    pub(super) fn listing(&self) -> CellReport {
        CellReport { phase: Phase::Listing, ..CellReport::queued(self.clock.wall) }
    }

    /// Synced two seconds after its declaration, which was at second 90 of the process.
    pub(super) fn watching(&self) -> CellReport {
        let started = self.clock.wall - SignedDuration::from_secs(10);
        let synced = started + SignedDuration::from_secs(2);
        CellReport {
            phase: Phase::Watching,
            warmed: Some(Warmed {
                started,
                synced,
                took: Duration::from_secs(2),
                strategy: Strategy::Whole,
            }),
            synced_at: Some(synced),
            version: Some(77.into()),
            current_at: Some(self.clock.mono),
            current_time: Some(self.clock.wall),
            ..self.listing()
        }
    }

    /// `report`, failing since a minute ago.
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

/// A required target of those cells, resolved, that serves nothing yet.
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

/// Accepted at second 90 of the process, as generation 3.
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

/// `status/reason` of a condition.
pub(super) fn said(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    type_: &str,
) -> String {
    let found = conditions.iter().find(|condition| condition.type_ == type_);
    found.map_or_else(String::new, |found| format!("{}/{}", found.status, found.reason))
}

/// `Ready`, `Warm` and `Fresh` of a profile.
pub(super) fn summary(status: &CacheProfileStatus) -> [String; 3] {
    ["Ready", "Warm", "Fresh"].map(|type_| said(&status.conditions, type_))
}

pub(super) fn message(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    type_: &str,
) -> String {
    let found = conditions.iter().find(|condition| condition.type_ == type_);
    found.map(|found| found.message.clone()).unwrap_or_default()
}

/// The status of a profile with the one cell `pods("a")`.
pub(super) fn one(world: &mut World, report: CellReport) -> CacheProfileStatus {
    world.runs(pods("a"), report);
    world.compute(&declared(vec![target("pods", &[pods("a")])]), None)
}
