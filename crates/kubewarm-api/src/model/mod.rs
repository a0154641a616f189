//! Types that all crates of kubewarm use, such as validated profiles, informer keys and budgets. No
//! code in this module does I/O or reads a clock.

mod budget;
mod canonical_set;
mod decision_source;
mod escape;
mod field_labels;
mod field_path;
mod field_selector;
mod identity;
mod index;
mod informer;
mod limits;
mod list_policy;
mod managed_fields;
mod next_step;
mod object;
mod operator_scope;
mod outcome;
mod profile;
mod quantity;
mod read_policy;
mod request_fault;
mod resolved_profile;
mod resource;
mod resource_version;
mod selector;
mod subject;
mod target;
mod validation_error;

pub use self::{
    budget::{Budget, BudgetCharge, INFORMER_BYTES, UsageMeter},
    decision_source::DecisionSource,
    escape::{escape, is_unsafe},
    field_path::FieldPath,
    field_selector::{FieldRequirement, FieldSelector, FieldSelectorError, FieldSelectorLimits},
    identity::Identity,
    index::IndexDefinition,
    informer::{
        InformerKey, InformerScope, InformerSettings, InformerSpec, ListSlotSettings,
        NamespaceCheckPolicy, ProfileRef, Projection,
    },
    limits::{LimitKind, LimitOverrun, LimitScope, LimitedTarget, ProfileLimits},
    list_policy::{ListPolicy, ListStrategy},
    managed_fields::keep_fields_command,
    next_step::{with_next_step, without_next_step},
    object::{
        DecodedObject, Delta, DeltaOutcome, DeltaSink, MessageId, ObjectEncoding, ObjectIdentity,
        ObjectKey, ReplacePolicy, Tombstone, Uid, namespace_order,
    },
    operator_scope::{OperatorScope, WatchedNamespaces},
    outcome::MetricOutcome,
    profile::ValidatedProfile,
    quantity::parse_quantity,
    read_policy::ReadPolicy,
    request_fault::{FaultReason, RequestFault, Verb},
    resolved_profile::{
        AccountPolicyEnforcement, Refusal, RefusalReason, ResolvedProfile, ResolvedTarget,
        TargetInformers, has_same_informers,
    },
    resource::{GroupResource, Resource, ResourceInfo, is_dns_label, is_dns_subdomain},
    resource_version::ResourceVersion,
    selector::{LabelRequirement, LabelSelector, NumericLabelRequirement},
    subject::Subject,
    target::{TargetScope, ValidatedTarget},
    validation_error::ValidationError,
};
pub use crate::v1alpha1::{
    AccessLossPolicy, LabelSelectorOperator, ManagedFieldsPolicy, ProfileMode, ReadConsistency,
    RulesCompleteness, SecretDataPolicy, TargetRequirement,
};
