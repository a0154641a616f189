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
    budget::{Budget, Charge, Gauge, INFORMER_BYTES},
    cell::{CellKey, CellSpec, Extent, MemberOf, NamespaceCheck, ProfileRef, Projection, Tuning},
    decision::DecisionSource,
    declared::{
        AuthorCheck, Declared, DeclaredTarget, Refusal, RefusalReason, Serving, same_cells,
    },
    escape::{escape, is_unsafe},
    fault::{Fault, Reason, Verb},
    field_path::FieldPath,
    field_selector::{FieldRequirement, FieldSelector, FieldSelectorError, FieldSelectorLimits},
    home::{Home, Watched},
    identity::Identity,
    index::Index,
    invalid::Invalid,
    limits::{Bound, Limited, Limits, Measure, Overrun},
    list_policy::{ListPolicy, ListStrategy},
    object::{
        Delta, DeltaSink, Item, Named, ObjectKey, Outcome, Reread, Tombstone, Uid, namespace_order,
    },
    outcome::MetricOutcome,
    profile::ValidatedProfile,
    quantity::parse_quantity,
    read_terms::ReadTerms,
    resource::{GroupResource, Resource, ResourceInfo, is_dns_label, is_dns_subdomain},
    selector::{LabelComparison, LabelRequirement, LabelSelector},
    subject::Subject,
    target::{Target, TargetScope},
    version::ResourceVersion,
};
pub use crate::v1alpha1::{
    Completeness, Consistency, ManagedFields, Mode, OnAccessLost, Operator, Requirement, SecretData,
};
