//! What a profile would cost, as far as anybody knows, and how that is written.

use super::super::{
    report::{ReportRow, Section, Verdict},
    text::{grouped, length},
    verdict::title,
};
use crate::forecast::Figures;
use kubewarm_api::{
    model::ProfileRef,
    v1alpha1::{PlanCertainty, mebibytes},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// A number and whether there is more; `None` where nobody knows.
pub(super) type Amount = Option<(u64, PlanCertainty)>;

fn written(amount: Amount, write: impl Fn(u64) -> String) -> String {
    match amount {
        None => "?".to_owned(),
        Some((number, PlanCertainty::LowerBound)) => write(number) + "+",
        Some((number, PlanCertainty::Estimate)) => write(number),
    }
}

/// What a target costs, or a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) cells: Amount,
    pub(super) objects: Amount,
    pub(super) bytes: Amount,
    /// Requests for lists.
    pub(super) requests: Amount,
    /// Until all is warm.
    pub(super) millis: Amount,
    /// Verbs that are missing, by kind and namespace.
    pub(super) missing: Amount,
}

/// What is said of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    /// The name of the profile.
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) targets: Vec<(Arc<str>, Costs)>,
    pub(super) total: Costs,
    /// What is wrong with it.
    pub(super) faults: Vec<String>,
    /// What to know of the numbers.
    pub(super) notes: Vec<String>,
}

impl Costs {
    /// Of what was found; the permissions are found out otherwise.
    pub(super) fn of(figures: &Figures, missing: Amount) -> Self {
        let sure = |number| Some((number, figures.certainty));
        Self {
            cells: Some((figures.cells.try_into().unwrap_or(u64::MAX), PlanCertainty::Estimate)),
            objects: sure(figures.objects),
            bytes: sure(figures.bytes),
            requests: sure(figures.requests),
            millis: sure(figures.took.as_millis().try_into().unwrap_or(u64::MAX)),
            missing,
        }
    }

    /// The columns of [`HEAD`].
    fn columns(&self) -> [String; 6] {
        [
            written(self.cells, grouped),
            written(self.objects, grouped),
            written(self.bytes, mebibytes),
            written(self.requests, grouped),
            written(self.millis, |millis| length(Duration::from_millis(millis))),
            written(self.missing, grouped),
        ]
    }

    fn json(&self) -> Value {
        let Self { cells, objects, bytes, requests, millis, missing } = *self;
        let all = [cells, objects, bytes, requests, millis, missing];
        let number = |amount: Amount| amount.map(|(number, _)| number);
        let is_lower_bound =
            |amount: &Amount| matches!(amount, Some((_, PlanCertainty::LowerBound)));
        json!({
            "informers": number(cells),
            "objects": number(objects),
            "bytes": number(bytes),
            "requests": number(requests),
            "timeToWarmMilliseconds": number(millis),
            "missingPermissions": number(missing),
            "isLowerBound": all.iter().any(is_lower_bound),
        })
    }
}

const HEAD: [&str; 6] = ["CELLS", "OBJECTS", "MEMORY", "REQUESTS", "TIME", "MISSING"];

impl Outlook {
    /// An empty one of `profile`.
    pub(super) fn of(profile: &ProfileRef) -> Self {
        let ProfileRef { name, namespace } = profile;
        Self { name: name.to_string(), namespace: namespace.to_string(), ..Self::default() }
    }

    /// Whether the profile could do what it declares, as far as that is known.
    pub(super) fn verdict(&self) -> Verdict {
        let some = matches!(self.total.missing, Some((1.., _)));
        if some || !self.faults.is_empty() { Verdict::Bad } else { Verdict::Good }
    }

    /// A table, then what is wrong, and what is to be known.
    pub(super) fn section(&self) -> Section {
        let mut rows = vec![ReportRow::numbers("TARGET", HEAD.map(str::to_owned))];
        let targets = self.targets.iter();
        rows.extend(targets.map(|(name, costs)| ReportRow::numbers(name, costs.columns())));
        rows.push(ReportRow::numbers("total", self.total.columns()));
        rows.extend(self.faults.iter().map(ReportRow::bad));
        rows.extend(self.notes.iter().map(ReportRow::note));
        Section::new(title(&self.name, &self.namespace), rows)
    }

    /// The same for machines: bytes, milliseconds, and null for what nobody knows.
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
        super::super::report::{Format, Report, Terminal, render},
        *,
    };

    fn outlook() -> Outlook {
        let known = Costs {
            cells: Some((2, PlanCertainty::Estimate)),
            objects: Some((12_345, PlanCertainty::Estimate)),
            bytes: Some((3 << 20, PlanCertainty::Estimate)),
            requests: Some((2, PlanCertainty::LowerBound)),
            millis: Some((2_400, PlanCertainty::Estimate)),
            missing: Some((0, PlanCertainty::Estimate)),
        };
        Outlook {
            name: "checkout".to_owned(),
            namespace: "shop".to_owned(),
            targets: vec![("pods".into(), known), ("deployments".into(), Costs::default())],
            total: Costs { objects: Some((12_345, PlanCertainty::LowerBound)), ..known },
            faults: vec!["no\u{1b}[2J".to_owned()],
            notes: vec!["only a cluster knows".to_owned()],
        }
    }

    #[test]
    fn the_table_lines_up_and_marks_what_is_not_sure() {
        let report = Report { sections: vec![outlook().section()], ..Report::default() };
        let format = Format::Text(Terminal::default());
        assert_eq!(
            render(&report, format).unwrap(),
            r"checkout -n shop
  TARGET       CELLS  OBJECTS  MEMORY  REQUESTS   TIME  MISSING
  pods             2   12,345     3Mi        2+  2.4 s        0
  deployments      ?        ?       ?         ?      ?        ?
  total            2  12,345+     3Mi        2+  2.4 s        0
✗ no\u{1b}[2J
! only a cluster knows
"
        );
    }

    #[test]
    fn machines_get_numbers_and_nulls() {
        let json = outlook().json();
        assert_eq!(json["targets"][0]["bytes"], 3 << 20);
        assert_eq!(json["targets"][1]["objects"], Value::Null);
        assert_eq!(json["total"]["isLowerBound"], true);
        assert_eq!(json["targets"][1]["isLowerBound"], false);
    }
}
