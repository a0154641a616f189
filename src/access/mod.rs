//! Checks whether the identity of each declared informer may list and watch, and finds its excess
//! permissions.
//!
//! Only a real `list` and `watch` with the informer's identity decide. Rules reviews and
//! access reviews run more often, because they are cheap, and only trigger real requests.

mod book;
mod excess;
mod reports;
mod rule;
mod rules;
mod standing;
mod verifier;

pub use self::{
    book::{AccessCheckKind, CheckSettings},
    excess::ExcessPermissions,
    reports::AccessReports,
    rule::PATIENCE,
    rules::attributes,
    standing::{InformerAccess, PermissionDenial, PermissionState},
    verifier::{AccessChecker, CheckerDependencies},
};
