//! Profiles whose strings are hostile input, such as YAML syntax, to test that generated manifests
//! quote them.

use proptest::prelude::*;
use serde_json::{Value, json};

/// A text in the labels and annotations of the profiles. No generated manifest contains a profile's
/// labels or annotations, so it must not appear there.
const FREE_TEXT: &str = "---free-text: '*'";
/// Valid names that YAML reads as something else if they have no quotes, for example as numbers.
pub const AMBIGUOUS: [&str; 10] =
    ["null", "on", "no", "true", "1e3", "0x1f", "123", "0o7", "1-1", "2026-11-21"];
const HOSTILE: [&str; 12] = [
    "a\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n",
    "a\r\n--- \nkind: Role",
    "x\u{2028}---\u{85}---\u{feff}",
    "*",
    "&a [b, *a]",
    "!!binary aGVsbG8=",
    "x: y # z",
    "' \" \\ \u{1b}[2J \u{7f}\0",
    "- '*'",
    "system:masters",
    "../../secrets?watch=1#",
    "{{ .Release.Name }} ${HOME} $(id)",
];

/// Profiles with different types of `spec.scope`. Together, they set every field of a spec that is
/// a string.
#[must_use]
pub fn every_string() -> [Value; 2] {
    let labels = json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}],
    });
    let named = json!({"type": "Namespaces", "namespaces": ["east", "shop"]});
    let selected = json!({"type": "NamespaceSelector", "namespaceSelector": labels});
    [&named, &selected].map(|scope| {
        json!({
            "apiVersion": "kubewarm.io/v1alpha1",
            "kind": "CacheProfile",
            "metadata": {
                "name": "web", "namespace": "shop",
                "labels": {"a": FREE_TEXT}, "annotations": {"a": FREE_TEXT},
            },
            "spec": {
                "serviceAccountName": "reader",
                "limits": {"maxMemory": "200Mi"},
                "scope": scope,
                "targets": [
                    {
                        "name": "named",
                        "group": "apps", "version": "v1", "resource": "deployments",
                        "scope": named,
                        "labelSelector": labels,
                        "fieldSelector": "status.phase=Running",
                        "indexes": [
                            {"name": "by-node", "fieldPath": "spec.nodeName"},
                        ],
                    },
                    {
                        "name": "selected",
                        "resource": "pods",
                        "scope": selected,
                    },
                    {"name": "inherited", "resource": "services"},
                    {
                        "name": "keys",
                        "resource": "secrets",
                        "projection": {"type": "Metadata"},
                    },
                    {
                        "name": "all",
                        "group": "batch", "resource": "jobs",
                        "scope": {"type": "AllNamespaces"},
                    },
                ],
            },
        })
    })
}

/// The position of a string that a tenant can write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StringPosition {
    /// The value at a JSON pointer.
    Value(String),
    /// This key of the map at a JSON pointer.
    Key(String, String),
}

/// Collects the strings of `value`, except enum values.
fn places(value: &Value, at: &str, positions: &mut Vec<StringPosition>) {
    match value {
        Value::String(_) if !at.ends_with("/type") && !at.ends_with("/operator") => {
            positions.push(StringPosition::Value(at.to_owned()));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(n, item)| places(item, &format!("{at}/{n}"), positions));
        }
        Value::Object(members) => {
            for (name, member) in members {
                if at.ends_with("/matchLabels") {
                    positions.push(StringPosition::Key(at.to_owned(), name.clone()));
                }
                places(member, &format!("{at}/{name}"), positions);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The positions of all strings in the metadata and spec of [`every_string`] that a tenant can
/// choose. Enum values and the annotation are left out.
#[must_use]
pub fn all_places() -> Vec<StringPosition> {
    let mut positions = Vec::new();
    for profile in every_string() {
        for part in ["/spec", "/metadata"] {
            places(profile.pointer(part).unwrap_or(&Value::Null), part, &mut positions);
        }
    }
    positions.sort();
    positions.dedup();
    positions.retain(|place| !matches!(place, StringPosition::Value(at) if at.ends_with("ions/a")));
    positions
}

/// Writes `word` at `place`. Does nothing if the profile does not have that position.
pub fn write(profile: &mut Value, place: &StringPosition, word: &str) {
    match place {
        StringPosition::Value(at) => {
            if let Some(value) = profile.pointer_mut(at) {
                *value = word.into();
            }
        }
        StringPosition::Key(at, key) => {
            if let Some(map) = profile.pointer_mut(at).and_then(Value::as_object_mut)
                && let Some(value) = map.remove(key)
            {
                map.insert(word.to_owned(), value);
            }
        }
    }
}

/// A `CacheProfile` with arbitrary text in one to three of its strings. Some of the texts are valid
/// names that YAML reads as something else.
pub fn hostile() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        prop::sample::select(&HOSTILE[..]).prop_map(str::to_owned),
        prop::sample::select(&AMBIGUOUS[..]).prop_map(str::to_owned),
        ".{0,20}",
        "[-a-z0-9.:#&*!|>'\"%@`{}\\[\\], \n\t]{0,20}",
        "[a-z0-9][-a-z0-9]{0,10}[a-z0-9]",
    ];
    let changes = prop::collection::vec((prop::sample::select(all_places()), word), 1..4);
    let profile = prop::sample::select(Vec::from(every_string()));
    (profile, changes, any::<bool>()).prop_map(|(mut profile, changes, is_account)| {
        if !is_account {
            profile["spec"].as_object_mut().map(|spec| spec.remove("serviceAccountName"));
        }
        for (place, word) in changes {
            if is_account || place != StringPosition::Value("/spec/serviceAccountName".to_owned()) {
                write(&mut profile, &place, &word);
            }
        }
        profile
    })
}
