//! The API server's treatment of the `CustomResourceDefinition`, without an operator.

use serde_json::json;

use crate::world::{Outcome, World};

const EXPLAINED: [(&str, &[&str]); 3] = [
    ("cprof", &["KIND:", "CacheProfile", "DESCRIPTION:"]),
    ("cprof.spec.targets", &["labelSelector", "scope", "projection", "DESCRIPTION:"]),
    ("cprof.status", &["conditions", "timeToWarmMilliseconds", "access"]),
];

#[test]
fn the_definition_is_accepted_without_a_complaint() -> Outcome {
    let world = World::shared()?;
    let crd = world.get("default", "crd", "cacheprofiles.kubewarm.io")?;
    let conditions = crd.pointer("/status/conditions").and_then(|list| list.as_array());
    let conditions = conditions.ok_or("no conditions")?;
    let is = |kind: &str, status: &str| {
        conditions
            .iter()
            .any(|condition| condition["type"] == kind && condition["status"] == status)
    };
    assert!(is("Established", "True") && is("NamesAccepted", "True"), "{conditions:#?}");
    assert!(!is("NonStructuralSchema", "True"), "{conditions:#?}");
    Ok(())
}

#[test]
fn explain_describes_every_field() -> Outcome {
    let world = World::shared()?;
    for (path, words) in EXPLAINED {
        let text = world.cluster.run(["explain", path])?;
        for word in words {
            assert!(text.contains(word), "{word:?} is not in `kubectl explain {path}`:\n{text}");
        }
        assert!(!text.contains("<no description>"), "`kubectl explain {path}`:\n{text}");
    }
    let all = world.cluster.run(["explain", "cprof", "--recursive"])?;
    assert!(all.contains("maxConcurrentLists"), "{all}");
    Ok(())
}

#[test]
fn a_minimal_profile_is_completed_with_the_documented_defaults() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("defaults")?;
    world.cluster.apply(&format!(
        "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: minimal, namespace: {namespace}}}
spec: {{targets: [{{name: settings, resource: configmaps}}]}}
"
    ))?;
    let profile = world.get(&namespace, "cprof", "minimal")?;
    for (pointer, expected) in [
        ("/spec/mode", json!("Active")),
        ("/spec/scope/type", json!("OwnNamespace")),
        ("/spec/freshness/maxStalenessSeconds", json!(120)),
        ("/spec/warmup/maxConcurrentLists", json!(4)),
        ("/spec/targets/0/requirement", json!("Required")),
        ("/spec/targets/0/projection/type", json!("Full")),
        ("/spec/targets/0/projection/managedFields", json!("Keep")),
    ] {
        assert_eq!(profile.pointer(pointer), Some(&expected), "{pointer} of {profile:#}");
    }
    assert_eq!(profile.pointer("/spec/targets/0/scope"), None, "spec.scope must apply");
    let table = world.cluster.run(["get", "cprof", "-n", &namespace, "-o", "wide"])?;
    let header = table.lines().next().unwrap_or_default();
    let columns: Vec<&str> = header.split_whitespace().collect();
    let expected = "NAME READY REASON WARM OBJECTS MEMORY AGE \
                    FRESH AUTHORIZED SERVICEACCOUNT MODE TIME-TO-WARM-MS";
    assert_eq!(columns.join(" "), expected);
    Ok(())
}
