//! The forecast of the costs of a profile, and its output as text and JSON.

use super::super::{
    profile_readiness::title,
    report::{CommandExitCode, ReportRow, ReportSection},
    text::{grouped, length},
};
use crate::forecast::CostForecast;
use kubewarm_api::{
    model::ProfileRef,
    v1alpha1::{PlanCertainty, mebibytes},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// One forecast cost, and whether the number is an estimate or a lower bound. `None` means that the
/// cost is unknown.
pub(super) type CostAmount = Option<(u64, PlanCertainty)>;

fn written(amount: CostAmount, write: impl Fn(u64) -> String) -> String {
    match amount {
        None => "?".to_owned(),
        Some((number, PlanCertainty::LowerBound)) => write(number) + "+",
        Some((number, PlanCertainty::Estimate)) => write(number),
    }
}

/// The costs of a target or a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ForecastCosts {
    pub(super) informers: CostAmount,
    pub(super) objects: CostAmount,
    pub(super) bytes: CostAmount,
    /// Number of list requests.
    pub(super) requests: CostAmount,
    /// Time until the profile or target is warm, in milliseconds.
    pub(super) millis: CostAmount,
    /// Number of missing permissions, counted per verb, resource and namespace.
    pub(super) missing: CostAmount,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForecastReport {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) targets: Vec<(Arc<str>, ForecastCosts)>,
    pub(super) total: ForecastCosts,
    /// Reasons why the profile would not become ready, such as missing permissions.
    pub(super) faults: Vec<String>,
    /// Remarks on the numbers, such as why a number is only a lower bound.
    pub(super) notes: Vec<String>,
}

impl ForecastCosts {
    /// Returns the costs that `figures`, a forecast from a sample of the cluster, contains.
    /// `missing` is the number of missing permissions.
    pub(super) fn of(figures: &CostForecast, missing: CostAmount) -> Self {
        let amount = |number| Some((number, figures.certainty));
        Self {
            informers: Some((
                figures.informers.try_into().unwrap_or(u64::MAX),
                PlanCertainty::Estimate,
            )),
            objects: amount(figures.objects),
            bytes: amount(figures.bytes),
            requests: amount(figures.requests),
            millis: amount(figures.took.as_millis().try_into().unwrap_or(u64::MAX)),
            missing,
        }
    }

    /// Texts for the columns of [`HEAD`].
    fn columns(&self) -> [String; 6] {
        [
            written(self.informers, grouped),
            written(self.objects, grouped),
            written(self.bytes, mebibytes),
            written(self.requests, grouped),
            written(self.millis, |millis| length(Duration::from_millis(millis))),
            written(self.missing, grouped),
        ]
    }

    fn json(&self) -> Value {
        let Self { informers, objects, bytes, requests, millis, missing } = *self;
        let all = [informers, objects, bytes, requests, millis, missing];
        let number = |amount: CostAmount| amount.map(|(number, _)| number);
        let is_lower_bound =
            |amount: &CostAmount| matches!(amount, Some((_, PlanCertainty::LowerBound)));
        json!({
            "informers": number(informers),
            "objects": number(objects),
            "bytes": number(bytes),
            "requests": number(requests),
            "timeToWarmMilliseconds": number(millis),
            "missingPermissions": number(missing),
            "isLowerBound": all.iter().any(is_lower_bound),
        })
    }
}

const HEAD: [&str; 6] = ["INFORMERS", "OBJECTS", "MEMORY", "REQUESTS", "TIME", "MISSING"];

impl ForecastReport {
    /// Returns a forecast of `profile` in which all costs are still unknown.
    pub(super) fn of(profile: &ProfileRef) -> Self {
        let ProfileRef { name, namespace } = profile;
        Self { name: name.to_string(), namespace: namespace.to_string(), ..Self::default() }
    }

    /// Returns `Bad` if the profile's identity lacks a permission or `faults` is not empty, else
    /// `Good`.
    pub(super) fn verdict(&self) -> CommandExitCode {
        let has_missing = matches!(self.total.missing, Some((1.., _)));
        if has_missing || !self.faults.is_empty() {
            CommandExitCode::Bad
        } else {
            CommandExitCode::Good
        }
    }

    pub(super) fn section(&self) -> ReportSection {
        let mut rows = vec![ReportRow::numbers("TARGET", HEAD.map(str::to_owned))];
        let targets = self.targets.iter();
        rows.extend(targets.map(|(name, costs)| ReportRow::numbers(name, costs.columns())));
        rows.push(ReportRow::numbers("total", self.total.columns()));
        rows.extend(self.faults.iter().map(ReportRow::bad));
        rows.extend(self.notes.iter().map(ReportRow::note));
        ReportSection::new(title(&self.name, &self.namespace), rows)
    }

    /// Returns the forecast as JSON, with sizes in bytes and times in milliseconds. Unknown numbers
    /// are null.
    pub(super) fn json(&self) -> Value {
        let targets = self.targets.iter().map(|(name, costs)| {
            let mut value = costs.json();
            if let Some(fields) = value.as_object_mut() {
                fields.insert("name".to_owned(), json!(&**name));
            }
            value
        });
        json!({
            "name": self.name,
            "namespace": self.namespace,
            "targets": targets.collect::<Vec<_>>(),
            "total": self.total.json(),
            "faults": self.faults,
            "notes": self.notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::report::{CommandReport, ReportFormat, TerminalLayout, render},
        *,
    };

    fn forecast() -> ForecastReport {
        let known = ForecastCosts {
            informers: Some((2, PlanCertainty::Estimate)),
            objects: Some((12_345, PlanCertainty::Estimate)),
            bytes: Some((3 << 20, PlanCertainty::Estimate)),
            requests: Some((2, PlanCertainty::LowerBound)),
            millis: Some((2_400, PlanCertainty::Estimate)),
            missing: Some((0, PlanCertainty::Estimate)),
        };
        ForecastReport {
            name: "checkout".to_owned(),
            namespace: "shop".to_owned(),
            targets: vec![("pods".into(), known), ("deployments".into(), ForecastCosts::default())],
            total: ForecastCosts { objects: Some((12_345, PlanCertainty::LowerBound)), ..known },
            faults: vec!["no\u{1b}[2J".to_owned()],
            notes: vec!["only a cluster knows".to_owned()],
        }
    }

    #[test]
    fn columns_are_aligned_and_lower_bounds_are_marked() {
        let report =
            CommandReport { sections: vec![forecast().section()], ..CommandReport::default() };
        let format = ReportFormat::Text(TerminalLayout::default());
        assert_eq!(
            render(&report, format).unwrap(),
            r"checkout -n shop
  TARGET       INFORMERS  OBJECTS  MEMORY  REQUESTS   TIME  MISSING
  pods                 2   12,345     3Mi        2+  2.4 s        0
  deployments          ?        ?       ?         ?      ?        ?
  total                2  12,345+     3Mi        2+  2.4 s        0
✗ no\u{1b}[2J
! only a cluster knows
"
        );
    }

    #[test]
    fn json_has_numbers_and_nulls() {
        let json = forecast().json();
        assert_eq!(json["targets"][0]["bytes"], 3 << 20);
        assert_eq!(json["targets"][1]["objects"], Value::Null);
        assert_eq!(json["total"]["isLowerBound"], true);
        assert_eq!(json["targets"][1]["isLowerBound"], false);
    }
}
