//! Which changes of a status deserve an Event: pure; one per cause in 10 minutes.

use super::{
    figures::ROLLBACK,
    sentence::{MAX_MESSAGE, bounded},
};
use crate::{
    api::{CacheProfileStatus, TargetStatus},
    model::ProfileRef,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Between two Events of the same cause for one profile.
const QUIET: Duration = Duration::from_mins(10);
/// Events of the process: so many at once, and so many a second on average.
const BURST: u32 = 50;
const PER_SECOND: u32 = 5;
/// A quarter of them: what one namespace may take, so that it does not take those of the others.
const NAMESPACE_BURST: usize = BURST as usize / 4;
/// Causes remembered for one profile: each target has 6 at most, and the profile 3.
const MAX_CAUSES: usize = 32 * 6 + 3;

/// Why an Event is sent: its `reason`. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The profile became Ready.
    Ready,
    /// It was Ready and is not any more.
    NotReady,
    /// The newest generation is refused, or a target is, until its author edits it.
    Refused,
    /// A target lacks a permission.
    PermissionsMissing,
    /// It has it again.
    PermissionsGranted,
    /// A target's kind is not served (any more).
    KindUnknown,
    /// It is served (again).
    KindServed,
    /// A namespace that a target names does not exist.
    NamespaceNotFound,
    /// Resource versions went back: an etcd restore. Everything was listed anew.
    RolledBack,
}

/// An Event to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The profile that it is about.
    pub profile: ProfileRef,
    /// Its `metadata.uid`.
    pub uid: Arc<str>,
    /// Why.
    pub cause: Cause,
    /// For people; at most 1 KiB.
    pub note: String,
}

/// What was sent lately. Bounded by [`retain`](Self::retain) and by the causes of a profile.
#[derive(Debug, Default)]
pub struct Notices {
    sent: HashMap<ProfileRef, HashMap<(Cause, String), Instant>>,
    /// When, and of which namespace, the last [`BURST`] Events were sent: the bucket of the process
    /// and those of its namespaces.
    recent: VecDeque<(Instant, Arc<str>)>,
}

impl Cause {
    /// The Event's `reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::NotReady => "NotReady",
            Self::Refused => "Refused",
            Self::PermissionsMissing => "PermissionsMissing",
            Self::PermissionsGranted => "PermissionsGranted",
            Self::KindUnknown => "KindUnknown",
            Self::KindServed => "KindServed",
            Self::NamespaceNotFound => "NamespaceNotFound",
            Self::RolledBack => "ResourceVersionRolledBack",
        }
    }

    /// Whether somebody should look.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        match self {
            Self::Ready | Self::PermissionsGranted | Self::KindServed => false,
            Self::NotReady
            | Self::Refused
            | Self::PermissionsMissing
            | Self::KindUnknown
            | Self::NamespaceNotFound
            | Self::RolledBack => true,
        }
    }
}

impl Notices {
    /// The Events that the step from `old` to `new` deserves and that are not repeated too soon.
    ///
    /// `old` is what was last computed or, after a restart, what the cluster has, so that a
    /// restart tells nothing twice.
    pub fn plan(
        &mut self,
        profile: &ProfileRef,
        uid: &Arc<str>,
        old: Option<&CacheProfileStatus>,
        new: &CacheProfileStatus,
        now: Instant,
    ) -> Vec<Notice> {
        let found = changes(old, new);
        if found.is_empty() {
            return Vec::new();
        }
        let sent = self.sent.entry(profile.clone()).or_default();
        sent.retain(|_, at| now.saturating_duration_since(*at) < QUIET);
        let mut notices = Vec::new();
        for Found { cause, target, note } in found {
            let key = (cause, target);
            let room = sent.len() < MAX_CAUSES;
            if sent.contains_key(&key) || !room || !spend(&mut self.recent, &profile.namespace, now)
            {
                continue;
            }
            sent.insert(key, now);
            notices.push(Notice {
                profile: profile.clone(),
                uid: Arc::clone(uid),
                cause,
                note: bounded(note, MAX_MESSAGE),
            });
        }
        notices
    }

    /// Forgets every profile that `exists` denies.
    pub fn retain(&mut self, exists: impl Fn(&ProfileRef) -> bool) {
        self.sent.retain(|profile, _| exists(profile));
    }
}

