//! Keys and settings of informers. An informer is a list-and-watch and its store.

use super::{
    AccessLossPolicy, FieldPath, FieldSelector, Identity, LabelSelector, ListPolicy,
    ManagedFieldsPolicy, Resource, SecretData, UsageMeter, escape,
};
use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    sync::Arc,
    time::Duration,
};

/// Namespaces that an informer lists and watches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::AsRefStr)]
pub enum InformerScope {
    /// One namespace.
    Namespace(Arc<str>),
    /// All namespaces, of a namespaced resource.
    AllNamespaces,
    /// The cluster, of a cluster-scoped resource.
    Cluster,
}

/// Part of each object that an informer requests and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::AsRefStr)]
pub enum Projection {
    /// The whole object.
    Full(ManagedFieldsPolicy),
    /// Only `metadata`, requested as `PartialObjectMetadata`.
    Metadata(ManagedFieldsPolicy),
}

/// Identity of an informer. Profiles of one namespace with equal keys share one informer and store;
/// profiles of different namespaces never share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InformerKey {
    /// Resource to list and watch.
    pub resource: Resource,
    /// Namespaces to list and watch.
    pub extent: InformerScope,
    /// `labelSelector` of the list and the watch.
    pub labels: LabelSelector,
    /// `fieldSelector` of the list and the watch.
    pub fields: FieldSelector,
    /// Part of each object.
    pub projection: Projection,
    /// `secretData` of a target for secrets. Always [`SecretData::Deny`] for other resources, so
    /// that it does not separate their informers.
    pub secret_data: SecretData,
    /// Identity of the requests.
    pub identity: Identity,
    /// Namespace of the declaring profiles. `None`: kubewarm itself needs the informer.
    pub declared_in: Option<Arc<str>>,
}

/// Namespace and name of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileRef {
    /// Namespace of the profile.
    pub namespace: Arc<str>,
    /// Name of the profile.
    pub name: Arc<str>,
}

/// The profile whose list slot an informer uses for its first list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListSlotOwner {
    /// The profile.
    pub profile: ProfileRef,
    /// Largest number of concurrent first lists of the profile, at least 1.
    pub max_concurrent_lists: usize,
    /// Order of the first lists within the profile, 0 to 1000; higher values first.
    pub priority: u16,
}

/// Settings that can change while the informer runs.
///
/// With several profiles, the active profile with the highest priority decides. For `max_staleness`
/// and `namespace_check` the strictest value of all active profiles applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerSettings {
    /// Profile whose list slot the informer uses.
    pub member_of: ListSlotOwner,
    /// Settings for list requests.
    pub lists: ListPolicy,
    /// Time without an event or a bookmark after which the store is stale. The informer probes the
    /// watch shortly before.
    pub max_staleness: Duration,
    /// Period of consistency checks. `None`: no checks.
    pub consistency_check_period: Option<Duration>,
    /// Whether to read the namespace by name if a list is empty or refused.
    pub namespace_check: NamespaceCheck,
    /// Effect of lost access on the store. `ServeStale` applies if any profile of the informer sets
    /// it.
    pub on_access_lost: AccessLossPolicy,
    /// Objects and memory of the informer, which the budgets of its profiles count.
    pub gauge: Arc<UsageMeter>,
}

/// Whether the informer must check that its namespace exists.
///
/// A list in a namespace that does not exist returns 200 without objects. A list in a deleted
/// namespace often returns 403, because the API server deletes the roles first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NamespaceCheck {
    /// The namespace exists: it is the profile's own, or a namespace selector matched it.
    #[default]
    Known,
    /// A profile names the namespace, so it can be misspelled, deleted or not yet created.
    Ask,
}

/// A declared informer: key, settings and indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerSpec {
    /// Identity of the informer.
    pub key: InformerKey,
    /// Settings that can change while the informer runs.
    pub tuning: InformerSettings,
    /// Indexes that its profiles declare. Labels are always indexed.
    pub indexes: BTreeSet<FieldPath>,
}

impl InformerSpec {
    /// Creates an informer of `profile` with the default settings, without consistency checks and
    /// indexes.
    #[must_use]
    pub fn new(key: InformerKey, profile: ProfileRef) -> Self {
        Self {
            key,
            tuning: InformerSettings {
                member_of: ListSlotOwner { profile, max_concurrent_lists: 4, priority: 500 },
                lists: ListPolicy::default(),
                max_staleness: Duration::from_mins(2),
                consistency_check_period: None,
                namespace_check: NamespaceCheck::Known,
                on_access_lost: AccessLossPolicy::Reject,
                gauge: Arc::default(),
            },
            indexes: BTreeSet::new(),
        }
    }
}

impl InformerScope {
    /// The namespace, or `None` for cluster-wide scopes.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespace(name) => Some(name),
            Self::AllNamespaces | Self::Cluster => None,
        }
    }
}

impl Projection {
    /// Whether `metadata.managedFields` is stored.
    #[must_use]
    pub fn managed_fields(self) -> ManagedFieldsPolicy {
        match self {
            Self::Full(fields) | Self::Metadata(fields) => fields,
        }
    }
}

impl InformerKey {
    /// Creates the key of an informer that kubewarm itself needs: the operator's identity, no
    /// selectors, no Secret data.
    #[must_use]
    pub fn all(resource: Resource, extent: InformerScope, projection: Projection) -> Self {
        Self {
            resource,
            extent,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            projection,
            secret_data: SecretData::Deny,
            identity: Identity::Operator,
            declared_in: None,
        }
    }

    /// Whether kubewarm itself needs the informer. No profile declares such an informer.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.declared_in.is_none()
    }

    /// Whether the store contains whole Secrets. Such a store does not compress bodies, and rejects
    /// reads of earlier resource versions.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        self.resource.group_resource().is_secrets()
            && matches!(self.projection, Projection::Full(_))
    }

    /// Whether the key requests whole Secrets without `secretData: Allow`.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.has_secrets() && self.secret_data == SecretData::Deny
    }
}

impl fmt::Display for InformerScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::AllNamespaces => f.write_str("all namespaces"),
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

impl fmt::Display for InformerKey {
    /// Writes for example `pods.v1 in namespace shop, labels app=web`, for messages. Control
    /// characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = format!("{} in {}", self.resource, self.extent);
        if !self.labels.is_empty() {
            write!(out, ", labels {}", self.labels)?;
        }
        if !self.fields.is_empty() {
            write!(out, ", fields {}", self.fields)?;
        }
        if matches!(self.projection, Projection::Metadata(_)) {
            out.write_str(", metadata only")?;
        }
        match &self.identity {
            Identity::Operator => {}
            identity @ Identity::ServiceAccount { .. } => write!(out, ", as {identity}")?,
        }
        f.write_str(&escape(&out))
    }
}

impl fmt::Display for ProfileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GroupResource;

    #[test]
    fn a_key_is_written_on_one_line() {
        let mut key = InformerKey::all(
            Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap(),
            InformerScope::Namespace("a\n2026 INFO forged".into()),
            Projection::Metadata(ManagedFieldsPolicy::Drop),
        );
        let expected = r"pods.v1 in namespace a\n2026 INFO forged, metadata only";
        assert_eq!(key.to_string(), expected);
        key.identity = Identity::ServiceAccount { namespace: "a".into(), name: "r\n".into() };
        assert_eq!(key.to_string(), format!(r"{expected}, as ServiceAccount a/r\n"));
    }
}
