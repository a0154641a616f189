//! Measurements of a kubewarm process: metrics, informers and memory as the kernel reports it.

use serde_json::Value;

use crate::operator::Operator;
use crate::world::Failure;

/// The text of one scrape.
#[derive(Clone, Debug)]
pub(crate) struct Exposition(String);

impl Exposition {
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

    /// The sum of these series, or 0 without any.
    pub(crate) fn sum(&self, metric: &str, labels: &[&str]) -> f64 {
        self.series(metric, labels)
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    }

    /// The names and labels of all series, without values.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.all().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect()
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.0.lines().filter(|line| !line.starts_with('#'))
    }
}

/// The informers in `/debug/informers`.
pub(crate) fn informers(operator: &Operator) -> Result<Vec<Value>, Failure> {
    let (_, text) = operator.ask("/debug/informers")?;
    let answer: Value = serde_json::from_str(&text)?;
    Ok(answer["informers"].as_array().ok_or("no informers")?.clone())
}

/// The informer of a resource in a namespace.
pub(crate) fn informer(
    operator: &Operator,
    namespace: &str,
    resource: &str,
) -> Result<Value, Failure> {
    let here =
        |informer: &Value| informer["resource"] == resource && informer["namespace"] == namespace;
    let informer = informers(operator)?.into_iter().find(here);
    informer.ok_or_else(|| format!("no informer of {resource} in {namespace}").into())
}

/// The counters of an informer that change if something disturbs it, for example a relist. A test
/// compares them before and after an event.
pub(crate) fn undisturbed(
    operator: &Operator,
    namespace: &str,
    resource: &str,
) -> Result<Value, Failure> {
    let informer = informer(operator, namespace, resource)?;
    let fields = ["state", "syncedTime", "lastRelist", "warmed", "objects", "accessLostTime"];
    Ok(fields.iter().map(|field| informer[*field].clone()).collect())
}

/// Resources of a process: open file descriptors, and current and peak resident memory in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) files: usize,
    pub(crate) resident_kib: u64,
    /// The part of `resident_kib` without pages of files, such as the program.
    pub(crate) anonymous_kib: u64,
    pub(crate) peak_kib: u64,
}

impl Kept {
    /// Resets the peak to the current resident memory.
    pub(crate) fn forget_peak(operator: &Operator) -> Result<(), Failure> {
        let id = operator.process.id().ok_or("the operator does not run")?;
        Ok(std::fs::write(format!("/proc/{id}/clear_refs"), "5")?)
    }

    /// Reads the values from /proc.
    pub(crate) fn read(operator: &Operator) -> Result<Self, Failure> {
        let id = operator.process.id().ok_or("the operator does not run")?;
        let files = std::fs::read_dir(format!("/proc/{id}/fd"))?.count();
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let kib = |field: &str| -> Result<u64, Failure> {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            Ok(number.ok_or_else(|| format!("no {field}"))?.parse()?)
        };
        Ok(Self {
            files,
            resident_kib: kib("VmRSS:")?,
            anonymous_kib: kib("RssAnon:")?,
            peak_kib: kib("VmHWM:")?,
        })
    }
}

/// Counts relists of informers that were synced before, including the controller's own.
pub(crate) fn relists(operator: &Operator) -> Result<f64, Failure> {
    Ok(Exposition::read(operator)?.sum("kubewarm_upstream_relists_total", &[]))
}
