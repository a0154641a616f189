//! Profiles of a kind with 50,000 objects, and several limits that are too small for it. kubewarm
//! must stop each list method in time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::figures::{Exposition, Kept, informers};
use crate::filling::fill;
use crate::operator::Operator;
use crate::profile::{Profile, message, number_before, problems};
use crate::world::{Failure, Outcome, World, eventually};

const OBJECTS: usize = 50_000;
const LIMIT: u64 = 10_000;
/// The number of objects that an informer must never store, because kubewarm must stop the list
/// earlier.
const FAR_TOO_MANY: u64 = 11_000;
/// Limit for the growth of the process during three attempts with 10,000 objects each, in KiB. All
/// 50,000 objects would need more.
const GROWTH_KIB: u64 = 32 << 10;
/// Timeout: ten times the longest list. On a busy machine, a list takes longer than the API
/// server's request timeout of one minute.
const PATIENCE: Duration = Duration::from_mins(5);

/// What the test observed while a limit was exceeded.
#[derive(Debug, Default)]
struct FloodObservations {
    /// The most objects in an informer of the large kind.
    most: u64,
    /// States of other kinds' informers that were not watching.
    disturbed: Vec<Value>,
}

/// Polls the informers until `act` has returned.
fn watching<T>(
    operator: &Operator,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, FloodObservations), Failure> {
    let is_over = AtomicBool::new(false);
    let (done, seen) = thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut seen = FloodObservations::default();
            while !is_over.load(Ordering::Relaxed) {
                for informer in informers(operator).unwrap_or_default() {
                    if informer["resource"] == "configmaps" {
                        seen.most = seen.most.max(informer["objects"].as_u64().unwrap_or_default());
                    } else if informer["state"] != "Watching" {
                        seen.disturbed.push(informer);
                    }
                }
                thread::sleep(Duration::from_millis(20));
            }
            seen
        });
        let done = act();
        is_over.store(true, Ordering::Relaxed);
        (done, looking.join())
    });
    Ok((done?, seen.map_err(|_| "the polling thread panicked")?))
}

/// Waits until the status of the current generation reports that `big` is stopped, and returns the
/// message.
fn await_stop(profile: &Profile<'_>, reason: &str) -> Result<String, Failure> {
    let seen = profile.await_that(PATIENCE, |profile| {
        let is_new = profile.pointer("/status/observedGeneration")
            == profile.pointer("/metadata/generation");
        let stopped = problems(profile, "big").iter().any(|text| text.contains(": stopped at "));
        (is_new && stopped).then_some(())
    })?;
    let text = problems(&seen, "big").join("\n");
    assert!(text.contains(reason), "{text}");
    assert!(message(&seen, "WithinLimits").contains("target \"big\""), "{seen:#}");
    Ok(text)
}

/// The number of objects in the informer of a kind.
fn count_objects(operator: &Operator, resource: &str) -> Result<u64, Failure> {
    let informer =
        informers(operator)?.into_iter().find(|informer| informer["resource"] == resource);
    let objects = informer.and_then(|informer| informer["objects"].as_u64());
    objects.ok_or_else(|| format!("no informer of {resource}").into())
}

const SMALL: &str = "{name: small, resource: services}";
const BIG: &str = "{name: big, resource: configmaps}";

/// Waits until this operator has open watches for the targets of both profiles. The profiles'
/// statuses are not enough, because they can be from an earlier operator.
fn await_watches(operator: &Operator) -> Outcome {
    eventually(PATIENCE, || {
        let informers = informers(operator)?;
        let watches = |kind: &str| {
            informers
                .iter()
                .any(|informer| informer["resource"] == kind && informer["state"] == "Watching")
        };
        let both = watches("services") && watches("serviceaccounts");
        if both { Ok(()) } else { Err(format!("{informers:#?}").into()) }
    })
}

/// Lists the kind with a limit `maxObjects` that is too small. Returns the process's memory before,
/// and the sufficient limit that the status's message names.
fn exceed_a_profiles_limit(
    operator: &Operator,
    profile: &Profile<'_>,
    strategy: &str,
) -> Result<(Kept, u64), Failure> {
    let Profile { world, namespace, name } = *profile;
    let accounts = count_objects(operator, "serviceaccounts")?;
    let before = Kept::read(operator)?;
    let spec = format!("{{targets: [{SMALL}, {BIG}], limits: {{maxObjects: {LIMIT}}}}}");
    let (text, seen) = watching(operator, || {
        Profile::apply(world, namespace, name, &spec)?;
        let account = format!("account-{strategy}");
        world.cluster.run(["create", "serviceaccount", &account, "-n", namespace])?;
        await_stop(profile, "ObjectsExceeded")
    })?;
    let stopped_at = number_before(&text, " objects: spec.limits.maxObjects")?;
    assert!((LIMIT + 1..FAR_TOO_MANY).contains(&stopped_at), "{strategy}: {text}");
    assert!(seen.most < FAR_TOO_MANY, "{strategy}: {} were stored", seen.most);
    assert_eq!(seen.disturbed, [] as [Value; 0], "{strategy}");
    let live = count_objects(operator, "serviceaccounts")?;
    assert_eq!(live, accounts + 1, "{strategy}: events of another informer are missing");
    let enough = number_before(&text, " objects would be enough")?;
    let stopped = Kept::read(operator)?;
    let grown = stopped.peak_kib - before.resident_kib;
    assert!(grown < GROWTH_KIB, "{strategy}: {grown} KiB: {before:?}, then {stopped:?}");
    // One object more than the test created: the ConfigMap `kube-root-ca.crt`, which every
    // namespace contains.
    assert!((50_001..50_010).contains(&enough), "{strategy}: {enough}");
    Ok((before, enough))
}

