//! Selectors for namespaces and objects, metadata targets and profile modes.

use std::time::Duration;

use serde_json::Value;

use crate::figures::{Exposition, informers};
use crate::operator::{NAMESPACE, Operator, Running};
use crate::profile::{Profile, target};
use crate::world::{Failure, Outcome, SOON, eventually};

/// Waits until `show` returns these texts for the informers of a resource.
fn await_informers(
    operator: &Operator,
    resource: &str,
    show: impl Fn(&Value) -> String,
    wanted: &[String],
) -> Result<Vec<Value>, Failure> {
    eventually(SOON, || {
        let mut informers = informers(operator)?;
        informers.retain(|informer| informer["resource"] == resource);
        let mut shown: Vec<_> = informers.iter().map(&show).collect();
        shown.sort();
        let mut wanted = wanted.to_vec();
        wanted.sort();
        if shown == wanted {
            Ok(informers)
        } else {
            Err(format!("{shown:?}, not {wanted:?}").into())
        }
    })
}

fn text(informer: &Value, field: &str) -> String {
    informer[field].as_str().unwrap_or_default().to_owned()
}

/// One text for an informer: namespace, state and object count.
fn place(informer: &Value) -> String {
    format!("{} {} {}", text(informer, "namespace"), text(informer, "state"), informer["objects"])
}

fn config_map(namespace: &str, name: &str, more: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}}}{more}}}"
    )
}

#[test]
fn namespaces_that_gain_or_lose_the_label_gain_or_lose_their_informers() -> Outcome {
    let Running { world, operator } = Running::shared()?;
    let names = [world.namespace("team")?, world.namespace("team")?, world.namespace("team")?];
    let spec = "{targets: [{name: quotas, resource: resourcequotas,
        scope: {type: NamespaceSelector, namespaceSelector: {matchLabels: {cached: 'yes'}}}}]}";
    let profile = Profile::apply(world, NAMESPACE, "quotas", spec)?;
    let warm = profile.await_target("quotas", ("Warm", "True", "Synced"), SOON)?;
    assert_eq!(
        target(&warm, "quotas").and_then(|target| target.pointer("/informers/total")),
        Some(&0.into())
    );
    profile.await_condition("Ready", "True", None, SOON)?;

    let label = |name: &str, label: &str| world.cluster.run(["label", "namespace", name, label]);
    let watched = |names: &[&String]| {
        let wanted: Vec<_> = names.iter().map(|name| format!("{name} Watching 0")).collect();
        await_informers(operator, "resourcequotas", place, &wanted)
    };
    let [first, second, third] = &names;
    label(first, "cached=yes")?;
    let one = watched(&[first])?;
    label(second, "cached=yes")?;
    label(third, "cached=yes")?;
    watched(&[first, second, third])?;
    profile.await_that(SOON, |profile| {
        (*target(profile, "quotas")?.pointer("/informers/synced")? == 3).then_some(())
    })?;
    label(second, "cached-")?;
    watched(&[first, third])?;
    world.cluster.run(["delete", "namespace", third])?;
    let left = watched(&[first])?;
    for field in ["syncedTime", "lastRelist", "warmed"] {
        let value = |informers: &[Value]| informers.first().map(|informer| informer[field].clone());
        assert_eq!(value(&one), value(&left), "the remaining informer was affected");
    }
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}

#[test]
fn the_server_selects_objects_and_an_unknown_field_stalls_the_profile() -> Outcome {
    let Running { world, operator } = Running::shared()?;
    let namespace = world.namespace("selected")?;
    let pod = |name: &str, app: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}, \
             labels: {{app: {app}}}}}, spec: {{containers: [{{name: a, image: a}}]}}}}"
        )
    };
    let pods = [pod("one", "web"), pod("two", "web"), pod("three", "db")];
    eventually(SOON, || Ok(world.cluster.apply(&pods.join("\n---\n"))?))?;
    let spec = "{targets: [{name: pods, resource: pods,
        labelSelector: {matchLabels: {app: web}},
        fieldSelector: status.phase!=Succeeded}]}";
    let profile = Profile::apply(world, &namespace, "pods", spec)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let await_objects = |objects: &str| {
        eventually(SOON, || {
            let mut informers = informers(operator)?;
            informers.retain(|informer| {
                informer["namespace"] == *namespace && informer["resource"] == "pods"
            });
            let [informer] = informers.as_slice() else {
                return Err(format!("{informers:#?}").into());
            };
            let shown = format!(
                "{}; {}; {}",
                text(informer, "labelSelector"),
                text(informer, "fieldSelector"),
                informer["objects"]
            );
            let wanted = format!("app in (web); status.phase!=Succeeded; {objects}");
            if shown == wanted { Ok(()) } else { Err(shown.into()) }
        })
    };
    await_objects("2")?;
    let done = ["patch", "pod", "one", "--subresource=status", "--type=merge", "-n", &namespace];
    let patch = ["--patch", r#"{"status": {"phase": "Succeeded"}}"#];
    world.cluster.run(done.into_iter().chain(patch))?;
    await_objects("1")?;

    let spec = "{targets: [{name: settings, resource: configmaps,
        fieldSelector: data.key=x}]}";
    let refused = Profile::apply(world, &namespace, "refused", spec)?;
    refused.await_target("settings", ("Accepted", "False", "UnsupportedField"), SOON)?;
    let object = refused.await_condition("Stalled", "True", Some("UnsupportedField"), SOON)?;
    let conditions = object.pointer("/status/conditions").map(ToString::to_string);
    assert!(conditions.is_some_and(|text| text.contains("data.key=x")), "{object:#}");
    Ok(())
}

