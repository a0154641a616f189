//! Validation of one entry of `spec.targets`.

use super::{
    FieldSelector, FieldSelectorLimits, GroupResource, IndexDefinition, InformerScope,
    LabelRequirement, LabelSelector, LabelSelectorOperator, ManagedFieldsPolicy, Projection,
    Resource, SecretDataPolicy, TargetRequirement, ValidationError, index,
    resource::is_dns_label,
    validation_error::{counted, distinct, in_range, short},
};
use crate::v1alpha1;
use std::{collections::BTreeSet, sync::Arc};

/// Largest length of a label selector in a request, in bytes. The selector is part of the URL, and
/// proxies often limit a URL to 8 KiB. Percent-encoding and the field selector need the other 4
/// KiB.
const MAX_LABEL_SELECTOR: usize = 4 << 10;
/// Largest length of `spec.targets[].fieldSelector`, in bytes. The URL also contains the label
/// selector, and proxies often limit a URL to 8 KiB.
const MAX_FIELD_SELECTOR: usize = 2 << 10;
/// Limits of `spec.targets[].fieldSelector`: at most 8 requirements. A value can be as long as the
/// whole selector.
const FIELD_SELECTOR: FieldSelectorLimits =
    FieldSelectorLimits { requirements: 8, value_bytes: MAX_FIELD_SELECTOR };

/// One valid entry of `spec.targets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidatedTarget {
    /// Name of the target: a DNS label, unique within the profile.
    pub name: Arc<str>,
    /// Resource to list and watch.
    pub resource: GroupResource,
    /// API version. `None`: the version that the API server prefers.
    pub version: Option<Arc<str>>,
    /// Namespaces to list and watch.
    pub scope: TargetScope,
    /// Whether the condition `Ready` depends on the target.
    pub requirement: TargetRequirement,
    /// Order of lists within the profile, 0 to 1000. If lists of several targets wait, the target
    /// with the highest value is listed first.
    pub priority: u16,
    /// For secrets, the target's `secretData`. For other resources always
    /// [`SecretDataPolicy::Deny`], so that targets with different `secretData` still share an
    /// informer.
    pub secret_data: SecretDataPolicy,
    /// Query parameter `labelSelector` of the target's list and watch requests, at most 4 KiB.
    pub labels: LabelSelector,
    /// Query parameter `fieldSelector` of the target's list and watch requests, at most 2 KiB. Only
    /// the API server checks whether the resource supports the selected fields.
    pub fields: FieldSelector,
    /// Part of each object to request and to store. For secrets without `secretData: Allow` always
    /// without managedFields.
    pub projection: Projection,
    /// The field indexes that the target declares, at most 16, with unique names, in the order of
    /// the spec.
    pub indexes: Arc<[IndexDefinition]>,
}

/// The namespaces that a target reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetScope {
    /// The namespace of the profile.
    OwnNamespace,
    /// The namespaces that the spec lists, 1 to 64.
    Namespaces(BTreeSet<Arc<str>>),
    /// Namespaces whose labels match the selector. The matching namespaces change when users
    /// create, delete or label namespaces.
    NamespaceSelector(LabelSelector),
    /// All namespaces, by one cluster-wide watch.
    AllNamespaces,
    /// The whole cluster, for a cluster-scoped resource.
    Cluster,
}

impl TargetScope {
    /// Returns the scope of each informer that the target needs if its profile is in namespace
    /// `namespace`. Returns `None` for a namespace selector, because only the cluster shows which
    /// namespaces match.
    pub fn informer_scopes(&self, namespace: &Arc<str>) -> Option<Vec<InformerScope>> {
        Some(match self {
            Self::OwnNamespace => vec![InformerScope::Namespace(Arc::clone(namespace))],
            Self::Namespaces(names) => {
                names.iter().cloned().map(InformerScope::Namespace).collect()
            }
            Self::NamespaceSelector(_) => return None,
            Self::AllNamespaces => vec![InformerScope::AllNamespaces],
            Self::Cluster => vec![InformerScope::Cluster],
        })
    }
}

