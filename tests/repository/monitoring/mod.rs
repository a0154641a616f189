//! Tests that the rules and the dashboards are documented and have tests, and that all metrics in
//! them exist. `tests/prometheus` runs promtool.

#![expect(clippy::expect_used, reason = "a test may panic")]

mod dashboard;
mod names;
mod promql;
mod rules;

use crate::read;
