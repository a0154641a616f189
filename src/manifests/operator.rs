//! What the operator needs whatever the profiles say, for all namespaces or for some.

use super::Unwritable;
use serde_json::{Value, json};

/// For all namespaces: the one place where these permissions stand.
const SHIPPED: &str = include_str!("../../deploy/operator-rbac.yaml");
/// What it needs besides to tell callers apart.
const REVIEWS: &str = include_str!("../../deploy/metrics-auth.yaml");
/// The operator's namespace there.
const NAMESPACE: &str = "kubewarm-system";
/// The name of the roles in the namespaces that are watched. `kubewarm` is taken in the operator's
/// own, and with a `:` it cannot be the one of a profile's.
const NAME: &str = "kubewarm:operator";

/// Whether the operator may ask the API server about those who call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reviews {
    /// It need not.
    Left,
    /// It may: `kubewarm run --metrics-auth`. Only a ClusterRole grants that.
    Granted,
}

/// The manifests of the operator in `namespace`. If `watched` names namespaces, the ClusterRole
/// becomes a Role in each.
///
/// # Errors
///
/// None in practice: the shipped manifests are YAML.
pub fn operator(
    namespace: &str,
    watched: &[String],
    reviews: Reviews,
) -> Result<String, Unwritable> {
    let shipped = match reviews {
        Reviews::Left => SHIPPED.to_owned(),
        Reviews::Granted => format!("{SHIPPED}---\n{REVIEWS}"),
    };
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
        assert_eq!(operator(NAMESPACE, &[], Reviews::Left).unwrap(), SHIPPED);
        let moved = operator("ops", &[], Reviews::Left).unwrap();
        assert!(!moved.contains(NAMESPACE));
        assert_eq!(parse(&moved).len(), parse(SHIPPED).len());
    }

    #[test]
    fn reviews_are_granted_where_they_are_asked_for() {
        let plain = operator("ops", &[], Reviews::Left).unwrap();
        assert!(!plain.contains("tokenreviews"));
        let all = parse(&operator("ops", &[], Reviews::Granted).unwrap());
        let [role, binding] = &all[parse(&plain).len()..] else { panic!("{all:?}") };
        assert_eq!(role["rules"][0]["resources"], json!(["tokenreviews"]));
        assert_eq!(binding["subjects"][0]["namespace"], "ops");
        let shipped = operator(NAMESPACE, &[], Reviews::Granted).unwrap();
        assert_eq!(parse(&shipped).len(), all.len());
    }

    #[test]
    fn for_some_namespaces_every_permission_is_a_role() {
        let watched = ["a".to_owned(), "b".to_owned()];
        let text = operator("ops", &watched, Reviews::Left).unwrap();
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
