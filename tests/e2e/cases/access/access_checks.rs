//! Access checks with real requests: missing and excess permissions, and access reviews that
//! contradict real requests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::authorizer::WebhookAuthorizer;
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, message};
use crate::world::{Outcome, SOON, World};

/// The documented limit from a changed rule to the status: a rules review every 20 s, the real
/// request, and the write of the status.
const NOTICED: Duration = Duration::from_secs(30);
/// The documented limit from a grant to a ready profile. kubewarm has no permission to watch roles
/// here, so it finds the grant only by a later check.
const READY: Duration = Duration::from_mins(1);
const SUBJECT: &str = "system:serviceaccount:kubewarm-system:kubewarm";

fn spec(kinds: &[(&str, &str)], namespaces: &[String]) -> String {
    let target = |(group, resource): &(&str, &str)| {
        format!(
            "{{name: {resource}, group: '{group}', resource: {resource},
               scope: {{type: Namespaces, namespaces: [{}]}}}}",
            namespaces.join(", ")
        )
    };
    format!("{{targets: [{}]}}", kinds.iter().map(target).collect::<Vec<_>>().join(", "))
}

/// `namespace/group/resource/verb` of each rule in `/status/access/<field>`.
fn rules(profile: &Value, field: &str) -> BTreeSet<String> {
    let mut rules = BTreeSet::new();
    let each = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    for place in each(&profile["status"]["access"], field) {
        for rule in each(&place, "rules") {
            for group in each(&rule, "apiGroups") {
                for resource in each(&rule, "resources") {
                    for verb in each(&rule, "verbs") {
                        let words = [&place["namespace"], &group, &resource, &verb];
                        let words = words.map(|word| word.as_str().unwrap_or_default());
                        rules.insert(words.join("/"));
                    }
                }
            }
        }
    }
    rules
}

fn lacks(expected: &[String]) -> impl Fn(&Value) -> Option<()> {
    let expected: BTreeSet<_> = expected.iter().cloned().collect();
    move |profile| (rules(profile, "missing") == expected).then_some(())
}

/// Counts the requests of access checks in the audit log.
fn checks(world: &World) -> Result<usize, crate::world::Failure> {
    let log = std::fs::read_to_string(world.cluster.audit_log())?;
    let requests: Vec<Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let is_check = |request: &&Value| {
        let uri = request["requestURI"].as_str().unwrap_or_default();
        let is_check = uri.contains("limit=1&") || uri.ends_with("limit=1");
        let is_glimpse = uri.contains("watch=1") && uri.ends_with("timeoutSeconds=1");
        let is_review =
            uri.contains("/selfsubjectrulesreviews") || uri.contains("/selfsubjectaccessreviews");
        request["user"]["username"] == SUBJECT
            && request["stage"] != "ResponseStarted"
            && (is_check || is_glimpse || is_review)
    };
    Ok(requests.iter().filter(is_check).count())
}

#[test]
fn each_missing_rule_is_named_breaks_only_its_informer_and_is_fixed_by_the_printed_yaml() -> Outcome
{
    let world = World::lease()?;
    let names = [world.namespace("team")?, world.namespace("team")?, world.namespace("team")?];
    let _operator = Operator::start(&world)?;
    let kinds = [("", "configmaps"), ("apps", "deployments")];
    let profile = Profile::apply(&world, NAMESPACE, "shop", &spec(&kinds, &names))?;
    profile.await_manifests()?;
    profile.await_condition("Authorized", "False", Some("PermissionsMissing"), NOTICED)?;
    let all = profile.read()?;
    assert_eq!(rules(&all, "missing").len(), 3 * 2 * 2, "{all:#}");

    let granted = Instant::now();
    profile.grant()?;
    profile.await_condition("Ready", "True", None, READY)?;
    profile.await_condition("Authorized", "True", Some("Verified"), NOTICED)?;
    assert!(granted.elapsed() <= READY, "{:?}", granted.elapsed());
    let verified = profile.read()?;
    assert!(verified["status"]["access"]["lastVerifiedTime"].is_string(), "{verified:#}");
    assert_eq!(verified["status"]["access"]["excessCompleteness"], "Complete");
    assert!(rules(&verified, "excess").is_empty(), "{verified:#}");

    // Removes each rule from the role of one namespace.
    let broken = &names[1];
    let role = "role/kubewarm:kubewarm-system:shop";
    for (at, (group, resource)) in kinds.iter().enumerate() {
        let removed = format!("[{{\"op\": \"remove\", \"path\": \"/rules/{at}\"}}]");
        world.cluster.run(["patch", role, "-n", broken, "--type=json", "-p", &removed])?;
        let rules = ["list", "watch"].map(|verb| format!("{broken}/{group}/{resource}/{verb}"));
        let object = profile.await_that(NOTICED, lacks(&rules))?;
        let text = message(&object, "Authorized");
        let words =
            ["list and watch", resource, group, broken.as_str(), SUBJECT, "kubectl warm rbac"];
        for word in words {
            assert!(text.contains(word), "{word:?} is missing in {text:?}");
        }
        for whole in [&names[0], &names[2]] {
            assert!(!text.contains(whole.as_str()), "{text:?}");
        }
        profile.await_condition("Ready", "False", Some("PermissionsMissing"), NOTICED)?;
        profile.await_condition("Authorized", "False", Some("AccessRevoked"), NOTICED)?;
        let repaired = Instant::now();
        profile.grant()?;
        profile.await_condition("Authorized", "True", Some("Verified"), READY)?;
        profile.await_condition("Ready", "True", None, READY)?;
        assert!(repaired.elapsed() <= READY, "{:?}", repaired.elapsed());
    }

    // Permissions that no profile needs are excess. A status shows excess permissions only in the
    // operator's namespace.
    let tenant =
        Profile::apply(&world, broken, "own", "{targets: [{name: a, resource: configmaps}]}")?;
    let more = ["create", "role", "more", "-n", broken, "--verb=get,list", "--resource=secrets"];
    world.cluster.run(more)?;
    let account = format!("--serviceaccount={NAMESPACE}:kubewarm");
    world.cluster.run(["create", "rolebinding", "more", "-n", broken, "--role=more", &account])?;
    let excess: BTreeSet<_> = [format!("{broken}//secrets/list")].into();
    profile.await_that(NOTICED, |profile| (rules(profile, "excess") == excess).then_some(()))?;
    tenant.await_condition("Authorized", "True", None, NOTICED)?;
    let object = tenant.read()?;
    assert_eq!(object["status"]["access"].get("excessCompleteness"), None, "{object:#}");
    Ok(())
}

