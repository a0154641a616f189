//! Derives the objects that a response can contain from the request's access review.

use kubewarm_api::model::{InformerScope, ObjectKey};
use kubewarm_wire::AccessAttributes;
use std::sync::Arc;

/// The objects of one informer that the access review of a request covers. A reader of the
/// informer's store takes the namespace and the name from here, never from the request's path. So
/// kubewarm reads nothing that no access review covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuthorizedScope {
    /// `None` for all namespaces, and for cluster-scoped objects.
    namespace: Option<Arc<str>>,
    /// `None` for all names.
    name: Option<Box<str>>,
}

impl AuthorizedScope {
    /// Returns the objects of an informer with the scope `scope` that the access review covers.
    /// `None` if the informer lacks objects that the review covers, because an answer from it would
    /// be incomplete.
    pub(super) fn of(access: &AccessAttributes<'_>, scope: &InformerScope) -> Option<Self> {
        let is_for_all_names = access.name.is_empty();
        let namespace = match (scope, access.namespace) {
            (InformerScope::Cluster, "") => None,
            (InformerScope::Cluster, _) if access.is_get_of_namespace_object() => None,
            (InformerScope::Cluster, _) | (InformerScope::Namespace(_), "") => return None,
            (InformerScope::Namespace(namespace), reviewed) if **namespace != *reviewed => {
                return None;
            }
            // A get without a namespace in its path cannot mean an object of a namespaced kind.
            (InformerScope::AllNamespaces, "") if access.verb == "get" => return None,
            (InformerScope::AllNamespaces, "") => None,
            (InformerScope::Namespace(_) | InformerScope::AllNamespaces, reviewed) => {
                Some(reviewed.into())
            }
        };
        Some(Self { namespace, name: (!is_for_all_names).then(|| access.name.into()) })
    }

    /// The namespace of the objects; `None` for all namespaces, and for cluster-scoped objects.
    pub(super) const fn namespace(&self) -> Option<&Arc<str>> {
        self.namespace.as_ref()
    }

    /// The name of the only object that the access review covers; `None` for all names.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The key of the object that a get reads. The name is never empty here, because the access
    /// review of a get always has a name.
    pub(super) fn key(&self) -> ObjectKey {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let name = self.name.as_deref().unwrap_or_default();
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    /// Whether the access review covers this object.
    pub(super) fn has(&self, namespace: &str, name: &[u8]) -> bool {
        self.namespace.as_deref().is_none_or(|allowed| allowed == namespace)
            && self.name.as_deref().is_none_or(|allowed| allowed.as_bytes() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::fixtures::parse_request;

    /// The key of the object that a get of `path` reads from an informer with this scope; or, for a
    /// list, the namespace of the listed objects, with `*` for all.
    fn covered(path: &str, scope: &InformerScope) -> Option<String> {
        let (request, _) = parse_request(path, "");
        let authorized_scope = AuthorizedScope::of(&request.access_attributes(), scope)?;
        if request.name.is_none() {
            return Some(
                authorized_scope.namespace().map_or("*", |namespace| namespace).to_owned(),
            );
        }
        let ObjectKey { namespace, name } = authorized_scope.key();
        assert!(authorized_scope.has(&namespace, name.as_bytes()));
        assert!(!authorized_scope.has("other", name.as_bytes()) || namespace.is_empty());
        assert!(!authorized_scope.has(&namespace, b"other"));
        Some(format!("{namespace}/{name}"))
    }

    #[test]
    fn a_get_reads_the_object_of_its_access_review() {
        let (all, cluster) = (InformerScope::AllNamespaces, InformerScope::Cluster);
        let (in_a, other) =
            (InformerScope::Namespace("a".into()), InformerScope::Namespace("b".into()));
        let custom = "/apis/cloud.example/v1/namespaces";
        for (path, scope, expected) in [
            ("/api/v1/namespaces/a/pods/p", &all, Some("a/p")),
            ("/api/v1/namespaces/a/pods/p", &in_a, Some("a/p")),
            ("/api/v1/namespaces/a/pods/p", &other, None),
            ("/api/v1/namespaces/a/nodes/n", &cluster, None),
            ("/api/v1/nodes/n", &cluster, Some("/n")),
            ("/api/v1/pods/p", &all, None),
            ("/api/v1/namespaces/a", &cluster, Some("/a")),
            // `namespaces` is the plural name of a namespaced custom kind here, so the access
            // review is in the namespace of the path, `a`.
            (&*format!("{custom}/a/namespaces/b"), &all, Some("a/b")),
            (&*format!("{custom}/a/namespaces/b"), &in_a, Some("a/b")),
            (&*format!("{custom}/a/namespaces/b"), &other, None),
            (&*format!("{custom}/b/namespaces/a"), &in_a, None),
            (&*format!("{custom}/a"), &all, Some("a/a")),
            // The API server returns 404 for a cluster-scoped custom kind with this plural name.
            (&*format!("{custom}/a"), &cluster, None),
            (&*format!("{custom}/a/namespaces"), &all, Some("a")),
            (custom, &all, Some("*")),
            (custom, &in_a, None),
            (custom, &cluster, Some("*")),
            ("/api/v1/pods", &all, Some("*")),
            ("/api/v1/namespaces/a/pods", &all, Some("a")),
            ("/api/v1/namespaces/a/nodes", &cluster, None),
        ] {
            assert_eq!(covered(path, scope).as_deref(), expected, "{path} {scope:?}");
        }
    }
}
