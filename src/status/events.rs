//! Decides which status changes send an Event: at most one per reason and target in 10 minutes.
//! This module performs no I/O.

use super::{
    reference::events,
    sentence::{MAX_MESSAGE, bounded},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewarm_api::{
    model::ProfileRef,
    v1alpha1::{CacheProfileStatus, MAX_TARGETS, TargetStatus},
};
use kubewarm_cache::informer::RelistReason;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Minimum interval between two Events with the same reason and target for one profile. It limits
/// the number of Events about a condition that changes often.
const MIN_INTERVAL: Duration = Duration::from_mins(10);
/// Maximum number of entries in [`LastEventTimes`], which limits the memory of each profile: 8
/// reasons of Events for each target, and 5 reasons for the profile.
const MAX_EVENTS: usize = MAX_TARGETS * 8 + 5;

pub(super) const NORMAL: &str = "Normal";
pub(super) const WARNING: &str = "Warning";

/// Reasons of Events that the table of condition reasons in `reference` does not contain.
pub(super) const READY: &str = "Ready";
pub(super) const NOT_READY: &str = "NotReady";
pub(super) const REFUSED: &str = "Refused";
pub(super) const ROLLED_BACK: &str = "ResourceVersionRolledBack";
pub(super) const INCONSISTENT: &str = "CacheInconsistent";

const ROLLED_BACK_NOTE: &str = "resource versions went back, as after a restore of etcd; the stored objects were \
                         dropped and listed again";
const INCONSISTENT_NOTE: &str = "a consistency check found other objects than the API server has at that version; \
                         all objects were listed again";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileEvent {
    pub profile: ProfileRef,
    pub uid: Arc<str>,
    /// The target's name; empty for an Event about the whole profile.
    pub target: String,
    pub type_: &'static str,
    pub reason: &'static str,
    /// The Event's `note`, the text for people, at most 1 KiB.
    pub note: String,
}

/// The time of the last Event for each reason and target of one profile, at most [`MAX_EVENTS`]
/// times.
#[derive(Debug, Default)]
pub(super) struct LastEventTimes(HashMap<(&'static str, String), Instant>);

impl LastEventTimes {
    /// Returns the Events for the change of a profile's status from `old` to `new`. Omits an Event
    /// if an Event with the same reason and target was sent less than 10 minutes ago.
    ///
    /// `old` is the status that this process computed last. After a restart, `old` is the status in
    /// the API server, so that a restart does not repeat Events.
    pub(super) fn plan(
        &mut self,
        profile: &ProfileRef,
        uid: &Arc<str>,
        old: Option<&CacheProfileStatus>,
        new: &CacheProfileStatus,
        now: Instant,
    ) -> Vec<ProfileEvent> {
        let mut events = changes(profile, uid, old, new);
        let Self(sent) = self;
        sent.retain(|_, at| now.saturating_duration_since(*at) < MIN_INTERVAL);
        events.retain(|ProfileEvent { reason, target, .. }| {
            let key = (*reason, target.clone());
            let is_new = !sent.contains_key(&key) && sent.len() < MAX_EVENTS;
            if is_new {
                sent.insert(key, now);
            }
            is_new
        });
        events
    }
}

/// Returns all Events for the change of a profile's status from `old` to `new`. This includes
/// Events that were already sent in the last 10 minutes.
pub(super) fn changes(
    profile: &ProfileRef,
    uid: &Arc<str>,
    old: Option<&CacheProfileStatus>,
    new: &CacheProfileStatus,
) -> Vec<ProfileEvent> {
    let new_event = |(type_, reason), target: &str, note: &str| ProfileEvent {
        profile: profile.clone(),
        uid: Arc::clone(uid),
        target: target.to_owned(),
        type_,
        reason,
        note: bounded(note.to_owned(), MAX_MESSAGE),
    };
    let old_conditions = old.map_or(&[][..], |old| &old.conditions);
    let of_profile =
        condition_events(&["Ready", "Stalled", "Authorized"], old_conditions, &new.conditions);
    let mut events: Vec<_> = of_profile.map(|(event, note)| new_event(event, "", note)).collect();
    for target in &new.targets {
        let old = old.and_then(|old| old.targets.iter().find(|old| old.name == target.name));
        let old_conditions = old.map_or(&[][..], |old| &old.conditions);
        let types = &["Warm", "Accepted", "WithinLimits"];
        let of_target = condition_events(types, old_conditions, &target.conditions);
        events.extend(of_target.map(|(event, note)| new_event(event, &target.name, note)));
        for (relist, event, what) in [
            (RelistReason::Rollback, ROLLED_BACK, ROLLED_BACK_NOTE),
            (RelistReason::Inconsistent, INCONSISTENT, INCONSISTENT_NOTE),
        ] {
            if let (Some(old), Some(at)) = (old, relist_time(target, relist))
                && relist_time(old, relist) != Some(at)
            {
                let note = format!("target {:?}: {what}", target.name);
                events.push(new_event((WARNING, event), &target.name, &note));
            }
        }
    }
    events
}

type EventTypeAndReason = (&'static str, &'static str);

/// Returns the Events for changed conditions of the given `types`. Each Event has the message of
/// its condition.
fn condition_events<'a>(
    types: &'static [&str],
    old: &'a [Condition],
    new: &'a [Condition],
) -> impl Iterator<Item = (EventTypeAndReason, &'a str)> {
    let new = new.iter().filter(|is| types.contains(&&*is.type_));
    new.filter_map(|is| {
        let was = old.iter().find(|was| was.type_ == is.type_);
        Some((condition_event(was, is)?, &*is.message))
    })
}

/// Returns type and reason of the Event for the change of one condition, or `None` if kubewarm
/// sends no Event for this change. A missing condition counts as `Unknown`.
fn condition_event(was: Option<&Condition>, is: &Condition) -> Option<EventTypeAndReason> {
    let (was, old_reason) = was.map_or(("Unknown", ""), |was| (&*was.status, &*was.reason));
    match (&*is.type_, was, &*is.status) {
        ("Ready", "False" | "Unknown", "True") => Some((NORMAL, READY)),
        ("Ready", "True", "False") => Some((WARNING, NOT_READY)),
        ("Ready", ..) => None,
        ("Stalled", _, "True") => {
            (was != "True" || old_reason != is.reason).then_some((WARNING, REFUSED))
        }
        _ => reason_event(old_reason, is),
    }
}

/// Returns the Event for a condition whose reason changed from `was`. The Event is a warning about
/// the new reason, or a `Normal` Event if the problem of the old reason has ended.
fn reason_event(was: &str, is: &Condition) -> Option<EventTypeAndReason> {
    let events = |reason: &str| events(&is.type_, reason);
    match (events(was), events(&is.reason)) {
        (was, Some(now)) if was != Some(now) => Some((WARNING, now.0)),
        (Some((_, ended)), None) if is.status == "True" => Some((NORMAL, ended?)),
        _ => None,
    }
}

/// Returns the time of the target's last relist, if that relist had this `reason`.
fn relist_time(target: &TargetStatus, reason: RelistReason) -> Option<jiff::Timestamp> {
    let relist = target.last_relist.as_ref()?;
    (relist.reason == reason.as_str()).then_some(relist.time.0)
}
