//! What the last valid generations of profiles may take that are edited to invalid ones.

use super::{Tables, desired, profile, reconciler, run, targets};
use crate::controller::{intake::Found, reconcile::Outcome};
use serde_json::json;

const MIB: usize = 1 << 20;

/// A profile with a spec of this size.
fn sized(namespace: &str, name: &str, generation: i64, spec_bytes: usize) -> Found {
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
fn what_is_kept_of_emptied_profiles_fits_beside_what_is_read_of_the_namespace() {
    let (mut reconciler, cluster) = (reconciler(), Tables::default());
    let mut run = |found: &[Found]| run(&mut reconciler, found, &cluster);
    let names = ["p1", "p2", "p3", "p4"];
    let others =
        [sized("b", "other", 1, 4 * MIB - 1_000), sized("kubewarm-system", "own", 1, 9 * MIB)];
    let before = names.map(|name| sized("a", name, 1, MIB)).into_iter().chain(others);
    run(&before.collect::<Vec<_>>());

    let others = [emptied("b", "other"), emptied("kubewarm-system", "own")];
    let mut found: Vec<_> =
        names.map(|name| emptied("a", name)).into_iter().chain(others).collect();
    let outcome = run(&found);
    let (kept, told) = running(&outcome);
    // The small specs take their part, so the youngest of the four large ones goes.
    assert_eq!(kept, ["a/p1", "a/p2", "a/p3", "b/other", "kubewarm-system/own"]);
    let [told] = &told[..] else { panic!("{told:?}") };
    for part in ["not a key", "the last valid generation is not kept", "4 MiB"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(desired(&outcome).len(), 3, "a cell of each namespace");

    found.push(sized("a", "p5", 1, 2 * MIB));
    let (kept, _) = running(&run(&found));
    assert_eq!(kept, ["a/p1", "a/p5", "b/other", "kubewarm-system/own"]);
    // That there is room again brings nothing back, and the reason is still told.
    found.pop();
    let (kept, told) = running(&run(&found));
    assert_eq!((kept[0].as_str(), kept[1].as_str()), ("a/p1", "b/other"));
    assert_eq!(told.iter().filter(|told| told.contains("is not kept")).count(), 3, "{told:?}");
    // Until it can be run, of which nothing is left.
    found[3] = sized("a", "p4", 3, MIB);
    run(&found);
    found[3] = emptied("a", "p4");
    assert!(running(&run(&found)).0.contains(&"a/p4".to_owned()));
}

#[test]
fn what_is_kept_of_many_namespaces_fits_into_what_the_process_reads() {
    let (mut reconciler, cluster) = (reconciler(), Tables::default());
    let names: Vec<_> = (0..20).map(|n| format!("n{n:02}")).collect();
    // Never more than the process reads at a time.
    for names in names.chunks(10) {
        let mut found: Vec<_> = self::names_before(&names[0]).map(|n| emptied(&n, "p")).collect();
        found.extend(names.iter().map(|name| sized(name, "p", 1, 4 * MIB - 1_000)));
        run(&mut reconciler, &found, &cluster);
    }
    let found: Vec<_> = names.iter().map(|name| emptied(name, "p")).collect();
    let (kept, told) = running(&run(&mut reconciler, &found, &cluster));
    assert_eq!((kept.len(), told.len()), (16, 4));
    assert!(told.iter().all(|told| told.contains("of all namespaces")), "{told:?}");
    assert!(!told[0].contains("n00"), "of others nothing: {told:?}");
}

/// The names of namespaces up to this one.
fn names_before(name: &str) -> impl Iterator<Item = String> {
    let end = name[1..].parse().unwrap();
    (0..end).map(|n: usize| format!("n{n:02}"))
}