impl ValidatedTarget {
    /// Checks the target at the JSON path `path`. A target without a scope gets `default_scope`.
    pub(super) fn parse(
        path: &str,
        target: &v1alpha1::TargetSpec,
        default_scope: &TargetScope,
    ) -> Result<Self, ValidationError> {
        let at = |field: &str| format!("{path}.{field}");
        let name = label(&at("name"), &target.name)?;
        let (resource, version) = resource(path, target)?;
        let scope = match &target.scope {
            Some(own_scope) => scope(&at("scope"), own_scope)?,
            None => default_scope.clone(),
        };
        let priority = in_range(&at("priority"), target.priority, 0..=1000)?;
        let labels = target.label_selector.as_ref();
        let labels = labels.map(|selector| label_selector(&at("labelSelector"), selector));
        let labels = labels.transpose()?.unwrap_or_default();
        let fields = target.field_selector.as_ref();
        let fields = fields.map(|selector| field_selector(&at("fieldSelector"), selector));
        let fields = fields.transpose()?.unwrap_or_default();
        let secret_data =
            if resource.is_secrets() { target.secret_data } else { SecretDataPolicy::Deny };
        let is_guarded = resource.is_secrets() && secret_data == SecretDataPolicy::Deny;
        // The managedFields of a Secret contain the names of its data's keys.
        let managed_fields =
            if is_guarded { ManagedFieldsPolicy::Drop } else { target.projection.managed_fields };
        let projection = match target.projection.type_ {
            v1alpha1::ProjectionType::Full => Projection::Full(managed_fields),
            v1alpha1::ProjectionType::Metadata => Projection::Metadata(managed_fields),
        };
        if is_guarded && matches!(projection, Projection::Full(_)) {
            return Err(ValidationError::new(format!(
                "{path}: secrets are cached as metadata only unless secretData is Allow; set \
                 projection.type to Metadata, or secretData to Allow"
            )));
        }
        let indexes = index::parse(&at("indexes"), &target.indexes, &resource, projection)?;
        let requirement = target.requirement;
        Ok(Self {
            name,
            resource,
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

pub(super) fn label(path: &str, text: &str) -> Result<Arc<str>, ValidationError> {
    if is_dns_label(text) {
        return Ok(text.into());
    }
    let expected = "at most 63 lower case letters, digits and inner hyphens";
    Err(ValidationError::malformed(path, format!("{text:?} is not a DNS label ({expected})")))
}

fn resource(
    path: &str,
    target: &v1alpha1::TargetSpec,
) -> Result<(GroupResource, Option<Arc<str>>), ValidationError> {
    let at = |error: ValidationError| {
        ValidationError::malformed(&format!("{path}.{}", error.part), error)
    };
    let group_resource = GroupResource::new(&target.group, &target.resource).map_err(at)?;
    let version =
        target.version.as_ref().map(|version| Resource::new(group_resource.clone(), version));
    let version = version.transpose().map_err(at)?.map(|versioned| versioned.version().into());
    Ok((group_resource, version))
}

pub(super) fn scope(
    path: &str,
    scope: &v1alpha1::ScopeSpec,
) -> Result<TargetScope, ValidationError> {
    use v1alpha1::ScopeType;
    let v1alpha1::ScopeSpec { type_, namespaces, namespace_selector } = scope;
    let member = |field: &str, type_: &str, advice: &str| {
        Err(ValidationError::new(format!(
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
    selector: &v1alpha1::LabelSelectorSpec,
) -> Result<LabelSelector, ValidationError> {
    let v1alpha1::LabelSelectorSpec { match_labels, match_expressions } = selector;
    let labels = format!("{path}.matchLabels");
    counted(&labels, match_labels.len(), 0..=16)?;
    counted(&format!("{path}.matchExpressions"), match_expressions.len(), 0..=16)?;
    let mut requirements = Vec::new();
    for (key, value) in match_labels {
        let requirement = LabelRequirement::new(key, LabelSelectorOperator::In, [value.as_str()]);
        requirements.push(requirement.map_err(|error| ValidationError::malformed(&labels, error))?);
    }
    for (at, term) in match_expressions.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{at}]");
        counted(&format!("{path}.values"), term.values.len(), 0..=32)?;
        let values = term.values.iter().map(String::as_str);
        let requirement = LabelRequirement::new(&term.key, term.operator, values);
        requirements.push(requirement.map_err(|error| ValidationError::malformed(&path, error))?);
    }
    sendable(path, LabelSelector::new(requirements))
}

fn field_selector(path: &str, text: &str) -> Result<FieldSelector, ValidationError> {
    short(path, text, MAX_FIELD_SELECTOR)?;
    let selector = FieldSelector::parse(text, FIELD_SELECTOR);
    let selector = selector.map_err(|error| ValidationError::malformed(path, error))?;
    if selector.is_empty() {
        return Err(ValidationError::new(format!(
            "{path} has no requirement; give it 1 to 8, or remove it"
        )));
    }
    Ok(selector)
}

/// Rejects a label selector that needs more than `MAX_LABEL_SELECTOR` bytes in a URL.
fn sendable(path: &str, selector: LabelSelector) -> Result<LabelSelector, ValidationError> {
    let bytes = selector.to_string().len();
    if bytes <= MAX_LABEL_SELECTOR {
        return Ok(selector);
    }
    Err(ValidationError::new(format!(
        "{path} comes to {bytes} bytes in a request; shorten it to at most {MAX_LABEL_SELECTOR}"
    )))
}
