//! Checks that each profile is ready, and finds the next step if it is not.

use super::super::{
    advice::{address, grant},
    profile_readiness::{
        PERMISSIONS_MISSING, condition, name, no_status, sentence, unhealthy, verdict,
    },
    report::{CommandExitCode, ReportRow},
};
use jiff::Timestamp;
use kubewarm_api::{model::is_dns_label, v1alpha1::CacheProfile};

/// Returns a row for each profile. `operator` is the flag `--operator-namespace` for printed commands, or empty.
pub(super) fn of_profiles(
    profiles: &[CacheProfile],
    program: &str,
    operator: &str,
    now: Timestamp,
) -> Vec<ReportRow> {
    if profiles.is_empty() {
        let found = ReportRow::note("there is no CacheProfile: nothing is kept warm");
        return vec![found.next("kubectl explain cacheprofile.spec")];
    }
    profiles.iter().map(|profile| of_profile(profile, program, operator, now)).collect()
}

fn of_profile(profile: &CacheProfile, program: &str, operator: &str, now: Timestamp) -> ReportRow {
    let title = name(profile);
    let of_it = address(profile);
    let Some(status) = &profile.status else {
        return ReportRow::bad(format!("{title}: {}", no_status(profile, now)))
            .next(format!("{program} check # the operator, above"));
    };
    let ready = condition(&status.conditions, "Ready");
    let reason = ready.map(|ready| ready.reason.as_str()).unwrap_or_default();
    let message = ready.map(sentence).unwrap_or_default();
    match (verdict(profile), reason) {
        (CommandExitCode::Good, _) => {
            let warm = status.warm_targets.as_deref().unwrap_or_default();
            ReportRow::good(format!("{title} is ready, {warm} targets are warm"))
        }
        (CommandExitCode::Failed, _) => {
            let stalled = condition(&status.conditions, "Stalled").map(sentence);
            ReportRow::bad(format!("{title}: {}", stalled.unwrap_or(message)))
                .next(format!("kubectl edit cprof {of_it}"))
        }
        (_, "Paused" | "Plan") => ReportRow::note(format!("{title}: {message}")),
        _ if status.observed_generation < profile.metadata.generation => {
            ReportRow::bad(format!("{title}: kubewarm has not processed its newest generation yet"))
                .next(format!("{program} status {of_it} --watch"))
        }
        (_, PERMISSIONS_MISSING) => {
            let [review, apply] = grant(profile, operator);
            ReportRow::bad(format!("{title}: {message}")).next(review).next(apply)
        }
        (_, "LimitExceeded" | "InvalidSpec") => ReportRow::bad(format!("{title}: {message}"))
            .next(format!("kubectl edit cprof {of_it}")),
        _ => {
            let troubled = status.targets.iter().find(|target| unhealthy(target).is_some());
            let target = troubled.filter(|target| is_dns_label(&target.name));
            let which =
                target.map_or_else(String::new, |target| format!(" --target {}", target.name));
            ReportRow::bad(format!("{title}: {message}"))
                .next(format!("{program} status {of_it}{which}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{fixtures, report::RowMark},
        *,
    };

    fn found(profile: &CacheProfile) -> (RowMark, Vec<String>) {
        let ReportRow { mark, next, .. } = of_profile(profile, "kubewarm", "", fixtures::now());
        (mark, next)
    }

    fn because(reason: &str) -> CacheProfile {
        let mut profile = fixtures::warming();
        let conditions = &mut profile.status.as_mut().unwrap().conditions;
        let ready = conditions.iter_mut().find(|condition| condition.type_ == "Ready").unwrap();
        reason.clone_into(&mut ready.reason);
        profile
    }

    #[test]
    fn each_reason_has_its_own_next_step() {
        assert_eq!(found(&fixtures::ready()), (RowMark::Good, vec![]));
        let rbac = "kubewarm rbac orders -n shop";
        let reviewed = format!("{rbac} --diff --generation=2 &&");
        let applied = format!("  {rbac} --generation=2 | kubectl apply -f -");
        for (reason, expected) in [
            (PERMISSIONS_MISSING, vec![&*reviewed, &*applied]),
            ("LimitExceeded", vec!["kubectl edit cprof orders -n shop"]),
            ("Stale", vec!["kubewarm status orders -n shop --target deployments"]),
            ("TargetsNotWarm", vec!["kubewarm status orders -n shop --target deployments"]),
        ] {
            let (mark, next) = found(&because(reason));
            assert_eq!((mark, next.iter().map(String::as_str).collect()), (RowMark::Bad, expected));
        }
        assert_eq!(found(&fixtures::stalled()).1, ["kubectl edit cprof broken -n shop"]);
        assert_eq!(found(&fixtures::untouched()).0, RowMark::Bad);
    }

    #[test]
    fn the_printed_commands_repeat_the_operator_namespace() {
        let (profile, now) = (because(PERMISSIONS_MISSING), fixtures::now());
        let row = of_profile(&profile, "kubewarm", " --operator-namespace ops", now);
        let expected = "kubewarm rbac orders -n shop --operator-namespace ops --";
        assert!(row.next.iter().all(|line| line.trim_start().starts_with(expected)), "{row:?}");
    }

    #[test]
    fn a_paused_or_planned_profile_is_only_a_remark() {
        for reason in ["Paused", "Plan"] {
            assert_eq!(found(&because(reason)), (RowMark::Note, vec![]), "{reason}");
        }
        assert_eq!(of_profiles(&[], "kubewarm", "", fixtures::now())[0].mark, RowMark::Note);
    }

    #[test]
    fn names_with_shell_characters_do_not_get_into_commands() {
        let mut profile = because("TargetsNotWarm");
        profile.metadata.name = Some("a; rm -rf".to_owned());
        profile.status.as_mut().unwrap().targets.clear();
        assert_eq!(found(&profile).1, ["kubewarm status NAME -n shop"]);
    }
}
