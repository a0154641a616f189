//! Resolves a target of a profile to its informers on this cluster. This module performs no I/O.

use kubewarm_api::model::{
    FieldPath, FieldSelector, GroupResource, InformerKey, InformerScope, InformerSettings,
    InformerSpec, LabelSelector, ListPolicy, ListSlotSettings, ManagedFieldsPolicy,
    NamespaceCheckPolicy, OperatorScope, Projection, Refusal, RefusalReason, ResolvedTarget,
    Resource, ResourceInfo, SecretDataPolicy, TargetScope, UsageMeter, ValidatedProfile,
    ValidatedTarget,
};
use std::sync::Arc;

/// The API server sets this field of a Namespace when the deletion of the namespace starts.
/// Namespace selectors skip such a namespace, because its Roles can be deleted before its objects.
const DELETION_TIMESTAMP: &str = "metadata.deletionTimestamp";

/// Settings of a profile's informers that the operator chooses, because no field of a profile sets
/// them.
#[derive(Clone, Copy)]
pub(super) struct InformerDefaults<'a> {
    pub(super) lists: ListPolicy,
    /// Returns the usage meter of an informer, which counts the objects and bytes of its store.
    pub(super) meter: &'a dyn Fn(&InformerKey) -> Arc<UsageMeter>,
}

/// Resolves one target of `profile`. `kind` is the result of discovery for the target's resource.
/// `names` returns the namespaces that the informer of a namespace selector matches.
///
/// A profile outside of the operator namespace can read other namespaces only if it names a
/// ServiceAccount. Otherwise its author could read other namespaces with the operator's
/// permissions.
pub(super) fn resolve(
    profile: &ValidatedProfile,
    target: &ValidatedTarget,
    operator_scope: &OperatorScope,
    kind: Option<Result<ResourceInfo, Refusal>>,
    names: impl FnOnce(&InformerKey) -> Option<Vec<Arc<str>>>,
    operator: InformerDefaults<'_>,
) -> ResolvedTarget {
    let resolved = resolve_kind(profile, target, operator_scope, kind);
    let (mut informers, mut namespaces) = (Vec::new(), None);
    if let Some(Ok(kind)) = &resolved {
        if let TargetScope::NamespaceSelector(labels) = &target.scope {
            namespaces = new_selector_informer(profile, labels, operator);
        }
        let informer_scopes =
            target.scope.informer_scopes(&profile.profile.namespace).unwrap_or_else(|| {
                let names = namespaces.as_ref().and_then(|informer| names(&informer.key));
                names.unwrap_or_default().into_iter().map(InformerScope::Namespace).collect()
            });
        let informer = |scope| new_informer(profile, target, &kind.resource, scope, operator);
        informers = informer_scopes.into_iter().map(informer).collect();
    }
    ResolvedTarget {
        name: Arc::clone(&target.name),
        requirement: target.requirement,
        declared_as: target.resource.to_string().into(),
        resolved,
        informers: informers.into(),
        namespaces,
        serving: None,
        named: Arc::clone(&target.indexes),
        left_out: [].into(),
        limited: None,
    }
}

/// Returns the target's kind, or why the target is refused. Returns `None` before the first
/// discovery.
fn resolve_kind(
    profile: &ValidatedProfile,
    target: &ValidatedTarget,
    operator_scope: &OperatorScope,
    kind: Option<Result<ResourceInfo, Refusal>>,
) -> Option<Result<ResourceInfo, Refusal>> {
    let refused = operator_scope.scope_refusal(profile, target);
    if let Some(refusal) = refused.or_else(|| operator_scope.watched.refusal(profile, target)) {
        return Some(Err(refusal));
    }
    let in_target = |refusal: Refusal| {
        let message = format!("targets[{}].{}", target.name, refusal.message);
        Refusal { message, ..refusal }
    };
    let kind = kind?.map_err(in_target);
    Some(kind.and_then(|kind| check_scope(target, &kind).map(|()| kind)))
}

