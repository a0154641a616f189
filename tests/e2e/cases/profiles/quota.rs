//! More profiles in one namespace than kubewarm accepts, and a `ResourceQuota` that rejects them.

use std::fmt::Write as _;
use std::fs;

use crate::figures::informers;
use crate::operator::Operator;
use crate::profile::{Profile, message};
use crate::world::{Outcome, SOON, World, eventually, file};

/// The limit of 100 profiles in a namespace, and two more.
const PROFILES: usize = 102;
const SPEC: &str = "{targets: [{name: settings, resource: configmaps}]}";

#[test]
fn profiles_beyond_the_namespace_limit_are_reported_and_affect_no_other_namespace() -> Outcome {
    let world = World::lease()?;
    let (crowd, calm) = (world.namespace("crowd")?, world.namespace("calm")?);
    Operator::grant_reading(&world)?;
    let mut all = String::new();
    // The operator starts after the profiles exist, so it receives them by a list, which is sorted
    // by name.
    for n in 0..PROFILES {
        write!(
            all,
            "---
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: p{n:03}, namespace: {crowd}, annotations: {{note: '{}'}}}}
spec: {SPEC}
",
            "x".repeat(10_000)
        )?;
    }
    world.cluster.apply(&all)?;
    let operator = Operator::start(&world)?;
    let other = Profile::apply(&world, &calm, "other", SPEC)?;
    other.await_condition("Ready", "True", None, SOON)?;
    let profile = |name| Profile { world: &world, namespace: &crowd, name };
    for name in ["p000", "p099"] {
        profile(name).await_condition("Ready", "True", None, SOON)?;
    }
    for name in ["p100", "p101"] {
        let text =
            profile(name).await_condition("Accepted", "False", Some("LimitExceeded"), SOON)?;
        for condition in ["Accepted", "WithinLimits", "Ready"] {
            let text = message(&text, condition);
            let is_named = text.contains("left out: ") && text.contains("may have 100 profiles");
            assert!(is_named, "{condition}: {text}");
        }
    }
    let informers = informers(&operator)?
        .into_iter()
        .filter(|informer| informer["resource"] == "cacheprofiles");
    let informers: Vec<_> = informers.collect();
    let [informer] = informers.as_slice() else { return Err(format!("{informers:#?}").into()) };
    assert_eq!((&informer["projection"], &informer["objects"]), (&"Full".into(), &103.into()));

    world.cluster.run(["delete", "cprof", "p050", "-n", &crowd])?;
    profile("p100").await_condition("Ready", "True", None, SOON)?;
    let last = profile("p101").read()?;
    assert!(message(&last, "Accepted").contains("left out: "), "{last:#}");
    other.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}

/// The YAML block of the page that contains `text`.
fn documented(page: &str, text: &str) -> Result<String, crate::world::Failure> {
    let page = fs::read_to_string(file(page))?;
    let mut blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.contains(text));
    Ok(block.ok_or_else(|| format!("no YAML with {text}"))?.to_owned())
}

#[test]
fn the_documented_quota_makes_the_api_server_reject_profile_101() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("quota")?;
    let quota = documented("docs/operating.md", "kind: ResourceQuota")?;
    let quota = quota.replace(
        "{name: cacheprofiles}",
        &format!("{{name: cacheprofiles, namespace: {namespace}}}"),
    );
    // The quota controller discovers a new kind within half a minute, but updates an existing quota
    // only minutes later. So each attempt deletes the quota and creates it again.
    eventually(SOON, || {
        world.cluster.run(["delete", "resourcequota", "--all", "-n", &namespace])?;
        world.cluster.apply(&quota)?;
        eventually(SOON, || {
            let quota = world.get(&namespace, "resourcequota", "cacheprofiles")?;
            let used = quota.pointer("/status/used/count~1cacheprofiles.kubewarm.io");
            if used == Some(&"0".into()) { Ok(()) } else { Err(format!("{quota:#}").into()) }
        })
    })?;
    let profiles = |numbers: std::ops::Range<usize>| {
        numbers.fold(String::new(), |mut all, n| {
            let _never_fails = write!(
                all,
                "---
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: p{n:03}, namespace: {namespace}}}
spec: {{mode: Paused, targets: [{{name: settings, resource: configmaps}}]}}
"
            );
            all
        })
    };
    world.cluster.apply(&profiles(0..100))?;
    let refused = world.cluster.apply(&profiles(100..101));
    let refused = refused.err().ok_or("profile 101 was accepted")?.to_string();
    assert!(refused.contains("exceeded quota: cacheprofiles"), "{refused}");
    world.cluster.run(["delete", "cprof", "p007", "-n", &namespace])?;
    eventually(SOON, || Ok(world.cluster.apply(&profiles(100..101)).map(drop)?))
}
