//! Cells for the tests of this folder.

use kubewarm_api::model::{
    CellKey, CellSpec, Extent, GroupResource, ListStrategy, ManagedFields, MemberOf,
    NamespaceCheck, OnAccessLost, ProfileRef, Projection, Resource, Tuning,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// A cell of a core kind in a namespace.
pub(super) fn spec(resource: &str, namespace: &str) -> CellSpec {
    let profile = ProfileRef { namespace: "a".into(), name: "p".into() };
    CellSpec {
        key: CellKey::all(
            Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
            Extent::Namespace(namespace.into()),
            Projection::Full(ManagedFields::Drop),
        ),
        tuning: Tuning {
            member_of: MemberOf { profile, max_concurrent_lists: 2, priority: 500 },
            strategy: ListStrategy::Auto,
            page_size: 500,
            streaming_deadline: Duration::from_secs(30),
            max_staleness: Duration::from_mins(2),
            verify_interval: None,
            namespace_check: NamespaceCheck::Known,
            on_access_lost: OnAccessLost::Fence,
            gauge: Arc::default(),
        },
        indexes: BTreeSet::new(),
    }
}