fn check_scope(target: &ValidatedTarget, kind: &ResourceInfo) -> Result<(), Refusal> {
    let advice = match (&target.scope, kind.is_namespaced) {
        (TargetScope::Cluster, true) => "lives in namespaces; use another type than Cluster",
        (TargetScope::Cluster, false) | (_, true) => return Ok(()),
        (_, false) => "is cluster-scoped; use type Cluster",
    };
    Err(Refusal::new(
        RefusalReason::ScopeMismatch,
        format!("targets[{}].scope.type: {} {advice}", target.name, target.resource),
    ))
}

fn new_informer(
    profile: &ValidatedProfile,
    target: &ValidatedTarget,
    resource: &Resource,
    scope: InformerScope,
    operator: InformerDefaults<'_>,
) -> InformerSpec {
    let is_list = matches!(target.scope, TargetScope::Namespaces(_));
    let is_outside = scope.namespace().is_some_and(|name| *name != *profile.profile.namespace);
    let secret_data =
        if target.resource.is_secrets() { target.secret_data } else { SecretDataPolicy::Deny };
    let indexes = target.indexes.iter().map(|index| index.path.clone());
    let check = if is_list && is_outside {
        NamespaceCheckPolicy::Require
    } else {
        NamespaceCheckPolicy::Skip
    };
    let key = InformerKey {
        resource: resource.clone(),
        scope,
        labels: target.labels.clone(),
        fields: target.fields.clone(),
        projection: target.projection,
        secret_data,
        identity: profile.identity(),
        declared_in: Some(Arc::clone(&profile.profile.namespace)),
    };
    let settings = operator.settings(profile, &key, target.priority, check);
    InformerSpec { key, settings, indexes: indexes.collect() }
}

impl InformerDefaults<'_> {
    fn settings(
        self,
        profile: &ValidatedProfile,
        key: &InformerKey,
        priority: u16,
        namespace_check: NamespaceCheckPolicy,
    ) -> InformerSettings {
        InformerSettings {
            list_slot_owner: ListSlotSettings {
                profile: profile.profile.clone(),
                max_concurrent_lists: profile.max_concurrent_lists,
                priority,
            },
            lists: self.lists,
            max_staleness: profile.max_staleness,
            consistency_check_period: profile.consistency_check_period,
            namespace_check,
            on_access_lost: profile.on_access_lost,
            meter: (self.meter)(key),
        }
    }
}

/// Returns the informer that watches the Namespaces of a selector. It stores only their metadata.
///
/// The informer has the maximum priority, because the target's other informers start only when the
/// namespaces are known. The function never returns `None`, because the resource name is a valid
/// constant.
fn new_selector_informer(
    profile: &ValidatedProfile,
    labels: &LabelSelector,
    operator: InformerDefaults<'_>,
) -> Option<InformerSpec> {
    let group_resource = GroupResource::new("", "namespaces").ok()?;
    let key = InformerKey {
        resource: Resource::new(group_resource, "v1").ok()?,
        scope: InformerScope::Cluster,
        labels: labels.clone(),
        fields: FieldSelector::default(),
        projection: Projection::Metadata(ManagedFieldsPolicy::Drop),
        secret_data: SecretDataPolicy::Deny,
        // The informer reads Namespaces with the profile's identity, so that the profile's author
        // sees only namespaces that this identity can list.
        identity: profile.identity(),
        declared_in: Some(Arc::clone(&profile.profile.namespace)),
    };
    let settings = operator.settings(profile, &key, 1_000, NamespaceCheckPolicy::Skip);
    Some(InformerSpec { key, settings, indexes: deletion_timestamp_path().into_iter().collect() })
}

/// Returns the path of the field that marks a namespace whose deletion has started. The result is
/// never `None`, because the path is a valid constant.
pub(super) fn deletion_timestamp_path() -> Option<FieldPath> {
    FieldPath::parse(DELETION_TIMESTAMP).ok()
}