#[test]
fn a_metadata_target_stores_no_bodies() -> Outcome {
    let Running { world, operator } = Running::shared()?;
    let namespace = world.namespace("metadata")?;
    // Random text, which does not compress, so that the store of this object is large.
    let large: String = (0..200_000).map(|_| fastrand::alphanumeric()).collect();
    let large = config_map(&namespace, "large", &format!(", data: {{key: {large}}}"));
    let manifests = tempfile::NamedTempFile::new()?;
    std::fs::write(manifests.path(), large)?;
    let path = manifests.path().to_string_lossy();
    world.cluster.run(["create", "-f", &path])?;
    let spec = "{targets: [{name: settings, resource: configmaps,
        projection: {type: Metadata}}]}";
    let profile = Profile::apply(world, &namespace, "settings", spec)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let mut informers = informers(operator)?;
    informers.retain(|informer| informer["namespace"] == *namespace);
    let [informer] = informers.as_slice() else { return Err(format!("{informers:#?}").into()) };
    assert_eq!(informer["projection"], "Metadata");
    assert!(informer["objects"].as_u64() >= Some(1), "{informer:#}");
    assert!(informer["bytes"].as_u64() < Some(10_000), "{informer:#}");
    Ok(())
}

#[test]
fn an_edited_target_is_served_by_its_old_informers_until_the_new_ones_are_synced() -> Outcome {
    let Running { world, operator } = Running::shared()?;
    let (near, far) = (world.namespace("near")?, "far-and-not-there-yet");
    world.cluster.apply(&config_map(&near, "one", ""))?;
    let spec = |names: &str, more: &str| {
        format!(
            "{{targets: [{{name: settings, resource: configmaps, {more}
               scope: {{type: Namespaces, namespaces: [{names}]}}}}]}}"
        )
    };
    let profile = Profile::apply(world, NAMESPACE, "settings", &spec(&near, ""))?;
    let first = profile.await_condition("Ready", "True", None, SOON)?;
    let objects =
        |profile: &Value| target(profile, "settings").map(|target| target["objects"].clone());
    let generation = |profile: &Value| {
        target(profile, "settings").and_then(|target| target["servingGeneration"].as_i64())
    };
    assert_eq!(generation(&first), Some(1), "{first:#}");

    let both = format!("{near}, {far}");
    Profile::apply(
        world,
        NAMESPACE,
        "settings",
        &spec(&both, "labelSelector: {matchLabels: {a: b}},"),
    )?;
    let edited = profile.await_target("settings", ("Warm", "False", "NamespaceNotFound"), SOON)?;
    assert_eq!(generation(&edited), Some(1), "{edited:#}");
    assert_eq!(objects(&first), objects(&edited), "the old informers do not serve");
    let show =
        |informer: &Value| format!("{} {}", place(informer), text(informer, "labelSelector"));
    let both = informers(operator)?;
    assert!(
        both.iter().any(|informer| text(informer, "namespace") == near
            && text(informer, "state") == "Watching"
            && text(informer, "labelSelector").is_empty()),
        "the old informer is gone: {both:#?}"
    );

    world.cluster.run(["create", "namespace", far])?;
    let synced = profile.await_condition("Ready", "True", None, SOON)?;
    assert_eq!(generation(&synced), Some(2), "{synced:#}");
    let wanted = [far, &near].map(|name| format!("{name} Watching 0 a in (b)"));
    eventually(SOON, || {
        let mut informers = informers(operator)?;
        informers.retain(|informer| [far, &near].contains(&text(informer, "namespace").as_str()));
        let shown: Vec<_> = informers.iter().map(show).collect();
        if shown == wanted { Ok(()) } else { Err(format!("{shown:?}").into()) }
    })?;
    Ok(())
}

#[test]
fn a_paused_profile_keeps_its_data_and_resumes_without_a_list() -> Outcome {
    let Running { world, operator } = Running::shared()?;
    let namespace = world.namespace("team")?;
    let range = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: LimitRange, \
             metadata: {{name: {name}, namespace: {namespace}}}, spec: {{limits: []}}}}"
        )
    };
    world.cluster.apply(&range("one"))?;
    let spec = |mode: &str| {
        format!("{{mode: {mode}, targets: [{{name: ranges, resource: limitranges}}]}}")
    };
    let profile = Profile::apply(world, &namespace, "ranges", &spec("Active"))?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let labels: &[&str] = &[r#"resource="limitranges""#];
    let figure = |metric| Ok::<_, Failure>(Exposition::read(operator)?.sum(metric, labels));
    let lists = figure("kubewarm_upstream_list_pages_total")?;
    let shown = |state: &str, objects| {
        let wanted = format!("{namespace} {state} {objects}");
        await_informers(operator, "limitranges", place, &[wanted]).map(drop)
    };
    shown("Watching", 1)?;

    Profile::apply(world, &namespace, "ranges", &spec("Paused"))?;
    profile.await_condition("Ready", "Unknown", Some("Paused"), SOON)?;
    shown("Paused", 1)?;
    eventually(SOON, || match figure("kubewarm_upstream_watches")? {
        ..0.5 => Ok(()),
        open => Err(format!("{open} watches are open").into()),
    })?;
    world.cluster.apply(&range("two"))?;
    std::thread::sleep(Duration::from_secs(2));
    shown("Paused", 1)?;

    Profile::apply(world, &namespace, "ranges", &spec("Active"))?;
    profile.await_condition("Ready", "True", None, SOON)?;
    shown("Watching", 2)?;
    assert!((figure("kubewarm_upstream_list_pages_total")? - lists).abs() < 0.5, "listed again");
    assert!(figure("kubewarm_upstream_relists_total")? < 0.5, "relisted");
    Ok(())
}
