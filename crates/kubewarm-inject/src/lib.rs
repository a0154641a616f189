//! Injection lets the pods of a workload connect to kubewarm instead of the API server, without
//! another image or configuration. The crate has no I/O and reads no clock.
//!
//! A client in a pod reads the API server's address from environment variables, and a token and a
//! CA from a directory. An injected pod template therefore gets:
//!
//! ```text
//!  env           KUBERNETES_SERVICE_HOST=kubernetes.default.svc, …_PORT=443
//!  hostAliases   kubernetes.default.svc ──► the cluster IP of kubewarm's Service
//!  volume        token, CAs of kubewarm and of the API server, namespace
//!  annotation    kubewarm.io/inject: the changes, from which they are undone
//! ```
//!
//! - [`refusals`] names what prevents the injection of an object.
//! - [`ManifestDocument`] edits YAML and JSON as text, and so keeps comments.
//! - [`inject_object`] and [`undo_object`] change the object of an API server.

mod document;
mod field_change;
mod injection;
mod live_object;
mod manifest_path;
mod manifest_text;
mod refusal;
#[cfg(test)]
mod tests;
mod workload;

pub use self::{
    document::{DocumentError, FoundWorkload, ManifestDocument},
    field_change::ChangedField,
    injection::{API_SERVER_HOST, INJECTION, InjectedAddress, Injection},
    live_object::{clean_object, inject_object, undo_object},
    manifest_path::ManifestPath,
    manifest_text::ManifestTextError,
    refusal::{WorkloadOrigin, live_pod_refusals, refusals, remarks},
    workload::{WorkloadKind, pod_labels, pod_spec, service_account},
};
