//! Reads during twelve minutes without an API server, with a grace period: longer than the ten
//! minutes after which kubewarm blocks informers without one.
//!
//! The network fails, not the API server's process. A process that starts answers 410 to a watch
//! from any version before its start, so informers would have to list.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::api::{Served, Server, account, let_read};
use crate::cutter;
use crate::figures::{Exposition, informers, relists};
use crate::operator::Operator;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

const OUTAGE: Duration = Duration::from_mins(12);
/// The default `maxStalenessSeconds`, and the time for a proof that is under way.
const STALE: Duration = Duration::from_secs(150);
/// Revocations during the outage take effect within this time after it.
const REVOKED: Duration = Duration::from_secs(30);

fn warm(world: &World, namespace: &str, reads: &str) -> Outcome {
    let spec = format!("{{reads: {reads}, targets: [{{name: settings, resource: configmaps}}]}}");
    let profile = Profile::apply(world, namespace, "p", &spec)?;
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}

fn path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// The number of informers' lists. Lists that only compare a store do not count.
fn lists(served: &Served) -> Result<f64, Failure> {
    let metrics = Exposition::read(&served.operator)?;
    Ok(metrics.sum("kubewarm_upstream_list_duration_seconds_count", &[]))
}

#[test]
fn readers_go_on_for_twelve_minutes_without_the_api_server_and_revocations_follow() -> Outcome {
    let world = World::alone()?;
    let (bounded, eventual) = (world.namespace("bounded")?, world.namespace("eventual")?);
    Operator::grant_rights(&world)?;
    let is_down = Arc::default();
    let kubeconfig = cutter::outage(&world, &is_down)?;
    let served = Served::start_through(&world, &kubeconfig, &["--outage-grace-period", "20m"])?;
    warm(&world, &bounded, "{consistency: Bounded}")?;
    warm(&world, &eventual, "{consistency: Eventual}")?;
    let (reader, revoked) =
        (account(&world, &eventual, "reader")?, account(&world, &eventual, "revoked")?);
    let late = account(&world, &eventual, "late")?;
    for name in ["reader", "revoked", "late"] {
        let_read(&world, (&eventual, name), None)?;
    }
    let reads = served.server()?;
    let code =
        |token: &str, path: &str| -> Result<u16, Failure> { Ok(reads.get(token, path)?.code) };
    for token in [&reader, &revoked] {
        for path in [path(&bounded), path(&eventual), path(&bounded) + "?resourceVersion=0"] {
            assert_eq!(code(token, &path)?, 200, "{path}");
        }
    }
    let query = path(&eventual) + "?watch=1&allowWatchBookmarks=1&resourceVersion=0";
    let watch = reads.watch(&reader, &query, "application/json")?;

    // The permission is revoked a second before the outage, so nobody has reviewed it since.
    let binding = format!("read-{eventual}-revoked");
    world.cluster.run(["delete", "clusterrolebinding", &binding])?;
    sleep(Duration::from_secs(1));
    let before = (relists(&served.operator)?, lists(&served)?);
    is_down.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let mut last = (0, 0);
    while began.elapsed() < OUTAGE {
        sleep(Duration::from_secs(5));
        let now = began.elapsed();
        let reply = reads.get(&reader, &path(&eventual))?;
        assert_eq!(reply.code, 200, "{now:?}: {}", reply.text);
        assert_eq!(code(&reader, &(path(&bounded) + "?resourceVersion=0"))?, 200, "{now:?}");
        last = (code(&reader, &path(&bounded))?, code(&late, &path(&eventual))?);
        let expected: &[u16] = if now < STALE { &[200, 504] } else { &[504] };
        assert!(expected.contains(&last.0), "{now:?}: {last:?}");
        assert!(!watch.is_over(), "{now:?}");
        if now > STALE {
            assert!(!reply.header("warning").is_empty(), "{now:?}: {:?}", reply.headers);
        }
    }
    assert_eq!(last, (504, 503), "a stale read, and a token that nobody has reviewed");
    assert_eq!(code(&revoked, &path(&eventual))?, 200, "the permission held when it began");
    for informer in informers(&served.operator)? {
        assert_ne!(informer["phase"], "Blocked", "{informer:#}");
    }

    is_down.store(false, Ordering::SeqCst);
    eventually(REVOKED * 10, || {
        let codes = (code(&reader, &path(&bounded))?, code(&revoked, &path(&eventual))?);
        if codes == (200, 403) { Ok(()) } else { Err(format!("{codes:?}").into()) }
    })?;
    let api = Server::api(&world)?;
    assert_eq!(api.get(&reader, &path(&bounded))?.code, 200);
    assert!(!watch.is_over(), "{:?}", watch.events().last());
    let after = (relists(&served.operator)?, lists(&served)?);
    assert_eq!(after, before, "nothing was listed again");
    Ok(())
}
