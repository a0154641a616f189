//! Profiles with a ServiceAccount: only the permissions of that account decide.

use std::time::Duration;

use serde_json::Value;

use crate::figures::{informer, informers, undisturbed};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, problems};
use crate::world::{Failure, Outcome, SOON, World, eventually, file};

/// The API server accepts a token for ten seconds after it deleted the token's ServiceAccount.
const REMEMBERED: Duration = Duration::from_secs(12);

/// A spec for `ConfigMaps` of these namespaces, read as `account`.
fn read_by(account: &str, namespaces: &[&str]) -> String {
    format!(
        "{{serviceAccountName: {account}, targets: [{{name: settings,
           resource: configmaps,
           scope: {{type: Namespaces, namespaces: [{}]}}}}]}}",
        namespaces.join(", ")
    )
}

fn create_account(world: &World, namespace: &str, name: &str) -> Outcome {
    world.cluster.run(["create", "serviceaccount", name, "-n", namespace])?;
    Ok(())
}

/// Applies the manifests in one field of `status.access`.
fn apply(profile: &Profile<'_>, field: &str) -> Outcome {
    let manifests = eventually(SOON, || {
        let object = profile.read()?;
        let text = object.pointer(&format!("/status/access/{field}")).and_then(Value::as_str);
        Ok(text.ok_or_else(|| format!("no {field} in {object:#}"))?.to_owned())
    })?;
    profile.world.cluster.apply(&manifests)?;
    Ok(())
}

/// Waits until the target has one problem whose text contains all these words.
fn await_problem(profile: &Profile<'_>, words: &[&str]) -> Outcome {
    profile.await_that(SOON, |profile| match problems(profile, "settings").as_slice() {
        [problem] => words.iter().all(|word| problem.contains(word)).then_some(()),
        _ => None,
    })?;
    Ok(())
}

/// The ServiceAccounts with which the informers of the namespace's `ConfigMaps` read.
fn readers(operator: &Operator, namespace: &str) -> Result<Vec<Value>, Failure> {
    let here = |informer: &Value| {
        informer["resource"] == "configmaps" && informer["namespace"] == namespace
    };
    let here = informers(operator)?.into_iter().filter(here);
    Ok(here.map(|informer| informer["serviceAccount"].clone()).collect())
}

#[test]
fn an_administrators_certificate_gives_no_account_its_permissions() -> Outcome {
    let world = World::lease()?;
    world.cluster.run(["create", "namespace", NAMESPACE])?;
    // The operator has a client certificate of `system:masters`. On a connection with this
    // certificate, the API server would ignore a ServiceAccount's token.
    let _operator = Operator::start_as_administrator(&world)?;
    let team = world.namespace("team")?;
    create_account(&world, &team, "rightless")?;
    let profile = Profile::apply(&world, &team, "settings", &read_by("rightless", &[&team]))?;
    let who = format!("system:serviceaccount:{team}:rightless");
    await_problem(&profile, &["Forbidden", "list configmaps", &who])?;
    let spec = "{targets: [{name: settings, resource: configmaps}]}";
    let operators = Profile::apply(&world, &team, "own", spec)?;
    operators.await_condition("Ready", "True", None, SOON)?;
    await_problem(&profile, &["Forbidden", &who])?;

    apply(&profile, "manifests")?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let object = profile.read()?;
    assert_eq!(object.pointer("/status/access/subject").and_then(Value::as_str), Some(&*who));
    Ok(())
}

