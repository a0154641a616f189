//! Parses metrics in Prometheus' text format.

/// One metric.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) kind: String,
    /// The names of the labels, in the order of the text, without `le`.
    pub(crate) labels: Vec<String>,
}

/// Every metric of `text`, except the metrics of the process, whose names the crate prometheus
/// chooses.
pub(crate) fn families(text: &str) -> Vec<Family> {
    let blocks = text.split("# HELP ").skip(1).map(family);
    blocks.filter(|family| !family.name.starts_with("process_")).collect()
}

/// Parses the help, type and series of a metric.
fn family(block: &str) -> Family {
    let mut lines = block.lines();
    let (name, help) = lines.next().and_then(|line| line.split_once(' ')).expect("a HELP line");
    let (_, kind) = lines.next().and_then(|line| line.rsplit_once(' ')).expect("a TYPE line");
    let mut family =
        Family { name: name.into(), help: help.into(), kind: kind.into(), ..Family::default() };
    let Some(first) = lines.next() else { return family };
    let is_own = |(label, _): &(&str, &str)| *label != "le";
    family.labels = labels(first).filter(is_own).map(|(label, _)| label.to_owned()).collect();
    family
}

/// The names and values of a series' labels. No value contains a quotation mark.
fn labels(series: &str) -> impl Iterator<Item = (&str, &str)> {
    let labels = series.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
    let labels = labels.map_or("", |(labels, _)| labels);
    labels
        .split("\",")
        .filter_map(|label| label.split_once("=\""))
        .map(|(name, value)| (name, value.trim_end_matches('"')))
}