/// Whether the process may send one more for `namespace`.
fn spend(recent: &mut VecDeque<(Instant, Arc<str>)>, namespace: &Arc<str>, now: Instant) -> bool {
    let window = Duration::from_secs(u64::from(BURST / PER_SECOND));
    while recent.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= window) {
        recent.pop_front();
    }
    let own = recent.iter().filter(|(_, of)| of == namespace).count();
    let may = recent.len() < BURST as usize && own < NAMESPACE_BURST;
    if may {
        recent.push_back((now, Arc::clone(namespace)));
    }
    may
}

#[derive(Debug)]
struct Found {
    cause: Cause,
    /// Empty for the profile as a whole.
    target: String,
    note: String,
}

fn changes(old: Option<&CacheProfileStatus>, new: &CacheProfileStatus) -> Vec<Found> {
    let mut found = Vec::new();
    let old_conditions = old.map_or(&[][..], |old| &old.conditions);
    let mut tell = |cause, target: &str, note: &str| {
        found.push(Found { cause, target: target.to_owned(), note: note.to_owned() });
    };
    if let Some((was, is)) = step(old_conditions, &new.conditions, "Ready") {
        match is.status.as_str() {
            "True" if was.status != "True" => tell(Cause::Ready, "", &is.message),
            "False" if was.status == "True" => tell(Cause::NotReady, "", &is.message),
            _ => {}
        }
    }
    if let Some((was, is)) = step(old_conditions, &new.conditions, "Stalled")
        && is.status == "True"
        && (was.status != "True" || was.reason != is.reason)
    {
        tell(Cause::Refused, "", &is.message);
    }
    for target in &new.targets {
        let old = old.and_then(|old| old.targets.iter().find(|old| old.name == target.name));
        let old_conditions = old.map_or(&[][..], |old| &old.conditions);
        if let Some((was, is)) = step(old_conditions, &target.conditions, "Warm") {
            let became = |reason| is.reason == reason && was.reason != reason;
            if became("Forbidden") {
                tell(Cause::PermissionsMissing, &target.name, &is.message);
            } else if was.reason == "Forbidden" && is.status == "True" {
                tell(Cause::PermissionsGranted, &target.name, &is.message);
            } else if became("NamespaceNotFound") {
                tell(Cause::NamespaceNotFound, &target.name, &is.message);
            }
        }
        if let Some((was, is)) = step(old_conditions, &target.conditions, "Accepted") {
            let unknown = |condition: &Condition| condition.reason == "UnknownResource";
            if unknown(is) && !unknown(&was) {
                tell(Cause::KindUnknown, &target.name, &is.message);
            } else if unknown(&was) && is.status == "True" {
                tell(Cause::KindServed, &target.name, &is.message);
            }
        }
        if let (Some(old), Some(at)) = (old, rolled_back(target))
            && rolled_back(old) != Some(at)
        {
            let note = format!(
                "target {:?}: resource versions went back, as after a restore of etcd; \
                 what was held was dropped and listed anew",
                target.name
            );
            tell(Cause::RolledBack, &target.name, &note);
        }
    }
    found
}

/// The condition before and now. One that was not there was unknown.
fn step<'a>(
    old: &[Condition],
    new: &'a [Condition],
    type_: &str,
) -> Option<(Condition, &'a Condition)> {
    let is = new.iter().find(|condition| condition.type_ == type_)?;
    let was = old.iter().find(|condition| condition.type_ == type_).cloned();
    let unknown = || Condition {
        status: "Unknown".to_owned(),
        reason: String::new(),
        message: String::new(),
        ..is.clone()
    };
    Some((was.unwrap_or_else(unknown), is))
}

