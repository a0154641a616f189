//! Permissions that RBAC objects grant, and how these permissions change in a cluster when a user
//! applies new RBAC manifests. `kubewarm rbac --diff` prints these changes. No code in this module
//! does I/O.

use super::RbacObject;
use crate::model::{ProfileRef, Subject};
use k8s_openapi::api::rbac::v1::{self, PolicyRule, RoleRef};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Maximum number of [`Grant`]s that kubewarm lists for one RoleBinding or ClusterRoleBinding,
/// because a role in the cluster can have millions of combinations. Bindings that kubewarm
/// generates have about 100 grants. For a binding above the limit, kubewarm lists only one
/// [`GrantResource::Rules`] for each subject.
const GRANTS_PER_BINDING: usize = 16_384;

/// One permission: RBAC permits one subject to use one verb on one resource or URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The subject that has the permission.
    pub subject: Subject,
    /// Namespace in which the permission applies. `None`: the permission applies in the whole
    /// cluster.
    pub namespace: Option<Arc<str>>,
    /// The object of the permission: a resource, a URL, or all rules of a role.
    pub object: GrantResource,
    /// The verb. Empty for [`GrantResource::Role`] and [`GrantResource::Rules`], which stand for
    /// all verbs in the role's rules.
    pub verb: String,
}

/// Resource, URL or role of a [`Grant`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrantResource {
    /// All objects of a resource, or one named object.
    Resource {
        /// The API group; empty for the core group.
        group: String,
        /// The plural name, `*` for all resources, or `<plural>/<subresource>`.
        resource: String,
        /// Name of the object; `None` for all objects.
        name: Option<String>,
    },
    /// A URL path of the API server that is not a resource.
    Url(String),
    /// All rules of a role that kubewarm does not manage, such as `ClusterRole admin`. kubewarm
    /// does not read these rules.
    Role(String),
    /// All rules of a role that contains too many combinations of verb and resource to list each.
    /// The limit is 16,384 combinations for each binding.
    Rules(String),
}

/// How the permissions in a cluster change when a user applies RBAC manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantDiff {
    /// Permissions that the cluster gains when a user applies the manifests, each with the binding
    /// that grants it.
    pub gained: BTreeMap<Grant, String>,
    /// Permissions that the cluster loses when a user applies the manifests, each with the binding
    /// that grants it now.
    pub lost: BTreeMap<Grant, String>,
    /// Permissions that the cluster grants before and after, although the manifests do not contain
    /// them: `kubectl apply` does not remove them. Each has the binding that grants it.
    pub kept: BTreeMap<Grant, String>,
    /// Bindings whose `roleRef` in the manifests names another role than in the cluster. Each entry
    /// contains the binding, and the role that the binding has in the cluster. The API server
    /// rejects the manifest of such a binding, because `roleRef` is immutable.
    pub stuck: Vec<(String, String)>,
}

impl GrantDiff {
    /// Whether the cluster already grants exactly the permissions in the manifests, and the API
    /// server accepts the manifests of all bindings (`stuck` is empty).
    pub fn is_empty(&self) -> bool {
        let sets = [&self.gained, &self.lost, &self.kept];
        sets.iter().all(|set| set.is_empty()) && self.stuck.is_empty()
    }
}

