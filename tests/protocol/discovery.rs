//! Tests the order of kubewarm's discovery documents.

use crate::{
    engine::informer,
    read_engine::{ReadEngine, ReadSetup, operator_client},
    read_server::ReadApiServer,
    reply::{Reply, quiet},
    server::ScriptedServer,
};
use kubewarm_api::model::{InformerSpec, Resource};
use kubewarm_client::{Discovery, ServedResources};
use kubewarm_wire::{AGGREGATED_DISCOVERY, JSON};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What profiles declare, in alphabetical order. `home/p` also declares pods.
const DECLARED: [(&str, &str); 4] = [
    ("deployments.apps", "v1"),
    ("horizontalpodautoscalers.autoscaling", "v1"),
    ("horizontalpodautoscalers.autoscaling", "v2"),
    ("statefulsets.apps", "v1"),
];

/// A group of the API server's discovery document. `versions` are the names of the versions, each
/// with the plural names of its resources.
fn group(name: &str, versions: &[(&str, &[&str])]) -> Value {
    let resource = |plural: &&str| {
        json!({
            "resource": plural, "responseKind": {"group": "", "version": "", "kind": "K"},
            "scope": "Namespaced", "verbs": ["get", "list", "watch"],
        })
    };
    let version = |(name, resources): &(&str, &[&str])| {
        let resources: Vec<_> = resources.iter().map(resource).collect();
        json!({"version": name, "resources": resources})
    };
    let versions: Vec<_> = versions.iter().map(version).collect();
    json!({"metadata": {"name": name}, "versions": versions})
}

/// The kinds of an API server whose groups, versions and resources are in no alphabetical order.
async fn discovered() -> Arc<ServedResources> {
    let scalers: &[&str] = &["horizontalpodautoscalers"];
    let api_server = ScriptedServer::start(|asked| {
        let groups = if asked.path == "/api" {
            vec![group("", &[("v1", &["secrets", "pods"])])]
        } else {
            vec![
                group("storage.k8s.io", &[("v1", &["storageclasses"])]),
                group("autoscaling", &[("v3", scalers), ("v2", scalers), ("v1", scalers)]),
                group("apps", &[("v1", &["statefulsets", "daemonsets", "deployments"])]),
            ]
        };
        Reply::json(json!({"kind": "APIGroupDiscoveryList", "items": groups}).to_string())
    })
    .await;
    let discovery = Discovery::new(operator_client(&api_server));
    let mut served = discovery.served();
    let found = tokio::select! {
        () = discovery.run(CancellationToken::new()) => None,
        resources = served.wait_for(Option::is_some) => resources.unwrap().clone(),
    };
    found.unwrap()
}

fn declared((resource, version): (&str, &str)) -> (&'static str, InformerSpec) {
    let mut spec = informer(resource);
    let group_resource = spec.key.resource.group_resource().clone();
    spec.key.resource = Resource::new(group_resource, version).unwrap();
    ("home", spec)
}

/// The names in the list `list` of a document. `name` is the place of the name in each element.
fn names(document: &Value, list: &str, name: &str) -> String {
    let items = document[list].as_array().unwrap().iter();
    let names = items.map(|item| item.pointer(name).unwrap().as_str().unwrap());
    names.collect::<Vec<_>>().join(" ")
}

/// For the API server, the first version is the preferred one. `v3` is not declared, so `v2` is
/// preferred.
#[tokio::test]
async fn discovery_is_the_api_servers_reduced_to_declared_kinds() {
    let (served, more) = (Some(discovered().await), DECLARED.map(declared).into());
    let world = ReadEngine::start_with(ReadSetup { more, served, ..ReadSetup::default() }, quiet);
    let world = world.await;
    let reads = ReadApiServer::start(&world);
    for profile in ["", "/profiles/home/p"] {
        let document = async |path: &str, accept: &str| -> Value {
            let (code, body) = reads.get(&format!("{profile}{path}"), accept).await;
            assert_eq!(code, 200, "{profile}{path}: {body}");
            serde_json::from_str(&body).unwrap()
        };
        let groups = document("/apis", AGGREGATED_DISCOVERY).await;
        assert_eq!(names(&groups, "items", "/metadata/name"), "autoscaling apps");
        let (autoscaling, apps) = (&groups["items"][0], &groups["items"][1]["versions"][0]);
        assert_eq!(names(autoscaling, "versions", "/version"), "v2 v1");
        assert_eq!(names(apps, "resources", "/resource"), "statefulsets deployments");

        let groups = document("/apis", JSON).await;
        assert_eq!(names(&groups, "groups", "/name"), "autoscaling apps");
        for group in [&groups["groups"][0], &document("/apis/autoscaling", JSON).await] {
            assert_eq!(names(group, "versions", "/version"), "v2 v1");
            assert_eq!(group["preferredVersion"]["groupVersion"], "autoscaling/v2");
        }
        let apps = document("/apis/apps/v1", JSON).await;
        assert_eq!(names(&apps, "resources", "/name"), "statefulsets deployments");
        let core = document("/api/v1", JSON).await;
        assert_eq!(names(&core, "resources", "/name"), "pods");
    }
}
