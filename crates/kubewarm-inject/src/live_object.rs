//! Injection of an object from an API server.

use crate::{
    field_change::ChangedField,
    injection::{InjectedAddress, Injection},
    workload::WorkloadKind,
};
use serde_json::{Map, Value};

/// Annotations of objects in a cluster that do not belong in a manifest.
const LIVE_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// Injects a copy of `object`. Returns the copy and what was added.
pub fn inject_object(
    object: &Value,
    kind: WorkloadKind,
    address: &InjectedAddress,
) -> (Value, Injection) {
    let injection = Injection::plan(object, kind, address);
    let mut injected = object.clone();
    injection.apply(&mut injected, kind);
    (injected, injection)
}

/// Removes the injection from a copy of `object`. Returns `None` if the object is not injected.
///
/// # Errors
///
/// [`ChangedField`] with the first field that somebody changed since.
pub fn undo_object(object: &Value, kind: WorkloadKind) -> Result<Option<Value>, ChangedField> {
    let Some(injection) = Injection::of_object(object, kind)? else { return Ok(None) };
    injection.undo(object, kind).map(|(restored, _)| Some(restored))
}

/// Removes what the API server added to an object, so that the object can be applied anywhere.
pub fn clean_object(object: &mut Value) {
    let Value::Object(fields) = object else { return };
    fields.remove("status");
    let Some(Value::Object(metadata)) = fields.get_mut("metadata") else { return };
    for field in ["managedFields", "uid", "resourceVersion", "generation", "creationTimestamp"] {
        metadata.remove(field);
    }
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|key, _| !LIVE_ANNOTATIONS.contains(&key.as_str()));
    }
    if metadata.get("annotations").and_then(Value::as_object).is_some_and(Map::is_empty) {
        metadata.remove("annotations");
    }
}
