//! A checked target of a profile.

use super::{
    Extent, FieldSelector, FieldSelectorLimits, GroupResource, Index, Invalid, LabelRequirement,
    LabelSelector, Operator, Projection, Requirement, Resource, SecretData, index,
    invalid::{counted, distinct, in_range, short},
    resource::is_dns_label,
};
use crate::v1alpha1;
use std::{collections::BTreeSet, sync::Arc};

/// Bytes of a label selector as it is sent. Every request carries it in its URL, and every cell in
/// its key; proxies take some 8 KiB for both selectors, percent-encoded.
const MAX_LABEL_SELECTOR: usize = 4 << 10;
/// Bytes of a field selector.
const MAX_FIELD_SELECTOR: usize = 2 << 10;
/// The length of a value is bounded by the length of the selector.
const FIELD_SELECTOR: FieldSelectorLimits =
    FieldSelectorLimits { requirements: 8, value_bytes: MAX_FIELD_SELECTOR };

/// One entry of `spec.targets`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Unique within the profile.
    pub name: Arc<str>,
    /// What to list and watch.
    pub of: GroupResource,
    /// `None`: the version that the server prefers.
    pub version: Option<Arc<str>>,
    /// Where.
    pub scope: TargetScope,
    /// Whether it counts for `Ready`.
    pub requirement: Requirement,
    /// 0..=1000; higher warms first.
    pub priority: u16,
    /// Only for secrets; [`SecretData::Deny`] for every other kind, whatever the spec says, so
    /// that it tells no cells apart.
    pub secret_data: SecretData,
    /// Sent to the server; at most 4 KiB.
    pub labels: LabelSelector,
    /// Sent to the server, which decides whether it supports them; at most 2 KiB.
    pub fields: FieldSelector,
    /// What of each object.
    pub projection: Projection,
    /// At most 16, with unique names, in the order of the spec.
    pub indexes: Arc<[Index]>,
}

/// Where a target looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetScope {
    /// The profile's namespace.
    OwnNamespace,
    /// These, 1 to 64.
    Namespaces(BTreeSet<Arc<str>>),
    /// Those whose labels match, as they come and go.
    NamespaceSelector(LabelSelector),
    /// Every namespace, by one watch.
    AllNamespaces,
    /// A cluster-scoped kind.
    Cluster,
}

impl TargetScope {
    /// Where cells are, for a profile in namespace `own`; `None` where only a cluster knows.
    #[must_use]
    pub fn extents(&self, own: &Arc<str>) -> Option<Vec<Extent>> {
        Some(match self {
            Self::OwnNamespace => vec![Extent::Namespace(Arc::clone(own))],
            Self::Namespaces(names) => names.iter().cloned().map(Extent::Namespace).collect(),
            Self::NamespaceSelector(_) => return None,
            Self::AllNamespaces => vec![Extent::AllNamespaces],
            Self::Cluster => vec![Extent::Cluster],
        })
    }
}

impl Target {
    /// Checks the target at the JSON path `path`. A target without a scope gets `default_scope`.
    pub(super) fn parse(
        path: &str,
        target: &v1alpha1::Target,
        default_scope: &TargetScope,
    ) -> Result<Self, Invalid> {
        let at = |field: &str| format!("{path}.{field}");
        let name = label(&at("name"), &target.name)?;
        let (of, version) = resource(path, target)?;
        let scope = match &target.scope {
            Some(own) => scope(&at("scope"), own)?,
            None => default_scope.clone(),
        };
        let priority = in_range(&at("priority"), target.priority, 0..=1000)?;
        let labels = target.label_selector.as_ref();
        let labels = labels.map(|selector| label_selector(&at("labelSelector"), selector));
        let labels = labels.transpose()?.unwrap_or_default();
        let fields = target.field_selector.as_ref();
        let fields = fields.map(|selector| field_selector(&at("fieldSelector"), selector));
        let fields = fields.transpose()?.unwrap_or_default();
        let managed_fields = target.projection.managed_fields;
        let projection = match target.projection.type_ {
            v1alpha1::ProjectionType::Full => Projection::Full(managed_fields),
            v1alpha1::ProjectionType::Metadata => Projection::Metadata(managed_fields),
        };
        let secret_data =
            if of.is_secrets() { target.secret_data } else { SecretData::Deny };
        if of.is_secrets()
            && matches!(projection, Projection::Full(_))
            && secret_data == SecretData::Deny
        {
            return Err(Invalid::new(format!(
                "{path}: secrets are cached as metadata only unless secretData is Allow; set \
                 projection.type to Metadata, or secretData to Allow"
            )));
        }
        let indexes = index::parse(&at("indexes"), &target.indexes, (&of, projection))?;
        let requirement = target.requirement;
        Ok(Self {
            name,
            of,
            version,
            scope,
            requirement,
            priority,
            secret_data,
            labels,
            fields,
            projection,
            indexes,
        })
    }
}

