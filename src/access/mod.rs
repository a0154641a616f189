//! Checks whether the identity of each declared informer may list and watch, and finds its excess
//! permissions.
//!
//! Only a real `list` and `watch` with the informer's identity decide. Rules reviews and
//! access reviews run more often, because they are cheap, and only trigger real requests.

mod access_checker;
mod access_state;
mod check_schedule;
mod excess;
mod permission_state;
mod reports;
mod rules;

pub use self::{
    access_checker::{AccessChecker, CheckerDependencies},
    access_state::MAX_ACCESS_AGE,
    check_schedule::{AccessCheckKind, CheckSettings},
    excess::ExcessPermissions,
    permission_state::{InformerAccess, PermissionDenial, PermissionState},
    reports::AccessReports,
    rules::attributes,
};
