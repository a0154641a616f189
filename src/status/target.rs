//! Computes the conditions of one target from its informers.

use super::{
    ObservedProfile,
    condition_update::{ConditionUpdate, rollup},
    informer::{
        ClockReading, InformerState, InformerView, ObservedInformer, StalenessReason, group_by,
    },
    managed_fields,
    messages::{MessageContext, kinds, places, progress},
    permissions, quantities,
    reasons::{ConditionReason, fault_effect},
    sentence,
    within_limits::within_limits,
};
use jiff::Timestamp;
use kubewarm_api::model::{
    FieldPath, InformerKey, ProfileMode, RefusalReason, ResolvedProfile, ResolvedTarget,
    ResourceInfo, TargetRequirement,
};
use kubewarm_cache::store::INDEXES_PER_STORE;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct ObservedTarget<'a> {
    pub(super) declared: &'a ResolvedTarget,
    pub(super) informers: Vec<ObservedInformer<'a>>,
    /// The informer that watches Namespaces for the target's selector.
    pub(super) selector: Option<ObservedInformer<'a>>,
    pub(super) accepted: ConditionUpdate,
    pub(super) authorized: ConditionUpdate,
    pub(super) warm: ConditionUpdate,
    pub(super) fresh: ConditionUpdate,
    pub(super) within_limits: ConditionUpdate,
}

impl<'a> ObservedTarget<'a> {
    pub(super) fn new(
        declared: &'a ResolvedTarget,
        observed: &ObservedProfile,
        clock: ClockReading,
        lookup: &dyn Fn(&InformerKey) -> InformerView,
    ) -> Self {
        let ObservedProfile { resolved: profile, access, .. } = observed;
        let informer =
            |key: &'a InformerKey| ObservedInformer::new(key, lookup(key), profile, clock);
        // If a limit stopped the target, its status must not show the reports of its informers,
        // even if these informers run for another profile.
        let is_stopped = declared.is_stopped();
        let observe = |key| {
            if is_stopped { ObservedInformer::new_stopped(key, lookup(key)) } else { informer(key) }
        };
        let informers: Vec<_> =
            declared.informers.iter().map(|informer| observe(&informer.key)).collect();
        let selector = declared.namespaces.as_ref().map(|informer| observe(&informer.key));
        let context = MessageContext {
            profile: &profile.profile,
            target: &declared.name,
            access: access.as_deref(),
            operator_namespace: &observed.operator_namespace,
        };
        let accepted = accepted(declared, profile, &informers, context);
        let warm = warm(declared, &informers, selector.as_ref(), profile.mode, context);
        let fresh = fresh(&warm, &informers, selector.as_ref(), context);
        let all: Vec<_> = selector.iter().chain(&informers).collect();
        let is_resolved = matches!(declared.resolved, Some(Ok(_)));
        let authorized = permissions::authorized(&all, is_resolved, context);
        let within_limits = within_limits(declared, profile.limits, &warm, &all, clock, context);
        Self { declared, informers, selector, accepted, authorized, warm, fresh, within_limits }
    }

    pub(super) fn is_required(&self) -> bool {
        self.declared.requirement == TargetRequirement::Required
    }

    pub(super) fn is_warm(&self) -> bool {
        self.warm.status == Some(true)
    }

