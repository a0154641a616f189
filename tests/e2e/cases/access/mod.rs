//! Permissions: of the operator, of profiles and of readers.

mod access_checks;
mod agents;
mod authors;
mod blocked;
mod callers;
mod certificates;
pub(crate) mod decisions;
mod grants;
mod identity;
mod namespaces;
pub(crate) mod own_tokens;
mod rbac;
pub(crate) mod readers;
mod rules;
mod secrets;
mod shared_reviews;
mod tenants;
pub(crate) mod token_audience;
