//! A tenant's influence on other tenants, and what its profiles can reveal about other namespaces.

use std::fmt::Write as _;

use serde_json::Value;

use crate::operator::Operator;
use crate::profile::{Profile, problems};
use crate::world::{Outcome, SOON, World};

/// The most problems in a target's status.
const PROBLEMS: usize = 16;

/// Lets the operator request tokens of the account `blind`, which has no permissions.
fn blind_account(world: &World, namespace: &str) -> Outcome {
    world.cluster.run(["create", "serviceaccount", "blind", "-n", namespace])?;
    let verb = ["--verb=create", "--resource=serviceaccounts/token", "--resource-name=blind"];
    let role = ["create", "role", "token", "-n", namespace];
    world.cluster.run(role.into_iter().chain(verb))?;
    let binding = ["create", "rolebinding", "token", "-n", namespace, "--role=token"];
    let operator = "--serviceaccount=kubewarm-system:kubewarm";
    world.cluster.run(binding.into_iter().chain([operator]))?;
    Ok(())
}

#[test]
fn a_status_reveals_nothing_that_its_reader_may_not_see() -> Outcome {
    let world = World::lease()?;
    let _operator = Operator::start(&world)?;
    Operator::grant_reading(&world)?;
    let (home, rival) = (world.namespace("home")?, world.namespace("rival")?);
    world.cluster.run(["create", "configmap", "crown-jewels", "-n", &rival])?;
    let settings = "{targets: [{name: settings, resource: configmaps}]}";
    let theirs = Profile::apply(&world, &rival, "treasury", settings)?;
    theirs.await_condition("Ready", "True", None, SOON)?;

    blind_account(&world, &home)?;
    let spec = format!(
        "{{serviceAccountName: blind, targets: [{{name: settings,
           resource: configmaps,
           scope: {{type: Namespaces, namespaces: [{rival}, nowhere]}}}}]}}"
    );
    let spy = Profile::apply(&world, &home, "spy", &spec)?;
    let select = "{serviceAccountName: blind, targets: [{name: settings,
        resource: configmaps,
        scope: {type: NamespaceSelector, namespaceSelector: {}}}]}";
    let survey = Profile::apply(&world, &home, "survey", select)?;
    let object = spy.await_that(SOON, |profile| {
        let texts = problems(profile, "settings");
        (texts.len() == 2 && texts.iter().all(|one| one.contains("Forbidden"))).then_some(())
    })?;
    // The operator itself could distinguish a missing namespace from a forbidden one. The
    // ServiceAccount `blind` cannot, so the status must show the same text for both.
    let texts = problems(&object, "settings");
    let alike = texts.iter().map(|one| one.replace(&rival, "X").replace("nowhere", "X"));
    let alike: Vec<_> = alike.collect();
    assert_eq!(alike.first(), alike.last(), "{texts:#?}");

    let object = survey.await_condition("Authorized", "False", Some("PermissionsMissing"), SOON)?;
    assert!(!object["status"].to_string().contains(&rival), "{object:#}");
    let plain = Profile::apply(&world, &home, "plain", settings)?;
    plain.await_condition("Ready", "True", None, SOON)?;
    for profile in [spy, survey, plain] {
        let status = profile.read()?["status"].to_string();
        for secret in ["crown-jewels", "treasury"] {
            assert!(!status.contains(secret), "{secret} is in {status}");
        }
    }
    let status = plain.read()?["status"].to_string();
    assert!(!status.contains(&rival), "{status}");
    Ok(())
}

#[test]
fn a_tenant_that_requests_everything_delays_no_other_tenant() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let (greedy, modest) = (world.namespace("greedy")?, world.namespace("modest")?);
    blind_account(&world, &greedy)?;
    let places = (0..64).map(|n| format!("n{n}")).collect::<Vec<_>>().join(", ");
    let mut targets = String::new();
    for n in 0..32 {
        write!(
            targets,
            "{{name: t{n}, priority: 1000, resource: pods,
               labelSelector: {{matchLabels: {{n: '{n}'}}}},
               scope: {{type: Namespaces, namespaces: [{places}]}}}}, "
        )?;
    }
    // The maximum number of informers of one profile. A profile without a ServiceAccount has no
    // informers outside of its namespace.
    let all = format!("{{serviceAccountName: blind, targets: [{targets}]}}");
    let all = Profile::apply(&world, &greedy, "all", &all)?;
    let operators = Profile::apply(&world, &greedy, "more", &format!("{{targets: [{targets}]}}"))?;
    operators.await_condition("Accepted", "False", Some("CrossNamespaceNotAllowed"), SOON)?;
    all.await_that(SOON, |profile| {
        (profile.pointer("/status/targets/0/informers/total")? == 64).then_some(())
    })?;

    let settings = "{targets: [{name: settings, resource: configmaps}]}";
    let neighbour = Profile::apply(&world, &modest, "own", settings)?;
    neighbour.await_manifests()?;
    neighbour.grant()?;
    neighbour.await_condition("Ready", "True", None, SOON)?;
    neighbour.await_condition("Authorized", "True", Some("Verified"), SOON)?;

    let object = all.await_condition("Ready", "False", None, SOON)?;
    let targets = object.pointer("/status/targets").and_then(Value::as_array);
    for target in targets.into_iter().flatten() {
        let count = target["problems"].as_array().map_or(0, Vec::len);
        assert!(count <= PROBLEMS, "{count} problems: {target:#}");
    }
    assert!(object.to_string().len() < 1 << 20, "a status of {} bytes", object.to_string().len());
    assert_eq!(operator.ask("/livez")?.0, 200);
    Ok(())
}