    pub(super) fn resolved(&self) -> Option<&'a ResourceInfo> {
        self.declared.resolved.as_ref().and_then(|resolved| resolved.as_ref().ok())
    }

    /// Returns all informers that the target's conditions depend on, including the informer that
    /// watches Namespaces for its selector.
    pub(super) fn all_informers(&self) -> impl Iterator<Item = &ObservedInformer<'a>> {
        self.selector.iter().chain(&self.informers)
    }

    /// Returns the last time at which kubewarm had confirmed all stores of a stale target as
    /// current. Returns `None` if the target is not stale. The time does not change while the same
    /// informers are stale.
    pub(super) fn last_confirmed(&self) -> Option<Timestamp> {
        if self.fresh.status != Some(false) {
            return None;
        }
        let reports = self.all_informers().filter_map(ObservedInformer::report);
        let warmed = reports.filter(|report| report.warmed.is_some());
        warmed.filter_map(|report| report.current_time).min()
    }

    /// Returns the time from the profile's acceptance to the end of the last first list, or `None`
    /// while the target is not warm. `accepted_at` is the time of acceptance, counted from the
    /// start of the process. An informer that was already warm for another profile counts as 0.
    pub(super) fn time_to_warm(
        &self,
        accepted_at: Duration,
        clock: ClockReading,
    ) -> Option<Duration> {
        if !self.is_warm() {
            return None;
        }
        let ago = clock.mono.saturating_duration_since(clock.process_start + accepted_at);
        let accepted = clock.wall - jiff::SignedDuration::try_from(ago).unwrap_or_default();
        let took = |informer: &ObservedInformer<'_>| {
            let warmed = informer.report()?.warmed?;
            let after = warmed.started.duration_since(accepted);
            let took = jiff::SignedDuration::try_from(warmed.took).ok()?;
            Duration::try_from(after.saturating_add(took)).ok()
        };
        Some(self.all_informers().filter_map(took).max().unwrap_or_default())
    }
}

