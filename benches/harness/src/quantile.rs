//! Medians and other quantiles of a few measurements.

/// The value below which `share` (0..=1) of the samples lie, by nearest rank; 0 for no samples.
#[must_use]
pub fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank among at most some 100,000 samples"
    )]
    let rank = (sorted.len() as f64 * share) as usize;
    sorted.get(rank.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// The median; 0 for no samples.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_three_is_the_middle_one() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(&[]).abs() < f64::EPSILON);
    }

    #[test]
    fn the_99th_of_a_hundred_is_the_largest() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!((quantile(&samples, 0.99) - 100.0).abs() < f64::EPSILON);
    }
}
