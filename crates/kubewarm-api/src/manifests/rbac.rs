//! Roles and bindings as typed objects.

use super::{
    Unwritable,
    label::{PROFILE_LABEL, label_value},
    needs::{Kinds, Needs},
};
use crate::{
    model::{GroupResource, ProfileRef, Subject},
    v1alpha1,
};
use k8s_openapi::api::rbac::v1::{self, PolicyRule, RoleRef};
use kube::api::{DynamicObject, ObjectMeta};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What the names of all roles begin with.
pub(super) const PREFIX: &str = "kubewarm:";

const RBAC: &str = "rbac.authorization.k8s.io";
/// The longest name, in bytes.
const MAX_NAME: usize = 253;
/// The most names in one rule, as in the schema of `status.access`.
const MAX_NAMES: usize = 64;

/// Which of the two manifests a grant belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Everything else.
    Plain,
    /// Secrets, and what lies outside the namespace of an account that the profile names.
    Elevated,
}

const KINDS: [&str; 4] = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];

/// An object of RBAC: a role or a binding, of a namespace or of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Document {
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

/// A text that should hold objects of RBAC and nothing else.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not YAML.
    #[error("it is not YAML")]
    Yaml(#[source] serde_saphyr::Error),
    /// Not the fields of its kind.
    #[error("it holds a {kind} that is none")]
    Fields {
        /// As written.
        kind: String,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// Another kind.
    #[error("it holds a {0:?}, which is no role or binding")]
    Kind(String),
}

impl Document {
    /// The objects of `text`, in its order.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] for the first that is no role or binding.
    pub fn parse(text: &str) -> Result<Vec<Self>, Unreadable> {
        let all: Vec<serde_json::Value> =
            serde_saphyr::from_multiple(text).map_err(Unreadable::Yaml)?;
        all.into_iter().map(Self::of_value).collect()
    }

    fn of_value(value: serde_json::Value) -> Result<Self, Unreadable> {
        let kind = value["kind"].as_str().unwrap_or_default().to_owned();
        if !KINDS.contains(&&*kind) {
            return Err(Unreadable::Kind(kind));
        }
        serde_json::from_value(value).map_err(|source| Unreadable::Fields { kind, source })
    }

    /// An object as a list of its `kind` holds it, where it says no kind itself.
    ///
    /// # Errors
    ///
    /// That of a field which is not what its kind has there.
    pub fn of_item(kind: &str, object: DynamicObject) -> Result<Self, serde_json::Error> {
        let DynamicObject { metadata, data, .. } = object;
        Ok(Self { kind: kind.to_owned(), metadata, ..serde_json::from_value(data)? })
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its name; empty where it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its namespace; empty where it has none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The rules of a role; of a binding, none.
    #[must_use]
    pub fn rules(&self) -> &[PolicyRule] {
        self.rules.as_deref().unwrap_or_default()
    }

    /// The role that it binds, if it is a binding.
    #[must_use]
    pub fn binds(&self) -> Option<&RoleRef> {
        self.role_ref.as_ref()
    }

    /// The subjects of a binding; of a role, none.
    pub(super) fn subjects(&self) -> &[v1::Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }

    /// The object as one YAML document, without a separator.
    pub(super) fn yaml(&self) -> Result<String, Unwritable> {
        // Names go through the serializer's quoting only, never into a block scalar.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        serde_saphyr::to_string_with_options(self, options).map_err(Unwritable::Yaml)
    }
}

/// The rules for `kinds`, one for each API group, and for looking up namespaces by name.
pub(super) fn rules(kinds: &Kinds, looked_up: &BTreeSet<Arc<str>>) -> Vec<PolicyRule> {
    let mut by_group = BTreeMap::<&str, Vec<String>>::new();
    for kind in kinds {
        by_group.entry(kind.group()).or_default().push(kind.resource().to_owned());
    }
    let of_group = |(group, resources): (&str, Vec<String>)| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources),
        verbs: ["list", "watch"].map(str::to_owned).into(),
        ..PolicyRule::default()
    };
    let names: Vec<_> = looked_up.iter().map(ToString::to_string).collect();
    let lookup = names.chunks(MAX_NAMES).map(|names| rule("namespaces", names.to_vec(), "get"));
    by_group.into_iter().map(of_group).chain(lookup).collect()
}

/// One verb on objects of these names, of a kind of the core group.
fn rule(resource: &str, names: Vec<String>, verb: &str) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(names),
        verbs: vec![verb.to_owned()],
        ..PolicyRule::default()
    }
}

