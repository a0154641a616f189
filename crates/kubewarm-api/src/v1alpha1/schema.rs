//! Corrections of the derived JSON schema, so that the API server accepts it as a CRD schema.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

/// Types of a profile's conditions, in the order of `status.conditions`. For `Stalled`, the value
/// `True` shows a problem. For all other types, the value `False` shows a problem.
pub const CONDITION_TYPES: [&str; 8] = [
    "Ready",
    "Accepted",
    "Authorized",
    "Warm",
    "Fresh",
    "WithinLimits",
    "WarmupDeadlineMet",
    "Stalled",
];

/// Removes the type `null` from optional properties, and joins the lines of each paragraph in a
/// description.
///
/// The derive of `JsonSchema` permits `null` in every optional property. If a property does not
/// permit `null`, the API server removes a `null` value and then applies the default.
pub(super) fn for_crd(schema: &mut Schema) {
    one_paragraph(schema.ensure_object());
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for property in properties.values_mut() {
        let Value::Object(property) = property else { continue };
        without_null(property);
        one_paragraph(property);
    }
}

/// Removes the type `null` and joins lines as [`for_crd`] does, and also removes the defaults.
/// kubewarm writes every number of a status, so an absent number is unknown and must not become 0.
/// The attribute `serde(default)` only lets kubewarm parse a status without the number.
pub(super) fn for_status(schema: &mut Schema) {
    for_crd(schema);
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for property in properties.values_mut() {
        let Value::Object(property) = property else { continue };
        property.remove("default");
    }
}

fn without_null(property: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = property.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            property.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = property.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(either)) = property.get_mut("anyOf") else { return };
    either.retain(|schema| schema.get("type").is_none_or(|name| name != "null"));
    if let [Value::Object(only)] = either.as_slice() {
        let only = only.clone();
        property.remove("anyOf");
        for (key, value) in only {
            property.entry(key).or_insert(value);
        }
    }
}

fn one_paragraph(schema: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs: Vec<_> =
            text.split("\n\n").map(|lines| lines.replace('\n', " ").trim().to_owned()).collect();
        *text = paragraphs.join("\n\n");
    }
}

/// Schema of a list of `metav1.Condition` with the length limits of the Kubernetes API conventions,
/// and at most 16 entries.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One condition of the object.",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {
                    "description": "Condition type, such as `Ready`.",
                    "type": "string",
                    "maxLength": 316,
                },
                "status": {
                    "description": "`True`, `False`, or `Unknown` while kubewarm cannot decide.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Reason for the status: one word of a fixed set.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Details for people: the cause and the next step.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "observedGeneration": {
                    "description": "`metadata.generation` that the condition describes.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "Time of the last change of `status`.",
                    "type": "string",
                    "format": "date-time",
                },
            },
        },
    })
}