/// Computes how the permissions in a cluster change when a user applies `wanted`, the RBAC objects
/// for one profile. `live` must contain these RBAC objects, read from the cluster:
///
/// - the roles and bindings that have a name in `wanted`,
/// - all other roles and bindings of the profile,
/// - all other bindings to these roles.
pub fn diff_grants(wanted: &[RbacObject], live: &[RbacObject]) -> GrantDiff {
    let id = |document: &RbacObject| {
        (document.kind().to_owned(), document.namespace().to_owned(), document.name().to_owned())
    };
    let new_documents: BTreeMap<_, _> =
        wanted.iter().map(|document| (id(document), document)).collect();
    let untouched = live.iter().filter(|document| !new_documents.contains_key(&id(document)));
    let after: Vec<_> = wanted.iter().chain(untouched).cloned().collect();
    let (granted, before, after) = (list_grants(wanted), list_grants(live), list_grants(&after));

    let mut change = GrantDiff::default();
    for (grant, by) in &after {
        if !before.contains_key(grant) {
            change.gained.insert(grant.clone(), by.clone());
        } else if !granted.contains_key(grant) {
            change.kept.insert(grant.clone(), by.clone());
        }
    }
    let lost = before.into_iter().filter(|(grant, _)| !after.contains_key(grant));
    change.lost = lost.collect();
    for document in live {
        let new = new_documents.get(&id(document)).and_then(|document| document.bound_role());
        if let (Some(new), Some(old)) = (new, document.bound_role())
            && (&new.kind, &new.name) != (&old.kind, &old.name)
        {
            change.stuck.push((title(document), format!("{} {}", old.kind, old.name)));
        }
    }
    change
}

/// Returns the permissions that the RBAC objects in `documents` grant, each with the first binding
/// that grants it. A role without a binding grants nothing. A binding grants nothing if its role
/// `kubewarm:…` is not in `documents`, because that role then does not exist.
pub fn list_grants(documents: &[RbacObject]) -> BTreeMap<Grant, String> {
    let mut all = BTreeMap::new();
    for binding in documents {
        let Some(role) = binding.bound_role() else { continue };
        let namespace = (binding.kind() == "RoleBinding").then(|| binding.namespace().into());
        let subjects = binding.subjects();
        let most = GRANTS_PER_BINDING / subjects.len().max(1);
        let powers = powers(role, binding.namespace(), documents, most);
        for subject in subjects.iter().map(subject) {
            for (object, verb) in &powers {
                let grant = Grant {
                    subject: subject.clone(),
                    namespace: namespace.clone(),
                    object: object.clone(),
                    verb: verb.clone(),
                };
                all.entry(grant).or_insert_with(|| title(binding));
            }
        }
    }
    all
}

/// Returns the operator's ServiceAccount, as the manifests in `documents` name it: the subject of
/// the RoleBinding that permits the operator to create tokens of the ServiceAccount of `profile`.
pub fn find_token_minter(profile: &ProfileRef, documents: &[RbacObject]) -> Option<Subject> {
    let name = super::rbac::token_role_name(profile);
    let bindings = documents
        .iter()
        .filter(|document| document.kind() == "RoleBinding" && document.name() == name);
    bindings.flat_map(RbacObject::subjects).next().map(subject)
}

/// Returns each combination of an object and a verb that `role` permits. If there are more than
/// `most` combinations, returns only one [`GrantResource::Rules`].
fn powers(
    role: &RoleRef,
    namespace: &str,
    among: &[RbacObject],
    most: usize,
) -> BTreeSet<(GrantResource, String)> {
    let is_it = |document: &&RbacObject| {
        let is_there = document.kind() == "ClusterRole" || document.namespace() == namespace;
        document.bound_role().is_none()
            && (document.kind(), document.name()) == (&*role.kind, &*role.name)
            && is_there
    };
    let title = format!("{} {}", role.kind, role.name);
    let rules = match among.iter().find(is_it) {
        Some(document) => document.rules(),
        // `among` contains every existing role whose name starts with `kubewarm:`. A binding to a
        // missing role whose name has this prefix grants nothing. kubewarm does not read roles
        // without this prefix, so the rules of these roles are unknown.
        None if role.name.starts_with(super::rbac::PREFIX) => return BTreeSet::new(),
        None => return [(GrantResource::Role(title), String::new())].into(),
    };
    if rules.iter().map(size).fold(0, usize::saturating_add) > most {
        return [(GrantResource::Rules(title), String::new())].into();
    }
    rules.iter().flat_map(parts).collect()
}

