use super::{
    authorized_scope::AuthorizedScope,
    kind_info::KindInfo,
    serving_index::{ServingIndex, ServingInformer},
};
use crate::metrics::ReadMetrics;
use jiff::Timestamp;
use kubewarm_api::model::{
    AccessLossPolicy, FieldPath, GroupResource, Identity, IndexDefinition, InformerKey,
    InformerScope, ManagedFieldsPolicy, ProfileRef, Projection, ReadConsistency, ReadPolicy,
    ResolvedProfile, Resource, ResourceInfo, SecretDataPolicy,
};
use kubewarm_cache::informer::{InformerPhase, InformerReport};
use kubewarm_client::CrdInfo;
use kubewarm_wire::{ObjectRequest, RequestInfo, RequestTarget};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

pub(super) fn parse_request(path: &str, query: &str) -> (ObjectRequest, Option<ProfileRef>) {
    let RequestInfo { profile, target: what } =
        RequestInfo::parse("GET", path, Some(query), None).unwrap();
    match what {
        RequestTarget::Objects(objects) => (*objects, profile),
        RequestTarget::Document(other, _) => panic!("{other:?}"),
    }
}

/// The objects of an informer of all namespaces that the access review of `request` covers.
pub(super) fn authorized_scope(request: &ObjectRequest) -> AuthorizedScope {
    AuthorizedScope::of(&request.access_attributes(), &InformerScope::AllNamespaces).unwrap()
}

/// A resource of the core group.
pub(super) fn core(plural: &str) -> Resource {
    Resource::new(GroupResource::new("", plural).unwrap(), "v1").unwrap()
}

/// The key of an informer of pods in `namespace`, or in all namespaces if `namespace` is `all`.
/// `labels` and `fields` are selectors in the format of query parameters.
pub(super) fn informer(namespace: &str, labels: &str, fields: &str) -> InformerKey {
    let query = |labels: &str, fields: &str| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("labelSelector", labels).append_pair("fieldSelector", fields);
        parse_request("/api/v1/pods", &query.finish()).0
    };
    let selected = query(labels, fields);
    let (labels, fields) = (selected.labels, selected.fields);
    let scope = if namespace == "all" {
        InformerScope::AllNamespaces
    } else {
        InformerScope::Namespace(namespace.into())
    };
    InformerKey {
        resource: core("pods"),
        scope,
        labels,
        fields,
        projection: Projection::Full(ManagedFieldsPolicy::Drop),
        secret_data: SecretDataPolicy::Deny,
        identity: Identity::Operator,
        declared_in: None,
    }
}

/// A `ServingIndex` that contains `informers` as informers of the profile `p` in `namespace`.
pub(super) fn serving_index(namespace: &str, informers: &[InformerKey]) -> ServingIndex {
    let mut serving_index = ServingIndex::default();
    for informer in informers {
        serving_index.add(namespace, informer);
    }
    serving_index
}

/// The profile `p` in `namespace`, without targets.
pub(super) fn declared(namespace: &str) -> ResolvedProfile {
    let profile = ProfileRef { namespace: namespace.into(), name: "p".into() };
    ResolvedProfile::without_targets(profile, "u".into(), 2)
}

impl ServingIndex {
    pub(super) fn add(&mut self, namespace: &str, informer: &InformerKey) {
        self.by_resource.entry(informer.resource.clone()).or_default().push(ServingInformer {
            resolved: Arc::new(declared(namespace)),
            key: informer.clone(),
            indexes: Vec::new(),
        });
    }

    /// Declares an index for an informer of the profile `p` in `namespace`.
    pub(super) fn index(
        &mut self,
        namespace: &str,
        informer: &InformerKey,
        name: &str,
        path: &FieldPath,
    ) {
        let all = self.by_resource.values_mut().flatten();
        for serving in all.filter(|serving| {
            *serving.resolved.profile.namespace == *namespace && serving.key == *informer
        }) {
            serving
                .indexes
                .push([IndexDefinition { name: name.into(), path: path.clone() }].into());
        }
    }

    pub(super) fn set_staleness(&mut self, informer: &InformerKey, bound: Duration) {
        for serving in
            self.by_resource.values_mut().flatten().filter(|serving| serving.key == *informer)
        {
            Arc::make_mut(&mut serving.resolved).max_staleness = bound;
        }
    }

    pub(super) fn set_terms(
        &mut self,
        informer: &InformerKey,
        consistency: ReadConsistency,
        seconds: u64,
    ) {
        let cold_read_timeout = Duration::from_secs(seconds);
        for serving in
            self.by_resource.values_mut().flatten().filter(|serving| serving.key == *informer)
        {
            Arc::make_mut(&mut serving.resolved).reads =
                ReadPolicy { consistency, cold_read_timeout };
        }
    }

    pub(super) fn set_policy(&mut self, namespace: &str, policy: AccessLossPolicy) {
        let all = self.by_resource.values_mut().flatten();
        all.filter(|serving| *serving.resolved.profile.namespace == *namespace)
            .for_each(|serving| Arc::make_mut(&mut serving.resolved).on_access_lost = policy);
    }
}

/// Metrics in a registry of their own.
pub(super) fn metrics() -> ReadMetrics {
    ReadMetrics::register(&prometheus::Registry::new()).unwrap()
}

/// The report of a warm informer. At `current_at`, kubewarm last confirmed that the informer's
/// store is current.
pub(super) fn report(current_at: Instant) -> InformerReport {
    InformerReport {
        phase: InformerPhase::Watching,
        synced_at: Some(Timestamp::UNIX_EPOCH),
        current_at: Some(current_at),
        ..InformerReport::queued(Timestamp::UNIX_EPOCH)
    }
}

/// The description of the kind Pod. Its `CustomResourceDefinition` declares the selectable field
/// `field`. If `field` is empty, the kind has no `CustomResourceDefinition`.
pub(super) fn kind(field: &str) -> KindInfo {
    let definition = FieldPath::parse(field).ok().map(|path| {
        let fields = [("v1".into(), [(field.into(), path)].into())].into();
        Arc::new(CrdInfo { list_kind: "PodList".into(), fields, ..CrdInfo::default() })
    });
    KindInfo { document: ResourceInfo::new(core("pods"), "Pod"), definition }
}
