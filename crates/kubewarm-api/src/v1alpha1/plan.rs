//! The part of the status that says what warming would cost.

use super::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What warming a profile would cost. `certainty` says whether the numbers are only lower bounds, and
/// the condition `Ready` why.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct PlanStatus {
    /// Cells; each is one list-and-watch.
    #[schemars(range(min = 0))]
    pub cells: i32,
    /// Objects that they would hold.
    #[schemars(range(min = 0))]
    pub objects: i64,
    /// Memory that these would take, in steps of 1 MiB, such as `24Mi`; from a sample of them,
    /// packed as they would be.
    #[schemars(length(max = 32))]
    pub memory: String,
    /// Requests for lists, or pages of lists, until all are warm.
    #[schemars(range(min = 0))]
    pub requests: i32,
    /// Seconds until all are warm, if the API server goes on as fast as it answered for the sample.
    #[schemars(range(min = 0))]
    pub seconds: i32,
    /// Permissions that are missing: verbs refused, by kind and namespace.
    #[schemars(range(min = 0))]
    pub missing: i32,
    /// How sure objects, memory, requests and seconds are. `Estimate`: counted, or extrapolated from a
    /// sample. `LowerBound`: there is more, nobody knows how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certainty: Option<PlanCertainty>,
}

/// How sure the numbers of a plan are.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[schemars(inline)]
pub enum PlanCertainty {
    /// Counted, or extrapolated.
    #[default]
    Estimate,
    /// At least so much.
    LowerBound,
}

/// `bytes` as a quantity, rounded up to whole MiB: `0` for nothing, `1Mi` for anything up to one.
#[must_use]
pub fn mebibytes(bytes: u64) -> String {
    match bytes.div_ceil(1 << 20) {
        0 => "0".to_owned(),
        mebibytes => format!("{mebibytes}Mi"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_rounded_up_to_whole_mebibytes() {
        const MIB: u64 = 1 << 20;
        let read: Vec<_> = [0, 1, MIB, MIB + 1, 12 * MIB].map(mebibytes).into();
        assert_eq!(read, ["0", "1Mi", "1Mi", "2Mi", "12Mi"]);
    }
}
