//! `spec.limits`; the comments on fields are what `kubectl explain` prints.

use super::schema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Limits of a profile's data. kubewarm checks them while lists arrive. It stops a target that does
/// not fit and frees its memory; other targets continue. A target that does not fit alone stops
/// first, then one during its first list, then the lowest priority, then the largest. kubewarm tries
/// it again at every edit, and after about 10 minutes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_crd)]
pub struct Limits {
    /// Maximum number of objects of all targets together, at least 1. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_objects: Option<i64>,

    /// Maximum memory of all targets together, as a Kubernetes quantity above zero, such as `200Mi`
    /// or `1.5Gi`. Indexes, and memory shared with other profiles, count too. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub max_memory: Option<Quantity>,
}

/// A quantity as people write it: a number, or a text with a unit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Quantity {
    /// A plain number.
    Number(i64),
    /// With a unit.
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

/// controller-gen's schema of `resource.Quantity`, and a length.
fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 32,
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    })
}
