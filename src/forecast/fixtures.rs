use kubewarm_api::{
    model::{
        GroupResource, InformerKey, InformerScope, InformerSpec, ManagedFieldsPolicy, ProfileRef,
        Projection, ResolvedProfile, ResolvedTarget, Resource, ResourceInfo, TargetRequirement,
        ValidatedProfile,
    },
    v1alpha1::CacheProfile,
};
use serde_json::json;

/// Returns an informer for `resource` in the core API group. Its profile permits two lists in
/// parallel.
pub(crate) fn spec(resource: &str, namespace: &str) -> InformerSpec {
    let key = InformerKey::all(
        Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        InformerScope::Namespace(namespace.into()),
        Projection::Full(ManagedFieldsPolicy::Drop),
    );
    let mut spec = InformerSpec::new(key, ProfileRef { namespace: "a".into(), name: "p".into() });
    spec.settings.list_slot_owner.max_concurrent_lists = 2;
    spec
}

/// Returns an accepted target for pods.
pub(crate) fn target(name: &str, informers: Vec<InformerSpec>) -> ResolvedTarget {
    let pods = Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap();
    ResolvedTarget {
        name: name.into(),
        requirement: TargetRequirement::Required,
        declared_as: "pods".into(),
        resolved: Some(Ok(ResourceInfo::new(pods, "Pod"))),
        informers: informers.into(),
        namespaces: None,
        serving: None,
        named: [].into(),
        left_out: [].into(),
        limited: None,
    }
}

/// Returns a profile in generation 1.
pub(crate) fn declared(
    namespace: &str,
    name: &str,
    targets: Vec<ResolvedTarget>,
) -> ResolvedProfile {
    let profile: CacheProfile = serde_json::from_value(json!({
        "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile",
        "metadata": {"namespace": namespace, "name": name, "uid": "u", "generation": 1},
        "spec": {"mode": "Plan", "targets": [{"name": "x", "resource": "pods"}]},
    }))
    .unwrap();
    ResolvedProfile::of(&ValidatedProfile::parse(&profile).unwrap(), targets)
}
