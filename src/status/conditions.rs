//! The conditions of a profile, summarized from the conditions of its targets.

use super::{
    condition_update::{ConditionUpdate, rollup},
    managed_fields, permissions,
    reasons::ConditionReason,
    sentence,
    target::{ObservedTarget, is_permission_missing},
};
use kubewarm_api::{
    manifests::is_elevated,
    model::{
        AccountPolicyEnforcement, ProfileMode, RefusalReason, ResolvedProfile, ResolvedTarget,
    },
    v1alpha1::{AccessStatus, CONDITION_TYPES},
};
use std::{fmt::Write as _, time::Duration};

/// Computes the profile's conditions, in the order of [`CONDITION_TYPES`]. `rbac` is the command
/// that prints the RBAC manifests of the profile.
pub(super) fn conditions(
    profile: &ResolvedProfile,
    targets: &[ObservedTarget<'_>],
    access: Option<&AccessStatus>,
    costs: Option<String>,
    time_to_warm: Option<Duration>,
    since_accepted: Duration,
    rbac: &str,
) -> impl Iterator<Item = (&'static str, ConditionUpdate)> {
    let accepted = accepted(profile, targets, access, rbac);
    let authorized = authorized(targets);
    let warm = warm(targets);
    let healthy =
        met(ConditionReason::WatchesCurrent, required_targets(targets, "known to be current"));
    let fresh =
        summarize(targets, "Fresh", |target| &target.fresh, healthy, ConditionReason::NotWarm);
    let healthy = met(ConditionReason::BelowLimits, required_targets(targets, "within the limits"));
    let within_limits = match &profile.refused {
        Some(refusal) if refusal.reason == RefusalReason::LimitExceeded => accepted.clone(),
        Some(_) | None => summarize(
            targets,
            "WithinLimits",
            |target| &target.within_limits,
            healthy,
            ConditionReason::Measuring,
        ),
    };
    let deadline_met = match (profile.mode, profile.warmup_deadline) {
        (ProfileMode::Plan, Some(_)) => {
            ConditionUpdate::new(None, ConditionReason::Warming, "planned only: no informer runs")
        }
        (ProfileMode::Plan | ProfileMode::Active | ProfileMode::Paused, set) => {
            deadline_met(set, time_to_warm, since_accepted)
        }
    };
    let ready = ready(profile, targets, costs, [&accepted, &warm, &fresh, &within_limits]);
    let stalled = stalled(profile, targets, &accepted);
    let verdicts = [ready, accepted, authorized, warm, fresh, within_limits, deadline_met, stalled];
    CONDITION_TYPES.into_iter().zip(verdicts)
}

/// Computes one condition of the profile from the same condition of its targets.
///
/// `verdict` returns the condition of one target. If the condition is true for all required
/// targets, the result is `healthy`. Optional targets change only the message, which lists their
/// problems. For a profile without targets the status is `Unknown`, with the reason `unknown`.
fn summarize(
    targets: &[ObservedTarget<'_>],
    condition: &str,
    verdict: for<'t> fn(&'t ObservedTarget<'_>) -> &'t ConditionUpdate,
    healthy: ConditionUpdate,
    unknown: ConditionReason,
) -> ConditionUpdate {
    if targets.is_empty() {
        return ConditionUpdate::new(None, unknown, "nothing runs; see Accepted");
    }
    let (required, optional): (Vec<_>, Vec<_>) =
        targets.iter().partition(|target| target.is_required());
    let required = required.into_iter().map(|target| verdict(target).clone());
    rollup(condition, required, Vec::new(), "targets").unwrap_or_else(|| {
        let troubled =
            optional.into_iter().map(verdict).filter(|verdict| verdict.status != Some(true));
        let mut parts: Vec<_> =
            troubled.map(|verdict| format!("Optional: {}", verdict.message)).collect();
        parts.insert(0, healthy.message);
        met(healthy.reason, sentence::join_first(&parts, "optional targets"))
    })
}

fn met(reason: ConditionReason, message: String) -> ConditionUpdate {
    ConditionUpdate::new(Some(true), reason, message)
}

/// Returns a message such as `all 3 required targets synced`, in which `state` is `synced`.
fn required_targets(targets: &[ObservedTarget<'_>], state: &str) -> String {
    match targets.iter().filter(|target| target.is_required()).count() {
        0 => "no target is required".to_owned(),
        1 => format!("the required target {state}"),
        count => format!("all {count} required targets {state}"),
    }
}

/// Whether `access` lacks the RBAC manifests that grant an informer its permissions, because they
/// exceed the maximum size of a status.
fn has_no_manifests(profile: &ResolvedProfile, access: &AccessStatus) -> bool {
    let mut informers = profile.targets.iter().flat_map(ResolvedTarget::all_informers);
    informers.any(|informer| {
        let manifests =
            if is_elevated(&informer.key) { &access.manifests_elevated } else { &access.manifests };
        manifests.is_none()
    })
}

fn accepted(
    profile: &ResolvedProfile,
    targets: &[ObservedTarget<'_>],
    access: Option<&AccessStatus>,
    rbac: &str,
) -> ConditionUpdate {
    if let Some(refusal) = &profile.refused {
        let runs = match targets {
            [] => "nothing is watched or served until that is corrected",
            _ => "the last valid generation keeps serving",
        };
        let text = format!("{}; {runs}", refusal.message);
        return ConditionUpdate::new(Some(false), refusal.reason.into(), text);
    }
    let mut healthy = required_targets(targets, "resolved");
    if access.is_some_and(|access| has_no_manifests(profile, access)) {
        let _infallible = write!(
            healthy,
            "; its permissions are too many for status.access, print them with `{rbac}`"
        );
    }
    healthy.push_str(&managed_fields::profile_remark(targets));
    if let Some(account) = &profile.service_account {
        healthy.push_str(&policy_remark(account, profile.authors));
    }
    summarize(
        targets,
        "Accepted",
        |target| &target.accepted,
        met(ConditionReason::Resolved, healthy),
        ConditionReason::Discovering,
    )
}

fn authorized(targets: &[ObservedTarget<'_>]) -> ConditionUpdate {
    let mut parts = vec![required_targets(targets, "can be listed and watched")];
    for target in targets.iter().filter(|target| target.is_required()) {
        parts.extend(permissions::remarks(&target.all_informers().collect::<Vec<_>>()));
    }
    let healthy = met(ConditionReason::Verified, sentence::join_first(&parts, "remarks"));
    summarize(
        targets,
        "Authorized",
        |target| &target.authorized,
        healthy,
        ConditionReason::Verifying,
    )
}

/// Returns an empty text if an admission policy checks that the profile's author may act as the
/// ServiceAccount `account`. Otherwise returns a warning for the message of the condition
/// `Accepted`, because any author could then read with this ServiceAccount's permissions.
fn policy_remark(account: &str, authors: AccountPolicyEnforcement) -> String {
    match authors {
        AccountPolicyEnforcement::Enforced => String::new(),
        AccountPolicyEnforcement::Missing => format!(
            "; no policy checks whether its authors may act as ServiceAccount {account:?}: apply \
             the ValidatingAdmissionPolicy kubewarm-accounts (deploy/account-policy.yaml)"
        ),
        AccountPolicyEnforcement::Unknown => {
            "; kubewarm cannot read the ValidatingAdmissionPolicy kubewarm-accounts, which checks \
             its authors: kubewarm needs get on the policy and its binding"
                .to_owned()
        }
    }
}

fn warm(targets: &[ObservedTarget<'_>]) -> ConditionUpdate {
    // A target whose selector matches no namespace is warm. The user can have mistyped the
    // selector, so the message reports that no namespace matches.
    let empty = targets.iter().filter(|target| {
        target.is_warm() && target.informers.is_empty() && target.selector.is_some()
    });
    let mut parts: Vec<_> = empty.map(|target| target.warm.message.clone()).collect();
    parts.insert(0, required_targets(targets, "synced"));
    let healthy = sentence::join_first(&parts, "targets without namespaces");
    summarize(
        targets,
        "Warm",
        |target| &target.warm,
        met(ConditionReason::Synced, healthy),
        ConditionReason::Pending,
    )
}

fn ready(
    profile: &ResolvedProfile,
    targets: &[ObservedTarget<'_>],
    costs: Option<String>,
    [accepted, warm, fresh, within_limits]: [&ConditionUpdate; 4],
) -> ConditionUpdate {
    let not = |reason, text: String| ConditionUpdate::new(Some(false), reason, text);
    // The condition's status is `Unknown` instead of `False`, because the mode that the profile's
    // author chose is not a failure.
    let wanted = |reason, text: String| ConditionUpdate::new(None, reason, text);
    // A refusal of a target with one of these reasons can end without an edit of the profile, so
    // the profile is not invalid.
    let passing = [
        ConditionReason::UnknownResource,
        ConditionReason::ServiceAccountNotFound,
        ConditionReason::LimitExceeded,
    ];
    if accepted.status == Some(false) && !passing.contains(&accepted.reason) {
        return not(ConditionReason::InvalidSpec, accepted.message.clone());
    }
    if profile.mode == ProfileMode::Plan {
        let text =
            costs.unwrap_or_else(|| "planned only: kubewarm is estimating the cost".to_owned());
        return wanted(ConditionReason::Plan, text);
    }
    if profile.mode == ProfileMode::Paused {
        let text = "paused: stored data is served, no watch is open; set spec.mode to Active";
        return wanted(ConditionReason::Paused, text.to_owned());
    }
    let lacking: Vec<_> = targets
        .iter()
        .filter(|target| target.is_required())
        .filter_map(|target| {
            let is_cold = !target.is_warm() && is_permission_missing(target);
            match target.authorized.status {
                Some(false) => Some(target.authorized.message.clone()),
                Some(true) | None => is_cold.then(|| target.warm.message.clone()),
            }
        })
        .collect();
    if !lacking.is_empty() {
        return not(ConditionReason::PermissionsMissing, sentence::join_first(&lacking, "targets"));
    }
    if within_limits.status == Some(false) {
        return not(ConditionReason::LimitExceeded, within_limits.message.clone());
    }
    // An unknown kind, for instance a misspelled kind, becomes the reason of `Ready` instead of
    // `TargetsNotWarm`, because `kubectl get` shows this reason.
    if accepted.status == Some(false) && accepted.reason == ConditionReason::UnknownResource {
        return not(accepted.reason, accepted.message.clone());
    }
    match (warm.status, fresh.status) {
        (Some(false), _) => not(ConditionReason::TargetsNotWarm, warm.message.clone()),
        (None, _) => ConditionUpdate::new(None, ConditionReason::Pending, warm.message.clone()),
        (Some(true), Some(false)) => not(ConditionReason::Stale, fresh.message.clone()),
        (Some(true), None) => {
            ConditionUpdate::new(None, ConditionReason::Pending, fresh.message.clone())
        }
        (Some(true), Some(true)) => ConditionUpdate::new(
            Some(true),
            ConditionReason::Ready,
            required_targets(targets, "warm and fresh"),
        ),
    }
}

fn deadline_met(
    deadline: Option<Duration>,
    time_to_warm: Option<Duration>,
    since_accepted: Duration,
) -> ConditionUpdate {
    let Some(deadline) = deadline else {
        return ConditionUpdate::new(
            None,
            ConditionReason::NoDeadline,
            "spec.warmup.deadlineSeconds is not set",
        );
    };
    let seconds = deadline.as_secs();
    match time_to_warm {
        Some(took) if took <= deadline => {
            let text = format!("warm after {:.1} s, deadline {seconds} s", took.as_secs_f64());
            ConditionUpdate::new(Some(true), ConditionReason::DeadlineMet, text)
        }
        Some(took) => {
            let text = format!(
                "warm after {:.1} s, deadline {seconds} s; see targets[].timeToWarmMilliseconds for \
                 the slowest",
                took.as_secs_f64()
            );
            ConditionUpdate::new(Some(false), ConditionReason::DeadlineMissed, text)
        }
        None if since_accepted > deadline => ConditionUpdate::new(
            Some(false),
            ConditionReason::DeadlineMissed,
            format!("not warm after {seconds} s; see Warm for what is missing"),
        ),
        None => {
            ConditionUpdate::new(None, ConditionReason::Warming, format!("deadline {seconds} s"))
        }
    }
}

fn stalled(
    profile: &ResolvedProfile,
    targets: &[ObservedTarget<'_>],
    accepted: &ConditionUpdate,
) -> ConditionUpdate {
    let of_targets = targets
        .iter()
        .filter(|target| target.is_required())
        .filter_map(|target| target.declared.resolved.as_ref()?.as_ref().err());
    let is_author_error =
        profile.refused.iter().chain(of_targets).find(|refusal| refusal.reason.is_author_error());
    match (is_author_error, accepted.status) {
        (Some(refusal), _) => {
            let text = format!("only an edit of the profile helps: {}", accepted.message);
            ConditionUpdate::new(Some(true), refusal.reason.into(), text)
        }
        (None, None) => {
            ConditionUpdate::new(None, ConditionReason::Discovering, accepted.message.clone())
        }
        (None, Some(_)) => ConditionUpdate::new(
            Some(false),
            ConditionReason::NotStalled,
            "nothing that only the author can change",
        ),
    }
}
