//! Types of the `CacheProfile` resource, and functions that build its CRD and RBAC objects. No
//! module does I/O or reads a clock.
//!
//! | module | contents |
//! |---|---|
//! | [`v1alpha1`] | the resource as stored by the API server |
//! | [`model`] | the validated profile, and the types that all other crates use |
//! | [`manifests`] | the CRD, and the RBAC objects for profiles and for the operator |

pub mod manifests;
pub mod model;
pub mod v1alpha1;
