//! Generates `values.schema.json`: descriptions from `values.yaml`, and the schema of profiles from
//! the CRD.

use super::values::{Row, at};
use kube::CustomResourceExt as _;
use kubewarm_api::v1alpha1::CacheProfile;
use serde_json::{Map, Value, json};

/// Keywords that have the same meaning in a CRD's schema and in JSON Schema draft 7.
const KEPT: [&str; 14] = [
    "additionalProperties",
    "enum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "pattern",
    "properties",
    "required",
];
/// Keywords of a CRD's schema that validate nothing in JSON Schema draft 7, so the chart's schema
/// omits them.
const LEFT_OUT: [&str; 4] = ["default", "description", "format", "title"];

/// Completes the schema in `text` with the descriptions of `values.yaml` and the schema of
/// profiles.
pub(crate) fn complete(text: &str, values: &Value, rows: &[Row]) -> String {
    let mut schema: Value = serde_json::from_str(text).expect("it is JSON");
    for Row { path, text } in rows {
        let field = path.split('.').fold(&mut schema, |at, key| &mut at["properties"][key]);
        let field = field.as_object_mut().unwrap_or_else(|| panic!("{path} is not in the schema"));
        field.insert("description".to_owned(), text.clone().into());
        field.insert("default".to_owned(), at(values, path).clone());
    }
    let crd = serde_json::to_value(CacheProfile::crd()).expect("the CRD serializes");
    let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["definitions"]["profileSpec"] = strict(&root["properties"]["spec"]);
    let text = serde_json::to_string_pretty(&schema).expect("it serializes");
    format!("{text}\n")
}

/// A CRD's schema as JSON Schema draft 7. It also rejects unknown fields, which the API server
/// would silently drop.
fn strict(schema: &Value) -> Value {
    let mut keywords = Map::new();
    for (keyword, value) in schema.as_object().expect("a schema is an object") {
        let value = match keyword.as_str() {
            "properties" => value
                .as_object()
                .expect("fields")
                .iter()
                .map(|(name, schema)| (name.clone(), strict(schema)))
                .collect(),
            "items" | "additionalProperties" => strict(value),
            "type" => value.clone(),
            keyword if KEPT.contains(&keyword) => whole(value),
            keyword if LEFT_OUT.contains(&keyword) || keyword.starts_with("x-kubernetes-") => {
                continue;
            }
            "nullable" => continue,
            keyword => panic!("{keyword}: say here what becomes of it"),
        };
        keywords.insert(keyword.clone(), value);
    }
    if keywords.contains_key("properties") {
        keywords.insert("additionalProperties".to_owned(), false.into());
    }
    Value::Object(keywords)
}

/// Converts a whole number from a float to an integer, because the CRD's types contain bounds as
/// floats.
fn whole(value: &Value) -> Value {
    let number = value.as_f64().filter(|number| number.fract() == 0.0);
    let text = number.map(|number| format!("{number:.0}"));
    text.and_then(|text| text.parse::<i64>().ok()).map_or_else(|| value.clone(), Into::into)
}

fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    reference.map_or(schema, |path| root.pointer(path).expect("the definition is there"))
}

/// The differences between the values in the schema and the values in `values.yaml`.
pub(crate) fn differences(schema: &Value, values: &Value, described: &[&str]) -> Vec<String> {
    fn walk(root: &Value, at: &str, value: &Value, described: &[&str], faults: &mut Vec<String>) {
        let schema = field(root, at);
        let known = schema["properties"].as_object();
        let (Some(known), false) = (known, described.contains(&at)) else { return };
        if schema["additionalProperties"] != json!(false) {
            faults.push(format!("{at} takes anything"));
        }
        let inner = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
        for key in known.keys().filter(|key| value.get(key.as_str()).is_none()) {
            faults.push(format!("{} is in the schema alone", inner(key)));
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            if known.contains_key(key) {
                walk(root, &inner(key), value, described, faults);
            } else {
                faults.push(format!("{} is not in the schema", inner(key)));
            }
        }
    }
    let mut faults = Vec::new();
    walk(schema, "", values, described, &mut faults);
    // The schema needs `global`, because Helm passes this value to every subchart.
    faults.retain(|difference| difference != "global is in the schema alone");
    faults
}

fn field<'a>(root: &'a Value, path: &str) -> &'a Value {
    let keys = path.split('.').filter(|key| !key.is_empty());
    keys.fold(root, |schema, key| resolve(root, &schema["properties"][key]))
}

#[test]
fn a_strict_schema_refuses_other_fields_and_keeps_the_bounds() {
    let schema = json!({
        "type": "object", "description": "D",
        "properties": {"a": {"type": "integer", "minimum": 1.0, "format": "int32"},
            "b": {"x-kubernetes-int-or-string": true, "pattern": "^x$"}},
        "x-kubernetes-validations": [],
    });
    let expected = json!({
        "type": "object", "additionalProperties": false,
        "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"pattern": "^x$"}},
    });
    assert_eq!(strict(&schema), expected);
}
