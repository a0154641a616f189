//! A cell: one list-and-watch, and what its profiles ask of it.

use super::{
    FieldPath, FieldSelector, Gauge, Identity, LabelSelector, ListPolicy, ManagedFields,
    OnAccessLost, Resource, SecretData, escape,
};
use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    sync::Arc,
    time::Duration,
};

/// Where a cell looks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::AsRefStr)]
pub enum Extent {
    /// One namespace.
    Namespace(Arc<str>),
    /// Every namespace, of a namespaced kind.
    AllNamespaces,
    /// A cluster-scoped kind.
    Cluster,
}

/// Which part of each object is fetched and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::AsRefStr)]
pub enum Projection {
    /// The whole object.
    Full(ManagedFields),
    /// `metadata` only, and only that is asked of the server.
    Metadata(ManagedFields),
}

/// What makes two cells the same one. Equal cells of the profiles of one namespace share an informer and a
/// table; profiles of different namespaces share none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellKey {
    /// What is listed and watched.
    pub resource: Resource,
    /// Where.
    pub extent: Extent,
    /// Sent to the server.
    pub labels: LabelSelector,
    /// Sent to the server.
    pub fields: FieldSelector,
    /// What of each object.
    pub projection: Projection,
    /// Only for secrets; [`SecretData::Deny`] for every other kind, so that it splits nothing.
    pub secret_data: SecretData,
    /// Who reads it.
    pub identity: Identity,
    /// The namespace whose profiles declare it; `None`: no profile does, kubewarm itself reads it.
    pub declared_in: Option<Arc<str>>,
}

/// A profile that declares a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileRef {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// A profile's share in a cell: whose list slots the cell takes while it warms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberOf {
    /// The profile.
    pub profile: ProfileRef,
    /// How many first lists the profile may have under way at once; at least 1.
    pub max_concurrent_lists: usize,
    /// 0..=1000; higher warms first.
    pub priority: u16,
}

/// What may be changed on a running cell. Where several profiles of a namespace declare it, the active one
/// with the highest priority decides. The staleness bound and the namespace check are the strictest of the
/// active profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The profile whose list slots it takes.
    pub member_of: MemberOf,
    /// How the objects are listed.
    pub lists: ListPolicy,
    /// Without an event or a bookmark for so long, the table is no longer fresh; the watch is probed
    /// shortly before.
    pub max_staleness: Duration,
    /// Period of consistency checks. `None`: no checks.
    pub consistency_check_period: Option<Duration>,
    /// Whether an empty or refused namespace is asked for by name.
    pub namespace_check: NamespaceCheck,
    /// What becomes of its store when access is lost: it stays if any of its profiles wants that.
    pub on_access_lost: OnAccessLost,
    /// What it holds, charged to the budgets of its profiles.
    pub gauge: Arc<Gauge>,
}

/// Whether the existence of a cell's namespace is in question.
///
/// A list in a namespace that does not exist answers 200 and nothing, and a deleted one often
/// answers 403, because its roles went first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NamespaceCheck {
    /// It exists: the profile lives in it, or a selector matched it.
    #[default]
    Known,
    /// Some profile names it, so it may be misspelt, deleted or not made yet.
    Ask,
}

/// A cell as declared: its key, and what its profiles want of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellSpec {
    /// What it is.
    pub key: CellKey,
    /// How it runs.
    pub tuning: Tuning,
    /// Declared indexes of all its profiles together; labels are indexed always.
    pub indexes: BTreeSet<FieldPath>,
}

impl CellSpec {
    /// A cell of `profile` that runs by the defaults, is compared with no list, and has no declared indexes.
    #[must_use]
    pub fn new(key: CellKey, profile: ProfileRef) -> Self {
        Self {
            key,
            tuning: Tuning {
                member_of: MemberOf { profile, max_concurrent_lists: 4, priority: 500 },
                lists: ListPolicy::default(),
                max_staleness: Duration::from_mins(2),
                consistency_check_period: None,
                namespace_check: NamespaceCheck::Known,
                on_access_lost: OnAccessLost::Reject,
                gauge: Arc::default(),
            },
            indexes: BTreeSet::new(),
        }
    }
}

impl Extent {
    /// The namespace, where it is one.
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
    pub fn managed_fields(self) -> ManagedFields {
        match self {
            Self::Full(fields) | Self::Metadata(fields) => fields,
        }
    }
}

impl CellKey {
    /// All objects of a kind there, for kubewarm itself; no payload of secrets.
    #[must_use]
    pub fn all(resource: Resource, extent: Extent, projection: Projection) -> Self {
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

    /// Whether kubewarm reads it for itself. No profile declares such a cell.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.declared_in.is_none()
    }

    /// Whether its objects hold the payload of Secrets. Their bodies are not compressed, and lists of earlier
    /// versions are refused.
    #[must_use]
    pub fn holds_secrets(&self) -> bool {
        self.resource.group_resource().is_secrets()
            && matches!(self.projection, Projection::Full(_))
    }

    /// Whether the key asks for the payload of Secrets although its profile does not allow that.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.holds_secrets() && self.secret_data == SecretData::Deny
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::AllNamespaces => f.write_str("all namespaces"),
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

impl fmt::Display for CellKey {
    /// For people: `pods.v1 in namespace shop`, with what narrows it behind. What a terminal would
    /// act on is escaped.
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
    fn a_key_reads_as_one_line() {
        let mut key = CellKey::all(
            Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap(),
            Extent::Namespace("a\n2026 INFO forged".into()),
            Projection::Metadata(ManagedFields::Drop),
        );
        let expected = r"pods.v1 in namespace a\n2026 INFO forged, metadata only";
        assert_eq!(key.to_string(), expected);
        key.identity = Identity::ServiceAccount { namespace: "a".into(), name: "r\n".into() };
        assert_eq!(key.to_string(), format!(r"{expected}, as ServiceAccount a/r\n"));
    }
}
