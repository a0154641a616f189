//! Starts and stops informers so that they match the profiles.
//!
//! One reconciliation covers all profiles. It resolves their targets, computes which informers must
//! run, and starts and stops informers accordingly.

mod admission;
mod budget_enforcer;
mod budget_tree;
mod cluster_view;
mod dry_run;
mod informer_claims;
mod informer_quotas;
mod known_profile;
mod known_target;
mod operator_limits;
mod profile_memory;
mod profile_parser;
mod profile_receiver;
mod reconcile;
mod resolve;
mod run;
mod target_charges;
mod target_refusal;
#[cfg(test)]
mod tests;

pub use self::{
    admission::ProfileAdmission,
    cluster_view::ControllerDependencies,
    dry_run::outlook,
    operator_limits::OperatorLimits,
    profile_receiver::{ProfileReceiver, running_informers, running_targets},
    run::Controller,
};
