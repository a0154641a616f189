//! `spec.limits` of a `CacheProfile`. `kubectl explain` prints the doc comments of the fields.

use super::schema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Object and memory limits of one profile. kubewarm checks them while the objects of a list
/// arrive, before memory runs out.
///
/// If a limit is exceeded, kubewarm stops targets and frees their memory, until the remaining
/// targets are within the limit. kubewarm stops the targets in this order:
///
/// 1. a target that alone exceeds the limit,
/// 2. a target whose first list is incomplete,
/// 3. the target with the lowest `priority`,
/// 4. the largest target.
///
/// kubewarm starts a stopped target again after each edit of the profile, and after 10 to 12
/// minutes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_crd)]
pub struct LimitsSpec {
    /// Largest number of objects in all targets together, at least 1. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_objects: Option<i64>,

    /// Largest memory of all targets together: a Kubernetes quantity above zero, such as `200Mi` or
    /// `1.5Gi`. Includes indexes, and stores that several profiles share. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub max_memory: Option<Quantity>,
}

/// A Kubernetes quantity in YAML: an integer, or a string such as `200Mi`. `model::parse_quantity`
/// checks it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Quantity {
    /// An integer without a unit.
    Number(i64),
    /// A string, usually with a unit.
    Text(String),
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Returns the schema that controller-gen writes for `resource.Quantity`, with an additional
/// `maxLength` of 32.
fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 32,
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    })
}
