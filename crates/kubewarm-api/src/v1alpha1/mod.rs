//! The custom resource `CacheProfile` as users write it, and as `kubectl` shows it.

mod access;
mod limits;
mod plan;
mod profile;
mod schema;
mod status;
mod target;

pub use self::{
    access::{AccessStatus, Completeness, NamespaceRules, PolicyRule},
    limits::{Limits, Quantity},
    plan::{PlanCertainty, PlanStatus, mebibytes},
    profile::{
        CacheProfile, CacheProfileSpec, Consistency, Freshness, Mode,
        OnAccessLost, ReadSettings, Warmup,
    },
    schema::CONDITION_TYPES,
    status::{
        CacheProfileStatus, InformerCounts, LatencyStatus, Problem, QuantilesStatus, RelistStatus,
        ResolvedScope, ResolvedStatus, TargetStatus,
    },
    target::{
        Index, LabelSelector, LabelSelectorTerm, ManagedFields,
        Operator, Projection, ProjectionType, Requirement, Scope, ScopeType,
        SecretData, Target,
    },
};

/// The API group of `CacheProfile`.
pub const GROUP: &str = "kubewarm.io";
/// Its version.
pub const VERSION: &str = "v1alpha1";
/// Who owns the fields that kubewarm applies.
pub const FIELD_MANAGER: &str = "kubewarm";

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Resource as _;

    #[test]
    fn the_constants_are_those_of_the_type() {
        assert_eq!((&*CacheProfile::group(&()), &*CacheProfile::version(&())), (GROUP, VERSION));
    }
}
