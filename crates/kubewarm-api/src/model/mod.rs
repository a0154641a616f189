//! Validated, immutable types that all crates use. Nothing here does I/O or reads a clock.

mod budget;
mod canonical;
mod cell;
mod decision;
mod declared;
mod escape;
mod fault;
mod field_labels;
mod field_path;
mod field_selector;
mod home;
mod identity;
mod index;
mod invalid;
mod limits;
mod list_policy;
mod object;
mod outcome;
mod profile;
mod quantity;
mod read_terms;
mod resource;
mod selector;
mod subject;
mod target;
mod version;

pub use self::{
    budget::{Budget, BudgetCharge, INFORMER_BYTES, UsageGauge},
    cell::{
        InformerKey, InformerScope, InformerSettings, InformerSpec, ListSlotOwner, NamespaceCheck,
        ProfileRef, Projection,
    },
    decision::DecisionSource,
    declared::{
        AccountPolicyState, DeclaredProfile, DeclaredTarget, Refusal, RefusalReason, ServingTarget,
        has_same_informers,
    },
    escape::{escape, is_unsafe},
    fault::{FaultReason, RequestFault, Verb},
    field_path::FieldPath,
    field_selector::{FieldRequirement, FieldSelector, FieldSelectorError, FieldSelectorLimits},
    home::{OperatorScope, WatchedNamespaces},
    identity::Identity,
    index::IndexDefinition,
    invalid::ValidationError,
    limits::{LimitKind, LimitOverrun, LimitScope, LimitedTarget, ProfileLimits},
    list_policy::{ListPolicy, ListStrategy},
    object::{
        DecodedObject, Delta, DeltaOutcome, DeltaSink, ObjectIdentity, ObjectKey, ReplacePolicy,
        Tombstone, Uid, namespace_order,
    },
    outcome::MetricOutcome,
    profile::ValidatedProfile,
    quantity::parse_quantity,
    read_terms::ReadPolicy,
    resource::{GroupResource, Resource, ResourceInfo, is_dns_label, is_dns_subdomain},
    selector::{LabelComparison, LabelRequirement, LabelSelector},
    subject::Subject,
    target::{TargetScope, ValidatedTarget},
    version::ResourceVersion,
};
pub use crate::v1alpha1::{
    AccessLossPolicy, LabelSelectorOperator, ManagedFieldsPolicy, ProfileMode, ReadConsistency,
    RulesCompleteness, SecretData, TargetRequirement,
};
