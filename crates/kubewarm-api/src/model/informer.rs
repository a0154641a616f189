//! Keys and settings of informers. An informer is one list-and-watch together with its store.

use super::{
    AccessLossPolicy, FieldPath, FieldSelector, Identity, LabelSelector, ListPolicy,
    ManagedFieldsPolicy, Resource, SecretDataPolicy, UsageMeter, escape,
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
    /// All namespaces, for a namespaced resource.
    AllNamespaces,
    /// The whole cluster, for a cluster-scoped resource.
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

/// Key that identifies an informer. Profiles of one namespace whose targets have equal keys share
/// one informer and its store. Profiles of different namespaces never share an informer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InformerKey {
    /// Resource to list and watch.
    pub resource: Resource,
    /// Namespaces to list and watch.
    pub scope: InformerScope,
    /// `labelSelector` of the list and the watch.
    pub labels: LabelSelector,
    /// `fieldSelector` of the list and the watch.
    pub fields: FieldSelector,
    /// Part of each object to request and to store.
    pub projection: Projection,
    /// For secrets, the target's `secretData`. For other resources always
    /// [`SecretDataPolicy::Deny`], so that targets with different `secretData` still share an
    /// informer.
    pub secret_data: SecretDataPolicy,
    /// Identity with which the informer lists and watches.
    pub identity: Identity,
    /// Namespace of the profiles that declare the informer, so that profiles of different
    /// namespaces never share it. `None`: kubewarm itself needs the informer.
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

/// The profile whose limit on concurrent lists applies to an informer, and the informer's priority
/// among the profile's waiting informers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListSlotSettings {
    /// Namespace and name of the profile.
    pub profile: ProfileRef,
    /// Largest number of first lists and relists that run concurrently for the profile, at least 1.
    pub max_concurrent_lists: usize,
    /// Order of the profile's waiting lists, 0 to 1000. An informer with a higher value lists
    /// first.
    pub priority: u16,
}

/// Settings that can change while the informer runs.
///
/// If several profiles declare the informer, it has the settings of the target with the highest
/// priority. For `max_staleness`, `consistency_check_period` and `namespace_check`, it has the
/// strictest value of all its profiles. While at least one of these profiles is active, the
/// settings of paused profiles do not count, except `on_access_lost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerSettings {
    /// The profile whose limit on concurrent lists applies to this informer.
    pub list_slot_owner: ListSlotSettings,
    /// Which list requests the informer sends, with which page size and timeout.
    pub lists: ListPolicy,
    /// Staleness limit: the store is stale if kubewarm has not confirmed for this time that the
    /// store is current. To prevent this, the informer sends consistent lists and probes in time.
    pub max_staleness: Duration,
    /// Time between two consistency checks. `None`: the informer runs no consistency checks.
    pub consistency_check_period: Option<Duration>,
    /// Whether kubewarm gets the namespace by name when the store is empty or the API server
    /// rejects a request.
    pub namespace_check: NamespaceCheckPolicy,
    /// What happens to the store when the informer loses access. If at least one profile of the
    /// informer has `ServeStale`, the informer keeps its store. Clients can then read the store
    /// only if the profiles that answer the read have `ServeStale` too.
    pub on_access_lost: AccessLossPolicy,
    /// Number of objects and memory of the informer, which count against the limits of its
    /// profiles.
    pub meter: Arc<UsageMeter>,
}

/// Whether the informer must check that its namespace exists.
///
/// The response of a list does not show whether the namespace exists. A list in a namespace that
/// does not exist returns 200 without objects. A list in a namespace that is being deleted often
/// returns 403, because Roles disappear first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NamespaceCheckPolicy {
    /// No check is necessary, because the namespace exists: it is the profile's own, or a namespace
    /// selector matched it. Also for cluster-wide informers.
    #[default]
    Skip,
    /// The informer must check the namespace, because a profile only names it: the name can be
    /// misspelled, or the namespace can be deleted or not yet created.
    Require,
}

/// A declared informer: key, settings and indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerSpec {
    /// Key that identifies the informer.
    pub key: InformerKey,
    /// Settings that can change while the informer runs.
    pub settings: InformerSettings,
    /// Fields for which the store keeps an index, because a profile declares an index of the field.
    /// Stores always index labels.
    pub indexes: BTreeSet<FieldPath>,
}

impl InformerSpec {
    /// Creates an informer that `profile` declares, with default settings and without consistency
    /// checks and indexes.
    pub fn new(key: InformerKey, profile: ProfileRef) -> Self {
        Self {
            key,
            settings: InformerSettings {
                list_slot_owner: ListSlotSettings {
                    profile,
                    max_concurrent_lists: 4,
                    priority: 500,
                },
                lists: ListPolicy::default(),
                max_staleness: Duration::from_mins(2),
                consistency_check_period: None,
                namespace_check: NamespaceCheckPolicy::Skip,
                on_access_lost: AccessLossPolicy::Reject,
                meter: Arc::default(),
            },
            indexes: BTreeSet::new(),
        }
    }
}

impl InformerScope {
    /// The namespace, or `None` for cluster-wide scopes.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespace(name) => Some(name),
            Self::AllNamespaces | Self::Cluster => None,
        }
    }
}

impl Projection {
    /// Whether the store keeps `metadata.managedFields`.
    pub fn managed_fields(self) -> ManagedFieldsPolicy {
        match self {
            Self::Full(fields) | Self::Metadata(fields) => fields,
        }
    }
}

impl InformerKey {
    /// Creates the key of an informer that kubewarm itself needs. The key has the operator's
    /// identity, no selectors and no access to Secret data.
    pub fn all(resource: Resource, scope: InformerScope, projection: Projection) -> Self {
        Self {
            resource,
            scope,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            projection,
            secret_data: SecretDataPolicy::Deny,
            identity: Identity::Operator,
            declared_in: None,
        }
    }

    /// Whether kubewarm itself needs the informer, for instance to list profiles. No profile
    /// declares such an informer.
    pub fn is_own(&self) -> bool {
        self.declared_in.is_none()
    }

    /// Whether the store contains whole Secrets. kubewarm does not list such a store at earlier
    /// resource versions. The store does not compress objects, because a compression dictionary
    /// would contain parts of Secrets.
    pub fn has_secrets(&self) -> bool {
        self.resource.group_resource().is_secrets()
            && matches!(self.projection, Projection::Full(_))
    }

    /// Whether a target's author chose to drop managedFields. kubewarm warns about this choice: a
    /// client that reads such objects and applies what it extracts removes its own fields. False
    /// for guarded Secrets, whose managedFields kubewarm always drops.
    pub fn drops_managed_fields(&self) -> bool {
        let is_choice = !self.resource.group_resource().is_secrets()
            || self.secret_data == SecretDataPolicy::Allow;
        is_choice && self.projection.managed_fields() == ManagedFieldsPolicy::Drop
    }

    /// Whether the key requests more of Secrets than their metadata without managedFields, but does
    /// not have `secretData: Allow`. managedFields contain the names of the data's keys, so they
    /// reveal a part of the Secret. kubewarm never lists or watches with such a key.
    pub fn is_guarded(&self) -> bool {
        self.resource.group_resource().is_secrets()
            && self.secret_data == SecretDataPolicy::Deny
            && self.projection != Projection::Metadata(ManagedFieldsPolicy::Drop)
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
    /// Writes the key for messages, with control characters escaped, for example as `pods.v1 in
    /// namespace shop, labels app=web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = format!("{} in {}", self.resource, self.scope);
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
