//! Tests a release that watches some namespaces and has no ClusterRole.

use serde_json::Value;

use crate::forward;
use crate::object::text;
use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{NodeWorld, Outcome};

#[test]
fn a_release_for_some_namespaces_works_without_a_cluster_role() -> Outcome {
    let test = "a_release_for_some_namespaces_works_without_a_cluster_role";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let cluster = world.cluster();
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: orders}}")?;
    // Without a ClusterRole kubewarm cannot review tokens, so the network policy decides who can
    // scrape.
    let scrapers = "networkPolicy: {enabled: true, scrapers: [{podSelector: {}}]}";
    let values =
        format!("watchNamespaces: [shop, orders]\nreadApi: {{forward: true}}\n{scrapers}\n{PAIR}");
    let (release, notes) = NodeRelease::reinstall(&world, &values)?;
    release.await_ready()?;
    assert!(notes.replace('\n', " ").contains("for the profiles of shop, orders."), "{notes}");
    let pods = release.pods()?;
    assert!(pods.len() == 2 && pods.iter().all(|pod| pod.is_ready), "{pods:?}");
    assert!(pods.iter().all(|pod| release.is_warm(pod)), "{pods:?}");
    for pod in &pods {
        let log = world.run(&format!("logs {} --namespace={NAMESPACE}", pod.name))?;
        assert!(!log.contains(" WARN ") && !log.contains(" ERROR "), "{log}");
    }

    release.test_from_within()?;
    let kinds = ["get", "clusterroles,clusterrolebindings", "--output=json"];
    let roles: Value = serde_json::from_str(&cluster.run(kinds)?)?;
    let roles = roles["items"].as_array().ok_or("no roles at all")?;
    assert!(roles.len() > 10, "{roles:?}");
    let is_ours = |role: &&Value| {
        let subjects = role["subjects"].as_array();
        text(role, "/metadata/name").contains("kubewarm")
            || role.to_string().contains("kubewarm.io")
            || subjects.into_iter().flatten().any(|subject| subject["namespace"] == NAMESPACE)
    };
    let ours: Vec<_> = roles.iter().filter(is_ours).collect();
    assert!(ours.is_empty(), "{ours:#?}");
    forward::pods_are_reached_through_kubewarm(&world, &release)
}
