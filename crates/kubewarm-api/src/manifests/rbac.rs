//! RBAC roles and bindings as Rust types. kubewarm parses these objects from YAML, and builds them
//! for profiles.

use super::{
    ManifestError,
    label::{PROFILE_LABEL, label_value},
    required_permissions::RequiredPermissions,
    resource_set::{MAX_NAMES, ResourceSet},
};
use crate::{
    model::{ProfileRef, Subject},
    v1alpha1,
};
use k8s_openapi::api::rbac::v1::{self, PolicyRule, RoleRef};
use kube::api::{DynamicObject, ObjectMeta};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Prefix of the name of every role that kubewarm generates. By this prefix, kubewarm recognizes
/// its roles in a cluster.
pub(super) const PREFIX: &str = "kubewarm:";

const RBAC: &str = "rbac.authorization.k8s.io";
const MAX_NAME: usize = 253;

/// The two YAML manifests in a profile's `status.access`. Each permission that the profile needs is
/// in exactly one manifest, so that you can review the elevated permissions separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrivilegeLevel {
    /// `manifests`: all permissions that are not in `manifestsElevated`.
    Plain,
    /// `manifestsElevated`: permissions for secrets, and the permissions of a profile's
    /// ServiceAccount outside the profile's namespace.
    Elevated,
}

const KINDS: [&str; 4] = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];

/// A Role, RoleBinding, ClusterRole or ClusterRoleBinding.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RbacObject {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<PolicyRule>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role_ref: Option<RoleRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subjects: Option<Vec<v1::Subject>>,
}

/// Why text could not be parsed as YAML that contains only RBAC objects.
#[derive(Debug, thiserror::Error)]
pub enum RbacParseError {
    /// The text is not valid YAML.
    #[error("it is not YAML")]
    Yaml(#[source] serde_saphyr::Error),
    /// A role or binding has invalid fields.
    #[error("it contains an invalid {kind}")]
    Fields {
        /// Kind of the role or binding, as in the parsed text.
        kind: String,
        /// Error of the first invalid field.
        #[source]
        source: serde_json::Error,
    },
    /// An object is neither a role nor a binding. The value is the object's kind.
    #[error("it contains a {0:?}, which is neither a role nor a binding")]
    Kind(String),
}

impl RbacObject {
    /// Parses the YAML documents in `text` to objects, in order.
    ///
    /// # Errors
    ///
    /// [`RbacParseError`] for the first object that is not a valid role or binding.
    pub fn parse(text: &str) -> Result<Vec<Self>, RbacParseError> {
        let all: Vec<serde_json::Value> =
            serde_saphyr::from_multiple(text).map_err(RbacParseError::Yaml)?;
        all.into_iter().map(Self::of_value).collect()
    }

    fn of_value(value: serde_json::Value) -> Result<Self, RbacParseError> {
        let kind = value["kind"].as_str().unwrap_or_default().to_owned();
        if !KINDS.contains(&&*kind) {
            return Err(RbacParseError::Kind(kind));
        }
        serde_json::from_value(value).map_err(|source| RbacParseError::Fields { kind, source })
    }

    /// Converts an object from a Kubernetes list. The objects in a list have no field `kind`, so
    /// the caller passes the kind.
    ///
    /// # Errors
    ///
    /// The error of the first field that is invalid.
    pub fn from_list_item(kind: &str, object: DynamicObject) -> Result<Self, serde_json::Error> {
        let DynamicObject { metadata, data, .. } = object;
        Ok(Self { kind: kind.to_owned(), metadata, ..serde_json::from_value(data)? })
    }

    /// The kind, such as `RoleBinding`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// `metadata.name`; empty if absent.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// `metadata.namespace`; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The rules of a role; empty for a binding.
    pub fn rules(&self) -> &[PolicyRule] {
        self.rules.as_deref().unwrap_or_default()
    }

    /// The `roleRef` of a binding; `None` for a role.
    pub fn bound_role(&self) -> Option<&RoleRef> {
        self.role_ref.as_ref()
    }

    pub(super) fn subjects(&self) -> &[v1::Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }

    /// Writes the object as one YAML document, without the separator `---`.
    pub(super) fn yaml(&self) -> Result<String, ManifestError> {
        // A string in a YAML block scalar could contain a line `---`, which ends the YAML document.
        // Without block scalars, the serializer writes such a string in quotes.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        serde_saphyr::to_string_with_options(self, options).map_err(ManifestError::Yaml)
    }
}

/// Builds the rules that permit `list` and `watch` of `kinds`, and `get` of the namespaces in
/// `looked_up`.
fn rules(kinds: &ResourceSet, looked_up: &BTreeSet<Arc<str>>) -> Vec<PolicyRule> {
    let names: Vec<_> = looked_up.iter().map(ToString::to_string).collect();
    let lookup = names.chunks(MAX_NAMES).map(|names| rule("namespaces", names.to_vec(), "get"));
    kinds.rules().into_iter().chain(lookup).collect()
}

fn rule(resource: &str, names: Vec<String>, verb: &str) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(names),
        verbs: vec![verb.to_owned()],
        ..PolicyRule::default()
    }
}

