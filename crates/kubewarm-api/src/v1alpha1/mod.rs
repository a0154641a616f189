//! The custom resource `CacheProfile`, version `v1alpha1`: spec and status as the API server stores
//! them.

mod access;
mod limits;
mod plan;
mod profile;
mod schema;
mod status;
mod target;

pub use self::{
    access::{AccessStatus, NamespaceRules, PolicyRule, RulesCompleteness},
    limits::{LimitsSpec, Quantity},
    plan::{PlanCertainty, PlanStatus, mebibytes},
    profile::{
        AccessLossPolicy, CacheProfile, CacheProfileSpec, FreshnessSettings, MAX_TARGETS,
        ProfileMode, ReadConsistency, ReadSettings, WarmupSettings,
    },
    schema::CONDITION_TYPES,
    status::{
        CacheProfileStatus, InformerCounts, LatencyStatus, QuantilesStatus, RelistStatus,
        ResolvedResourceStatus, ResourceScope, TargetProblem, TargetStatus,
    },
    target::{
        IndexSpec, LabelSelectorOperator, LabelSelectorRequirement, LabelSelectorSpec,
        ManagedFieldsPolicy, ProjectionSpec, ProjectionType, ScopeSpec, ScopeType,
        SecretDataPolicy, TargetRequirement, TargetSpec,
    },
};

/// API group of `CacheProfile`.
pub const GROUP: &str = "kubewarm.io";
/// API version of `CacheProfile`.
pub const VERSION: &str = "v1alpha1";
/// Field manager of every server-side apply by kubewarm.
pub const FIELD_MANAGER: &str = "kubewarm";

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Resource as _;

    #[test]
    fn group_and_version_match_the_derived_resource() {
        assert_eq!((&*CacheProfile::group(&()), &*CacheProfile::version(&())), (GROUP, VERSION));
    }
}