/// The objects that grant `tier` of `needs` to whoever reads: namespaces by name, then the cluster,
/// then selectors in the order of their targets; and to `operator` the tokens of the account that
/// the profile names.
pub(super) fn documents(
    needs: &Needs,
    operator: &Subject,
    tier: Tier,
) -> Result<Vec<Document>, Unwritable> {
    let reader = needs.reader(operator);
    let writer = Writer { profile: &needs.profile, subject: &reader };
    let name = |target: Option<&str>| {
        let target = target.map(|target| format!(":target:{target}")).unwrap_or_default();
        let elevated = if tier == Tier::Elevated { ":elevated" } else { "" };
        named(format!("{}{target}{elevated}", role_name(&needs.profile)))
    };
    let mut all = Vec::new();
    for (namespace, kinds) in &needs.named {
        let rules = rules(&tier.of(kinds, needs.leaves_home(Some(namespace))), &BTreeSet::new());
        if !rules.is_empty() {
            all.extend(writer.granted(&name(None)?, Some(namespace), rules));
        }
    }
    let away = needs.leaves_home(None);
    let looked_up =
        if away == (tier == Tier::Elevated) { needs.looked_up.clone() } else { BTreeSet::new() };
    let everywhere = rules(&tier.of(&needs.everywhere, away), &looked_up);
    if !everywhere.is_empty() {
        all.extend(writer.granted(&name(None)?, None, everywhere));
    }
    for group in &needs.selected {
        let rules = rules(&tier.of(&group.kinds, away), &BTreeSet::new());
        if rules.is_empty() {
            continue;
        }
        let name = name(Some(&group.target))?;
        all.push(writer.role(&name, None, rules));
        for namespace in group.namespaces.iter().flatten() {
            all.push(writer.binding(&name, Some(namespace), "ClusterRole"));
        }
    }
    if let (Some(account), Tier::Plain, false) = (&needs.account, tier, needs.is_empty()) {
        let name = named(token_role_name(&needs.profile))?;
        // To mint tokens of one account, and of no other.
        let mint = rule("serviceaccounts/token", vec![account.to_string()], "create");
        let writer = Writer { subject: operator, ..writer };
        all.extend(writer.granted(&name, Some(&needs.profile.namespace), vec![mint]));
    }
    Ok(all)
}

/// No part of `name` can hold a `:`, so no two names are equal that differ in a part.
fn named(name: String) -> Result<String, Unwritable> {
    if name.len() > MAX_NAME { Err(Unwritable::NameTooLong(name)) } else { Ok(name) }
}

/// All of `needs` by namespace, sorted; the empty one is the whole cluster.
pub(super) fn roles(needs: &Needs) -> Vec<v1alpha1::NamespaceRules> {
    let mut by_namespace = BTreeMap::<Arc<str>, Vec<PolicyRule>>::new();
    let everywhere = rules(&needs.everywhere, &needs.looked_up);
    if !everywhere.is_empty() {
        by_namespace.insert("".into(), everywhere);
    }
    let mut kinds = needs.named.clone();
    for group in &needs.selected {
        for namespace in group.namespaces.iter().flatten() {
            kinds.entry(Arc::clone(namespace)).or_default().extend(group.kinds.iter().cloned());
        }
    }
    let named = kinds.into_iter().map(|(name, kinds)| (name, rules(&kinds, &[].into())));
    by_namespace.extend(named);
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

impl Tier {
    /// Those of `kinds` that belong to it, `away` from the namespace of an account or not.
    pub(super) fn of(self, kinds: &Kinds, away: bool) -> Kinds {
        let elevated = self == Self::Elevated;
        let here = |kind: &&GroupResource| (away || kind.is_secrets()) == elevated;
        kinds.iter().filter(here).cloned().collect()
    }
}

/// What all objects of one profile have in common.
struct Writer<'a> {
    profile: &'a ProfileRef,
    subject: &'a Subject,
}

impl Writer<'_> {
    /// A role with `rules`, of a namespace or of the cluster, and its binding there.
    fn granted(
        &self,
        name: &str,
        namespace: Option<&str>,
        rules: Vec<PolicyRule>,
    ) -> [Document; 2] {
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        [self.role(name, namespace, rules), self.binding(name, namespace, kind)]
    }

    fn role(&self, name: &str, namespace: Option<&str>, rules: Vec<PolicyRule>) -> Document {
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        Document { rules: Some(rules), ..self.document(kind, name, namespace) }
    }

    fn binding(&self, name: &str, namespace: Option<&str>, kind: &str) -> Document {
        let role_ref = Some(RoleRef {
            api_group: Some(RBAC.to_owned()),
            kind: kind.to_owned(),
            name: name.to_owned(),
        });
        let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
        let subjects = Some(vec![self.subject()]);
        Document { role_ref, subjects, ..self.document(kind, name, namespace) }
    }

    fn document(&self, kind: &str, name: &str, namespace: Option<&str>) -> Document {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            labels: Some([(PROFILE_LABEL.to_owned(), label_value(self.profile))].into()),
            ..ObjectMeta::default()
        };
        let (api_version, kind) = (format!("{RBAC}/v1"), kind.to_owned());
        Document { api_version, kind, metadata, ..Document::default() }
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

/// The name of a profile's roles; others of its roles have it too, a `:` and more behind it.
#[must_use]
pub fn role_name(profile: &ProfileRef) -> String {
    format!("{PREFIX}{}:{}", profile.namespace, profile.name)
}

/// The name of the role that lets the operator mint tokens of the account that a profile names.
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
    fn a_name_that_does_not_fit_is_an_error() {
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
    fn names_looked_up_are_split_over_rules() {
        let names: BTreeSet<_> = (0..130).map(|n| Arc::from(format!("n{n}"))).collect();
        let counts: Vec<_> = rules(&Kinds::new(), &names)
            .into_iter()
            .map(|rule| (rule.verbs, rule.resource_names.map(|names| names.len())))
            .collect();
        let get = || vec!["get".to_owned()];
        assert_eq!(counts, [(get(), Some(64)), (get(), Some(64)), (get(), Some(2))]);
    }
}
