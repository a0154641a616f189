//! `spec.limits`; the comments on fields are what `kubectl explain` prints.

use super::schema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How much the profile may hold. Checked while lists arrive, so that a runaway kind is stopped
/// before memory is gone. A target that does not fit is stopped and its memory freed; the others are
/// left alone. Of several targets, one that does not fit even alone stops first, then one that is still
/// being listed, then that of the lowest priority, then the largest. It is tried again at every edit, and
/// after about 10 minutes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_crd)]
pub struct Limits {
    /// Objects that all targets may hold together, at least 1. Unset: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_objects: Option<i64>,

    /// Memory that all targets may take together, as a Kubernetes quantity above zero, such as
    /// `200Mi` or `1.5Gi`. Indexes, and memory shared with other profiles, count too. Default: no
    /// limit.
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