/// Returns the number of combinations of verb, API group, resource and name that a rule grants to
/// one subject.
fn size(rule: &PolicyRule) -> usize {
    let count = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
    let resources = count(&rule.api_groups).saturating_mul(count(&rule.resources));
    let objects = resources.saturating_mul(count(&rule.resource_names).max(1));
    objects.saturating_add(count(&rule.non_resource_urls)).saturating_mul(rule.verbs.len())
}

fn parts(rule: &PolicyRule) -> Vec<(GrantResource, String)> {
    let names: Vec<_> = match rule.resource_names.as_deref() {
        None | Some([]) => vec![None],
        Some(names) => names.iter().cloned().map(Some).collect(),
    };
    let urls = rule.non_resource_urls.iter().flatten().cloned().map(GrantResource::Url);
    let mut objects: Vec<_> = urls.collect();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            objects.extend(names.iter().map(|name| GrantResource::Resource {
                group: group.clone(),
                resource: resource.clone(),
                name: name.clone(),
            }));
        }
    }
    let with =
        |object: GrantResource| rule.verbs.iter().map(move |verb| (object.clone(), verb.clone()));
    objects.into_iter().flat_map(with).collect()
}

fn subject(subject: &v1::Subject) -> Subject {
    match subject.kind.as_str() {
        "ServiceAccount" => Subject::ServiceAccount {
            namespace: subject.namespace.as_deref().unwrap_or_default().into(),
            name: subject.name.as_str().into(),
        },
        "Group" => Subject::Group(subject.name.as_str().into()),
        // A subject of kind `User` can name a ServiceAccount:
        // `system:serviceaccount:<namespace>:<name>`.
        _ => Subject::from_username(&subject.name),
    }
}