fn rolled_back(target: &TargetStatus) -> Option<jiff::Timestamp> {
    let relist = target.last_relist.as_ref()?;
    (relist.reason == ROLLBACK).then_some(relist.time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RelistStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn condition(type_: &str, status: &str, reason: &str) -> Condition {
        Condition {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: format!("{type_} is {status}"),
            observed_generation: None,
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        }
    }

    fn ready(status: &str) -> CacheProfileStatus {
        let conditions = vec![condition("Ready", status, "Reason")];
        CacheProfileStatus { conditions, ..CacheProfileStatus::default() }
    }

    fn target(type_: &str, status: &str, reason: &str) -> CacheProfileStatus {
        let target = TargetStatus {
            name: "pods".into(),
            conditions: vec![condition(type_, status, reason)],
            ..TargetStatus::default()
        };
        CacheProfileStatus { targets: vec![target], ..CacheProfileStatus::default() }
    }

    fn causes(old: Option<&CacheProfileStatus>, new: &CacheProfileStatus) -> Vec<Cause> {
        changes(old, new).into_iter().map(|found| found.cause).collect()
    }

    fn profile(name: &str) -> ProfileRef {
        ProfileRef { namespace: "shop".into(), name: name.into() }
    }

    #[test]
    fn changes_that_a_person_cares_about_have_a_cause() {
        let table = [
            (None, ready("True"), vec![Cause::Ready]),
            (None, ready("False"), vec![]),
            (None, ready("Unknown"), vec![]),
            (Some(ready("True")), ready("True"), vec![]),
            (Some(ready("True")), ready("False"), vec![Cause::NotReady]),
            (Some(ready("Unknown")), ready("False"), vec![]),
            (
                Some(target("Warm", "True", "Synced")),
                target("Warm", "False", "Forbidden"),
                vec![Cause::PermissionsMissing],
            ),
            (
                Some(target("Warm", "False", "Forbidden")),
                target("Warm", "False", "Syncing"),
                vec![],
            ),
            (
                Some(target("Warm", "False", "Forbidden")),
                target("Warm", "True", "Synced"),
                vec![Cause::PermissionsGranted],
            ),
            (
                Some(target("Warm", "True", "Synced")),
                target("Warm", "False", "NamespaceNotFound"),
                vec![Cause::NamespaceNotFound],
            ),
            (
                Some(target("Accepted", "True", "Resolved")),
                target("Accepted", "False", "UnknownResource"),
                vec![Cause::KindUnknown],
            ),
            (
                Some(target("Accepted", "False", "UnknownResource")),
                target("Accepted", "True", "Resolved"),
                vec![Cause::KindServed],
            ),
        ];
        for (old, new, expected) in table {
            assert_eq!(causes(old.as_ref(), &new), expected, "{old:?} to {new:?}");
        }
    }

    #[test]
    fn a_rollback_is_told_once_for_each_restore() {
        let relist = |second| {
            let mut status = target("Warm", "True", "Synced");
            status.targets[0].last_relist = Some(RelistStatus {
                time: Time(jiff::Timestamp::from_second(second).unwrap()),
                reason: ROLLBACK.into(),
                replaced_objects: 0,
                deleted_in_gap: 0,
            });
            status
        };
        let before = target("Warm", "True", "Synced");
        assert_eq!(causes(Some(&before), &relist(1)), [Cause::RolledBack]);
        assert_eq!(causes(Some(&relist(1)), &relist(1)), []);
        assert_eq!(causes(Some(&relist(1)), &relist(2)), [Cause::RolledBack]);
    }

    #[test]
    fn a_flapping_profile_sends_one_event_per_cause_in_ten_minutes() {
        let mut notices = Notices::default();
        let start = Instant::now();
        let mut sent = Vec::new();
        for second in 0..1_200 {
            let (old, new) = if second % 2 == 0 { ("False", "True") } else { ("True", "False") };
            let now = start + Duration::from_secs(second);
            let uid = "u".into();
            let planned = notices.plan(&profile("a"), &uid, Some(&ready(old)), &ready(new), now);
            sent.extend(planned.into_iter().map(|notice| (second, notice.cause)));
        }
        let expected =
            [(0, Cause::Ready), (1, Cause::NotReady), (600, Cause::Ready), (601, Cause::NotReady)];
        assert_eq!(sent, expected);
    }

    #[test]
    fn a_thousand_profiles_share_one_bucket() {
        let mut notices = Notices::default();
        let start = Instant::now();
        let mut sent = 0;
        for number in 0..1_000 {
            let profile = ProfileRef { namespace: format!("n{number}").into(), name: "web".into() };
            sent += notices.plan(&profile, &"u".into(), None, &ready("True"), start).len();
        }
        assert_eq!(sent, BURST as usize);
        let later = start + Duration::from_secs(10);
        assert_eq!(notices.plan(&profile("z"), &"u".into(), None, &ready("True"), later).len(), 1);
        notices.retain(|_| false);
        assert!(notices.sent.is_empty());
    }

    #[test]
    fn a_namespace_that_keeps_creating_profiles_leaves_events_to_the_others() {
        let mut notices = Notices::default();
        let start = Instant::now();
        let mut sent = 0;
        for number in 0..1_000 {
            let profile = profile(&format!("p{number}"));
            sent += notices.plan(&profile, &"u".into(), None, &ready("True"), start).len();
        }
        assert_eq!(sent, 12, "a quarter of 50");
        let other = ProfileRef { namespace: "bank".into(), name: "web".into() };
        assert_eq!(notices.plan(&other, &"u".into(), None, &ready("True"), start).len(), 1);
    }
}
