//! Tests the oldest supported API server: the requests that show that a store is current work there
//! too.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::api::{Served, account, let_read};
use crate::cases::reads::strict_reads;
use crate::figures::Exposition;
use crate::profile::Profile;
use crate::world::{Outcome, SOON, World, eventually};

/// Longer than three bookmarks, and longer than the default of `maxStalenessSeconds`, 120 s.
const QUIET: Duration = Duration::from_secs(200);

#[test]
fn strict_reads_are_answered() -> Outcome {
    strict_reads::are_answered(World::with_oldest_apiserver()?)
}

#[test]
fn bookmarks_keep_a_quiet_store_fresh() -> Outcome {
    let world = World::with_oldest_apiserver()?;
    let namespace = world.namespace("team")?;
    let served = Served::start(&world, &[])?;
    let token = account(&world, &namespace, "reader")?;
    let_read(&world, (&namespace, "reader"), Some(&namespace))?;
    let profile =
        Profile::apply(&world, &namespace, "p", "{targets: [{name: all, resource: configmaps}]}")?;
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let reads = served.server()?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    eventually(SOON, || match reads.get(&token, &path)?.code {
        200 => Ok(()),
        code => Err(format!("code {code}").into()),
    })?;
    let began = Instant::now();
    while began.elapsed() < QUIET {
        let reply = reads.get(&token, &path)?;
        assert_eq!((reply.code, reply.header("warning")), (200, ""), "{reply:?}");
        sleep(Duration::from_secs(1));
    }
    let figures = Exposition::read(&served.operator)?;
    let checks = figures.sum("kubewarm_read_wait_seconds_count", &["reason=\"freshness_check\""]);
    assert!(checks < 0.5, "{checks} reads of a quiet store waited for a freshness check");
    Ok(())
}
