//! What the operator needs whatever the profiles say, for all namespaces or for some.

use super::Unwritable;
use serde_json::{Value, json};

/// For all namespaces: the one place where these permissions stand.
const SHIPPED: &str = include_str!("../../../../deploy/operator-rbac.yaml");
/// What it needs besides to tell apart who reads metrics.
const METRICS_AUTH: &str = include_str!("../../../../deploy/metrics-auth.yaml");
/// What it needs besides for the read API.
const READ_API: &str = include_str!("../../../../deploy/read-api.yaml");
/// The operator's namespace there.
pub const NAMESPACE: &str = "kubewarm-system";
/// The Lease that decides which replica writes statuses.
pub const LEASE: &str = "kubewarm";
/// The name of the roles in the namespaces that are watched. `kubewarm` is taken in the operator's
/// own, and with a `:` it cannot be the one of a profile's.
const NAME: &str = "kubewarm:operator";

/// What the operator is to do that not every one does. Only a ClusterRole grants what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// `kubewarm run --metrics-auth`.
    MetricsAuth,
    /// `kubewarm run --api-addr`.
    ReadApi,
}

/// The manifests of the operator in `namespace`. If `watched` names namespaces, the ClusterRole
/// becomes a Role in each.
///
/// # Errors
///
/// None in practice: the shipped manifests are YAML.
pub fn operator(namespace: &str, watched: &[String], more: &[More]) -> Result<String, Unwritable> {
    let mut shipped = SHIPPED.to_owned();
    for more in more {
        shipped.push_str("---\n");
        shipped.push_str(match more {
            More::MetricsAuth => METRICS_AUTH,
            More::ReadApi => READ_API,
        });
    }
    if watched.is_empty() && namespace == NAMESPACE {
        return Ok(shipped);
    }
    let shipped: Vec<Value> =
        serde_saphyr::from_multiple(&shipped).map_err(|error| Unwritable::Shipped(error.into()))?;
    let mut text = String::new();
    for mut document in shipped {
        move_to(&mut document, namespace);
        let all = match document["kind"].as_str() {
            Some("ClusterRole") if !watched.is_empty() => {
                watched.iter().map(|name| role(&document, name)).collect()
            }
            Some("ClusterRoleBinding") if !watched.is_empty() => {
                watched.iter().map(|name| binding(&document, name)).collect()
            }
            Some(_) | None => vec![document],
        };
        for document in all {
            text.push_str("---\n");
            text.push_str(&super::yaml(&document)?);
        }
    }
    Ok(text)
}

/// Has everything that names the shipped namespace name `namespace`.
fn move_to(value: &mut Value, namespace: &str) {
    match value {
        Value::String(text) if text == NAMESPACE => namespace.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| move_to(item, namespace)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| move_to(member, namespace));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn role(cluster: &Value, namespace: &str) -> Value {
    json!({
        "apiVersion": cluster["apiVersion"],
        "kind": "Role",
        "metadata": {"name": NAME, "namespace": namespace},
        "rules": in_namespaces(&cluster["rules"]),
    })
}

/// The rules that a Role can grant: those of kinds that have namespaces.
fn in_namespaces(rules: &Value) -> Vec<&Value> {
    let is_clusters = |rule: &&Value| rule["apiGroups"] == json!(["admissionregistration.k8s.io"]);
    rules.as_array().into_iter().flatten().filter(|rule| !is_clusters(rule)).collect()
}

fn binding(cluster: &Value, namespace: &str) -> Value {
    let group = &cluster["roleRef"]["apiGroup"];
    json!({
        "apiVersion": cluster["apiVersion"],
        "kind": "RoleBinding",
        "metadata": {"name": NAME, "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": NAME},
        "subjects": cluster["subjects"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(text).unwrap()
    }

    #[test]
    fn for_all_namespaces_it_is_what_is_shipped() {
        assert_eq!(operator(NAMESPACE, &[], &[]).unwrap(), SHIPPED);
        let moved = operator("ops", &[], &[]).unwrap();
        assert!(!moved.contains(NAMESPACE));
        assert_eq!(parse(&moved).len(), parse(SHIPPED).len());
    }

    #[test]
    fn reviews_are_granted_where_they_are_asked_for() {
        let plain = operator("ops", &[], &[]).unwrap();
        assert!(!plain.contains("tokenreviews"));
        let all = parse(&operator("ops", &[], &[More::MetricsAuth]).unwrap());
        let [role, binding] = &all[parse(&plain).len()..] else { panic!("{all:?}") };
        assert_eq!(role["rules"][0]["resources"], json!(["tokenreviews"]));
        assert_eq!(binding["subjects"][0]["namespace"], "ops");
        let shipped = operator(NAMESPACE, &[], &[More::MetricsAuth]).unwrap();
        assert_eq!(parse(&shipped).len(), all.len());
        let both = operator(NAMESPACE, &[], &[More::MetricsAuth, More::ReadApi]).unwrap();
        let names = parse(&both).into_iter().map(|it| it["metadata"]["name"].to_string());
        assert_eq!(names.filter(|name| name.contains("read-api")).count(), 2);
    }

    #[test]
    fn for_some_namespaces_every_permission_is_a_role() {
        let watched = ["a".to_owned(), "b".to_owned()];
        let text = operator("ops", &watched, &[]).unwrap();
        let line = |document: &Value| {
            let meta = &document["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            [text(&document["kind"]), text(&meta["namespace"]), text(&meta["name"])].join(" ")
        };
        let documents = parse(&text);
        assert_eq!(
            documents.iter().map(line).collect::<Vec<_>>(),
            [
                "Namespace  ops",
                "ServiceAccount ops kubewarm",
                "Role a kubewarm:operator",
                "Role b kubewarm:operator",
                "RoleBinding a kubewarm:operator",
                "RoleBinding b kubewarm:operator",
                "Role ops kubewarm",
                "RoleBinding ops kubewarm",
            ]
        );
        let groups = |document: &Value| -> Vec<String> {
            let rules = document["rules"].as_array().unwrap().iter();
            rules.map(|rule| rule["apiGroups"][0].as_str().unwrap().to_owned()).collect()
        };
        let mut shipped = groups(&parse(SHIPPED)[2]);
        assert_eq!(shipped.pop().unwrap(), "admissionregistration.k8s.io", "of the cluster");
        assert_eq!(groups(&documents[2]), shipped);
        assert_eq!(documents[4]["subjects"][0]["namespace"], "ops");
    }
}
