//! Reads values from Prometheus' text format.

/// The values of all series of `name` whose labels contain `label` (`key="value"`; empty: all).
pub fn values(text: &str, name: &str, label: &str) -> impl Iterator<Item = f64> {
    text.lines()
        .filter_map(move |line| line.strip_prefix(name))
        .filter(move |rest| rest.starts_with(['{', ' ']) && rest.contains(label))
        .filter_map(|rest| rest.rsplit_once(' ')?.1.parse().ok())
}

/// The sum of all series of `name` whose labels contain each of `labels` (`key="value"`).
pub fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let has_labels = |line: &&str| labels.iter().all(|label| line.contains(label));
    text.lines().filter(has_labels).flat_map(|line| values(line, name, "")).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_found_by_name_and_label() {
        let text = "# TYPE a counter\na{g=\"x\",v=\"1\"} 2\na{g=\"y\"} 4\na_sum{g=\"x\"} 8\na 16\n";
        assert_eq!(values(text, "a", "g=\"x\"").collect::<Vec<_>>(), [2.0]);
        assert_eq!(values(text, "a", "").collect::<Vec<_>>(), [2.0, 4.0, 16.0]);
        let sums = [&[][..], &["g=\"x\""], &["v=\"1\"", "g=\"x\""], &["g=\"x\"", "v=\"2\""]];
        let sums: Vec<_> = sums.iter().map(|labels| sum(text, "a", labels)).collect();
        assert_eq!(sums, [22.0, 2.0, 2.0, 0.0]);
    }
}
