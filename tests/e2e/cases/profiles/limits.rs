//! Limits on a real API server: kubewarm stops what exceeds a limit and does not affect anything
//! else.

use std::fmt::Write as _;

use serde_json::Value;

use crate::figures::{Exposition, Kept, informers};
use crate::filling::fill;
use crate::operator::{Operator, Running};
use crate::profile::{Profile, message, number_before, problems, since, target};
use crate::world::{Failure, Outcome, SOON, World, eventually};

const CONFIG_MAPS: usize = 400;
/// The number of large `ConfigMaps`, which take about 2.3 MiB in all.
const MANY: usize = 2_500;
const TARGETS: &str = "targets: [{name: big, resource: configmaps}, \
                       {name: small, resource: services}]";

/// Returns whether the informer is for the `ConfigMaps` of the namespace.
fn is_big(informer: &Value, namespace: &str) -> bool {
    informer["namespace"] == namespace && informer["resource"] == "configmaps"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_beyond_its_limit_stops_during_its_list_without_affecting_others() -> Outcome {
    let world = World::lease()?;
    let namespace = world.namespace("limits")?;
    fill(&world, &namespace, CONFIG_MAPS).await?;
    let flags = ["--list-strategy", "paged-list", "--list-page-size", "50"];
    let operator = Operator::start_with(&world, &flags)?;
    Operator::grant_reading(&world)?;
    let limited = format!("{{{TARGETS}, limits: {{maxObjects: 100}}}}");
    let profile = Profile::apply(&world, &namespace, "limited", &limited)?;
    let at = ("WithinLimits", "False", "ObjectsExceeded");
    let seen = profile.await_target("big", at, SOON)?;
    let text = problems(&seen, "big").join("\n");
    let reached = text.split("stopped at ").nth(1).and_then(|rest| rest.split(' ').next());
    let reached: usize = reached.ok_or_else(|| text.clone())?.parse()?;
    assert!((101..200).contains(&reached), "{text}");
    assert!(text.contains("spec.limits.maxObjects"), "{text}");
    let seen = profile.await_condition("Ready", "False", Some("LimitExceeded"), SOON)?;
    assert_eq!(target(&seen, "big").ok_or("no target")?["informers"]["limited"], 1);
    profile.await_target("small", ("Warm", "True", "Synced"), SOON)?;
    let mut informers = informers(&operator)?;
    informers.retain(|informer| is_big(informer, &namespace));
    assert_eq!(informers, [] as [Value; 0], "the informer still exists");
    let rejections = ["limit=\"objects\""];
    assert!(Exposition::read(&operator)?.sum("kubewarm_limit_rejections_total", &rejections) > 0.0);

    // The limit of one profile does not affect another profile's informer of the same kind.
    let other = Profile::apply(&world, &namespace, "unlimited", &format!("{{{TARGETS}}}"))?;
    other.await_condition("Ready", "True", None, SOON)?;
    let seen = profile.read()?;
    assert_eq!(target(&seen, "big").ok_or("no target")?["objects"], 0, "{seen:#}");

    let raised = format!("{{{TARGETS}, limits: {{maxObjects: 1000}}}}");
    Profile::apply(&world, &namespace, "limited", &raised)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    profile.await_condition("WithinLimits", "True", Some("BelowLimits"), SOON)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_beyond_its_memory_limit_is_stopped_and_the_recommended_limit_is_enough() -> Outcome
{
    let running = Running::shared()?;
    let world = &running.world;
    let namespace = world.namespace("limits")?;
    fill(world, &namespace, MANY).await?;
    let spec = |memory: &str| format!("{{{TARGETS}, limits: {{maxMemory: {memory}}}}}");
    let profile = Profile::apply(world, &namespace, "heavy", &spec("1Mi"))?;
    profile.await_target("big", ("WithinLimits", "False", "MemoryExceeded"), SOON)?;
    let seen = profile.await_condition("Ready", "False", Some("LimitExceeded"), SOON)?;
    let text = message(&seen, "WithinLimits");
    for part in
        ["target \"big\"", "stopped at ", "spec.limits.maxMemory allows the whole profile 1Mi"]
    {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    profile.await_target("small", ("Warm", "True", "Synced"), SOON)?;

    let enough = number_before(text, "Mi would be enough")?;
    Profile::apply(world, &namespace, "heavy", &spec(&format!("{enough}Mi")))?;
    profile.await_condition("WithinLimits", "True", Some("BelowLimits"), SOON)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_beyond_its_quota_does_not_affect_others() -> Outcome {
    let world = World::lease()?;
    let (greedy, modest) = (world.namespace("greedy")?, world.namespace("modest")?);
    fill(&world, &greedy, MANY).await?;
    fill(&world, &modest, CONFIG_MAPS).await?;
    // With these limits, the stores of a namespace get 1.65 MiB, which is not enough for both
    // kinds. The memory for all stores would be enough.
    let limits = ["--memory-limit", "11Mi", "--namespace-quota", "20"];
    let operator = Operator::start_with(&world, &limits)?;
    Operator::grant_reading(&world)?;
    let spec = format!("{{{TARGETS}}}");
    let other = Profile::apply(&world, &modest, "modest", &spec)?;
    let before = other.await_condition("Ready", "True", None, SOON)?;

    let profile = Profile::apply(&world, &greedy, "greedy", &spec)?;
    profile.await_target("big", ("WithinLimits", "False", "MemoryExceeded"), SOON)?;
    let seen = profile.await_condition("Ready", "False", Some("LimitExceeded"), SOON)?;
    let text = problems(&seen, "big").join("\n");
    let share = "the limit of all profiles in the namespace is 2Mi (--namespace-quota of the memory for stores)";
    assert!(text.contains(share) && text.contains("Mi would be enough"), "{text}");
    profile.await_target("small", ("Warm", "True", "Synced"), SOON)?;

    let after = other.read()?;
    let ready = |profile: &Value| since(profile, "Ready").cloned();
    assert!(ready(&before).is_some() && ready(&before) == ready(&after), "{after:#}");
    let counts = |namespace: &str| {
        let mut informers = informers(&operator)?;
        informers.retain(|informer| is_big(informer, namespace));
        Ok::<_, Failure>(
            informers.iter().map(|informer| informer["objects"].as_u64()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(counts(&greedy)?, []);
    // One more object than the test created: the ConfigMap `kube-root-ca.crt`, which every
    // namespace contains.
    assert_eq!(counts(&modest)?, [Some(CONFIG_MAPS as u64 + 1)]);
    Ok(())
}

/// Limit for the memory that 100 profiles with 3,200 targets may add to the process, in KiB.
/// Without limits on the memory of profiles, they add 60 MiB although few of their informers run.
const GROWTH_KIB: u64 = 40 << 10;

/// A hundred profiles with 32 targets each. Their selectors match no object.
fn crowd(namespace: &str) -> Result<String, Failure> {
    let mut all = String::new();
    for n in 0..100 {
        write!(
            all,
            "---
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: p{n:02}, namespace: {namespace}}}
spec: {{targets: ["
        )?;
        for at in 0..32 {
            write!(
                all,
                "{{name: t{at}, resource: configmaps, \
                 labelSelector: {{matchLabels: {{none: '{n}-{at}'}}}}}}, "
            )?;
        }
        all.push_str("]}\n");
    }
    Ok(all)
}

#[test]
fn idle_informers_stay_within_the_namespace_quota_and_do_not_delay_the_start() -> Outcome {
    let world = World::lease()?;
    let (crowded, calm) = (world.namespace("crowd")?, world.namespace("calm")?);
    Operator::grant_reading(&world)?;
    let limits = ["--memory-limit", "64Mi"];
    let operator = Operator::start_with(&world, &limits)?;
    let other = Profile::apply(&world, &calm, "other", &format!("{{{TARGETS}}}"))?;
    other.await_condition("Ready", "True", None, SOON)?;
    let before = Kept::read(&operator)?;
    world.cluster.apply(&crowd(&crowded)?)?;
    // The namespace may use 12 MiB. Half of it is enough for the specs of eleven profiles with 352
    // targets, and the rest for at most 96 informers. kubewarm leaves out further profiles and
    // targets in order of arrival.
    let last = Profile { world: &world, namespace: &crowded, name: "p99" };
    last.await_condition("WithinLimits", "False", Some("LimitExceeded"), SOON)?;
    let is_full = || {
        let metric = Exposition::read(&operator)?.sum("kubewarm_limit_rejections_total", &[]);
        let most = f64::from(300 - 96);
        if metric >= most { Ok(()) } else { Err(format!("{metric} of {most} are stopped").into()) }
    };
    eventually(SOON, is_full)?;
    let mut informers = informers(&operator)?;
    informers.retain(|informer| informer["namespace"] == crowded);
    assert!((40..=96).contains(&informers.len()), "{} informers", informers.len());
    let after = Kept::read(&operator)?;
    let grown = after.peak_kib.saturating_sub(before.resident_kib);
    assert!(grown < GROWTH_KIB, "{grown} KiB: {before:?}, then {after:?}");
    other.await_condition("Ready", "True", None, SOON)?;
    operator.process.term()?;

    let again = Operator::start_with(&world, &limits)?;
    eventually(SOON, || match again.ask("/readyz")? {
        (200, _) => Ok(()),
        (code, text) => Err(format!("{code}: {text}").into()),
    })
}
