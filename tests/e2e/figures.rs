//! What a process says about itself in numbers: its metrics, its cells, and what the kernel knows.

use serde_json::Value;

use crate::operator::Operator;
use crate::world::Failure;

/// One scrape.
#[derive(Clone, Debug)]
pub(crate) struct Exposition(String);

impl Exposition {
    /// Scrapes `/metrics`.
    pub(crate) fn read(operator: &Operator) -> Result<Self, Failure> {
        match operator.ask("/metrics")? {
            (200, text) => Ok(Self(text)),
            (code, text) => Err(format!("/metrics: {code}: {text}").into()),
        }
    }

    /// The series of a metric whose labels contain all of `labels`.
    pub(crate) fn series<'a>(
        &'a self,
        metric: &'a str,
        labels: &'a [&str],
    ) -> impl Iterator<Item = &'a str> {
        self.all().filter(move |line| {
            line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        })
    }

    /// The sum over those series; 0 without any.
    pub(crate) fn sum(&self, metric: &str, labels: &[&str]) -> f64 {
        self.series(metric, labels)
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    }

    /// The names and labels of all series, without their values.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.all().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect()
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.0.lines().filter(|line| !line.starts_with('#'))
    }
}

/// `/debug/cells`.
pub(crate) fn cells(operator: &Operator) -> Result<Vec<Value>, Failure> {
    let (_, text) = operator.ask("/debug/cells")?;
    let answer: Value = serde_json::from_str(&text)?;
    Ok(answer["cells"].as_array().ok_or("no cells")?.clone())
}

/// The cell of a kind in a namespace, as `/debug/cells` has it.
pub(crate) fn cell(operator: &Operator, namespace: &str, resource: &str) -> Result<Value, Failure> {
    let here = |cell: &Value| cell["resource"] == resource && cell["namespace"] == namespace;
    let found = cells(operator)?.into_iter().find(here);
    found.ok_or_else(|| format!("no cell of {resource} in {namespace}").into())
}

/// What changes of a cell that somebody disturbs.
pub(crate) fn undisturbed(
    operator: &Operator,
    namespace: &str,
    resource: &str,
) -> Result<Value, Failure> {
    let cell = cell(operator, namespace, resource)?;
    let fields = ["state", "syncedTime", "lastRelist", "warmed", "objects", "accessLostTime"];
    Ok(fields.iter().map(|field| cell[*field].clone()).collect())
}

/// Files and sockets that a process has open, and its resident memory in KiB, now and at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) files: usize,
    pub(crate) resident_kib: u64,
    pub(crate) peak_kib: u64,
}

impl Kept {
    /// Has the peak begin anew at what is resident now.
    pub(crate) fn forget_peak(operator: &Operator) -> Result<(), Failure> {
        let id = operator.process.id().ok_or("it does not run")?;
        Ok(std::fs::write(format!("/proc/{id}/clear_refs"), "5")?)
    }

    /// As the kernel has it.
    pub(crate) fn read(operator: &Operator) -> Result<Self, Failure> {
        let id = operator.process.id().ok_or("it does not run")?;
        let files = std::fs::read_dir(format!("/proc/{id}/fd"))?.count();
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let kib = |field: &str| -> Result<u64, Failure> {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            Ok(number.ok_or_else(|| format!("no {field}"))?.parse()?)
        };
        Ok(Self { files, resident_kib: kib("VmRSS:")?, peak_kib: kib("VmHWM:")? })
    }
}