fn accepted(
    declared: &ResolvedTarget,
    profile: &ResolvedProfile,
    informers: &[ObservedInformer<'_>],
    context: MessageContext<'_>,
) -> ConditionUpdate {
    let ResolvedTarget { declared_as, left_out, .. } = declared;
    match &declared.resolved {
        None => {
            let text = format!("waiting for discovery of {declared_as}");
            context.verdict(None, ConditionReason::Discovering, &text)
        }
        Some(Ok(ResourceInfo { resource, .. })) => {
            let dropped = managed_fields::target_remark(declared, profile, informers);
            let text = format!("{declared_as} is {resource}{dropped}{}", not_indexed(left_out));
            context.verdict(Some(true), ConditionReason::Resolved, &text)
        }
        // The refusal's message already names the target, so it does not get the prefix `target
        // "…":`.
        Some(Err(refusal)) => {
            ConditionUpdate::new(Some(false), refusal.reason.into(), refusal.message.as_str())
        }
    }
}

/// Describes the field indexes in `paths`, which the target's stores omit because they already have
/// the maximum number of indexes.
fn not_indexed(paths: &[FieldPath]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    format!(
        "; not indexed, because the store has at most {INDEXES_PER_STORE} indexes, and other \
         profiles have precedence: {}",
        sentence::listed(paths, ToString::to_string)
    )
}

fn warm(
    declared: &ResolvedTarget,
    informers: &[ObservedInformer<'_>],
    selector: Option<&ObservedInformer<'_>>,
    mode: ProfileMode,
    context: MessageContext<'_>,
) -> ConditionUpdate {
    match &declared.resolved {
        None => return context.verdict(None, ConditionReason::Pending, "waiting for discovery"),
        Some(Err(refusal)) if refusal.reason == RefusalReason::UnknownResource => {
            return ConditionUpdate::new(
                Some(false),
                ConditionReason::ResourceNotFound,
                refusal.message.as_str(),
            );
        }
        Some(Err(refusal)) => {
            return ConditionUpdate::new(None, ConditionReason::Pending, refusal.message.as_str());
        }
        Some(Ok(_)) => {}
    }
    if mode == ProfileMode::Plan {
        let text = "planned only; set spec.mode to Active to warm it";
        return context.verdict(Some(false), ConditionReason::Plan, text);
    }
    if declared.limited.is_some()
        && !informers.iter().chain(selector).all(ObservedInformer::is_warm)
    {
        let text = "stopped by a limit; see WithinLimits for what would be enough";
        return context.verdict(None, ConditionReason::Pending, text);
    }
    // Until the informer of the selector is warm, the namespaces and therefore the other informers
    // are unknown. Only the selector's informer then counts.
    let informers =
        selector.filter(|informer| !informer.is_warm()).map_or(informers, std::slice::from_ref);
    let lacking: Vec<_> = informers.iter().filter(|informer| !informer.is_warm()).collect();
    if lacking.is_empty() {
        let text = match (informers.len(), selector) {
            (0, Some(_)) => "the selector matches no namespace; nothing to warm".to_owned(),
            (1, _) => format!("1 informer of {} synced", declared.declared_as),
            (informers, _) => format!("{informers} informers of {} synced", declared.declared_as),
        };
        return context.verdict(Some(true), ConditionReason::Synced, &text);
    }
    let groups =
        group_by(lacking, |informer| Some((informer.fault()?.reason, informer.fault()?.verb)));
    let verdicts = groups.iter().filter_map(|((reason, _), informers)| {
        let text = context.fault(informers)?;
        Some(ConditionUpdate::new(Some(false), fault_effect(*reason).warm, text))
    });
    let verdict = rollup("Warm", verdicts, Vec::new(), "problems");
    if mode == ProfileMode::Paused
        && verdict.as_ref().is_none_or(|verdict| verdict.reason == ConditionReason::Syncing)
    {
        let text = "paused before its first sync; set spec.mode to Active to warm it";
        return context.verdict(Some(false), ConditionReason::Paused, text);
    }
    match verdict {
        Some(verdict) => context.verdict(verdict.status, verdict.reason, &verdict.message),
        None => context.verdict(Some(false), ConditionReason::Syncing, &progress(informers)),
    }
}

fn fresh(
    warm: &ConditionUpdate,
    informers: &[ObservedInformer<'_>],
    selector: Option<&ObservedInformer<'_>>,
    context: MessageContext<'_>,
) -> ConditionUpdate {
    if warm.status != Some(true) {
        return context.verdict(None, ConditionReason::NotWarm, "not warm yet");
    }
    let groups = group_by(selector.into_iter().chain(informers), |informer| informer.staleness);
    let verdicts = groups.iter().map(|(staleness, informers)| {
        ConditionUpdate::new(Some(false), staleness.reason(), stale(*staleness, informers, context))
    });
    match rollup("Fresh", verdicts, Vec::new(), "problems") {
        Some(verdict) => context.verdict(verdict.status, verdict.reason, &verdict.message),
        None => context.verdict(
            Some(true),
            ConditionReason::WatchesCurrent,
            "every watch is known to be current",
        ),
    }
}

pub(super) fn stale(
    staleness: StalenessReason,
    informers: &[&ObservedInformer<'_>],
    context: MessageContext<'_>,
) -> String {
    let what = format!("{} {}", kinds(informers), places(informers));
    if let Some(fault) = context.fault(informers) {
        return format!("{fault}; the old data is served");
    }
    match staleness {
        StalenessReason::Blocked => format!(
            "access to {what} was lost; the old data is served, because reads.onAccessLost is \
             ServeStale"
        ),
        StalenessReason::Paused => {
            format!("paused, no watch of {what} is open; set spec.mode to Active to open it")
        }
        StalenessReason::Silent => format!(
            "{what} could not be confirmed to be current within freshness.maxStalenessSeconds; the watch \
             is being probed, and opened again if it is dead"
        ),
        StalenessReason::Relisting => {
            format!("listing {what} again; the old data is served meanwhile")
        }
        StalenessReason::Unreachable | StalenessReason::Reconnecting => {
            format!("the watch of {what} ended and is being opened again")
        }
    }
}

/// Returns `resolved.namespaceCount` of the target's status, or `None` if the target's scope
/// neither names nor selects namespaces.
pub(super) fn namespaces(target: &ObservedTarget<'_>) -> Option<i32> {
    let named =
        target.informers.iter().filter(|informer| informer.key.scope.namespace().is_some()).count();
    let by_name = named > 0 || (target.informers.is_empty() && target.selector.is_some());
    by_name.then(|| quantities::small(named))
}

pub(super) fn is_permission_missing(target: &ObservedTarget<'_>) -> bool {
    target.all_informers().any(|informer| informer.state == InformerState::Forbidden)
}
