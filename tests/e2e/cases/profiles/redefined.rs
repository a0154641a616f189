//! CustomResourceDefinitions that are edited while their objects are warm.

use crate::figures::{Exposition, informers};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, parts_and_settings, since, target};
use crate::world::{Failure, Outcome, SOON, World, eventually};

const PARTS: &[&str] = &[r#"resource="parts""#];
const SETTINGS: &[&str] = &[r#"resource="configmaps""#];
/// A default that is long enough to be visible in the size of a store.
const DEFAULT: &str = "Lorem ipsum dolor sit amet consetetur sadipscing elitr sed diam nonumy eirmod \
                       tempor invidunt ut labore et dolore magna aliquyam erat sed diam voluptua";

/// The edits of the definition.
#[derive(Clone, Copy, Default)]
struct Edits {
    default: bool,
    column: bool,
    second_version: bool,
}

/// The definition of parts with the versions `v1beta1` and `v1`. Discovery prefers `v1`.
fn definition(edits: Edits) -> String {
    let default = if edits.default { format!(", default: {DEFAULT:?}") } else { String::new() };
    let column = if edits.column {
        "additionalPrinterColumns: [{name: Note, type: string, jsonPath: .spec.note}],"
    } else {
        ""
    };
    let version = |name: &str, storage: bool| {
        format!(
            "
  - {{name: {name}, served: true, storage: {storage}, {column} schema: {{openAPIV3Schema: {{
      type: object, properties: {{spec: {{
        type: object, properties: {{note: {{type: string{default}}}}}}}}}}}}}}}"
        )
    };
    let second = if edits.second_version { version("v1", false) } else { String::new() };
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: parts.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{kind: Part, plural: parts, singular: part}}
  versions:{}{second}
",
        version("v1beta1", true)
    )
}

fn objects(namespace: &str) -> String {
    let part = |n| {
        format!(
            "{{apiVersion: example.com/v1beta1, kind: Part, spec: {{}}, \
             metadata: {{name: part-{n}, namespace: {namespace}}}}}"
        )
    };
    (0..20).map(part).collect::<Vec<_>>().join("\n---\n")
}

/// Applies the definition until the API server serves the kind, then the objects.
fn prepare(world: &World, namespace: &str) -> Outcome {
    world.cluster.apply(&definition(Edits::default()))?;
    eventually(SOON, || Ok(world.cluster.apply(&objects(namespace))?))?;
    Ok(())
}

/// Counts the lists and watches of a resource.
fn requests(operator: &Operator, labels: &[&str]) -> Result<(f64, f64), Failure> {
    let figures = Exposition::read(operator)?;
    let sum = |metric| figures.sum(metric, labels);
    Ok((sum("kubewarm_upstream_list_pages_total"), sum("kubewarm_upstream_watch_starts_total")))
}

/// Waits until informers have relisted this many times because the CRD changed.
fn await_relists(operator: &Operator, least: f64) -> Outcome {
    eventually(SOON, || {
        let figures = Exposition::read(operator)?;
        let labels = [PARTS, &[r#"reason="redefined""#]].concat();
        let relists = figures.sum("kubewarm_upstream_relists_total", &labels);
        let active = figures.sum("kubewarm_upstream_watches", PARTS);
        // An edit of the CRD shows as the end of an open watch, so a watch must be open before the
        // next edit.
        if relists >= least && active >= 1.0 {
            return Ok(());
        }
        Err(format!("{relists} relists, {active} watches").into())
    })
}

#[test]
fn an_edited_crd_is_read_again_and_a_new_version_warms_while_the_old_serves() -> Outcome {
    let world = World::lease()?;
    let namespace = world.namespace("team")?;
    prepare(&world, &namespace)?;
    let operator = Operator::start(&world)?;
    Operator::grant_reading(&world)?;
    let profile = Profile::apply(&world, NAMESPACE, "kinds", &parts_and_settings(&namespace))?;
    let warm = profile.await_condition("Ready", "True", None, SOON)?;
    let others = requests(&operator, SETTINGS)?;
    let bytes = |figures: Exposition| figures.sum("kubewarm_store_bytes", PARTS);
    let small = bytes(Exposition::read(&operator)?);

    let mut edits = Edits { default: true, ..Edits::default() };
    world.cluster.apply(&definition(edits))?;
    await_relists(&operator, 1.0)?;
    let large = bytes(Exposition::read(&operator)?);
    assert!(large > small + 500.0, "{small} bytes without the default, {large} with it");
    profile.await_that(SOON, |profile| {
        (target(profile, "parts")?.get("lastRelist")?["reason"] == "Redefined").then_some(())
    })?;

    edits.column = true;
    world.cluster.apply(&definition(edits))?;
    await_relists(&operator, 2.0)?;

    edits.second_version = true;
    world.cluster.apply(&definition(edits))?;
    let after = profile.await_that(SOON, |profile| {
        let version = target(profile, "parts")?.pointer("/resolved/version")?;
        (version == "v1").then_some(())
    })?;
    assert_eq!(target(&after, "parts").map(|target| &target["servingGeneration"]), Some(&1.into()));
    eventually(SOON, || {
        let mut parts = informers(&operator)?;
        parts.retain(|informer| informer["resource"] == "parts");
        let counts =
            parts.iter().map(|informer| (informer["version"].clone(), informer["objects"].clone()));
        let counts: Vec<_> = counts.collect();
        if counts == [("v1".into(), 20.into())] {
            Ok(())
        } else {
            Err(format!("{counts:?}").into())
        }
    })?;
    let after = profile.await_condition("Ready", "True", None, SOON)?;
    assert_eq!(since(&warm, "Warm"), since(&after, "Warm"), "{after:#}");
    assert_eq!(others, requests(&operator, SETTINGS)?, "another kind was affected");
    Ok(())
}