/// Stores all objects of the kind, with the limit that the status named as sufficient.
fn hold_everything(
    operator: &Operator,
    profile: &Profile<'_>,
    (before, enough): &(Kept, u64),
) -> Outcome {
    let Profile { world, namespace, name } = *profile;
    let spec = format!("{{targets: [{SMALL}, {BIG}], limits: {{maxObjects: {enough}}}}}");
    Profile::apply(world, namespace, name, &spec)?;
    profile.await_condition("WithinLimits", "True", Some("BelowLimits"), PATIENCE)?;
    profile.await_condition("Ready", "True", None, PATIENCE)?;
    let whole = Kept::read(operator)?;
    // Only anonymous memory counts: the first list also loads pages of the program, which are no
    // memory of stores.
    let grown = whole.anonymous_kib - before.anonymous_kib;
    assert!(grown > GROWTH_KIB, "the limit of growth is too high for this test: {grown} KiB");
    let accounted = Exposition::read(operator)?.sum("kubewarm_store_bytes", &[]) / 1024.0;
    let ratio = accounted / f64::from(u32::try_from(grown)?);
    // The process may have grown by more than the stores, because the allocator keeps memory that
    // only the list needed.
    assert!((0.8..1.1).contains(&ratio), "{accounted} KiB are accounted of {grown} KiB");
    Ok(())
}

/// Lists the same kind in a process with too little memory.
fn exceed_the_process_limit(operator: &Operator, siblings: &[Profile<'_>; 2]) -> Outcome {
    let [other, profile] = siblings;
    let text = await_stop(profile, "MemoryExceeded")?;
    // The first part of the message names the profile's memory, which can also be 16Mi. The rest
    // must not name the operator's limit, which is 16Mi.
    let (_, limit) = text.split_once("the operator is at its memory limit").ok_or(&*text)?;
    assert!(limit.starts_with("; select fewer") && !limit.contains("16Mi"), "{text}");
    other.await_condition("Ready", "True", None, PATIENCE)?;
    profile.await_target("small", ("Warm", "True", "Synced"), PATIENCE)?;
    profile.await_condition("Ready", "False", Some("LimitExceeded"), PATIENCE)?;
    let rejected = Exposition::read(operator)?;
    assert!(rejected.sum("kubewarm_limit_rejections_total", &["limit=\"bytes\""]) > 0.0);
    assert!(rejected.sum("kubewarm_store_bytes", &[]) < f64::from(16 << 20));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_thousand_objects_stop_at_their_limit_without_affecting_others() -> Outcome {
    let world = World::lease()?;
    let namespace = world.namespace("flood")?;
    fill(&world, &namespace, OBJECTS).await?;
    Operator::grant_reading(&world)?;
    let other = "{targets: [{name: only, resource: serviceaccounts}]}";
    let other = Profile::apply(&world, &namespace, "other", other)?;
    let limited = format!("{{targets: [{SMALL}], limits: {{maxObjects: {LIMIT}}}}}");
    let profile = Profile::apply(&world, &namespace, "limited", &limited)?;
    for strategy in ["list", "watch-list", "paged-list"] {
        Profile::apply(&world, &namespace, "limited", &limited)?;
        let operator = Operator::start_with(&world, &["--list-strategy", strategy])?;
        await_watches(&operator)?;
        let reached = exceed_a_profiles_limit(&operator, &profile, strategy)?;
        if strategy == "paged-list" {
            hold_everything(&operator, &profile, &reached)?;
        }
        operator.process.term()?;
    }

    let unlimited = format!("{{targets: [{SMALL}, {BIG}]}}");
    Profile::apply(&world, &namespace, "limited", &unlimited)?;
    let limits = ["--memory-limit", "16Mi", "--namespace-quota", "100"];
    let bounded = Operator::start_with(&world, &limits)?;
    exceed_the_process_limit(&bounded, &[other, profile])
}
