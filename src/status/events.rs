//! Which changes of a status deserve an Event: pure; one per cause in 10 minutes.

use super::{
    figures::{INCONSISTENT, ROLLBACK},
    reasons::events,
    sentence::{MAX_MESSAGE, bounded},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewarm_api::{
    model::ProfileRef,
    v1alpha1::{CacheProfileStatus, TargetStatus},
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Between two Events of the same cause for one profile.
const QUIET: Duration = Duration::from_mins(10);
/// Causes remembered for one profile: each target has 8 at most, and the profile 5.
const MAX_CAUSES: usize = 32 * 8 + 5;

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
    /// The API server refuses what it allowed before.
    AccessRevoked,
    /// It allows it again.
    AccessReturned,
    /// A target's kind is not served (any more).
    KindUnknown,
    /// It is served (again).
    KindServed,
    /// A namespace that a target names does not exist.
    NamespaceNotFound,
    /// A target does not fit into a limit, and was stopped.
    LimitExceeded,
    /// It fits (again).
    WithinLimits,
    /// Resource versions went back: an etcd restore. Everything was listed anew.
    RolledBack,
    /// A table was not what the API server has.
    Inconsistent,
}

const WENT_BACK: &str = "resource versions went back, as after a restore of etcd; what was held was dropped \
                         and listed anew";
const WAS_OTHER: &str = "what was held was not what the API server has at that version, as a comparison found; \
                         it was listed anew";

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
            Self::AccessRevoked => "AccessRevoked",
            Self::AccessReturned => "AccessReturned",
            Self::KindUnknown => "KindUnknown",
            Self::KindServed => "KindServed",
            Self::NamespaceNotFound => "NamespaceNotFound",
            Self::LimitExceeded => "LimitExceeded",
            Self::WithinLimits => "WithinLimits",
            Self::RolledBack => "ResourceVersionRolledBack",
            Self::Inconsistent => "CacheInconsistent",
        }
    }

    /// Whether somebody should look.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        match self {
            Self::Ready
            | Self::PermissionsGranted
            | Self::AccessReturned
            | Self::KindServed
            | Self::WithinLimits => false,
            Self::NotReady
            | Self::Refused
            | Self::PermissionsMissing
            | Self::AccessRevoked
            | Self::KindUnknown
            | Self::NamespaceNotFound
            | Self::LimitExceeded
            | Self::RolledBack
            | Self::Inconsistent => true,
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
            if sent.contains_key(&key) || sent.len() >= MAX_CAUSES {
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

    /// Whether nothing is remembered of any profile.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Forgets every profile that `exists` denies.
    pub fn retain(&mut self, exists: impl Fn(&ProfileRef) -> bool) {
        self.sent.retain(|profile, _| exists(profile));
    }
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) cause: Cause,
    /// Empty for the profile as a whole.
    target: String,
    note: String,
}

pub(super) fn changes(old: Option<&CacheProfileStatus>, new: &CacheProfileStatus) -> Vec<Found> {
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
    if let Some((was, is)) = step(old_conditions, &new.conditions, "Authorized")
        && let Some(cause) = turn(&was, is)
    {
        tell(cause, "", &is.message);
    }
    for target in &new.targets {
        let old = old.and_then(|old| old.targets.iter().find(|old| old.name == target.name));
        let old_conditions = old.map_or(&[][..], |old| &old.conditions);
        for type_ in ["Warm", "Accepted", "WithinLimits"] {
            if let Some((was, is)) = step(old_conditions, &target.conditions, type_)
                && let Some(cause) = turn(&was, is)
            {
                tell(cause, &target.name, &is.message);
            }
        }
        for (reason, cause, what) in [
            (ROLLBACK, Cause::RolledBack, WENT_BACK),
            (INCONSISTENT, Cause::Inconsistent, WAS_OTHER),
        ] {
            if let (Some(old), Some(at)) = (old, relisted(target, reason))
                && relisted(old, reason) != Some(at)
            {
                tell(cause, &target.name, &format!("target {:?}: {what}", target.name));
            }
        }
    }
    found
}

/// What the step of a condition from one reason to another is told by.
fn turn(was: &Condition, is: &Condition) -> Option<Cause> {
    let of = |condition: &Condition| events(&condition.type_, &condition.reason);
    match (of(was), of(is)) {
        (was, Some(now)) if was != Some(now) => Some(now.began),
        (Some(was), None) if is.status == "True" => was.ended,
        _ => None,
    }
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

/// When the target was listed anew, if that was the reason.
fn relisted(target: &TargetStatus, reason: &str) -> Option<jiff::Timestamp> {
    let relist = target.last_relist.as_ref()?;
    (relist.reason == reason).then_some(relist.time.0)
}
