//! Measures how soon all informers have open watches again after an outage of the API server.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cutter;
use crate::figures;
use crate::operator::Operator;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Ten times the time that 200 informers need on a machine that does nothing else. An informer's
/// own backoff of up to 30 s would also end within this limit. So `tests/protocol`, not this limit,
/// tests that informers start early.
pub(crate) const IN_STEP: Duration = Duration::from_secs(50);
const EVERY: Duration = Duration::from_millis(20);

/// A profile with `count` targets. Each target selects other objects, so each has an informer.
fn spec(count: usize) -> Result<String, std::fmt::Error> {
    let mut targets = String::new();
    for number in 0..count {
        write!(
            targets,
            "{{name: t{number}, resource: configmaps, labelSelector: {{matchLabels: {{part: p{number}}}}}}},"
        )?;
    }
    Ok(format!("{{targets: [{targets}]}}"))
}

/// The number of informers with an open watch.
fn watching(operator: &Operator) -> Result<usize, Failure> {
    let is_watching =
        |informer: &Value| informer["resource"] == "configmaps" && informer["state"] == "Watching";
    Ok(figures::informers(operator)?.iter().filter(|informer| is_watching(informer)).count())
}

/// Starts `namespaces` with one profile of `targets` informers each. Then this function interrupts
/// all connections, once for each duration in `outages`. Returns for each outage how long the
/// informers took until all their watches were open again.
pub(crate) fn recover(
    namespaces: usize,
    targets: usize,
    outages: &[Duration],
) -> Result<Vec<Duration>, Failure> {
    let world = World::alone()?;
    Operator::grant_rights(&world)?;
    let is_down = Arc::default();
    let kubeconfig = cutter::outage(&world, &is_down)?;
    let operator = Operator::run(&world, "kubewarm", &kubeconfig, &[])?;
    for number in 0..namespaces {
        let namespace = world.namespace(&format!("team{number}"))?;
        let profile = Profile::apply(&world, &namespace, "all", &spec(targets)?)?;
        profile.await_manifests()?;
        profile.grant()?;
        profile.await_condition("Ready", "True", None, SOON)?;
    }
    let all = namespaces * targets;
    let is_in_step = || {
        let open = watching(&operator)?;
        if open >= all { Ok(()) } else { Err(format!("{open} of {all} watches").into()) }
    };
    let took = outages.iter().map(|&outage| {
        eventually(SOON, is_in_step)?;
        let before = figures::relists(&operator)?.to_string();
        is_down.store(true, Ordering::SeqCst);
        thread::sleep(outage);
        is_down.store(false, Ordering::SeqCst);
        let back = Instant::now();
        while is_in_step().is_err() {
            assert!(back.elapsed() < SOON, "{} of {all} watches", watching(&operator)?);
            thread::sleep(EVERY);
        }
        let took = back.elapsed();
        assert_eq!(
            figures::relists(&operator)?.to_string(),
            before,
            "the watches resume without a list"
        );
        Ok::<_, Failure>(took)
    });
    took.collect()
}

#[test]
fn one_informer_and_200_resume_with_the_api_server() -> Outcome {
    for (namespaces, targets) in [(1, 1), (2, 100)] {
        let took = recover(namespaces, targets, &[5, 30].map(Duration::from_secs))?;
        assert!(took.iter().all(|took| *took < IN_STEP), "{took:?}");
    }
    Ok(())
}
