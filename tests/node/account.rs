//! ServiceAccounts of the tests' programs.

/// The permissions of a program that reads profiles.
pub(crate) const PROFILE_RULES: &str =
    "[{apiGroups: [kubewarm.io], resources: [cacheprofiles], verbs: [get, list, watch]}]";
/// The permissions of a program that reads `ConfigMaps`.
pub(crate) const CONFIG_MAP_RULES: &str =
    "[{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]";

/// The manifests of the ServiceAccount `name`, which has these rules in its namespace. `rules` is a
/// YAML list.
pub(crate) fn service_account(namespace: &str, name: &str, rules: &str) -> String {
    format!(
        "---
{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {namespace}}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {name}, namespace: {namespace}}}
rules: {rules}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {name}, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {name}}}
subjects: [{{kind: ServiceAccount, name: {name}, namespace: {namespace}}}]
"
    )
}
