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
    access::{AccessStatus, Completeness, NamespaceRules, PolicyRule},
    limits::{Limits, Quantity},
    plan::{PlanCertainty, PlanStatus, mebibytes},
    profile::{
        CacheProfile, CacheProfileSpec, Consistency, Freshness, Mode, OnAccessLost, ReadSettings,
        Warmup,
    },
    schema::CONDITION_TYPES,
    status::{
        CacheProfileStatus, InformerCounts, LatencyStatus, Problem, QuantilesStatus, RelistStatus,
        ResolvedScope, ResolvedStatus, TargetStatus,
    },
    target::{
        Index, LabelSelector, LabelSelectorTerm, ManagedFields, Operator, Projection,
        ProjectionType, Requirement, Scope, ScopeType, SecretData, Target,
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