/// Builds the roles and bindings that grant those permissions in `needs` that belong to the
/// manifest `tier`. The order of the result is: roles for single namespaces, roles for the whole
/// cluster, roles for namespace selectors.
///
/// With [`PrivilegeLevel::Plain`], a role also permits `operator` to create tokens of the profile's
/// ServiceAccount, if the profile has one. kubewarm reads with these tokens.
pub(super) fn documents(
    needs: &RequiredPermissions,
    operator: &Subject,
    tier: PrivilegeLevel,
) -> Result<Vec<RbacObject>, ManifestError> {
    let reader = needs.reader(operator);
    let writer = RbacBuilder { profile: &needs.profile, subject: &reader };
    let name = |target: Option<&str>| {
        let target = target.map(|target| format!(":target:{target}")).unwrap_or_default();
        let elevated = if tier == PrivilegeLevel::Elevated { ":elevated" } else { "" };
        named(format!("{}{target}{elevated}", role_name(&needs.profile)))
    };
    let mut all = Vec::new();
    for (namespace, kinds) in &needs.named {
        let rules = rules(
            &tier.of(kinds, needs.is_outside_own_namespace(Some(namespace))),
            &BTreeSet::new(),
        );
        if !rules.is_empty() {
            all.extend(writer.granted(&name(None)?, Some(namespace), rules));
        }
    }
    let is_outside = needs.is_outside_own_namespace(None);
    let looked_up = if is_outside == (tier == PrivilegeLevel::Elevated) {
        needs.looked_up.clone()
    } else {
        BTreeSet::new()
    };
    let everywhere = rules(&tier.of(&needs.everywhere, is_outside), &looked_up);
    if !everywhere.is_empty() {
        all.extend(writer.granted(&name(None)?, None, everywhere));
    }
    for group in &needs.selected {
        let rules = rules(&tier.of(&group.kinds, is_outside), &BTreeSet::new());
        if rules.is_empty() {
            continue;
        }
        let name = name(Some(&group.target))?;
        all.push(writer.role(&name, None, rules));
        for namespace in group.namespaces.iter().flatten() {
            all.push(writer.binding(&name, Some(namespace), "ClusterRole"));
        }
    }
    if let (Some(account), PrivilegeLevel::Plain, false) = (&needs.account, tier, needs.is_empty())
    {
        let name = named(token_role_name(&needs.profile))?;
        // `resourceNames` restricts the rule to tokens of one ServiceAccount.
        let mint = rule("serviceaccounts/token", vec![account.to_string()], "create");
        let writer = RbacBuilder { subject: operator, ..writer };
        all.extend(writer.granted(&name, Some(&needs.profile.namespace), vec![mint]));
    }
    Ok(all)
}

/// Rejects a role name of more than 253 bytes. The namespace, profile and target in the name
/// contain no `:`, so different roles never get the same name.
fn named(name: String) -> Result<String, ManifestError> {
    if name.len() > MAX_NAME { Err(ManifestError::NameTooLong(name)) } else { Ok(name) }
}

/// Returns the RBAC rules that grant `needs`, for each namespace, sorted by namespace. The empty
/// namespace is the whole cluster.
pub(super) fn roles(needs: &RequiredPermissions) -> Vec<v1alpha1::NamespaceRules> {
    let mut by_namespace = BTreeMap::<Arc<str>, Vec<PolicyRule>>::new();
    let everywhere = rules(&needs.everywhere, &needs.looked_up);
    if !everywhere.is_empty() {
        by_namespace.insert("".into(), everywhere);
    }
    let mut kinds = needs.named.clone();
    for group in &needs.selected {
        for namespace in group.namespaces.iter().flatten() {
            kinds.entry(Arc::clone(namespace)).or_default().extend(&group.kinds);
        }
    }
    let namespaced = kinds.into_iter().map(|(name, kinds)| (name, rules(&kinds, &[].into())));
    by_namespace.extend(namespaced);
    let role = |(namespace, rules): (Arc<str>, Vec<PolicyRule>)| v1alpha1::NamespaceRules {
        namespace: namespace.to_string(),
        rules: rules.into_iter().map(of_rbac).collect(),
    };
    by_namespace.into_iter().map(role).collect()
}

