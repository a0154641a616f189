//! Resolves a target of a profile to its informers on this cluster. It performs no I/O.

use kubewarm_api::model::{
    DeclaredTarget, FieldPath, FieldSelector, GroupResource, InformerKey, InformerScope,
    InformerSettings, InformerSpec, LabelSelector, ListPolicy, ListSlotOwner, ManagedFieldsPolicy,
    NamespaceCheck, OperatorScope, Projection, Refusal, RefusalReason, Resource, ResourceInfo,
    SecretData, TargetScope, UsageMeter, ValidatedProfile, ValidatedTarget,
};
use std::sync::Arc;

/// The field is set while a namespace is being deleted. Its roles can be deleted before its
/// objects, and it accepts no new objects.
const DELETION_TIMESTAMP: &str = "metadata.deletionTimestamp";

/// The operator's part in the tuning of informers; profiles have the other part.
#[derive(Clone, Copy)]
pub(super) struct OperatorTuning<'a> {
    /// How objects are listed.
    pub(super) lists: ListPolicy,
    /// The gauge of an informer's objects and bytes.
    pub(super) gauge: &'a dyn Fn(&InformerKey) -> Arc<UsageMeter>,
}

/// Resolves one target of `profile`. `kind` is the result of discovery for the target's resource.
///
/// Only profiles in the operator namespace can name other namespaces. `names` returns the
/// namespaces that a selector's informer matches. `gauge` returns the usage of an informer.
pub(super) fn resolve(
    profile: &ValidatedProfile,
    target: &ValidatedTarget,
    operator_scope: &OperatorScope,
    kind: Option<Result<ResourceInfo, Refusal>>,
    names: impl FnOnce(&InformerKey) -> Option<Vec<Arc<str>>>,
    operator: OperatorTuning<'_>,
) -> DeclaredTarget {
    let resolved = resolve_kind(profile, target, operator_scope, kind);
    let (mut informers, mut namespaces) = (Vec::new(), None);
    if let Some(Ok(kind)) = &resolved {
        if let TargetScope::NamespaceSelector(labels) = &target.scope {
            namespaces = new_selector_informer(profile, labels, operator);
        }
        let extents = target.scope.extents(&profile.profile.namespace).unwrap_or_else(|| {
            let names = namespaces.as_ref().and_then(|informer| names(&informer.key));
            names.unwrap_or_default().into_iter().map(InformerScope::Namespace).collect()
        });
        let informer = |extent| new_informer(profile, target, &kind.resource, extent, operator);
        informers = extents.into_iter().map(informer).collect();
    }
    DeclaredTarget {
        name: Arc::clone(&target.name),
        requirement: target.requirement,
        declared_as: target.of.to_string().into(),
        resolved,
        informers: informers.into(),
        namespaces,
        serving: None,
        named: Arc::clone(&target.indexes),
        left_out: [].into(),
        limited: None,
    }
}

/// Returns the kind of a target, or why the target is refused.
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
    let advice = match (&target.scope, kind.namespaced) {
        (TargetScope::Cluster, true) => "lives in namespaces; use another type than Cluster",
        (TargetScope::Cluster, false) | (_, true) => return Ok(()),
        (_, false) => "is cluster-scoped; use type Cluster",
    };
    Err(Refusal::new(
        RefusalReason::ScopeMismatch,
        format!("targets[{}].scope.type: {} {advice}", target.name, target.of),
    ))
}

fn new_informer(
    profile: &ValidatedProfile,
    target: &ValidatedTarget,
    resource: &Resource,
    extent: InformerScope,
    operator: OperatorTuning<'_>,
) -> InformerSpec {
    let named = matches!(target.scope, TargetScope::Namespaces(_));
    let away = extent.namespace().is_some_and(|name| *name != *profile.profile.namespace);
    let secret_data = if target.of.is_secrets() { target.secret_data } else { SecretData::Deny };
    let indexes = target.indexes.iter().map(|index| index.path.clone());
    let check = if named && away { NamespaceCheck::Ask } else { NamespaceCheck::Known };
    let key = InformerKey {
        resource: resource.clone(),
        extent,
        labels: target.labels.clone(),
        fields: target.fields.clone(),
        projection: target.projection,
        secret_data,
        identity: profile.identity(),
        declared_in: Some(Arc::clone(&profile.profile.namespace)),
    };
    let tuning = operator.tuning(profile, &key, target.priority, check);
    InformerSpec { key, tuning, indexes: indexes.collect() }
}

impl OperatorTuning<'_> {
    fn tuning(
        self,
        profile: &ValidatedProfile,
        key: &InformerKey,
        priority: u16,
        namespace_check: NamespaceCheck,
    ) -> InformerSettings {
        InformerSettings {
            member_of: ListSlotOwner {
                profile: profile.profile.clone(),
                max_concurrent_lists: profile.max_concurrent_lists,
                priority,
            },
            lists: self.lists,
            max_staleness: profile.max_staleness,
            consistency_check_period: profile.consistency_check_period,
            namespace_check,
            on_access_lost: profile.on_access_lost,
            gauge: (self.gauge)(key),
        }
    }
}

/// Returns the informer that watches the namespaces of a selector, with metadata only.
///
/// Its priority is the maximum, because other informers depend on it. It never returns `None`,
/// because the names are constants.
fn new_selector_informer(
    profile: &ValidatedProfile,
    labels: &LabelSelector,
    operator: OperatorTuning<'_>,
) -> Option<InformerSpec> {
    let of = GroupResource::new("", "namespaces").ok()?;
    let key = InformerKey {
        resource: Resource::new(of, "v1").ok()?,
        extent: InformerScope::Cluster,
        labels: labels.clone(),
        fields: FieldSelector::default(),
        projection: Projection::Metadata(ManagedFieldsPolicy::Drop),
        secret_data: SecretData::Deny,
        // The profile's identity also authorizes the watch of namespaces, so that authors see no
        // others.
        identity: profile.identity(),
        declared_in: Some(Arc::clone(&profile.profile.namespace)),
    };
    let tuning = operator.tuning(profile, &key, 1_000, NamespaceCheck::Known);
    Some(InformerSpec { key, tuning, indexes: deletion_timestamp_path().into_iter().collect() })
}

/// The field that marks namespaces which are being deleted. It never returns `None`, because the
/// path is a constant.
pub(super) fn deletion_timestamp_path() -> Option<FieldPath> {
    FieldPath::parse(DELETION_TIMESTAMP).ok()
}
