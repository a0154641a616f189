//! The CRD of `CacheProfile` as YAML.

use super::{HEADER, ManifestError, yaml};
use crate::v1alpha1::CacheProfile;
use kube::CustomResourceExt as _;
use serde_json::Value;

/// Returns the CRD as YAML: the content of the file in `crds/` and the output of `kubewarm crd`.
///
/// # Errors
///
/// [`ManifestError`] if serialization fails. A test checks that serialization succeeds.
pub fn render_crd() -> Result<String, ManifestError> {
    let mut crd = serde_json::to_value(CacheProfile::crd()).map_err(ManifestError::Json)?;
    tidy(&mut crd);
    Ok(format!("{HEADER}{}", yaml(&crd)?))
}

/// Removes `nullable: true` and `title` from a CRD: the derive of `JsonSchema` writes both, but the
/// API server needs neither. Converts each bound that is a float, such as `maximum: 1.0`, to an
/// integer.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| !(key == "nullable" && value == true));
            fields.retain(|key, value| !(key == "title" && value.is_string()));
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().and_then(whole) {
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn whole(number: f64) -> Option<i64> {
    // A cast from `f64` to `i64` could change a large number without an error. So this line writes
    // the number as text and parses the text, which fails for such a number.
    (number.fract() == 0.0).then(|| format!("{number:.0}").parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    #[test]
    fn the_yaml_matches_the_derived_definition() {
        let text = render_crd().unwrap();
        let read: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
        let mut expected = serde_json::to_value(CacheProfile::crd()).unwrap();
        tidy(&mut expected);
        let mut read = serde_json::to_value(read).unwrap();
        tidy(&mut read);
        assert_eq!(read, expected);
    }

    #[test]
    fn every_field_is_described() {
        fn walk(path: &str, schema: &Value, undescribed: &mut Vec<String>) {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                if property["description"].as_str().is_none_or(str::is_empty) {
                    undescribed.push(path.clone());
                }
                walk(&path, property, undescribed);
                walk(&format!("{path}[]"), &property["items"], undescribed);
            }
        }
        let crd = serde_json::to_value(CacheProfile::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut undescribed = Vec::new();
        walk("", schema, &mut undescribed);
        assert_eq!(undescribed, [] as [String; 0]);
        assert!(schema["properties"]["spec"]["properties"]["targets"].is_object());
    }

    #[test]
    fn the_description_of_excess_names_the_ignored_resource() {
        let crd = serde_json::to_value(CacheProfile::crd()).unwrap();
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        let excess = crd.pointer(&format!("{status}/access/properties/excess/description"));
        let text = excess.and_then(Value::as_str).unwrap();
        assert!(text.contains("only `clustertrustbundles`"), "{text}");
    }

    #[test]
    fn no_field_of_the_status_has_a_default() {
        fn walk(path: &str, schema: &Value, faults: &mut Vec<String>) {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                if !property["default"].is_null() {
                    faults.push(path.clone());
                }
                walk(&path, property, faults);
                walk(&format!("{path}[]"), &property["items"], faults);
            }
        }
        let crd = serde_json::to_value(CacheProfile::crd()).unwrap();
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
        let status = crd.pointer(status).unwrap();
        assert!(status["properties"]["targets"].is_object());
        let mut faults = Vec::new();
        walk("status", status, &mut faults);
        assert_eq!(faults, [] as [String; 0]);
    }

    #[test]
    fn required_fields_have_no_default_and_lists_have_bounds() {
        fn walk(path: &str, schema: &Value, faults: &mut Vec<String>) {
            let required = schema["required"].as_array().into_iter().flatten();
            for name in required.filter_map(Value::as_str) {
                if !schema["properties"][name]["default"].is_null() {
                    faults.push(format!("{path}.{name} is required and has a default"));
                }
            }
            if schema["type"] == "array" {
                for bound in ["maxItems", "x-kubernetes-list-type"] {
                    if schema[bound].is_null() {
                        faults.push(format!("{path} has no {bound}"));
                    }
                }
                walk(&format!("{path}[]"), &schema["items"], faults);
            }
            if ["boolean", "number"].iter().any(|name| schema["type"] == *name) {
                faults.push(format!("{path} is {}", schema["type"]));
            }
            if schema["type"] == "string" {
                let bounds = ["maxLength", "enum", "format"];
                if bounds.iter().all(|bound| schema[bound].is_null()) {
                    faults.push(format!("{path} has no bound"));
                }
            }
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                walk(&format!("{path}.{name}"), property, faults);
            }
        }
        let crd = serde_json::to_value(CacheProfile::crd()).unwrap();
        let mut faults = Vec::new();
        walk("", &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut faults);
        assert_eq!(faults, [] as [String; 0]);
    }
}
