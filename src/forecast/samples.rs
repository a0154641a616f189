//! Planned profiles and their informers, for tests.

use kubewarm_api::{
    model::{
        CellKey, CellSpec, Declared, DeclaredTarget, Extent, GroupResource, ManagedFields,
        ProfileRef, Projection, Requirement, Resource, ResourceInfo, ValidatedProfile,
    },
    v1alpha1::CacheProfile,
};
use serde_json::json;

/// An informer of a core kind in a namespace. Its profile lists two informers at a time.
pub(crate) fn spec(resource: &str, namespace: &str) -> CellSpec {
    let key = CellKey::all(
        Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        Extent::Namespace(namespace.into()),
        Projection::Full(ManagedFields::Drop),
    );
    let mut spec = CellSpec::new(key, ProfileRef { namespace: "a".into(), name: "p".into() });
    spec.tuning.member_of.max_concurrent_lists = 2;
    spec
}

/// An accepted target with the kind pods.
pub(crate) fn target(name: &str, cells: Vec<CellSpec>) -> DeclaredTarget {
    let pods = Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap();
    DeclaredTarget {
        name: name.into(),
        requirement: Requirement::Required,
        declared_as: "pods".into(),
        resolved: Some(Ok(ResourceInfo::new(pods, "Pod"))),
        cells: cells.into(),
        namespaces: None,
        serving: None,
        named: [].into(),
        left_out: [].into(),
        limited: None,
    }
}

/// Generation 1 of a profile.
pub(crate) fn declared(namespace: &str, name: &str, targets: Vec<DeclaredTarget>) -> Declared {
    let profile: CacheProfile = serde_json::from_value(json!({
        "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile",
        "metadata": {"namespace": namespace, "name": name, "uid": "u", "generation": 1},
        "spec": {"mode": "Plan", "targets": [{"name": "x", "resource": "pods"}]},
    }))
    .unwrap();
    Declared::of(&ValidatedProfile::parse(&profile).unwrap(), targets)
}
