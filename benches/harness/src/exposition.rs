//! Reads values from Prometheus' text format.

/// The sum of all series of `name` whose labels contain `label` (`key="value"`; empty: all).
#[must_use]
pub fn sum(text: &str, name: &str, label: &str) -> f64 {
    text.lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
        .filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_name_and_label_are_added() {
        let text = "# TYPE a counter\na{g=\"x\",v=\"1\"} 2\na{g=\"y\"} 4\na_sum{g=\"x\"} 8\na 16\n";
        assert!((sum(text, "a", "g=\"x\"") - 2.0).abs() < f64::EPSILON);
        assert!((sum(text, "a", "") - 22.0).abs() < f64::EPSILON);
    }
}