/// Formats a role or binding for messages, such as `RoleBinding shop/kubewarm:shop:web`.
fn title(document: &RbacObject) -> String {
    match document.namespace() {
        "" => format!("{} {}", document.kind(), document.name()),
        namespace => format!("{} {namespace}/{}", document.kind(), document.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: 'kubewarm:shop:web', namespace: shop}
rules: [{apiGroups: [''], resources: [pods], verbs: [list, watch]}]
---
";
    const BINDING: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: 'kubewarm:shop:web', namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: 'kubewarm:shop:web'}
subjects: [{kind: ServiceAccount, name: kubewarm, namespace: ops}]
---
";

    fn parse(text: &str) -> Vec<RbacObject> {
        RbacObject::parse(text).unwrap()
    }

    fn both() -> Vec<RbacObject> {
        parse(&format!("{ROLE}{BINDING}"))
    }

    fn rows(grants: &BTreeMap<Grant, String>) -> Vec<String> {
        let line = |Grant { subject, namespace, object, verb }: &Grant| {
            let object = match object {
                GrantResource::Resource { group, resource, name } => {
                    format!("{resource}.{group}/{}", name.as_deref().unwrap_or("*"))
                }
                GrantResource::Url(text)
                | GrantResource::Role(text)
                | GrantResource::Rules(text) => text.clone(),
            };
            let namespace = namespace.as_deref().unwrap_or("everywhere");
            format!("{subject} {verb} {object} {namespace}")
        };
        grants.keys().map(line).collect()
    }

    #[test]
    fn applying_to_an_empty_cluster_gains_all_grants_and_a_second_time_none() {
        let change = diff_grants(&both(), &[]);
        let operator = "system:serviceaccount:ops:kubewarm";
        let gained = ["list", "watch"].map(|verb| format!("{operator} {verb} pods./* shop"));
        assert_eq!(rows(&change.gained), gained);
        assert!(diff_grants(&both(), &both()).is_empty());
        for half in [ROLE, BINDING] {
            assert_eq!(rows(&diff_grants(&both(), &parse(half)).gained), gained);
        }
    }

    #[test]
    fn applying_manifests_removes_rules_that_a_user_added() {
        let wide = ROLE.replace("[list, watch]", "[list, watch, '*']");
        let urls = "rules: [{nonResourceURLs: [/metrics], verbs: [get]}, ";
        let wide = wide.replace("rules: [", urls);
        let change = diff_grants(&both(), &parse(&format!("{wide}{BINDING}")));
        let operator = "system:serviceaccount:ops:kubewarm";
        assert_eq!(
            rows(&change.lost),
            [format!("{operator} * pods./* shop"), format!("{operator} get /metrics shop")]
        );
        assert!(change.gained.is_empty() && change.kept.is_empty());
    }

    #[test]
    fn another_binding_to_the_role_gains_the_same_grants() {
        let other = BINDING
            .replace("metadata: {name: 'kubewarm:shop:web'", "metadata: {name: mine")
            .replace(
                "{kind: ServiceAccount, name: kubewarm, namespace: ops}",
                "{kind: User, name: mallory}",
            );
        let empty =
            ROLE.replace("[{apiGroups: [''], resources: [pods], verbs: [list, watch]}]", "[]");
        let change = diff_grants(&both(), &parse(&format!("{empty}{BINDING}{other}")));
        let mallory: Vec<_> = change
            .gained
            .iter()
            .filter(|(grant, _)| grant.subject == Subject::User("mallory".into()))
            .collect();
        assert_eq!(mallory.len(), 2);
        assert!(mallory.iter().all(|(_, by)| **by == "RoleBinding shop/mine"), "{mallory:?}");

        let change = diff_grants(&both(), &parse(&format!("{ROLE}{BINDING}{other}")));
        assert_eq!(rows(&change.kept), ["mallory list pods./* shop", "mallory watch pods./* shop"]);
        assert!(!change.is_empty() && change.gained.is_empty());
    }

    #[test]
    fn objects_that_are_no_longer_needed_keep_their_grants_until_deleted() {
        let old = format!("{ROLE}{BINDING}").replace("namespace: shop", "namespace: west");
        let live: Vec<_> = both().into_iter().chain(parse(&old)).collect();
        let change = diff_grants(&both(), &live);
        assert_eq!(change.kept.len(), 2);
        assert!(change.kept.values().all(|by| by == "RoleBinding west/kubewarm:shop:web"));
    }

    #[test]
    fn a_binding_to_another_role_cannot_be_applied() {
        let live = BINDING
            .replace("kind: Role, name: 'kubewarm:shop:web'", "kind: ClusterRole, name: admin");
        let change = diff_grants(&both(), &parse(&live));
        let binding = "RoleBinding shop/kubewarm:shop:web".to_owned();
        assert_eq!(change.stuck, [(binding, "ClusterRole admin".to_owned())]);
        assert_eq!(
            rows(&change.lost),
            ["system:serviceaccount:ops:kubewarm  ClusterRole admin shop"]
        );
    }

    #[test]
    fn a_role_of_a_million_grants_is_shown_as_one_grant() {
        let many: Vec<_> = (0..100).map(|n| format!("r{n}")).collect();
        let many = many.join(", ");
        let wide =
            ROLE.replace("['']", &format!("[{many}]")).replace("[pods]", &format!("[{many}]"));
        let change = diff_grants(&both(), &parse(&format!("{wide}{BINDING}")));
        assert_eq!(
            rows(&change.lost),
            ["system:serviceaccount:ops:kubewarm  Role kubewarm:shop:web shop"]
        );
    }

    #[test]
    fn other_kinds_and_invalid_rules_are_rejected() {
        let error = RbacObject::parse("kind: Pod\n").unwrap_err().to_string();
        assert_eq!(error, "it contains a \"Pod\", which is neither a role nor a binding");
        let broken = ROLE.replace("verbs: [list, watch]", "verbs: 7");
        assert!(matches!(
            RbacObject::parse(&broken),
            Err(super::super::RbacParseError::Fields { .. })
        ));
    }
}
