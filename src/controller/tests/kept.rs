//! Tests of the limits for last valid specs, which stay in effect after an invalid edit.

use super::{Tables, desired, profile, reconciler, run, targets};
use crate::controller::{profile_parser::ClusterProfile, reconcile::ReconcileResult};
use serde_json::json;

const MIB: u64 = 1 << 20;

fn sized(namespace: &str, name: &str, generation: i64, memory: u64) -> ClusterProfile {
    ClusterProfile { memory, ..profile(namespace, name, generation, targets(&["pods"])) }
}

/// The profile `name` in generation 2, after an edit that made its spec small and invalid.
fn emptied(namespace: &str, name: &str) -> ClusterProfile {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"not a key": "x"}});
    profile(namespace, name, 2, spec)
}

fn running(outcome: &ReconcileResult) -> (Vec<String>, Vec<String>) {
    let (mut run, mut texts) = (Vec::new(), Vec::new());
    for observed in &outcome.observed {
        let resolved = &observed.resolved;
        if resolved.targets.is_empty() {
            texts.push(resolved.refused.as_ref().unwrap().message.clone());
        } else {
            run.push(resolved.profile.to_string());
        }
    }
    (run, texts)
}

#[test]
fn last_valid_specs_are_limited_per_namespace_and_dropped_ones_are_reported() {
    let (mut reconciler, cluster) = (reconciler(), Tables::default());
    let mut run = |profiles: &[ClusterProfile]| run(&mut reconciler, profiles, &cluster);
    let names = ["p1", "p2", "p3"];
    let others = || [("b", "other", 64 * MIB), ("kubewarm-system", "own", 99 * MIB)];
    let large = names.map(|name| sized("a", name, 1, 32 * MIB)).into_iter();
    let others_large = others().map(|(namespace, name, size)| sized(namespace, name, 1, size));
    run(&large.chain(others_large).collect::<Vec<_>>());

    let others = others().map(|(namespace, name, _)| emptied(namespace, name));
    let mut profiles: Vec<_> =
        names.map(|name| emptied("a", name)).into_iter().chain(others).collect();
    let outcome = run(&profiles);
    let (kept, texts) = running(&outcome);
    assert_eq!(kept, ["a/p1", "a/p2", "b/other", "kubewarm-system/own"]);
    let [text] = &texts[..] else { panic!("{texts:?}") };
    for part in ["not a key", "the last valid generation is not kept", "half of the memory"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(desired(&outcome).len(), 3, "one informer per namespace");
    // Capacity that another profile frees does not restore a dropped spec, so the message about
    // this spec stays.
    profiles[0] = sized("a", "p1", 3, 1);
    let (kept, texts) = running(&run(&profiles));
    assert_eq!(kept[..2], ["a/p1", "a/p2"]);
    assert!(texts[0].contains("is not kept"), "{texts:?}");
    // After a valid edit the profile runs. A later invalid edit can then keep this valid spec.
    profiles[2] = sized("a", "p3", 3, 2 * MIB);
    run(&profiles);
    profiles[2] = emptied("a", "p3");
    assert!(running(&run(&profiles)).0.contains(&"a/p3".to_owned()));
}

#[test]
fn last_valid_specs_are_limited_for_the_process() {
    let (mut reconciler, cluster) = (reconciler(), Tables::default());
    let names: Vec<_> = (0..20).map(|n| format!("n{n:02}")).collect();
    let profiles: Vec<_> = names.iter().map(|name| sized(name, "p", 1, 64 * MIB - 1_000)).collect();
    run(&mut reconciler, &profiles, &cluster);
    let profiles: Vec<_> = names.iter().map(|name| emptied(name, "p")).collect();
    let (kept, texts) = running(&run(&mut reconciler, &profiles, &cluster));
    assert_eq!((kept.len(), texts.len()), (16, 4));
    assert!(texts.iter().all(|text| text.contains("half of the memory")), "{texts:?}");
}
