//! Cells for the tests of this folder.

use crate::model::{
    CellKey, CellSpec, Extent, FieldSelector, GroupResource, Identity, LabelSelector, Leaves,
    ListStrategy, ManagedFields, MemberOf, NamespaceCheck, ProfileRef, Projection, Resource,
    SensitiveData, Tuning,
};
use std::{collections::BTreeSet, time::Duration};

/// A cell of a core kind in a namespace.
pub(super) fn spec(resource: &str, namespace: &str) -> CellSpec {
    let profile = ProfileRef { namespace: "a".into(), name: "p".into() };
    CellSpec {
        key: CellKey {
            resource: Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
            extent: Extent::Namespace(namespace.into()),
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            projection: Projection::Full(ManagedFields::Drop),
            sensitive_data: SensitiveData::Deny,
            identity: Identity::Operator,
        },
        tuning: Tuning {
            member_of: MemberOf { profile, max_concurrent_lists: 2, priority: 500 },
            strategy: ListStrategy::Auto,
            page_size: 500,
            streaming_deadline: Duration::from_secs(30),
            max_staleness: Duration::from_mins(2),
            verify_interval: None,
            namespace_check: NamespaceCheck::Known,
            keep_fenced: Duration::from_mins(10),
            leaves: Leaves::default(),
        },
        indexes: BTreeSet::new(),
    }
}
