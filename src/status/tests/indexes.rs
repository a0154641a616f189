use super::fixtures::{StatusWorld, declared, key, pods, state, target};
use kubewarm_api::{
    model::{
        FieldPath, GroupResource, IndexDefinition, InformerKey, InformerScope, ResolvedTarget,
        Resource, ResourceInfo,
    },
    v1alpha1::CacheProfileStatus,
};
use kubewarm_cache::informer::InformerReport;

const NODE: &str = "spec.nodeName";

fn path(text: &str) -> FieldPath {
    FieldPath::parse(text).unwrap()
}

/// Returns a target with an index `by-<number>` for each of `paths`.
fn indexed(informers: &[InformerKey], paths: &[&str]) -> ResolvedTarget {
    let index = |(number, text): (usize, &&str)| IndexDefinition {
        name: format!("by-{number}").into(),
        path: path(text),
    };
    let named = paths.iter().enumerate().map(index).collect();
    ResolvedTarget { named, ..target("pods", informers) }
}

/// Adds a running informer whose store has this number of objects and no values at `without`.
fn runs(world: &mut StatusWorld, key: &InformerKey, objects: u64, without: &[&str]) {
    world.runs(key.clone(), world.watching());
    set_report(world, key, |report| {
        report.usage.objects = objects;
        report.paths_without_values = without.iter().map(|text| path(text)).collect();
    });
}

fn set_report(world: &mut StatusWorld, key: &InformerKey, set: impl FnOnce(&mut InformerReport)) {
    set(world.informers.get_mut(key).unwrap().report.as_mut().unwrap());
}

/// Returns reason and message of each problem of the only target.
fn problems(status: &CacheProfileStatus) -> Vec<(String, String)> {
    let problems = status.targets[0].problems.iter();
    problems.map(|found| (found.reason.clone(), found.message.clone().unwrap())).collect()
}

fn reasons(status: &CacheProfileStatus) -> Vec<String> {
    problems(status).into_iter().map(|(reason, _)| reason).collect()
}

#[test]
fn an_index_without_values_is_a_problem_of_a_ready_profile_from_100_objects_on() {
    let profile = declared(vec![indexed(&[pods("a")], &[NODE, "status.podIP"])]);
    for (objects, expected) in [(0, 0), (99, 0), (100, 1)] {
        let mut world = StatusWorld::new();
        runs(&mut world, &pods("a"), objects, &[NODE]);
        let status = world.compute(&profile, None);
        assert_eq!(state(&status.conditions, "Ready"), "True/Ready");
        let problems = problems(&status);
        assert_eq!(problems.len(), expected, "{objects} objects: {problems:?}");
        for (reason, message) in problems {
            assert_eq!(reason, "IndexWithoutValues");
            assert!(message.contains("check the spelling"), "{message}");
            assert!(message.ends_with(r#": index "by-0" (spec.nodeName)"#), "{message}");
        }
    }
}

#[test]
fn an_index_with_a_value_in_one_of_the_stores_is_no_problem() {
    let informers = [pods("a"), pods("b")];
    let profile = declared(vec![indexed(&informers, &[NODE])]);
    let mut world = StatusWorld::new();
    runs(&mut world, &pods("a"), 60, &[NODE]);
    runs(&mut world, &pods("b"), 60, &[NODE]);
    assert_eq!(reasons(&world.compute(&profile, None)), ["IndexWithoutValues"]);
    runs(&mut world, &pods("b"), 60, &[]);
    assert_eq!(reasons(&world.compute(&profile, None)), [""; 0]);
    // The store of namespace `b` is not synced. Its missing objects can have values, so the status
    // reports no problem.
    runs(&mut world, &pods("b"), 60, &[NODE]);
    set_report(&mut world, &pods("b"), |report| report.synced_at = None);
    assert_eq!(reasons(&world.compute(&profile, None)), [""; 0]);
}

#[test]
fn a_field_that_a_builtin_kind_lacks_is_a_problem_at_once() {
    let profile =
        declared(vec![indexed(&[pods("a")], &["spec.nodename", NODE, "metadata.labels.x"])]);
    let mut world = StatusWorld::new();
    runs(&mut world, &pods("a"), 0, &[]);
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Ready"), "True/Ready");
    let [(reason, message)] = &problems(&status)[..] else { panic!("{status:?}") };
    assert_eq!(reason, "UnknownField");
    assert!(message.contains("check the spelling"), "{message}");
    assert!(message.ends_with(r#": index "by-0" (spec.nodename)"#), "{message}");
    // The index on an unknown field has no values either, but the status reports only the unknown
    // field.
    runs(&mut world, &pods("a"), 100, &["spec.nodename"]);
    assert_eq!(reasons(&world.compute(&profile, None)), ["UnknownField"]);
    // A newer API server can serve a field that kubewarm's tables lack. If an object has a value,
    // the field exists, so the status reports no problem.
    runs(&mut world, &pods("a"), 1, &[]);
    assert_eq!(reasons(&world.compute(&profile, None)), [""; 0]);
    runs(&mut world, &pods("a"), 1, &["spec.nodename"]);
    assert_eq!(reasons(&world.compute(&profile, None)), ["UnknownField"]);
    // kubewarm reads the kind as JSON, because the API server can be newer than kubewarm's field
    // tables. So the field can exist, and the status reports only the JSON.
    set_report(&mut world, &pods("a"), |report| {
        report.json_fallback = Some("an unknown field".into());
        report.paths_without_values.clear();
    });
    assert_eq!(reasons(&world.compute(&profile, None)), ["ReadAsJson"]);
}

#[test]
fn an_index_of_a_custom_resource_is_a_problem_only_from_100_objects_on() {
    let resource =
        Resource::new(GroupResource::new("example.com", "parts").unwrap(), "v1").unwrap();
    let key =
        InformerKey { resource: resource.clone(), ..key("pods", InformerScope::AllNamespaces) };
    let resolved = Some(Ok(ResourceInfo::new(resource, "Part")));
    let target =
        ResolvedTarget { resolved, ..indexed(std::slice::from_ref(&key), &["spec.colour"]) };
    let profile = declared(vec![target]);
    let mut world = StatusWorld::new();
    runs(&mut world, &key, 99, &["spec.colour"]);
    assert_eq!(reasons(&world.compute(&profile, None)), [""; 0]);
    runs(&mut world, &key, 100, &["spec.colour"]);
    assert_eq!(reasons(&world.compute(&profile, None)), ["IndexWithoutValues"]);
}

#[test]
fn long_paths_do_not_displace_the_next_step() {
    let long: Vec<_> = (0..16).map(|number| format!("spec.{}{number}", "x".repeat(100))).collect();
    let paths: Vec<_> = long.iter().map(String::as_str).collect();
    let mut world = StatusWorld::new();
    runs(&mut world, &pods("a"), 0, &[]);
    let status = world.compute(&declared(vec![indexed(&[pods("a")], &paths)]), None);
    let [(_, message)] = &problems(&status)[..] else { panic!("{status:?}") };
    assert!(message.len() <= 512 && message.contains("[*] after each list"), "{message}");
}
