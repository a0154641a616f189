//! CustomResourceDefinitions that are created and deleted while kubewarm runs.

use crate::figures::undisturbed;
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, parts_and_settings};
use crate::world::{Outcome, PARTS, SOON, World};

#[test]
fn a_new_kind_is_warmed_a_deleted_one_is_reported_and_others_are_unaffected() -> Outcome {
    let world = World::lease()?;
    let namespace = world.namespace("team")?;
    let operator = Operator::start(&world)?;
    let profile = Profile::apply(&world, NAMESPACE, "kinds", &parts_and_settings(&namespace))?;
    profile.await_manifests()?;
    profile.grant()?;

    profile.await_target("parts", ("Accepted", "False", "UnknownResource"), SOON)?;
    let half = profile.await_target("settings", ("Warm", "True", "Synced"), SOON)?;
    assert_eq!(half.pointer("/status/warmTargets").and_then(|w| w.as_str()), Some("1/2"));

    let settings = || undisturbed(&operator, &namespace, "configmaps");
    let before = settings()?;
    for round in ["created", "re-created"] {
        world.cluster.apply(PARTS)?;
        // kubewarm prints the roles for `parts` only after it has read from discovery that the kind
        // is namespaced.
        profile.await_that(SOON, |profile| {
            let manifests = profile.pointer("/status/access/manifests")?.as_str()?;
            manifests.contains("- parts").then_some(())
        })?;
        profile.grant()?;
        profile
            .await_target("parts", ("Warm", "True", "Synced"), SOON)
            .map_err(|error| format!("{round}: {error}"))?;
        profile.await_condition("Ready", "True", None, SOON)?;

        world.cluster.run(["delete", "crd", "parts.example.com"])?;
        profile
            .await_target("parts", ("Accepted", "False", "UnknownResource"), SOON)
            .map_err(|error| format!("{round} and deleted: {error}"))?;
        profile.await_target("settings", ("Warm", "True", "Synced"), SOON)?;
        assert_eq!(settings()?, before, "{round} and deleted");
    }
    Ok(())
}
