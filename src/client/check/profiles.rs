//! The profiles: whether each is ready, and what helps where one is not.

use super::super::{
    finding::Finding,
    text::plain,
    verdict::{Verdict, condition, name, sentence, unhealthy, verdict},
};
use crate::{api::CacheProfile, model::is_dns_label};

/// A line for each profile.
pub(super) fn of_profiles(profiles: &[CacheProfile], program: &str) -> Vec<Finding> {
    if profiles.is_empty() {
        let found = Finding::note("there is no CacheProfile: nothing is kept warm");
        return vec![found.next("kubectl explain cacheprofile.spec")];
    }
    profiles.iter().map(|profile| of_profile(profile, program)).collect()
}

fn of_profile(profile: &CacheProfile, program: &str) -> Finding {
    let title = name(profile);
    let metadata = &profile.metadata;
    let (own, namespace) = (plain(metadata.name.as_deref()), plain(metadata.namespace.as_deref()));
    let Some(status) = &profile.status else {
        return Finding::bad(format!("{title}: no status yet: is the operator running?"))
            .next(format!("{program} check # the operator, above"));
    };
    let ready = condition(&status.conditions, "Ready");
    let reason = ready.map(|ready| ready.reason.as_str()).unwrap_or_default();
    let said = ready.map(sentence).unwrap_or_default();
    match (verdict(profile), reason) {
        (Verdict::Ready, _) => {
            let warm = status.warm_targets.as_deref().unwrap_or_default();
            Finding::good(format!("{title} is ready, {warm} targets are warm"))
        }
        (Verdict::Failed, _) => {
            let stalled = condition(&status.conditions, "Stalled").map(sentence);
            Finding::bad(format!("{title}: {}", stalled.unwrap_or(said)))
                .next(format!("kubectl edit cprof {own} -n {namespace}"))
        }
        (_, "Paused" | "PlanOnly") => Finding::note(format!("{title}: {said}")),
        _ if status.observed_generation < metadata.generation => {
            Finding::bad(format!("{title}: kubewarm has not looked at its newest generation yet"))
                .next(format!("{program} status {own} -n {namespace} --watch"))
        }
        (_, "PermissionsMissing") => {
            let generation = metadata.generation.unwrap_or_default();
            let rbac = format!("{program} rbac {own} -n {namespace}");
            Finding::bad(format!("{title}: {said}"))
                .next(format!("{rbac} --diff --generation={generation} &&"))
                .next(format!("  {rbac} --generation={generation} | kubectl apply -f -"))
        }
        (_, "LimitExceeded" | "InvalidSpec") => Finding::bad(format!("{title}: {said}"))
            .next(format!("kubectl edit cprof {own} -n {namespace}")),
        _ => {
            let troubled = status.targets.iter().find(|target| unhealthy(target).is_some());
            let target = troubled.filter(|target| is_dns_label(&target.name));
            let which =
                target.map_or_else(String::new, |target| format!(" --target {}", target.name));
            Finding::bad(format!("{title}: {said}"))
                .next(format!("{program} status {own} -n {namespace}{which}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::finding::{Health, Mark, Section, health},
        super::super::sample,
        *,
    };

    fn found(profile: &CacheProfile) -> (Mark, Vec<String>) {
        let Finding { mark, next, .. } = of_profile(profile, "kubewarm");
        (mark, next)
    }

    fn because(reason: &str) -> CacheProfile {
        let mut profile = sample::warming();
        let conditions = &mut profile.status.as_mut().unwrap().conditions;
        let ready = conditions.iter_mut().find(|condition| condition.type_ == "Ready").unwrap();
        reason.clone_into(&mut ready.reason);
        profile
    }

    #[test]
    fn each_reason_has_its_own_next_step() {
        assert_eq!(found(&sample::ready()), (Mark::Good, vec![]));
        let rbac = "kubewarm rbac orders -n shop";
        let reviewed = format!("{rbac} --diff --generation=2 &&");
        let applied = format!("  {rbac} --generation=2 | kubectl apply -f -");
        for (reason, expected) in [
            ("PermissionsMissing", vec![&*reviewed, &*applied]),
            ("LimitExceeded", vec!["kubectl edit cprof orders -n shop"]),
            ("Stale", vec!["kubewarm status orders -n shop --target deployments"]),
            ("TargetsNotWarm", vec!["kubewarm status orders -n shop --target deployments"]),
        ] {
            let (mark, next) = found(&because(reason));
            assert_eq!((mark, next.iter().map(String::as_str).collect()), (Mark::Bad, expected));
        }
        assert_eq!(found(&sample::stalled()).1, ["kubectl edit cprof broken -n shop"]);
        assert_eq!(found(&sample::untouched()).0, Mark::Bad);
    }

    #[test]
    fn what_was_asked_for_is_no_failure() {
        for reason in ["Paused", "PlanOnly"] {
            assert_eq!(found(&because(reason)), (Mark::Note, vec![]), "{reason}");
        }
        let findings = of_profiles(&[], "kubewarm");
        assert_eq!(health(&[Section { title: "profiles", findings }]), Health::Well);
    }

    #[test]
    fn no_name_of_a_cluster_becomes_a_command() {
        let mut profile = because("TargetsNotWarm");
        profile.metadata.name = Some("a; rm -rf".to_owned());
        profile.status.as_mut().unwrap().targets.clear();
        assert_eq!(found(&profile).1, ["kubewarm status NAME -n shop"]);
    }
}
