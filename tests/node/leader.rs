//! Tests that another process takes over from a leader that ends or freezes, and that only one
//! process writes statuses at a time.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use testbed::eventually;

use crate::object::{Pod, condition, text};
use crate::release::{NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON, report};

/// The limit for the takeover by another process, as values.yaml states it.
const TAKEN_OVER: Duration = Duration::from_secs(20);
/// Additional time for a busy test machine: one lease request that times out after 5 s, and the
/// pause of 3 s after it.
const LATE: Duration = Duration::from_secs(10);
/// The time in which a process that is not the leader must write nothing: five reconciles of all
/// profiles. One reconcile would be enough to write a status.
const LOOKS: Duration = Duration::from_secs(5);
/// A new profile, for which the leader must write a status.
const ANOTHER: &str = "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: another, namespace: shop}
spec: {targets: [{name: configmaps, resource: configmaps}]}
";

/// The leader and the other replica, if both are ready.
fn roles(release: &NodeRelease<'_>) -> Result<[Pod; 2], Failure> {
    let (leader, mut pods) = (release.leader()?, release.pods()?);
    pods.sort_by_key(|pod| pod.name != leader);
    let text = format!("{leader} leads, of {pods:?}");
    // The lease can name a replica of an earlier test's release.
    let are_well = |pods: &[Pod; 2]| pods[0].name == leader && pods.iter().all(|pod| pod.is_ready);
    <[Pod; 2]>::try_from(pods).ok().filter(are_well).ok_or_else(|| text.into())
}

/// Waits until another process than `holder` leads, and checks how long that took.
fn await_another(
    release: &NodeRelease<'_>,
    holder: &str,
    since: Timestamp,
) -> Result<String, Failure> {
    let lead = eventually(SOON, || {
        let lead = release.lead()?;
        if lead.holder == holder { Err(format!("{holder} still leads").into()) } else { Ok(lead) }
    })?;
    let took = Duration::try_from(lead.since.duration_since(since))?;
    report(&format!("{} leads {took:.1?} after the end of {holder}", lead.holder))?;
    assert!(took < TAKEN_OVER + LATE, "{took:?}");
    Ok(lead.pod().to_owned())
}

/// An additional profile of one test. It is deleted when this value is dropped.
struct Another<'a>(&'a NodeWorld);

impl<'a> Another<'a> {
    /// Creates the profile and waits until its status has been written.
    fn create(world: &'a NodeWorld) -> Result<Self, Failure> {
        world.cluster().apply(ANOTHER)?;
        let created = Self(world);
        world.await_that("cprof another --namespace=shop", SOON, |profile| {
            condition(profile, "Ready") == "True"
        })?;
        Ok(created)
    }
}

impl Drop for Another<'_> {
    fn drop(&mut self) {
        // A failed deletion is ignored, because no test depends on the number of profiles.
        let _ = self.0.run("delete cprof another --namespace=shop");
    }
}

/// A frozen container. It is thawed when this value is dropped.
struct Frozen<'a>(&'a NodeWorld, &'a str);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Thaws the container. Otherwise the kubelet would kill it after failed probes.
        let _ = self.0.node.thaw_container(self.1);
    }
}

/// The pods that sent status writes or Events after `since`, one entry per request, successful or
/// not.
fn writers(world: &NodeWorld, since: Timestamp) -> Result<Vec<String>, Failure> {
    let mut writers = Vec::new();
    for line in std::fs::read_to_string(world.cluster().audit_log())?.lines() {
        // The last line can be incomplete.
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        let field = |pointer| text(&entry, pointer);
        let is_write = matches!(
            (field("/verb"), field("/objectRef/resource"), field("/objectRef/subresource")),
            ("patch", "cacheprofiles", "status") | ("create", "events", _)
        );
        let pod = field("/user/extra/authentication.kubernetes.io~1pod-name/0");
        if is_write
            && field("/user/username").ends_with(":kubewarm")
            && field("/requestReceivedTimestamp").parse::<Timestamp>()? > since
        {
            writers.push(pod.to_owned());
        }
    }
    Ok(writers)
}

/// Checks that the leader wrote after `since` and no other pod did.
fn assert_writes_alone(world: &NodeWorld, leader: &str, since: Timestamp) -> Outcome {
    let writers = writers(world, since)?;
    assert!(!writers.is_empty(), "no status was written");
    assert!(writers.iter().all(|writer| writer == leader), "{leader} leads, but {writers:?}");
    Ok(())
}

#[test]
fn a_killed_leader_is_followed_within_20_s_by_one_that_writes_alone() -> Outcome {
    let test = "a_killed_leader_is_followed_within_20_s_by_one_that_writes_alone";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let release = NodeRelease::with(&world, PAIR)?;
    let [old, _] = eventually(SOON, || roles(&release))?;
    let holder = release.lead()?.holder;

    let killed = Timestamp::now();
    world.node.kill_container(&old.container)?;
    let since = Timestamp::now();
    // The kubelet restarts the killed container at once. The new process and the other replica both
    // wait for the lease to expire, and either of them can take it.
    let leader = await_another(&release, &holder, killed)?;
    let _another = Another::create(&world)?;
    let [_, follower] = eventually(SOON, || roles(&release))?;
    let restarts: Vec<_> =
        release.pods()?.iter().map(|pod| (pod.name == old.name, pod.restarts)).collect();
    assert!(restarts.contains(&(true, old.restarts + 1)), "{restarts:?}");
    assert_ne!(follower.name, leader);
    std::thread::sleep(LOOKS);
    assert_writes_alone(&world, &leader, since)
}

#[test]
fn a_frozen_leader_is_followed_within_20_s_and_writes_nothing_when_it_thaws() -> Outcome {
    let test = "a_frozen_leader_is_followed_within_20_s_and_writes_nothing_when_it_thaws";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let release = NodeRelease::with(&world, PAIR)?;
    let [old, new] = eventually(SOON, || roles(&release))?;
    let holder = release.lead()?.holder;

    world.node.freeze_container(&old.container)?;
    let frozen = Frozen(&world, &old.container);
    let since = Timestamp::now();
    assert_eq!(await_another(&release, &holder, since)?, new.name);
    // The frozen process has not seen this new profile. If it still led after the thaw, it would
    // write the profile's status.
    let _another = Another::create(&world)?;
    drop(frozen);
    eventually(SOON, || {
        let known = release.sum(&old, &["kubewarm_profile_info{", r#"profile="another""#])?;
        if known > 0.5 { Ok(()) } else { Err("the profile is not in its metrics".into()) }
    })?;
    std::thread::sleep(LOOKS);
    assert_writes_alone(&world, &new.name, since)?;
    let pods = eventually(SOON, || roles(&release))?;
    assert_eq!(pods[0].name, new.name);
    assert_eq!(pods[1].container, old.container, "the container was restarted");
    Ok(())
}
