//! Checks that each profile is ready, and finds the next step if it is not.

use super::super::{
    advice::{address, grant, plain},
    profile_readiness::{
        PERMISSIONS_MISSING, condition, name, no_status, problem_and_next_try, sentence, unhealthy,
        verdict,
    },
    report::{CommandExitCode, ReportRow},
};
use jiff::Timestamp;
use kubewarm_api::{
    model::{ManagedFieldsPolicy, ProfileRef, SecretDataPolicy, is_dns_label, keep_fields_command},
    v1alpha1::{CacheProfile, TargetSpec, TargetStatus},
};

/// Returns a row for each profile. `operator` is the operator namespace in printed commands.
pub(super) fn of_profiles(
    profiles: &[CacheProfile],
    program: &str,
    operator: &str,
    now: Timestamp,
) -> Vec<ReportRow> {
    if profiles.is_empty() {
        let row = ReportRow::note("there is no CacheProfile: nothing is kept warm");
        return vec![row.next("kubectl explain cacheprofile.spec")];
    }
    let rows = |profile| {
        let row = of_profile(profile, program, operator, now);
        let remarks = problems_of_ready(profile, program, now);
        std::iter::once(row).chain(remarks).chain(dropped_fields(profile, operator))
    };
    profiles.iter().flat_map(rows).collect()
}

/// Returns a remark for each target that has a problem although `profile` is ready. For example,
/// `Ready` does not depend on an index on an unknown field.
fn problems_of_ready(profile: &CacheProfile, program: &str, now: Timestamp) -> Vec<ReportRow> {
    let status = profile.status.iter().filter(|_| verdict(profile) == CommandExitCode::Good);
    let remark = |target: &TargetStatus| {
        let problem = problem_and_next_try(target.problems.first()?, now);
        let text = format!("{}: target {}: {problem}", name(profile), target.name);
        Some(ReportRow::note(text).next(status_command(profile, program, Some(target))))
    };
    status.flat_map(|status| &status.targets).filter_map(remark).collect()
}

/// Returns the command that shows the problems of `target`, or of all targets.
fn status_command(profile: &CacheProfile, program: &str, target: Option<&TargetStatus>) -> String {
    let target = target.filter(|target| is_dns_label(&target.name));
    let which = target.map_or_else(String::new, |target| format!(" --target {}", target.name));
    format!("{program} status {}{which}", address(profile))
}

