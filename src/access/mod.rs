//! Checks whether the identity of each declared informer may list and watch, and finds permissions
//! that the identity does not need.
//!
//! Only an access check (a list and a watch with the informer's identity) shows whether the
//! identity has access. Rules reviews (`SelfSubjectRulesReview`) and access reviews
//! (`SelfSubjectAccessReview`) are cheap and run more often. Their results only trigger access
//! checks.

mod access_checker;
mod access_state;
mod check_schedule;
mod excess;
mod informer_access;
mod reports;
mod rules;

pub use self::{
    access_checker::{AccessChecker, CheckerDependencies},
    access_state::MAX_ACCESS_AGE,
    check_schedule::{AccessCheckKind, AccessChecks, CheckSettings},
    excess::ExcessPermissions,
    informer_access::InformerAccess,
    reports::AccessStates,
    rules::attributes,
};