#[test]
fn the_permissions_of_the_account_decide_in_every_namespace() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let (home, away) = (world.namespace("home")?, world.namespace("away")?);
    let (home, away) = (home.as_str(), away.as_str());
    let both = [home, away];
    let spec = "{targets: [{name: services, resource: services}]}";
    let tenant = Profile::apply(&world, away, "tenant", spec)?;
    apply(&tenant, "manifests")?;
    tenant.await_condition("Ready", "True", None, SOON)?;
    let before = undisturbed(&operator, away, "services")?;

    let alone = "{targets: [{name: settings, resource: configmaps,
        scope: {type: Namespaces, namespaces: [AWAY]}}]}"
        .replace("AWAY", away);
    let alone = Profile::apply(&world, home, "alone", &alone)?;
    alone.await_condition("Accepted", "False", Some("CrossNamespaceNotAllowed"), SOON)?;

    for account in ["seeing", "blind"] {
        create_account(&world, home, account)?;
    }
    let seeing = Profile::apply(&world, home, "seeing", &read_by("seeing", &both))?;
    seeing.await_that(SOON, |profile| {
        let problems = problems(profile, "settings");
        let denied = |problem: &String| {
            ["TokenRequestDenied", "serviceaccounts/token", "kubectl warm rbac seeing -n"]
                .iter()
                .all(|word| problem.contains(word))
        };
        (problems.len() == 2 && problems.iter().all(denied)).then_some(())
    })?;
    // Roles for the profile's own namespace are in `manifests`, roles for others in
    // `manifestsElevated`.
    apply(&seeing, "manifests")?;
    await_problem(&seeing, &[&format!("{away}: "), "Forbidden", "kubectl warm rbac"])?;
    apply(&seeing, "manifestsElevated")?;
    seeing.await_condition("Ready", "True", None, SOON)?;

    let blind = Profile::apply(&world, home, "blind", &read_by("blind", &[away]))?;
    apply(&blind, "manifests")?;
    await_problem(&blind, &[&format!("{away}: "), "Forbidden", "list configmaps"])?;

    let ghost = Profile::apply(&world, home, "ghost", &read_by("ghost", &[home]))?;
    apply(&ghost, "manifests")?;
    ghost.await_condition("Accepted", "False", Some("ServiceAccountNotFound"), SOON)?;
    create_account(&world, home, "ghost")?;
    ghost.await_condition("Ready", "True", None, SOON)?;

    // The profile warns if no admission policy restricts which users may name a ServiceAccount.
    let warns = |profile: &Value| -> Option<bool> {
        let conditions = profile.pointer("/status/conditions")?.as_array()?;
        let accepted = conditions.iter().find(|condition| condition["type"] == "Accepted")?;
        Some(accepted["message"].as_str()?.contains("deploy/account-policy.yaml"))
    };
    seeing.await_that(SOON, |profile| warns(profile)?.then_some(()))?;
    let policy = file("deploy/account-policy.yaml");
    world.cluster.run(["apply", "-f", &policy.to_string_lossy()])?;
    seeing.await_that(SOON, |profile| (!warns(profile)?).then_some(()))?;

    // Profiles with the same account share an informer. Profiles with different accounts do not.
    let same = Profile::apply(&world, home, "same", &read_by("seeing", &[home]))?;
    same.await_condition("Ready", "True", None, SOON)?;
    let mut names = readers(&operator, home)?;
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, [format!("{home}/ghost"), format!("{home}/seeing")]);
    let mut names = readers(&operator, away)?;
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, [format!("{home}/blind"), format!("{home}/seeing")]);
    seeing.await_condition("Ready", "True", None, SOON)?;
    // Other users of the namespace are not affected.
    assert_eq!(undisturbed(&operator, away, "services")?, before);
    tenant.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}

#[test]
fn without_permission_for_its_tokens_an_account_reads_nothing() -> Outcome {
    let world = World::alone()?;
    let team = world.namespace("team")?;
    let operator = Operator::start(&world)?;
    create_account(&world, &team, "reader")?;
    let profile = Profile::apply(&world, &team, "settings", &read_by("reader", &[&team]))?;
    apply(&profile, "manifests")?;
    profile.await_condition("Ready", "True", None, SOON)?;

    let roles = world.cluster.run(["get", "roles", "-n", &team, "--output=json"])?;
    let roles: Value = serde_json::from_str(&roles)?;
    let mints = |role: &&Value| role["rules"].to_string().contains("serviceaccounts/token");
    let mut minting = roles["items"].as_array().into_iter().flatten().filter(mints);
    let (Some(role), None) = (minting.next(), minting.next()) else {
        return Err(format!("not one role that lets tokens be minted: {roles:#}").into());
    };
    let name = role["metadata"]["name"].as_str().ok_or("a role without a name")?;
    world.cluster.run(["delete", "role", name, "-n", &team])?;
    // The operator restarts, because its current token would stay valid for an hour.
    operator.process.restart()?;
    await_problem(&profile, &["TokenRequestDenied", "serviceaccounts/token"])?;
    apply(&profile, "manifests")?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}

