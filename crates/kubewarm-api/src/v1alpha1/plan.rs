//! `status.plan` of a `CacheProfile`: the expected cost of warming the profile.

use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Expected cost of loading the objects of a profile. The field `certainty` shows whether the
/// numbers are estimates or lower bounds. The condition `Ready` explains why the numbers are only
/// lower bounds.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_crd)]
pub struct PlanStatus {
    /// Number of informers that the profile needs. Each informer is one list and one watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub informers: Option<i32>,
    /// Expected number of objects in the stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub objects: Option<i64>,
    /// Expected memory of the profile's objects, in steps of 1 MiB, such as `24Mi`. kubewarm stores
    /// a sample of the objects and extrapolates from the size of the sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub memory: Option<String>,
    /// Number of requests for lists and list pages until all informers are warm.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub requests: Option<i32>,
    /// Expected time until all informers of the profile have complete lists, in milliseconds.
    /// Assumes that the API server responds as fast as it responded to kubewarm's sample lists.
    /// Absent if the API server answered no sample list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub time_to_warm_milliseconds: Option<i64>,
    /// Number of missing permissions. Each combination of verb, resource and namespace counts as
    /// one permission.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub missing_permissions: Option<i32>,
    /// Certainty of objects, memory, requests and time. `Estimate`: kubewarm counted the numbers,
    /// or extrapolated them from a sample. `LowerBound`: kubewarm could not count everything, so
    /// the actual numbers can be higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certainty: Option<PlanCertainty>,
    /// Time at which kubewarm first measured the current numbers. kubewarm measures again every 10
    /// minutes, and writes new numbers and a new time only if a number differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// Value of `status.plan.certainty`.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[schemars(inline)]
pub enum PlanCertainty {
    /// kubewarm counted the numbers, or extrapolated them from a sample.
    #[default]
    Estimate,
    /// kubewarm could not count everything, so the actual numbers can be higher.
    LowerBound,
}

/// Formats a number of bytes as a quantity in MiB, rounded up: `0` for 0 bytes, `1Mi` for 1 byte to
/// 1 MiB.
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
