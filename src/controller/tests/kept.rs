//! What the last valid generations of profiles may take that are edited to invalid ones.

use super::{Tables, desired, profile, reconciler, run, targets};
use crate::controller::{intake::Found, reconcile::Outcome};
use serde_json::json;

const MIB: u64 = 1 << 20;

/// A profile with a spec of this size.
fn sized(namespace: &str, name: &str, generation: i64, spec_bytes: u64) -> Found {
    Found { spec_bytes, ..profile(namespace, name, generation, targets(&["pods"])) }
}

/// The same, edited to a small one that cannot be run.
fn emptied(namespace: &str, name: &str) -> Found {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"not a key": "x"}});
    profile(namespace, name, 2, spec)
}

/// Those that run, and what each of the others says.
fn running(outcome: &Outcome) -> (Vec<String>, Vec<String>) {
    let (mut run, mut told) = (Vec::new(), Vec::new());
    for found in &outcome.observed {
        let declared = &found.declared;
        if declared.targets.is_empty() {
            told.push(declared.refused.as_ref().unwrap().message.clone());
        } else {
            run.push(declared.profile.to_string());
        }
    }
    (run, told)
}

#[test]
fn what_is_kept_of_emptied_profiles_is_bounded_and_the_latest_say_so() {
    let (mut reconciler, cluster) = (reconciler(), Tables::default());
    let mut run = |found: &[Found]| run(&mut reconciler, found, &cluster);
    let names = ["p1", "p2", "p3"];
    let others = || [("b", "other", 4 * MIB), ("kubewarm-system", "own", 9 * MIB)];
    let large = names.map(|name| sized("a", name, 1, 2 * MIB)).into_iter();
    let others_large = others().map(|(namespace, name, size)| sized(namespace, name, 1, size));
    run(&large.chain(others_large).collect::<Vec<_>>());

    let others = others().map(|(namespace, name, _)| emptied(namespace, name));
    let mut found: Vec<_> =
        names.map(|name| emptied("a", name)).into_iter().chain(others).collect();
    let outcome = run(&found);
    let (kept, told) = running(&outcome);
    assert_eq!(kept, ["a/p1", "a/p2", "b/other", "kubewarm-system/own"]);
    let [told] = &told[..] else { panic!("{told:?}") };
    for part in ["not a key", "the last valid generation is not kept", "4 MiB"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(desired(&outcome).len(), 3, "a cell of each namespace");
    // That there is room again brings nothing back, and the reason is still told.
    found[0] = sized("a", "p1", 3, 1);
    let (kept, told) = running(&run(&found));
    assert_eq!(kept[..2], ["a/p1", "a/p2"]);
    assert!(told[0].contains("is not kept"), "{told:?}");
    // Until it can be run, of which nothing is left.
    found[2] = sized("a", "p3", 3, 2 * MIB);
    run(&found);
    found[2] = emptied("a", "p3");
    assert!(running(&run(&found)).0.contains(&"a/p3".to_owned()));
}

#[test]
fn what_is_kept_of_many_namespaces_is_bounded_for_the_process() {
    let (mut reconciler, cluster) = (reconciler(), Tables::default());
    let names: Vec<_> = (0..20).map(|n| format!("n{n:02}")).collect();
    let found: Vec<_> = names.iter().map(|name| sized(name, "p", 1, 4 * MIB - 1_000)).collect();
    run(&mut reconciler, &found, &cluster);
    let found: Vec<_> = names.iter().map(|name| emptied(name, "p")).collect();
    let (kept, told) = running(&run(&mut reconciler, &found, &cluster));
    assert_eq!((kept.len(), told.len()), (16, 4));
    assert!(told.iter().all(|told| told.contains("of all namespaces 64 MiB")), "{told:?}");
}
