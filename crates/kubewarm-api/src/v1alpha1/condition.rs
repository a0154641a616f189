//! Merging a condition into a list without touching what did not change.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A condition as computed, before it is merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate<'a> {
    /// Such as `Ready`.
    pub type_: &'a str,
    /// `None` is `Unknown`.
    pub status: Option<bool>,
    /// A word of the closed set that belongs to the type; not empty.
    pub reason: &'a str,
    /// For people: names the target, the namespace and the next step.
    pub message: String,
    /// The generation that this describes.
    pub observed_generation: i64,
}

/// Writes `update` into `conditions`, keeping the order of the list.
///
/// `lastTransitionTime` moves to `now` only when `status` changes, so writing the same state twice
/// yields the same list and the server sees no update. The clock is a parameter: nothing in this
/// module reads the time.
pub fn set_condition(conditions: &mut Vec<Condition>, update: ConditionUpdate<'_>, now: Timestamp) {
    let status = match update.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let existing = conditions.iter_mut().find(|condition| condition.type_ == update.type_);
    let last_transition_time = existing
        .as_ref()
        .filter(|old| old.status == status)
        .map_or(Time(now), |old| old.last_transition_time.clone());

    let merged = Condition {
        type_: update.type_.to_owned(),
        status: status.to_owned(),
        reason: update.reason.to_owned(),
        message: update.message,
        observed_generation: Some(update.observed_generation),
        last_transition_time,
    };
    match existing {
        Some(slot) => *slot = merged,
        None => conditions.push(merged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: Option<bool>, reason: &str, generation: i64) -> ConditionUpdate<'_> {
        ConditionUpdate {
            type_: "Ready",
            status,
            reason,
            message: format!("because {reason}"),
            observed_generation: generation,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut conditions = Vec::new();
        set_condition(&mut conditions, ready(None, "Pending", 1), at(1));
        set_condition(&mut conditions, ready(Some(false), "TargetsNotWarm", 1), at(2));
        set_condition(&mut conditions, ready(Some(false), "Stale", 2), at(3));
        let [condition] = conditions.as_slice() else { panic!("{conditions:?}") };
        assert_eq!(condition.last_transition_time, Time(at(2)));
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "Stale"));
        assert_eq!(condition.observed_generation, Some(2));
    }

    #[test]
    fn writing_the_same_state_again_changes_nothing() {
        let mut conditions = Vec::new();
        set_condition(&mut conditions, ready(Some(true), "Ready", 1), at(1));
        let before = conditions.clone();
        set_condition(&mut conditions, ready(Some(true), "Ready", 1), at(9));
        assert_eq!(conditions, before);
    }

    #[test]
    fn others_keep_their_place() {
        let mut conditions = Vec::new();
        for type_ in ["Ready", "Warm", "Fresh"] {
            let update = ConditionUpdate { type_, ..ready(None, "Pending", 1) };
            set_condition(&mut conditions, update, at(1));
        }
        let update = ConditionUpdate { type_: "Warm", ..ready(Some(true), "Synced", 1) };
        set_condition(&mut conditions, update, at(2));
        let order: Vec<_> = conditions.iter().map(|c| (c.type_.as_str(), &*c.status)).collect();
        assert_eq!(order, [("Ready", "Unknown"), ("Warm", "True"), ("Fresh", "Unknown")]);
    }
}
