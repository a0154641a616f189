//! The API groups that the API server itself serves.

/// The groups that kube-apiserver itself serves, as of Kubernetes 1.37. The name of the core group
/// is empty. A group without a dot is not always built-in, because an aggregated API server can
/// serve such a group.
const BUILTIN_GROUPS: &[&str] = &[
    "",
    "apps",
    "autoscaling",
    "batch",
    "extensions",
    "policy",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Returns whether the API server itself serves `group`.
///
/// Discovery does not show which groups come from CRDs or from aggregated APIs. The suffix `k8s.io`
/// does not show this either: `snapshot.storage.k8s.io` comes from CRDs. So kubewarm needs its own
/// list of groups. A group that a later Kubernetes version adds counts as not built-in. kubewarm
/// then treats the resources of this group as custom resources.
pub fn is_builtin_group(group: &str) -> bool {
    BUILTIN_GROUPS.contains(&group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_the_api_server_itself_are_builtin() {
        for group in ["", "apps", "batch", "events.k8s.io", "rbac.authorization.k8s.io"] {
            assert!(is_builtin_group(group), "{group}");
        }
        for group in ["metrics.k8s.io", "snapshot.storage.k8s.io", "cert-manager.io", "widgets"] {
            assert!(!is_builtin_group(group), "{group}");
        }
    }
}
