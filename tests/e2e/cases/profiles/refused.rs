//! Profiles that discovery or a limit rejects, with the messages for users. Also the limit of
//! parallel lists.

use std::fmt::Write as _;

use crate::filling::fill;
use crate::operator::{NAMESPACE, Operator, Running};
use crate::profile::{Profile, message};
use crate::requests::{OperatorRequest, overlap, requests};
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// The number of informers of one profile. It equals the limit for all profiles of one namespace.
const CROWD: usize = 500;
const TOGETHER: usize = 1_000;
/// Informers that each list the same objects.
const LISTS: usize = 8;
/// The limit of parallel lists.
const AT_ONCE: usize = 2;

/// Returns the message of `Accepted` for a profile with one target.
fn refused(spec: &str, name: &str, reason: &str) -> Result<String, Failure> {
    let Running { world, .. } = Running::shared()?;
    let profile = Profile::apply(world, NAMESPACE, name, spec)?;
    let target = ("Accepted", "False", reason);
    profile.await_target("t", target, SOON)?;
    let object = profile.await_condition("Ready", "False", Some("InvalidSpec"), SOON)?;
    world.cluster.run(["delete", "cprof", name, "-n", NAMESPACE])?;
    Ok(message(&object, "Accepted").to_owned())
}

#[test]
fn a_kind_that_cannot_be_listed_is_refused_with_the_verbs_that_it_has() -> Outcome {
    let spec = "{targets: [{name: t, group: authentication.k8s.io, \
                resource: tokenreviews, scope: {type: Cluster}}]}";
    let text = refused(spec, "unlistable", "NotListable")?;
    let expected = "targets[t].resource: tokenreviews.authentication.k8s.io cannot be kept \
                    warm, it has no verb list (its verbs: create); remove the target";
    assert_eq!(text, expected);
    Ok(())
}

#[test]
fn a_scope_that_does_not_fit_the_kind_is_refused_with_the_one_that_does() -> Outcome {
    for (name, resource, scope, expected) in [
        (
            "homeless",
            "nodes",
            "OwnNamespace",
            "targets[t].scope.type: nodes is cluster-scoped; use type Cluster",
        ),
        (
            "housed",
            "configmaps",
            "Cluster",
            "targets[t].scope.type: configmaps lives in namespaces; use another type than Cluster",
        ),
    ] {
        let spec =
            format!("{{targets: [{{name: t, resource: {resource}, scope: {{type: {scope}}}}}]}}");
        assert_eq!(refused(&spec, name, "ScopeMismatch")?, expected);
    }
    Ok(())
}

/// A paused profile with 10 targets. Each target names 50 namespaces.
fn crowd(account: &str) -> String {
    let names: Vec<_> = (0..50).map(|n| format!("n{n}")).collect();
    let mut targets = String::new();
    for n in 0..CROWD / names.len() {
        let _ = write!(
            targets,
            "{{name: t{n}, resource: configmaps, labelSelector: {{matchLabels: {{k: v{n}}}}}, \
             scope: {{type: Namespaces, namespaces: [{}]}}}}, ",
            names.join(", ")
        );
    }
    format!("{{mode: Paused, serviceAccountName: {account}, targets: [{targets}]}}")
}

#[test]
fn a_target_beyond_the_informer_limit_is_rejected_with_the_count() -> Outcome {
    let world = World::lease()?;
    let tenant = world.namespace("tenant")?;
    let _operator = Operator::start(&world)?;
    // kubewarm may not request tokens for this ServiceAccount, so the informers send no requests.
    // Without the ServiceAccount, the profiles would be invalid and would not count against the
    // limit.
    world.cluster.run(["create", "serviceaccount", "reader", "-n", &tenant])?;
    let crowd = crowd("reader");
    for n in 0..TOGETHER / CROWD {
        Profile::apply(&world, &tenant, &format!("a{n}"), &crowd)?;
    }
    for n in 0..TOGETHER / CROWD {
        let early = Profile { world: &world, namespace: &tenant, name: &format!("a{n}") };
        early.await_target("t9", ("Accepted", "True", "Resolved"), SOON)?;
    }
    let one = "{targets: [{name: t, resource: configmaps}]}";
    let late = Profile::apply(&world, &tenant, "b", one)?;
    late.await_target("t", ("Accepted", "False", "TooManyInformers"), SOON)?;
    let object = late.await_condition("Accepted", "False", Some("TooManyInformers"), SOON)?;
    let expected = format!(
        "targets[t]: the profiles of namespace {tenant:?} have {TOGETHER} informers, and may have \
         {TOGETHER} together; remove targets or profiles there"
    );
    assert_eq!(message(&object, "Accepted"), expected);

    world.cluster.run(["delete", "cprof", "a0", "-n", &tenant])?;
    late.await_target("t", ("Accepted", "True", "Resolved"), SOON)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_lists_run_at_once_than_the_process_may() -> Outcome {
    let world = World::alone()?;
    let full = world.namespace("full")?;
    fill(&world, &full, 4_000).await?;
    Operator::grant_reading(&world)?;
    let bound = AT_ONCE.to_string();
    let flags =
        ["--max-concurrent-lists", &bound, "--namespace-quota", "100", "--list-strategy", "list"];
    let _operator = Operator::start_with(&world, &flags)?;
    let targets: Vec<_> = (0..LISTS)
        .map(|n| {
            format!(
                "{{name: t{n}, resource: configmaps, scope: {{type: Namespaces, \
                 namespaces: [{full}]}}, labelSelector: {{matchExpressions: [{{key: half, operator: \
                 NotIn, values: [z{n}]}}]}}}}"
            )
        })
        .collect();
    let spec = format!("{{warmup: {{maxConcurrentLists: 64}}, targets: [{}]}}", targets.join(", "));
    let profile = Profile::apply(&world, NAMESPACE, "many", &spec)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    // The API server writes the audit log after its answers.
    eventually(SOON, || {
        let requests = requests(&std::fs::read_to_string(world.cluster.audit_log())?);
        let is_one = |request: &&OperatorRequest| {
            request.is_whole_list() && request.resource == "configmaps"
        };
        let lists: Vec<_> = requests.iter().filter(is_one).collect();
        if lists.len() < LISTS {
            return Err(format!("{} lists", lists.len()).into());
        }
        let most = overlap(&lists);
        assert!((1..=AT_ONCE).contains(&most), "{most} at once");
        Ok(())
    })?;
    Ok(())
}
