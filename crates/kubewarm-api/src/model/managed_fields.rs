//! The command that lets targets of a profile keep managedFields.

use super::ProfileRef;
use serde_json::{Value, json};

/// Returns a `kubectl patch` command that sets `projection.managedFields` of `targets` to `Keep`.
/// Each element of `targets` is a target's position in the spec, and its name. The command first
/// tests the name at the position: if an edit has moved the target, the command fails and changes
/// nothing.
pub fn keep_fields_command<'a>(
    profile: &ProfileRef,
    targets: impl IntoIterator<Item = (usize, &'a str)>,
) -> String {
    let operation = |(at, name): (usize, &str)| {
        let path = format!("/spec/targets/{at}");
        [
            json!({"op": "test", "path": format!("{path}/name"), "value": name}),
            json!({"op": "replace", "path": format!("{path}/projection/managedFields"), "value": "Keep"}),
        ]
    };
    let patch: Value = targets.into_iter().flat_map(operation).collect();
    let ProfileRef { namespace, name } = profile;
    format!("kubectl patch cprof {name} -n {namespace} --type=json -p='{patch}'")
}