#[test]
fn a_paused_profile_is_checked_too() -> Outcome {
    let world = World::lease()?;
    let team = world.namespace("team")?;
    let _operator = Operator::start(&world)?;
    let spec =
        |mode: &str| format!("{{mode: {mode}, targets: [{{name: a, resource: configmaps}}]}}");
    let profile = Profile::apply(&world, &team, "own", &spec("Active"))?;
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Profile::apply(&world, &team, "own", &spec("Paused"))?;
    profile.await_condition("Ready", "Unknown", Some("Paused"), SOON)?;
    world.cluster.run(["delete", "rolebinding", "--all", "-n", &team])?;
    let rules = ["list", "watch"].map(|verb| format!("{team}//configmaps/{verb}"));
    profile.await_that(SOON, lacks(&rules))?;
    Ok(())
}

#[test]
fn checking_thirty_informers_takes_one_extra_request_each() -> Outcome {
    let world = World::alone()?;
    let names: Vec<_> = (0..10).map(|_| world.namespace("team")).collect::<Result<_, _>>()?;
    Operator::grant_reading(&world)?;
    let kinds = [("", "configmaps"), ("", "services"), ("apps", "deployments")];
    let operator = Operator::start(&world)?;
    let profile = Profile::apply(&world, NAMESPACE, "thirty", &spec(&kinds, &names))?;
    profile.await_condition("Authorized", "True", Some("Verified"), NOTICED)?;
    std::thread::sleep(Duration::from_secs(30));
    let after = checks(&world)?;
    // These are rules reviews, at most three in each of the ten namespaces. An informer's own list
    // and watch count as its first access check. Otherwise, there would be sixty more requests.
    assert!((10..=40).contains(&after), "{after} requests");
    let (_, metrics) = operator.ask("/metrics")?;
    let counted = "kubewarm_access_checks_total{check=\"rules_review\",outcome=\"success\"}";
    assert!(metrics.contains(counted), "{metrics}");
    Ok(())
}

#[test]
fn the_real_request_overrides_a_wrong_review() -> Outcome {
    let authorizer = WebhookAuthorizer::start()?;
    let world = World::with_authorizer(&authorizer)?;
    let names = ["boastful".to_owned(), "modest".to_owned()];
    for name in &names {
        world.cluster.run(["create", "namespace", name])?;
    }
    let _operator = Operator::start(&world)?;
    let profile = Profile::apply(&world, NAMESPACE, "lies", &spec(&[("", "configmaps")], &names))?;
    // kubewarm writes the status in steps: the list of "modest" can succeed before the informer's
    // store is complete.
    let refused = ["list", "watch"].map(|verb| format!("boastful//configmaps/{verb}"));
    profile.await_that(READY, |profile| {
        let text = message(profile, "Authorized");
        let is_explained = text.contains("would be allowed") && text.contains("would be refused");
        let status = &profile["status"];
        let is_synced = status["targets"][0]["informers"]["synced"] == 1;
        let is_incomplete = status["access"]["excessCompleteness"] == "Incomplete";
        lacks(&refused)(profile).filter(|()| is_explained && is_synced && is_incomplete)
    })?;
    profile.await_condition("Authorized", "False", Some("PermissionsMissing"), NOTICED)?;
    Ok(())
}
