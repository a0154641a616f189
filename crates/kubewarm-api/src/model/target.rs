//! A checked target of a profile.

use super::{
    Extent, FieldRequirement, FieldSelector, GroupResource, Index, Invalid, InvalidName,
    InvalidSelector, LabelRequirement, LabelSelector, ManagedFields, Operator, Projection,
    Requirement, Resource, SensitiveData, index,
    invalid::{counted, in_range, short},
    resource::is_dns_label,
};
use crate::v1alpha1;
use std::{collections::BTreeSet, fmt::Display, sync::Arc};

/// Bytes of a label selector as it is sent. Every request carries it in its URL, and every cell in
/// its key; proxies take some 8 KiB for both selectors, percent-encoded.
const MAX_LABEL_SELECTOR: usize = 4 << 10;
/// Bytes of a field selector as it is sent.
const MAX_FIELD_SELECTOR: usize = 2 << 10;

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
    /// Only for secrets; [`SensitiveData::Deny`] for every other kind, whatever the spec says, so
    /// that it tells no cells apart.
    pub sensitive_data: SensitiveData,
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
    /// Checks the target at the JSON path `path`.
    pub(super) fn parse(path: &str, target: &v1alpha1::Target) -> Result<Self, Invalid> {
        let name = label(format!("{path}.name"), &target.name)?;
        let (of, version) = resource(&format!("{path}.resource"), &target.resource)?;
        let scope = scope(&format!("{path}.scope"), &target.scope)?;
        let priority = in_range(&format!("{path}.priority"), target.priority, 0, 1000)?;
        let labels = target
            .label_selector
            .as_ref()
            .map(|selector| label_selector(&format!("{path}.labelSelector"), selector))
            .transpose()?;
        let fields = field_selector(&format!("{path}.fieldSelectors"), &target.field_selectors)?;
        let projection = projection(&target.projection);
        let sensitive_data = match target.sensitive_data {
            v1alpha1::SensitiveData::Allow if of.is_secrets() => SensitiveData::Allow,
            v1alpha1::SensitiveData::Allow | v1alpha1::SensitiveData::Deny => SensitiveData::Deny,
        };
        if of.is_secrets()
            && matches!(projection, Projection::Full(_))
            && sensitive_data == SensitiveData::Deny
        {
            return Err(Invalid::SecretsWhole { path: path.to_owned() });
        }
        let indexes = index::parse(&format!("{path}.indexes"), &target.indexes, (&of, projection))?;
        Ok(Self {
            name,
            of,
            version,
            scope,
            requirement: match target.requirement {
                v1alpha1::Requirement::Required => Requirement::Required,
                v1alpha1::Requirement::Optional => Requirement::Optional,
            },
            priority: u16::try_from(priority).unwrap_or(u16::MAX),
            sensitive_data,
            labels: labels.unwrap_or_default(),
            fields,
            projection,
            indexes,
        })
    }
}

pub(super) fn label(path: String, text: &str) -> Result<Arc<str>, Invalid> {
    if is_dns_label(text) {
        return Ok(text.into());
    }
    let expected = "at most 63 lower case letters, digits and inner hyphens";
    Err(Invalid::malformed(path, &format!("{text:?} is not a DNS label ({expected})")))
}

fn resource(
    path: &str,
    name: &v1alpha1::ResourceName,
) -> Result<(GroupResource, Option<Arc<str>>), Invalid> {
    let at = |error: InvalidName| {
        let field = match error {
            InvalidName::Group(_) => "group",
            InvalidName::Version(_) => "version",
            InvalidName::Resource(_) => "resource",
        };
        Invalid::malformed(format!("{path}.{field}"), &error)
    };
    let of = GroupResource::new(&name.group, &name.resource).map_err(at)?;
    let version = match &name.version {
        Some(version) => Some(Resource::new(of.clone(), version).map_err(at)?.version().into()),
        None => None,
    };
    Ok((of, version))
}

fn scope(path: &str, scope: &v1alpha1::Scope) -> Result<TargetScope, Invalid> {
    use v1alpha1::ScopeType;
    let member = |field: &str, type_, advice| Invalid::ScopeMember {
        path: format!("{path}.{field}"),
        type_,
        advice,
    };
    if scope.type_ != ScopeType::Namespaces && !scope.namespaces.is_empty() {
        return Err(member("namespaces", "Namespaces", "remove it or change the type"));
    }
    if scope.type_ != ScopeType::NamespaceSelector && scope.namespace_selector.is_some() {
        let advice = "remove it or change the type";
        return Err(member("namespaceSelector", "NamespaceSelector", advice));
    }
    Ok(match scope.type_ {
        ScopeType::OwnNamespace => TargetScope::OwnNamespace,
        ScopeType::AllNamespaces => TargetScope::AllNamespaces,
        ScopeType::Cluster => TargetScope::Cluster,
        ScopeType::Namespaces if scope.namespaces.is_empty() => {
            return Err(member("namespaces", "Namespaces", "name 1 to 64 namespaces"));
        }
        ScopeType::Namespaces => {
            TargetScope::Namespaces(namespaces(&format!("{path}.namespaces"), &scope.namespaces)?)
        }
        ScopeType::NamespaceSelector => {
            let Some(selector) = &scope.namespace_selector else {
                let advice = "add it; {} selects every namespace";
                return Err(member("namespaceSelector", "NamespaceSelector", advice));
            };
            let path = format!("{path}.namespaceSelector");
            TargetScope::NamespaceSelector(label_selector(&path, selector)?)
        }
    })
}

