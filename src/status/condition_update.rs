//! A computed status condition that has no transition time yet, and the combination of several such
//! conditions into one.

use super::{
    reasons::{ConditionReason, gravity},
    sentence,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionUpdate {
    /// Status of the condition; `None` means `Unknown`, as in a Kubernetes condition.
    pub(super) status: Option<bool>,
    pub(super) reason: ConditionReason,
    pub(super) message: String,
}

impl ConditionUpdate {
    pub(super) fn new(
        status: Option<bool>,
        reason: ConditionReason,
        message: impl Into<String>,
    ) -> Self {
        let message = sentence::bounded(message.into(), sentence::MAX_MESSAGE);
        Self { status, reason, message }
    }
}

/// Combines `verdicts`, the computed conditions of one type for several targets or informers, into
/// one condition. `things` is the plural noun for these targets or informers in the message.
///
/// The result is `False` if any verdict is `False`, and otherwise `Unknown` if any verdict is
/// `Unknown`. The result's reason is the most severe reason of the verdicts with this status.
/// Returns `None` if all verdicts are `True`.
///
/// The result's message joins the messages of the verdicts with this status, the most severe
/// verdict first, and then the texts in `asides`.
pub(super) fn rollup(
    condition: &str,
    verdicts: impl IntoIterator<Item = ConditionUpdate>,
    asides: Vec<String>,
    things: &str,
) -> Option<ConditionUpdate> {
    let mut bad: Vec<_> =
        verdicts.into_iter().filter(|verdict| verdict.status != Some(true)).collect();
    bad.sort_by_key(|verdict| (verdict.status.is_none(), gravity(condition, verdict.reason)));
    let (status, reason) = bad.first().map(|gravest| (gravest.status, gravest.reason))?;
    let deciding =
        bad.into_iter().filter(|verdict| verdict.status == status).map(|verdict| verdict.message);
    let texts: Vec<_> = deciding.chain(asides).collect();
    Some(ConditionUpdate::new(status, reason, sentence::join_first(&texts, things)))
}
