//! Computes the condition `WithinLimits`: which limit a target exceeds, and which limit would be
//! enough.

use super::{
    condition_update::ConditionUpdate,
    informer::{ClockReading, ObservedInformer},
    messages::MessageContext,
    reasons::ConditionReason,
};
use jiff::{SignedDuration, Timestamp};
use kubewarm_api::model::{
    LimitKind, LimitOverrun, LimitScope, LimitedTarget, ProfileLimits, ResolvedTarget,
};

pub(super) fn within_limits(
    declared: &ResolvedTarget,
    limits: ProfileLimits,
    warm: &ConditionUpdate,
    informers: &[&ObservedInformer<'_>],
    clock: ClockReading,
    context: MessageContext<'_>,
) -> ConditionUpdate {
    if let Some(limited) = &declared.limited {
        let reason = limited.overrun.measure.into();
        return context.verdict(Some(false), reason, &exceeded(limited, clock));
    }
    // Whether an informer lost access after its first list was complete. kubewarm then does not
    // know whether the objects still fit, until a new list is complete.
    let is_lost = || {
        let mut reports = informers.iter().filter_map(|informer| informer.report());
        reports.any(|report| report.lost_at.is_some() && report.synced_at.is_some())
    };
    let (status, text) = match (limits.has_any(), warm.status) {
        (false, Some(true)) => {
            (Some(true), "spec.limits is not set; all of it fits into the operator's memory")
        }
        (false, Some(false) | None) => {
            (Some(true), "spec.limits is not set; no limit of the operator has stopped it so far")
        }
        (true, Some(true)) => (Some(true), "fits into spec.limits"),
        (true, Some(false)) if is_lost() => {
            (None, "access was lost; measured again after it returns and the next list is complete")
        }
        (true, Some(false) | None) => (None, "not listed completely yet"),
    };
    let reason =
        if status.is_some() { ConditionReason::BelowLimits } else { ConditionReason::Measuring };
    context.verdict(status, reason, text)
}

/// Describes the exceeded limit, a limit that would be enough, and the time at which the controller
/// restarts the target.
pub(super) fn exceeded(limited: &LimitedTarget, clock: ClockReading) -> String {
    let overrun = &limited.overrun;
    let again = match retry(limited, clock) {
        Some(time) => format!("tried again at {time}, and at every edit"),
        None => "being tried again".to_owned(),
    };
    let reached = overrun.measure.amount(overrun.reached);
    format!("stopped at {reached}: {}; {}; {again}", allowed(overrun), enough(overrun))
}

/// Returns the time at which the controller retries the target; `None` while a retry is in
/// progress.
pub(super) fn retry(limited: &LimitedTarget, clock: ClockReading) -> Option<Timestamp> {
    let left = (clock.process_start + limited.retry_at?).saturating_duration_since(clock.mono);
    let left = SignedDuration::try_from(left).ok()?;
    Timestamp::from_second(clock.wall.checked_add(left).ok()?.as_second()).ok()
}

fn field(measure: LimitKind) -> &'static str {
    match measure {
        LimitKind::Objects => "spec.limits.maxObjects",
        LimitKind::Memory => "spec.limits.maxMemory",
    }
}

fn allowed(overrun: &LimitOverrun) -> String {
    let LimitOverrun { bound, measure, limit, others, .. } = *overrun;
    let (limit, others) = (measure.amount(limit), measure.amount(others));
    match bound {
        LimitScope::Profile => format!(
            "{} allows the whole profile {limit}, and its other targets use {others}",
            field(measure)
        ),
        LimitScope::Namespace => format!(
            "the limit of all profiles in the namespace is {limit} (--namespace-quota of the memory \
             for stores), and its other targets, informers and statuses use {others}"
        ),
        // The process's memory includes the usage of other tenants, which a tenant must not see. So
        // the message contains no numbers.
        LimitScope::Process => "the operator is at its memory limit".to_owned(),
    }
}

