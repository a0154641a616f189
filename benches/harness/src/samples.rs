//! Measurements of all rounds.

use crate::quantile::median;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Measurements by name, such as `drain.whole.seconds`, with one value a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Samples(BTreeMap<String, Vec<f64>>);

impl Samples {
    /// Adds a measurement of a round.
    pub fn push(&mut self, name: &str, value: f64) {
        self.0.entry(name.to_owned()).or_default().push(value);
    }

    /// Adds the mean of each measurement in `several`, which contains several measurements of one
    /// round.
    pub fn push_means(&mut self, several: &Self) {
        for (name, values) in &several.0 {
            #[expect(clippy::cast_precision_loss, reason = "a handful")]
            self.push(name, values.iter().sum::<f64>() / values.len() as f64);
        }
    }

    /// Replaces the measurements whose names are in `by`.
    pub fn replace(&mut self, by: &Self) {
        self.0.extend(by.0.clone());
    }

    /// The values of a measurement, in the order in which they were added.
    pub(crate) fn values(&self, name: &str) -> &[f64] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The median over the rounds.
    #[must_use]
    pub fn median(&self, name: &str) -> Option<f64> {
        self.0.get(name).map(|values| median(values))
    }

    /// The median of the rounds' ratios. The programs of one round run within a minute, so changes
    /// of the whole machine cancel out.
    #[must_use]
    pub fn ratio(&self, name: &str, to: &str) -> Option<f64> {
        let ratios: Vec<f64> =
            self.0.get(name)?.iter().zip(self.0.get(to)?).map(|(a, b)| a / b).collect();
        Some(median(&ratios))
    }

    /// As [`ratio`](Self::ratio), with the smallest of several samples in each round.
    #[must_use]
    pub fn ratio_to_least(&self, name: &str, others: &[&str]) -> Option<f64> {
        let others: Option<Vec<&Vec<f64>>> = others.iter().map(|name| self.0.get(*name)).collect();
        let others = others?;
        let least = |round: usize| {
            others.iter().filter_map(|values| values.get(round)).copied().min_by(f64::total_cmp)
        };
        let values = self.0.get(name)?.iter().enumerate();
        let ratios: Vec<f64> =
            values.filter_map(|(round, value)| Some(value / least(round)?)).collect();
        Some(median(&ratios))
    }

    /// All names and their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[f64])> {
        self.0.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_measurements_of_a_round_count_once() {
        let (mut samples, mut twice) = (Samples::default(), Samples::default());
        twice.push("own", 1.0);
        twice.push("own", 2.0);
        twice.push("peer", 4.0);
        samples.push_means(&twice);
        assert_eq!(samples.ratio("own", "peer"), Some(0.375));
        assert_eq!(samples.iter().map(|(_, values)| values.len()).sum::<usize>(), 2);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut samples = Samples::default();
        for (ours, peer, other) in [(1.0, 2.0, 9.0), (2.0, 2.0, 1.0), (9.0, 3.0, 9.0)] {
            samples.push("own", ours);
            samples.push("peer", peer);
            samples.push("other", other);
        }
        assert_eq!(samples.ratio("own", "peer"), Some(1.0));
        assert_eq!(samples.ratio_to_least("own", &["peer", "other"]), Some(2.0));
        assert_eq!(samples.ratio("own", "absent"), None);
    }
}