pub(super) fn label(path: &str, text: &str) -> Result<Arc<str>, Invalid> {
    if is_dns_label(text) {
        return Ok(text.into());
    }
    let expected = "at most 63 lower case letters, digits and inner hyphens";
    Err(Invalid::malformed(path, format!("{text:?} is not a DNS label ({expected})")))
}

fn resource(
    path: &str,
    target: &v1alpha1::Target,
) -> Result<(GroupResource, Option<Arc<str>>), Invalid> {
    let at = |error: Invalid| Invalid::malformed(&format!("{path}.{}", error.part), error);
    let of = GroupResource::new(&target.group, &target.resource).map_err(at)?;
    let version = target.version.as_ref().map(|version| Resource::new(of.clone(), version));
    let version = version.transpose().map_err(at)?.map(|it| it.version().into());
    Ok((of, version))
}

pub(super) fn scope(path: &str, scope: &v1alpha1::Scope) -> Result<TargetScope, Invalid> {
    use v1alpha1::ScopeType;
    let v1alpha1::Scope { type_, namespaces, namespace_selector } = scope;
    let member = |field: &str, type_: &str, advice: &str| {
        Err(Invalid::new(format!(
            "{path}.{field} is required for, and only for, type {type_}; {advice}"
        )))
    };
    if *type_ != ScopeType::Namespaces && !namespaces.is_empty() {
        return member("namespaces", "Namespaces", "remove it or change the type");
    }
    if *type_ != ScopeType::NamespaceSelector && namespace_selector.is_some() {
        let advice = "remove it or change the type";
        return member("namespaceSelector", "NamespaceSelector", advice);
    }
    Ok(match type_ {
        ScopeType::OwnNamespace => TargetScope::OwnNamespace,
        ScopeType::AllNamespaces => TargetScope::AllNamespaces,
        ScopeType::Cluster => TargetScope::Cluster,
        ScopeType::Namespaces if namespaces.is_empty() => {
            return member("namespaces", "Namespaces", "name 1 to 64 namespaces");
        }
        ScopeType::Namespaces => {
            let path = format!("{path}.namespaces");
            counted(&path, namespaces.len(), 1..=64)?;
            let parse = |(at, name): (usize, &String)| label(&format!("{path}[{at}]"), name);
            let names = namespaces.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
            distinct(&path, "", namespaces.iter().map(|name| (name, &**name)))?;
            TargetScope::Namespaces(names)
        }
        ScopeType::NamespaceSelector => {
            let Some(selector) = namespace_selector else {
                let advice = "add it; {} selects every namespace";
                return member("namespaceSelector", "NamespaceSelector", advice);
            };
            let path = format!("{path}.namespaceSelector");
            TargetScope::NamespaceSelector(label_selector(&path, selector)?)
        }
    })
}

fn label_selector(
    path: &str,
    selector: &v1alpha1::LabelSelector,
) -> Result<LabelSelector, Invalid> {
    let v1alpha1::LabelSelector { match_labels, match_expressions } = selector;
    let labels = format!("{path}.matchLabels");
    counted(&labels, match_labels.len(), 0..=16)?;
    counted(&format!("{path}.matchExpressions"), match_expressions.len(), 0..=16)?;
    let mut requirements = Vec::new();
    for (key, value) in match_labels {
        let requirement = LabelRequirement::new(key, Operator::In, [value.as_str()]);
        requirements.push(requirement.map_err(|error| Invalid::malformed(&labels, error))?);
    }
    for (at, term) in match_expressions.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{at}]");
        counted(&format!("{path}.values"), term.values.len(), 0..=32)?;
        let values = term.values.iter().map(String::as_str);
        let requirement = LabelRequirement::new(&term.key, term.operator, values);
        requirements.push(requirement.map_err(|error| Invalid::malformed(&path, error))?);
    }
    sendable(path, LabelSelector::new(requirements))
}

fn field_selector(path: &str, text: &str) -> Result<FieldSelector, Invalid> {
    short(path, text, MAX_FIELD_SELECTOR)?;
    let selector = FieldSelector::parse(text, FIELD_SELECTOR);
    let selector = selector.map_err(|error| Invalid::malformed(path, error))?;
    if selector.is_empty() {
        return Err(Invalid::new(format!(
            "{path} has no requirement; give it 1 to 8, or remove it"
        )));
    }
    Ok(selector)
}

/// Checks the length of a label selector as it is sent.
fn sendable(path: &str, selector: LabelSelector) -> Result<LabelSelector, Invalid> {
    let found = selector.to_string().len();
    if found <= MAX_LABEL_SELECTOR {
        return Ok(selector);
    }
    Err(Invalid::new(format!(
        "{path} comes to {found} bytes in a request; shorten it to at most {MAX_LABEL_SELECTOR}"
    )))
}
