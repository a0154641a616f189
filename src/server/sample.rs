//! Cells for the tests of this layer. Times are seconds around 1,000.

use crate::{
    informer::{CellFault, CellReport, Phase, Strategy, Verb, Warmed},
    metrics::CellSnapshot,
    model::{
        CellKey, Extent, FieldSelector, GroupResource, Identity, LabelSelector, ManagedFields,
        Projection, Reason, Resource, ResourceVersion, SensitiveData,
    },
};
use jiff::Timestamp;
use std::{sync::Arc, time::Duration};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn key(resource: &str, namespace: &str) -> CellKey {
    CellKey {
        resource: Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        extent: Extent::Namespace(namespace.into()),
        labels: LabelSelector::default(),
        fields: FieldSelector::default(),
        projection: Projection::Full(ManagedFields::Drop),
        sensitive_data: SensitiveData::Deny,
        identity: Identity::Operator,
    }
}

pub(super) fn snapshot(key: CellKey, report: CellReport) -> CellSnapshot {
    CellSnapshot { key, report: Arc::new(report), objects: 3, bytes: 4096, undecodable: 0 }
}

pub(super) fn listing() -> CellReport {
    CellReport { phase: Phase::Listing, ..CellReport::queued(at(900)) }
}

pub(super) fn synced() -> CellReport {
    CellReport {
        phase: Phase::Watching,
        warmed: Some(Warmed {
            started: at(900),
            synced: at(902),
            took: Duration::from_secs(2),
            strategy: Strategy::Whole,
        }),
        synced_at: Some(at(902)),
        version: Some(ResourceVersion::from(42)),
        ..listing()
    }
}

/// Failed three times, last at 999; the next attempt is at 1,004.
pub(super) fn failing(reason: Reason, since: i64) -> CellReport {
    CellReport {
        phase: Phase::Failing,
        fault: Some(CellFault {
            reason,
            verb: Verb::List,
            message: "no \"list\" for you".into(),
            at: at(999),
            since: at(since),
            attempts: 3,
            next_retry: Some(at(1_004)),
        }),
        ..listing()
    }
}