/// Counts in the audit log the tokens that the API server granted for `account`, and the reviews
/// (mostly SelfSubjectRulesReviews) that kubewarm sent as `account`.
fn tokens_and_reviews(world: &World, account: &str) -> Result<(usize, usize), Failure> {
    let log = std::fs::read_to_string(world.cluster.audit_log())?;
    let (mut tokens, mut reviews) = (0, 0);
    for line in log.lines() {
        let request: Value = serde_json::from_str(line)?;
        let text = |at: &str| request.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let uri = text("/requestURI");
        if uri.ends_with("/token") && request.pointer("/responseStatus/code") == Some(&201.into()) {
            tokens += 1;
        }
        reviews += usize::from(text("/user/username") == account && uri.contains("/selfsubject"));
    }
    Ok((tokens, reviews))
}

#[test]
fn a_planned_profile_is_checked_again_and_again_with_one_token() -> Outcome {
    let world = World::alone()?;
    let _operator = Operator::start(&world)?;
    let home = world.namespace("home")?;
    create_account(&world, &home, "reader")?;
    let spec = read_by("reader", &[&home]).replacen('{', "{mode: Plan, ", 1);
    let profile = Profile::apply(&world, &home, "settings", &spec)?;
    apply(&profile, "manifests")?;
    profile.await_condition("Authorized", "True", Some("Verified"), SOON)?;
    let who = format!("system:serviceaccount:{home}:reader");
    let tokens = eventually(SOON, || match tokens_and_reviews(&world, &who)? {
        (tokens, reviews) if reviews >= 3 => Ok(tokens),
        counts => Err(format!("{counts:?} tokens and reviews").into()),
    })?;
    assert_eq!(tokens, 1);
    Ok(())
}

#[test]
fn a_recreated_account_has_a_new_token_and_its_own_rights() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let home = world.namespace("home")?;
    create_account(&world, &home, "reader")?;
    let profile = Profile::apply(&world, &home, "settings", &read_by("reader", &[&home]))?;
    apply(&profile, "manifests")?;
    profile.await_condition("Ready", "True", None, SOON)?;

    world.cluster.run(["delete", "serviceaccount", "reader", "-n", &home])?;
    create_account(&world, &home, "reader")?;
    let binding = format!("kubewarm:{home}:settings");
    world.cluster.run(["delete", "rolebinding", &binding, "-n", &home])?;
    std::thread::sleep(REMEMBERED);
    // A different spec causes a new list. kubewarm sends this list with its current token, which
    // belongs to the deleted ServiceAccount.
    let paged = read_by("reader", &[&home]).replace(
        "resource: configmaps",
        "resource: configmaps, labelSelector: {matchLabels: {a: b}}",
    );
    let again = Profile::apply(&world, &home, "again", &paged)?;
    await_problem(&again, &["Forbidden", "list configmaps"])?;
    let log = operator.process.log();
    assert!(log.contains("the token is not accepted any more"), "{log}");
    apply(&again, "manifests")?;
    again.await_condition("Ready", "True", None, SOON)?;
    // Each token begins with `eyJ`, so the log contains no token.
    assert!(!operator.process.log().contains("eyJ"));
    Ok(())
}

#[test]
fn tokens_are_replaced_after_a_new_signing_key_and_stores_are_kept() -> Outcome {
    let world = World::alone()?;
    world.cluster.run(["create", "namespace", NAMESPACE])?;
    // The operator's own credential is a client certificate, so the replaced key for tokens does
    // not affect it.
    let operator = Operator::start_as_administrator(&world)?;
    let home = world.namespace("home")?;
    create_account(&world, &home, "reader")?;
    let profile = Profile::apply(&world, &home, "settings", &read_by("reader", &[&home]))?;
    apply(&profile, "manifests")?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let before = informer(&operator, &home, "configmaps")?;

    world.cluster.replace_token_key()?;
    world.cluster.apiserver().restart()?;
    world.cluster.run(["create", "configmap", "later", "-n", &home])?;
    let after = eventually(SOON, || {
        let informer = informer(&operator, &home, "configmaps")?;
        let is_back = informer["state"] == "Watching" && informer["objects"] != before["objects"];
        if is_back { Ok(informer) } else { Err(format!("{informer:#}").into()) }
    })?;
    assert!(operator.process.log().contains("the token is not accepted any more"));
    assert_eq!(after["warmed"], before["warmed"], "{after:#}");
    assert!(after["accessLostTime"].is_null(), "{after:#}");
    profile.await_condition("Ready", "True", None, SOON)?;
    profile.await_condition("Authorized", "True", Some("Verified"), SOON)?;
    Ok(())
}