fn enough(overrun: &LimitOverrun) -> String {
    let LimitOverrun { bound, measure, reached, others, expected, objects, .. } = *overrun;
    let next = match bound {
        LimitScope::Profile => {
            format!("raise {}, select fewer objects, or hold metadata only", field(measure))
        }
        LimitScope::Namespace | LimitScope::Process => {
            "select fewer objects, hold metadata only, or have the operator's administrator raise the limit"
                .to_owned()
        }
    };
    if bound == LimitScope::Process {
        return next;
    }
    // The target's objects or bytes after its lists are complete, or `None` if the API server does
    // not report the number of objects in the lists.
    let whole = expected.map(|expected| expected.max(objects)).map(|expected| match measure {
        LimitKind::Objects => expected,
        // All objects are listed, so no extrapolation is needed. An extrapolation would also
        // multiply the selector's Namespace objects, which `reached` includes.
        LimitKind::Memory if expected == objects => reached,
        LimitKind::Memory => {
            let each = u128::from(reached) / u128::from(objects.max(1));
            u64::try_from(each.saturating_mul(expected.into())).unwrap_or(u64::MAX)
        }
    });
    let needed = match whole {
        Some(whole) => format!("{} would be enough", measure.amount(whole.saturating_add(others))),
        None => {
            format!("more than {} would be needed", measure.amount(reached.saturating_add(others)))
        }
    };
    format!("{needed}: {next}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::fixtures::StatusWorld;
    use std::time::Duration;

    fn overrun(bound: LimitScope, measure: LimitKind) -> LimitOverrun {
        LimitOverrun {
            bound,
            measure,
            limit: 10_000,
            reached: 10_013,
            others: 500,
            objects: 10_013,
            expected: None,
        }
    }

    fn exceeded_text(overrun: LimitOverrun, retry_at: Option<Duration>) -> String {
        let limited = LimitedTarget { overrun, retry_at };
        exceeded(&limited, StatusWorld::new().clock)
    }

    #[test]
    fn the_message_names_a_sufficient_limit_and_the_retry_time() {
        let overrun = overrun(LimitScope::Profile, LimitKind::Objects);
        let unknown = exceeded_text(overrun, Some(Duration::from_mins(10)));
        let expected = "stopped at 10013 objects: spec.limits.maxObjects allows the whole profile \
                        10000 objects, and its other targets use 500 objects; more than 10513 objects \
                        would be needed: raise spec.limits.maxObjects, select fewer objects, or \
                        hold metadata only; tried again at 1970-01-12T13:55:00Z, and at every edit";
        assert_eq!(unknown, expected);
        let known = exceeded_text(LimitOverrun { expected: Some(50_000), ..overrun }, None);
        assert!(known.contains("; 50500 objects would be enough: "), "{known}");
        assert!(known.ends_with("; being tried again"), "{known}");
        let complete = exceeded_text(LimitOverrun { expected: Some(10_013), ..overrun }, None);
        assert!(complete.contains("; 10513 objects would be enough: "), "{complete}");
    }

    #[test]
    fn the_needed_memory_is_extrapolated_from_the_first_objects() {
        let overrun = LimitOverrun {
            limit: 4 << 20,
            reached: 5 << 20,
            others: 1 << 20,
            objects: 1_000,
            expected: Some(4_000),
            ..overrun(LimitScope::Namespace, LimitKind::Memory)
        };
        let text = exceeded_text(overrun, None);
        assert!(text.contains("the limit of all profiles in the namespace is 4Mi "), "{text}");
        assert!(text.contains("; 21Mi would be enough: "), "{text}");
    }

    #[test]
    fn the_message_does_not_reveal_the_operators_memory_numbers() {
        let overrun = LimitOverrun {
            limit: 4 << 20,
            reached: 5 << 20,
            others: 1 << 20,
            expected: Some(4_000),
            ..overrun(LimitScope::Process, LimitKind::Memory)
        };
        assert_eq!(
            exceeded_text(overrun, None),
            "stopped at 5Mi: the operator is at its memory limit; select fewer objects, hold \
             metadata only, or have the operator's administrator raise the limit; being tried again"
        );
    }
}