/// Returns a remark about the targets of `profile` that drop managedFields, with the command that
/// keeps the fields. The stored profile contains the default of the CRD with which its author wrote
/// the profile. A profile from before the default became `Keep` therefore still drops the fields.
fn dropped_fields(profile: &CacheProfile, operator: &str) -> Option<ReportRow> {
    let targets = profile.spec.targets.iter().enumerate();
    let dropping: Vec<_> = targets.filter(|(_, target)| is_dropping(target)).collect();
    let names: Vec<_> = dropping.iter().map(|(_, target)| target.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let text = format!(
        "{} drops managedFields of {}: a client that applies what it extracts from a read object removes its own \
         fields",
        name(profile),
        names.join(", ")
    );
    let at = |name: &Option<String>| plain(name.as_deref()).into();
    let at =
        ProfileRef { namespace: at(&profile.metadata.namespace), name: at(&profile.metadata.name) };
    let targets = dropping.iter().map(|(at, target)| (*at, plain(Some(&target.name))));
    let users = format!(
        "kubectl -n {operator} port-forward POD 9090 # then GET /debug/appliers names the users who read and apply them"
    );
    Some(ReportRow::note(text).next(keep_fields_command(&at, targets)).next(users))
}

fn is_dropping(target: &TargetSpec) -> bool {
    let is_secrets = target.group.is_empty() && target.resource == "secrets";
    let is_choice = !is_secrets || target.secret_data == SecretDataPolicy::Allow;
    is_choice && target.projection.managed_fields == ManagedFieldsPolicy::Drop
}

fn of_profile(profile: &CacheProfile, program: &str, operator: &str, now: Timestamp) -> ReportRow {
    let title = name(profile);
    let address = address(profile);
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
                .next(format!("kubectl edit cprof {address}"))
        }
        (_, "Paused" | "Plan") => ReportRow::note(format!("{title}: {message}")),
        _ if status.observed_generation < profile.metadata.generation => {
            ReportRow::bad(format!("{title}: kubewarm has not processed its newest generation yet"))
                .next(format!("{program} status {address} --watch"))
        }
        (_, PERMISSIONS_MISSING) => {
            let [review, apply] = grant(profile, operator);
            ReportRow::bad(format!("{title}: {message}")).next(review).next(apply)
        }
        (_, "LimitExceeded" | "InvalidSpec") => ReportRow::bad(format!("{title}: {message}"))
            .next(format!("kubectl edit cprof {address}")),
        _ => {
            let troubled = status.targets.iter().find(|target| unhealthy(target).is_some());
            ReportRow::bad(format!("{title}: {message}"))
                .next(status_command(profile, program, troubled))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{fixtures, report::RowMark},
        *,
    };
    use kubewarm_api::v1alpha1::TargetProblem;

    fn check_profile(profile: &CacheProfile) -> (RowMark, Vec<String>) {
        let ReportRow { mark, next, .. } = of_profile(profile, "kubewarm", "ops", fixtures::now());
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
        assert_eq!(check_profile(&fixtures::ready()), (RowMark::Good, vec![]));
        let rbac = "kubewarm rbac orders -n shop --operator-namespace ops";
        let reviewed = format!("{rbac} --diff --generation=2 &&");
        let applied = format!("  {rbac} --generation=2 | kubectl apply -f -");
        for (reason, expected) in [
            (PERMISSIONS_MISSING, vec![&*reviewed, &*applied]),
            ("LimitExceeded", vec!["kubectl edit cprof orders -n shop"]),
            ("Stale", vec!["kubewarm status orders -n shop --target deployments"]),
            ("TargetsNotWarm", vec!["kubewarm status orders -n shop --target deployments"]),
        ] {
            let (mark, next) = check_profile(&because(reason));
            assert_eq!((mark, next.iter().map(String::as_str).collect()), (RowMark::Bad, expected));
        }
        assert_eq!(check_profile(&fixtures::stalled()).1, ["kubectl edit cprof broken -n shop"]);
        assert_eq!(check_profile(&fixtures::untouched()).0, RowMark::Bad);
    }

    #[test]
    fn a_paused_or_planned_profile_is_only_a_remark() {
        for reason in ["Paused", "Plan"] {
            assert_eq!(check_profile(&because(reason)), (RowMark::Note, vec![]), "{reason}");
        }
        assert_eq!(of_profiles(&[], "kubewarm", "ops", fixtures::now())[0].mark, RowMark::Note);
    }

    #[test]
    fn a_problem_of_a_ready_profile_is_a_remark() {
        let mut profile = fixtures::ready();
        profile.status.as_mut().unwrap().targets[0].problems.push(TargetProblem {
            reason: "UnknownField".to_owned(),
            message: Some("check the spelling".to_owned()),
            ..TargetProblem::default()
        });
        let rows = of_profiles(&[profile], "kubewarm", "ops", fixtures::now());
        let [row, remark] = &rows[..] else { panic!("one profile, one remark") };
        assert_eq!((row.mark, remark.mark), (RowMark::Good, RowMark::Note));
        assert_eq!(
            remark.text(),
            "checkout -n shop: target pods: UnknownField: check the spelling"
        );
        assert_eq!(remark.next, ["kubewarm status checkout -n shop --target pods"]);
    }

    #[test]
    fn targets_that_drop_managed_fields_are_named_with_the_command() {
        let mut profile = fixtures::ready();
        let rows = |profile: &CacheProfile| {
            of_profiles(std::slice::from_ref(profile), "kubewarm", "ops", fixtures::now())
        };
        assert_eq!(rows(&profile).len(), 1);
        let target = |text: &str| serde_json::from_str::<TargetSpec>(text).unwrap();
        let dropped = r#""projection": {"type": "Metadata", "managedFields": "Drop"}"#;
        for text in [
            format!(r#"{{"name": "nodes", "resource": "nodes", {dropped}}}"#),
            // kubewarm drops the managedFields of Secrets anyway, so a command that keeps them
            // would change nothing.
            format!(r#"{{"name": "secrets", "resource": "secrets", {dropped}}}"#),
        ] {
            profile.spec.targets.push(target(&text));
        }
        let [row, remark] = &rows(&profile)[..] else { panic!("one profile, one remark") };
        assert_eq!((row.mark, remark.mark), (RowMark::Good, RowMark::Note));
        assert!(remark.text().contains("drops managedFields of nodes: "), "{}", remark.text());
        let command = "kubectl patch cprof checkout -n shop --type=json \
            -p='[{\"op\":\"test\",\"path\":\"/spec/targets/1/name\",\"value\":\"nodes\"},\
            {\"op\":\"replace\",\"path\":\"/spec/targets/1/projection/managedFields\",\"value\":\"Keep\"}]'";
        assert_eq!(remark.next[0], command);
        assert!(remark.next[1].starts_with("kubectl -n ops port-forward POD 9090 #"));
        profile.metadata.name = Some("a; rm -rf".to_owned());
        assert!(rows(&profile)[1].next[0].starts_with("kubectl patch cprof NAME -n shop "));
    }

    #[test]
    fn names_with_shell_characters_do_not_get_into_commands() {
        let mut profile = because("TargetsNotWarm");
        profile.metadata.name = Some("a; rm -rf".to_owned());
        profile.status.as_mut().unwrap().targets.clear();
        assert_eq!(check_profile(&profile).1, ["kubewarm status NAME -n shop"]);
    }
}
