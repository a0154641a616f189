//! The resource `CacheProfile` and what follows from it alone: its checked form, and the manifests that
//! it needs. Pure: no I/O, no clock.
//!
//! | module | what it is |
//! |---|---|
//! | [`v1alpha1`] | the resource as users write it, and as `kubectl` shows it |
//! | [`model`] | the same, checked, and the vocabulary that all other crates share |
//! | [`manifests`] | the CRD, and the roles that a profile and the operator need |

pub mod manifests;
pub mod model;
pub mod v1alpha1;