fn of_rbac(rule: PolicyRule) -> v1alpha1::PolicyRule {
    v1alpha1::PolicyRule {
        api_groups: rule.api_groups.unwrap_or_default(),
        resources: rule.resources.unwrap_or_default(),
        resource_names: rule.resource_names.unwrap_or_default(),
        verbs: rule.verbs,
    }
}

impl PrivilegeLevel {
    /// Returns the resources in `kinds` whose permissions belong to the manifest `self`.
    /// `is_outside` is `true` for permissions of a ServiceAccount outside its own namespace.
    pub(super) fn of(self, kinds: &ResourceSet, is_outside: bool) -> ResourceSet {
        let is_elevated = self == Self::Elevated;
        kinds.filtered(|kind| (is_outside || kind.is_secrets()) == is_elevated)
    }
}

struct RbacBuilder<'a> {
    profile: &'a ProfileRef,
    subject: &'a Subject,
}

impl RbacBuilder<'_> {
    /// Builds a role with `rules`, and its binding. Both are cluster-scoped if `namespace` is
    /// `None`.
    fn granted(
        &self,
        name: &str,
        namespace: Option<&str>,
        rules: Vec<PolicyRule>,
    ) -> [RbacObject; 2] {
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        [self.role(name, namespace, rules), self.binding(name, namespace, kind)]
    }

    fn role(&self, name: &str, namespace: Option<&str>, rules: Vec<PolicyRule>) -> RbacObject {
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        RbacObject { rules: Some(rules), ..self.document(kind, name, namespace) }
    }

    fn binding(&self, name: &str, namespace: Option<&str>, kind: &str) -> RbacObject {
        let role_ref = Some(RoleRef {
            api_group: Some(RBAC.to_owned()),
            kind: kind.to_owned(),
            name: name.to_owned(),
        });
        let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
        let subjects = Some(vec![self.subject()]);
        RbacObject { role_ref, subjects, ..self.document(kind, name, namespace) }
    }

    fn document(&self, kind: &str, name: &str, namespace: Option<&str>) -> RbacObject {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            labels: Some([(PROFILE_LABEL.to_owned(), label_value(self.profile))].into()),
            ..ObjectMeta::default()
        };
        let (api_version, kind) = (format!("{RBAC}/v1"), kind.to_owned());
        RbacObject { api_version, kind, metadata, ..RbacObject::default() }
    }

    fn subject(&self) -> v1::Subject {
        let rbac = Some(RBAC.to_owned());
        let (kind, name, namespace, api_group) = match self.subject {
            Subject::ServiceAccount { namespace, name } => {
                ("ServiceAccount", name, Some(namespace.to_string()), None)
            }
            Subject::User(name) => ("User", name, None, rbac),
            Subject::Group(name) => ("Group", name, None, rbac),
        };
        v1::Subject { kind: kind.to_owned(), name: name.to_string(), namespace, api_group }
    }
}

/// Returns `kubewarm:<namespace>:<profile>`, the name of a profile's role. The name of each
/// additional role of the profile consists of this name, `:` and a suffix.
pub fn role_name(profile: &ProfileRef) -> String {
    format!("{PREFIX}{}:{}", profile.namespace, profile.name)
}

pub(super) fn token_role_name(profile: &ProfileRef) -> String {
    format!("{}:token", role_name(profile))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(namespace: &str, name: &str) -> ProfileRef {
        ProfileRef { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn a_name_of_more_than_253_bytes_is_an_error() {
        let names = |name: &str| {
            let role = role_name(&profile("shop", name));
            named(role).map(|role| role.len())
        };
        let longest = MAX_NAME - "kubewarm:shop:".len();
        assert_eq!(names(&"a".repeat(longest)).unwrap(), MAX_NAME);
        let error = names(&"a".repeat(longest + 1)).unwrap_err().to_string();
        assert!(
            error.ends_with("has at most 253; shorten metadata.name of the profile"),
            "{error}"
        );
        assert!(error.contains("would have 254 bytes"), "{error}");
    }

    #[test]
    fn rules_have_at_most_64_resource_names() {
        let names: BTreeSet<_> = (0..130).map(|n| Arc::from(format!("n{n}"))).collect();
        let counts: Vec<_> = rules(&ResourceSet::default(), &names)
            .into_iter()
            .map(|rule| (rule.verbs, rule.resource_names.map(|names| names.len())))
            .collect();
        let get = || vec!["get".to_owned()];
        assert_eq!(counts, [(get(), Some(64)), (get(), Some(64)), (get(), Some(2))]);
    }
}
