//! Starts and stops informers so that they match the profiles.
//!
//! One reconciliation covers all profiles. It resolves their targets, computes which informers must
//! run, and starts and stops informers accordingly.

mod budget_enforcer;
mod budget_tree;
mod cluster_view;
mod declarations;
mod dry_run;
mod informer_claims;
mod informer_quotas;
mod known_profile;
mod known_target;
mod operator_limits;
mod profile_memory;
mod profile_parser;
mod quota;
mod reconcile;
mod resolve;
mod run;
mod target_charges;
mod target_refusal;
#[cfg(test)]
mod tests;

pub use self::{
    cluster_view::ControllerDependencies,
    declarations::{Declarations, DeclarationsReceiver},
    dry_run::resolve_for_forecast,
    operator_limits::OperatorLimits,
    quota::ProfileQuota,
    run::Controller,
};