fn namespaces(path: &str, names: &[String]) -> Result<BTreeSet<Arc<str>>, Invalid> {
    counted(path, names.len(), 1, 64)?;
    let mut set = BTreeSet::new();
    for (at, name) in names.iter().enumerate() {
        if !set.insert(label(format!("{path}[{at}]"), name)?) {
            return Err(duplicate(path, "", at, name, names.iter().position(|n| n == name)));
        }
    }
    Ok(set)
}

fn label_selector(
    path: &str,
    selector: &v1alpha1::LabelSelector,
) -> Result<LabelSelector, Invalid> {
    counted(&format!("{path}.matchLabels"), selector.match_labels.len(), 0, 16)?;
    counted(&format!("{path}.matchExpressions"), selector.match_expressions.len(), 0, 16)?;
    let mut requirements = Vec::new();
    for (key, value) in &selector.match_labels {
        let requirement = LabelRequirement::new(key, Operator::In, [value.as_str()]);
        requirements.push(requirement.map_err(malformed(|| format!("{path}.matchLabels")))?);
    }
    for (at, term) in selector.match_expressions.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{at}]");
        counted(&format!("{path}.values"), term.values.len(), 0, 32)?;
        let operator = match term.operator {
            v1alpha1::LabelOperator::In => Operator::In,
            v1alpha1::LabelOperator::NotIn => Operator::NotIn,
            v1alpha1::LabelOperator::Exists => Operator::Exists,
            v1alpha1::LabelOperator::DoesNotExist => Operator::DoesNotExist,
        };
        let values = term.values.iter().map(String::as_str);
        let requirement = LabelRequirement::new(&term.key, operator, values);
        requirements.push(requirement.map_err(malformed(|| path))?);
    }
    let selector = LabelSelector::new(requirements);
    sendable(path, &selector, MAX_LABEL_SELECTOR)?;
    Ok(selector)
}

fn field_selector(
    path: &str,
    terms: &[v1alpha1::FieldSelectorTerm],
) -> Result<FieldSelector, Invalid> {
    counted(path, terms.len(), 0, 8)?;
    let mut requirements = Vec::new();
    for (at, term) in terms.iter().enumerate() {
        if let Some(earlier) = terms.iter().position(|other| other == term).filter(|&e| e < at) {
            return Err(duplicate(path, "", at, &term.field, Some(earlier)));
        }
        short(&format!("{path}[{at}].field"), &term.field, 128)?;
        short(&format!("{path}[{at}].value"), &term.value, 253)?;
        let equals = term.operator == v1alpha1::FieldOperator::Equals;
        let requirement = FieldRequirement::new(&term.field, equals, &term.value);
        requirements.push(requirement.map_err(|error| {
            let of_value = matches!(error, InvalidSelector::FieldValue(_));
            let field = if of_value { "value" } else { "field" };
            Invalid::malformed(format!("{path}[{at}].{field}"), &error)
        })?);
    }
    let selector = FieldSelector::new(requirements);
    sendable(path, &selector, MAX_FIELD_SELECTOR)?;
    Ok(selector)
}

/// Checks the length of a selector as it is sent.
fn sendable(path: &str, selector: &impl Display, max: usize) -> Result<(), Invalid> {
    let found = selector.to_string().len();
    if found <= max {
        return Ok(());
    }
    Err(Invalid::LongSelector { path: path.to_owned(), found, max })
}

fn projection(projection: &v1alpha1::Projection) -> Projection {
    let managed_fields = match projection.managed_fields {
        v1alpha1::ManagedFields::Drop => ManagedFields::Drop,
        v1alpha1::ManagedFields::Keep => ManagedFields::Keep,
    };
    match projection.type_ {
        v1alpha1::ProjectionType::Full => Projection::Full(managed_fields),
        v1alpha1::ProjectionType::MetadataOnly => Projection::MetadataOnly(managed_fields),
    }
}

pub(super) fn duplicate(
    path: &str,
    field: &str,
    at: usize,
    value: &str,
    earlier: Option<usize>,
) -> Invalid {
    Invalid::Duplicate {
        path: format!("{path}[{at}]{field}"),
        value: value.to_owned(),
        earlier: format!("{path}[{}]{field}", earlier.unwrap_or_default()),
    }
}

pub(super) fn malformed<E: Display>(path: impl FnOnce() -> String) -> impl FnOnce(E) -> Invalid {
    |error| Invalid::malformed(path(), &error)
}
