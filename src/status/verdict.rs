//! A condition in the making, and how several become one.

use super::{
    reasons::{ConditionReason, gravity},
    sentence,
};

/// A condition before it is merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// `None` is `Unknown`.
    pub(super) status: Option<bool>,
    pub(super) reason: ConditionReason,
    pub(super) message: String,
}

impl Verdict {
    pub(super) fn new(
        status: Option<bool>,
        reason: ConditionReason,
        message: impl Into<String>,
    ) -> Self {
        let message = sentence::bounded(message.into(), sentence::MAX_MESSAGE);
        Self { status, reason, message }
    }
}

/// What several verdicts on one condition, that `things` have, come to: false if any is false, else unknown if any is
/// unknown, for the gravest reason; `None` if all are true. The message names those that decide, the gravest first, and
/// then the `asides`.
pub(super) fn rollup(
    condition: &str,
    verdicts: impl IntoIterator<Item = Verdict>,
    asides: Vec<String>,
    things: &str,
) -> Option<Verdict> {
    let mut bad: Vec<_> = verdicts.into_iter().filter(|it| it.status != Some(true)).collect();
    bad.sort_by_key(|it| (it.status.is_none(), gravity(condition, it.reason)));
    let (status, reason) = bad.first().map(|gravest| (gravest.status, gravest.reason))?;
    let deciding = bad.into_iter().filter(|it| it.status == status).map(|it| it.message);
    let texts: Vec<_> = deciding.chain(asides).collect();
    Some(Verdict::new(status, reason, sentence::few(&texts, things)))
}
