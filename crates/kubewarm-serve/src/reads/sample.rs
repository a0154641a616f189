//! Requests, informer keys and offers for the tests of this module.

use super::{
    kind::Kind,
    offers::{Offering, Offers},
};
use jiff::Timestamp;
use kubewarm_api::model::{
    AuthorCheck, CellKey, Consistency, Declared, Extent, FieldPath, GroupResource, Identity, Index,
    Limits, ManagedFields, Mode, OnAccessLost, ProfileRef, Projection, ReadTerms, Resource,
    ResourceInfo, SecretData,
};
use kubewarm_cache::informer::{CellReport, Phase};
use kubewarm_client::Definition;
use kubewarm_wire::{Asked, Objects, What};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Parses a GET request.
pub(super) fn asked(path: &str, query: &str) -> (Objects, Option<ProfileRef>) {
    let Asked { profile, what } = Asked::parse("GET", path, Some(query), None).unwrap();
    match what {
        What::Objects(objects) => (objects, profile),
        What::Document(other, _) => panic!("{other:?}"),
    }
}

/// A resource of the core group.
pub(super) fn core(plural: &str) -> Resource {
    Resource::new(GroupResource::new("", plural).unwrap(), "v1").unwrap()
}

/// The key of an informer of pods, in one namespace or in `all`, with selectors as in a query.
pub(super) fn cell(namespace: &str, labels: &str, fields: &str) -> CellKey {
    let query = |labels: &str, fields: &str| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("labelSelector", labels).append_pair("fieldSelector", fields);
        asked("/api/v1/pods", &query.finish()).0
    };
    let selected = query(labels, fields);
    let (labels, fields) = (selected.labels, selected.fields);
    let extent = if namespace == "all" {
        Extent::AllNamespaces
    } else {
        Extent::Namespace(namespace.into())
    };
    CellKey {
        resource: core("pods"),
        extent,
        labels,
        fields,
        projection: Projection::Full(ManagedFields::Drop),
        secret_data: SecretData::Deny,
        identity: Identity::Operator,
        declared_in: None,
    }
}

/// The informers of the profile `p` in `namespace`.
pub(super) fn offers(namespace: &str, cells: &[CellKey]) -> Offers {
    let mut offers = Offers::default();
    for cell in cells {
        offers.add(namespace, cell);
    }
    offers
}

/// The profile `p` in `namespace`, without targets.
pub(super) fn declared(namespace: &str) -> Declared {
    Declared {
        profile: ProfileRef { namespace: namespace.into(), name: "p".into() },
        uid: "u".into(),
        generation: 2,
        refused: None,
        service_account: None,
        authors: AuthorCheck::default(),
        mode: Mode::Active,
        targets: Vec::new(),
        warmup_deadline: None,
        max_staleness: Duration::from_mins(2),
        on_access_lost: OnAccessLost::default(),
        reads: ReadTerms::default(),
        limits: Limits::default(),
        accepted_at: Duration::ZERO,
    }
}

impl Offers {
    pub(super) fn add(&mut self, namespace: &str, cell: &CellKey) {
        self.by_resource.entry(cell.resource.clone()).or_default().push(Offering {
            declared: Arc::new(declared(namespace)),
            key: cell.clone(),
            indexes: Vec::new(),
        });
    }

    /// Declares an index of an informer in the profile of `namespace`.
    pub(super) fn index(&mut self, namespace: &str, cell: &CellKey, name: &str, path: &FieldPath) {
        let all = self.by_resource.values_mut().flatten();
        for it in all.filter(|it| *it.declared.profile.namespace == *namespace && it.key == *cell) {
            it.indexes.push([Index { name: name.into(), path: path.clone() }].into());
        }
    }

    pub(super) fn set_staleness(&mut self, cell: &CellKey, bound: Duration) {
        for it in self.by_resource.values_mut().flatten().filter(|it| it.key == *cell) {
            Arc::make_mut(&mut it.declared).max_staleness = bound;
        }
    }

    pub(super) fn set_terms(&mut self, cell: &CellKey, consistency: Consistency, seconds: u64) {
        let cold_read_timeout = Duration::from_secs(seconds);
        for it in self.by_resource.values_mut().flatten().filter(|it| it.key == *cell) {
            Arc::make_mut(&mut it.declared).reads = ReadTerms { consistency, cold_read_timeout };
        }
    }

    pub(super) fn set_policy(&mut self, namespace: &str, policy: OnAccessLost) {
        let all = self.by_resource.values_mut().flatten();
        all.filter(|it| *it.declared.profile.namespace == *namespace)
            .for_each(|it| Arc::make_mut(&mut it.declared).on_access_lost = policy);
    }
}

/// The report of a warm informer that was last confirmed at `current_at`.
pub(super) fn report(current_at: Instant) -> CellReport {
    CellReport {
        phase: Phase::Watching,
        synced_at: Some(Timestamp::UNIX_EPOCH),
        current_at: Some(current_at),
        ..CellReport::queued(Timestamp::UNIX_EPOCH)
    }
}

/// The kind Pod; a custom resource if `field` names a selectable field.
pub(super) fn kind(field: &str) -> Kind {
    let definition = FieldPath::parse(field).ok().map(|path| {
        let fields = [("v1".into(), [(field.into(), path)].into())].into();
        Arc::new(Definition { list_kind: "PodList".into(), fields, ..Definition::default() })
    });
    Kind { document: ResourceInfo::new(core("pods"), "Pod"), definition }
}
