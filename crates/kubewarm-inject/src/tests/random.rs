//! Random workloads in the formats of people and programs. The undo of an injection gives the same
//! bytes.

use super::{inject, undo};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

/// Lists and mappings that are missing, empty or full.
fn some(key: &'static str, full: Value) -> impl Strategy<Value = Option<(String, Value)>> {
    let empty = if full.is_array() { json!([]) } else { json!({}) };
    select(vec![None, Some(empty), Some(full)])
        .prop_map(move |value| value.map(|value| (key.to_owned(), value)))
}

fn container(name: &'static str) -> impl Strategy<Value = Value> {
    let env = some("env", json!([{"name": "A", "value": "it's \"quoted\"\n"}, {"name": "B"}]));
    let mounts = some("volumeMounts", json!([{"name": "data", "mountPath": "/data"}]));
    let args = some("args", json!(["--level=3", "# no comment"]));
    (env, mounts, args).prop_map(move |(env, mounts, args)| {
        let mut container = json!({"name": name, "image": "a/b:1"});
        for (key, value) in [env, mounts, args].into_iter().flatten() {
            container[key] = value;
        }
        container
    })
}

fn deployment() -> impl Strategy<Value = Value> {
    let aliases = some("hostAliases", json!([{"ip": "10.0.0.1", "hostnames": ["db"]}]));
    let volumes = some("volumes", json!([{"name": "data", "emptyDir": {}}]));
    let metadata = some("metadata", json!({"labels": {"app": "a"}}));
    let annotations = some("annotations", json!({"a": "1", "b": "x\ny"}));
    let containers = (container("app"), container("side"));
    (aliases, volumes, metadata, annotations, containers).prop_map(
        |(aliases, volumes, metadata, annotations, (app, side))| {
            let mut spec = json!({"containers": [app, side], "serviceAccountName": "shop"});
            for (key, value) in [aliases, volumes].into_iter().flatten() {
                spec[key] = value;
            }
            let mut template = json!({ "spec": spec });
            if let Some((key, mut metadata)) = metadata {
                if let Some((key, annotations)) = annotations {
                    metadata[key] = annotations;
                }
                template[key] = metadata;
            }
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}})
        },
    )
}

proptest! {
    #[test]
    fn injections_are_undone_to_the_byte(object in deployment(), format in 0..3_u8) {
        let text = match format {
            0 => object.to_string(),
            1 => serde_json::to_string_pretty(&object).unwrap(),
            _ => serde_saphyr::to_string(&object).unwrap(),
        };
        let injected = inject(&text);
        prop_assert_ne!(&injected, &text);
        prop_assert_eq!(undo(&injected), text);
    }
}
