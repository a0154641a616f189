//! An API server that stops answering, and one that restarts: kubewarm lists only after a 410 and
//! spreads its requests.

use std::time::{Duration, Instant};

use crate::figures::{Exposition, informers, relists};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::requests::{overlap, requests};
use crate::world::{Failure, Outcome, SOON, World, eventually};

const SILENCE: Duration = Duration::from_secs(150);
/// The profile's staleness limit, which passes during the silence of the API server. kubewarm
/// checks silent informers one after another, so a much lower limit would be too short for a
/// hundred informers.
const STALE_AFTER: u64 = 60;
const NAMESPACES: usize = 20;
const KINDS: [&str; 5] =
    ["configmaps", "services", "resourcequotas", "limitranges", "serviceaccounts"];
const CELLS: usize = NAMESPACES * KINDS.len();
/// The default of `warmup.maxConcurrentLists` for one profile.
const LISTS: usize = 4;

fn spec(namespaces: &[String]) -> String {
    let names = namespaces.join(", ");
    let targets = KINDS.map(|kind| {
        format!(
            "{{name: {kind}, resource: {kind},
               scope: {{type: Namespaces, namespaces: [{names}]}}}}"
        )
    });
    let targets = targets.join(", ");
    format!("{{freshness: {{maxStalenessSeconds: {STALE_AFTER}}}, targets: [{targets}]}}")
}

/// Raises the cluster's newest version without an event for any watch of the informers.
fn write_elsewhere(world: &World) -> Outcome {
    let roles = (0..50).map(|n| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole,
               metadata: {{name: unrelated-{n}}}}}"
        )
    });
    let roles = roles.collect::<Vec<_>>().join(", ");
    world.cluster.apply(&format!("{{apiVersion: v1, kind: List, items: [{roles}]}}"))?;
    Ok(())
}

/// Returns whether the profile's condition has this status in the operator's metrics.
fn has_status(operator: &Operator, condition: &str, status: &str) -> Result<bool, Failure> {
    let (condition, status) = (format!("condition={condition:?}"), format!("status={status:?}"));
    let figures = Exposition::read(operator)?;
    Ok(figures.sum("kubewarm_profile_condition", &[&condition, &status]) > 0.5)
}

#[test]
fn a_silent_server_causes_no_list_and_a_restarted_one_no_herd() -> Outcome {
    let world = World::alone()?;
    let namespaces: Result<Vec<_>, _> = (0..NAMESPACES).map(|_| world.namespace("team")).collect();
    let operator = Operator::start(&world)?;
    Operator::grant_reading(&world)?;
    let profile = Profile::apply(&world, NAMESPACE, "all", &spec(&namespaces?))?;
    profile.await_condition("Ready", "True", None, SOON)?;
    assert_eq!(relists(&operator)?.to_string(), "0");

    world.cluster.apiserver().freeze()?;
    let began = Instant::now();
    let mut was_stale = false;
    while began.elapsed() < SILENCE {
        assert_eq!(operator.ask("/livez")?.0, 200, "after {:?}", began.elapsed());
        let is_stale = has_status(&operator, "Fresh", "False")?;
        assert!(is_stale || !was_stale, "fresh again after {:?}", began.elapsed());
        assert!(has_status(&operator, "Warm", "True")?, "the store is still served");
        was_stale = is_stale;
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(was_stale, "never Fresh=False");
    world.cluster.apiserver().thaw()?;
    // kubewarm becomes ready by the next bookmarks, which may take a minute, or by checks of silent
    // informers, which run one after another.
    eventually(SOON, || {
        if has_status(&operator, "Ready", "True")? { Ok(()) } else { Err("not Ready".into()) }
    })?;
    profile.await_condition("Ready", "True", None, SOON)?;
    assert_eq!(relists(&operator)?.to_string(), "0", "a silent server caused a relist");

    // The informers' watches have not received these versions, and a restarted API server has no
    // history of them. So the watches cannot resume.
    write_elsewhere(&world)?;
    world.cluster.apiserver().kill()?;
    let before = std::fs::read_to_string(world.cluster.audit_log())?.len();
    let killed = Instant::now();
    while killed.elapsed() < Duration::from_secs(5) {
        assert_eq!(operator.ask("/livez")?.0, 200, "{:?} without a server", killed.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    world.cluster.apiserver().start()?;
    eventually(SOON, || {
        assert_eq!(operator.ask("/livez")?.0, 200, "while the server restarts");
        let mut informers = informers(&operator)?;
        // The state `Silent` also means an open watch. On a slow machine, there is always an
        // informer that waits for its probe.
        informers
            .retain(|informer| informer["state"] != "Watching" && informer["state"] != "Silent");
        if informers.is_empty() { Ok(()) } else { Err(format!("{informers:#?}").into()) }
    })?;
    let log = std::fs::read_to_string(world.cluster.audit_log())?;
    let requests = requests(log.get(before..).unwrap_or_default());
    let figures = Exposition::read(&operator)?;
    // The API server reports the expired version (410) as an event, in a watch that it answered
    // with 200. So the test counts these ends in kubewarm's metrics and not in the audit log.
    let gone = figures.sum("kubewarm_upstream_watch_ends_total", &[r#"reason="gone""#]);
    let relists = relists(&operator)?;
    let watches = requests.iter().filter(|request| request.verb == "watch").count();
    let lists: Vec<_> = requests.iter().filter(|request| request.is_whole_list()).collect();
    let counts = format!(
        "{} requests, {watches} watches, {} whole lists, {relists} relists, {gone} times 410",
        requests.len(),
        lists.len()
    );
    assert!(gone > f64::from(u32::try_from(LISTS)?), "too few watches ended with 410: {counts}");
    assert!(relists <= gone, "{counts}");
    assert!(f64::from(u32::try_from(lists.len())?) <= gone, "{counts}");
    // The controller's own lists of profiles do not count, because the limit is for the profile's
    // informers.
    let of_profile: Vec<_> =
        lists.into_iter().filter(|list| list.resource != "cacheprofiles").collect();
    let at_once = overlap(&of_profile);
    assert!(at_once <= LISTS, "{at_once} lists at once: {counts}");
    // Each informer opens up to three watches: one before the API server has loaded its roles, one
    // that is refused, and one that stays open.
    assert!((CELLS..=3 * CELLS + 10).contains(&watches), "{counts}");
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}
