//! Indexes whose field path is a typo: kubewarm reports that they select nothing.

use serde_json::Value;

use crate::operator::Running;
use crate::profile::{Profile, problems};
use crate::world::{Failure, Outcome, SOON};

/// Waits until the target `name` of a ready profile has a problem that contains these texts.
fn await_problem(profile: Profile<'_>, name: &str, texts: [&str; 2]) -> Result<Value, Failure> {
    profile.await_condition("Ready", "True", None, SOON)?;
    let seen = profile.await_that(SOON, |profile| {
        let problems = problems(profile, name);
        let mut found = problems.iter().filter(|it| texts.iter().all(|text| it.contains(text)));
        found.next().map(drop)
    })?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(seen)
}

#[test]
fn an_index_with_a_typo_is_reported_and_the_profile_stays_ready() -> Outcome {
    let Running { world, .. } = Running::shared()?;
    let namespace = world.namespace("typos")?;
    let spec = "{targets: [
        {name: pods, resource: pods, indexes: [
          {name: by-node, fieldPath: spec.nodename}, {name: by-app, fieldPath: metadata.labels.app}]},
        {name: settings, resource: configmaps, indexes: [{name: by-tone, fieldPath: data.tune}]}]}";
    let profile = Profile::apply(world, &namespace, "typos", spec)?;
    // kubewarm finds the typo in `spec.nodename` although the namespace contains no pod. It reports
    // `data.tune` only after 100 objects without a value, and the namespace contains fewer
    // ConfigMaps.
    let texts = ["UnknownField", r#"index "by-node" (spec.nodename)"#];
    let seen = await_problem(profile, "pods", texts)?;
    assert_eq!(problems(&seen, "settings"), Vec::<String>::new(), "{seen:#}");

    let setting = |name: usize, field: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, \
             metadata: {{name: s-{name}, namespace: {namespace}}}, data: {{{field}: loud}}}}"
        )
    };
    let settings: Vec<_> = (0..100).map(|name| setting(name, "tone")).collect();
    world.cluster.apply(&settings.join("\n---\n"))?;
    await_problem(profile, "settings", ["IndexWithoutValues", r#"index "by-tone" (data.tune)"#])?;

    world.cluster.apply(&setting(0, "tune"))?;
    profile.await_that(SOON, |profile| problems(profile, "settings").is_empty().then_some(()))?;
    Ok(())
}
