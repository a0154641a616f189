/// A value of the metric label `outcome`. kubewarm exports only the outcomes that are possible for
/// each metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum MetricOutcome {
    /// kubewarm completed the operation, such as a list, or answered a client's request.
    Success,
    /// kubewarm or the API server failed.
    Error,
    /// kubewarm rejected a request of a client, for example because the client lacks permission. Or
    /// the API server rejected a request of kubewarm.
    Rejected,
    /// The operation, such as a list, ended before it had a result.
    Cancelled,
}

impl MetricOutcome {
    /// Returns the outcome of a response with the HTTP status `code`. 404 and 410 are successes:
    /// kubewarm found that the object or the resource version does not exist.
    pub const fn of_status(code: u16) -> Self {
        match code {
            0..=399 | 404 | 410 => Self::Success,
            429 | 500.. => Self::Error,
            _ => Self::Rejected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_one_outcome() {
        for (code, outcome) in [
            (101, MetricOutcome::Success),
            (200, MetricOutcome::Success),
            (404, MetricOutcome::Success),
            (410, MetricOutcome::Success),
            (400, MetricOutcome::Rejected),
            (403, MetricOutcome::Rejected),
            (421, MetricOutcome::Rejected),
            (429, MetricOutcome::Error),
            (500, MetricOutcome::Error),
            (504, MetricOutcome::Error),
        ] {
            assert_eq!(MetricOutcome::of_status(code), outcome, "{code}");
        }
    }
}
