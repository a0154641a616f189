//! RBAC objects of the operator itself, for all namespaces or for a list of namespaces.

use super::ManifestError;
use serde_json::{Value, json};

/// RBAC objects of an operator that is in [`NAMESPACE`] and runs the profiles of all namespaces.
/// For any other operator, [`render_operator`] changes these objects.
const SHIPPED: &str = include_str!("../../../../deploy/operator-rbac.yaml");
const METRICS_AUTH: &str = include_str!("../../../../deploy/metrics-auth.yaml");
const READ_API: &str = include_str!("../../../../deploy/read-api.yaml");
const CERTIFICATE: &str = include_str!("../../../../deploy/certificate.yaml");
const INJECT: &str = include_str!("../../../../deploy/inject.yaml");
const INJECT_POLICY: &str = include_str!("../../../../deploy/inject-policy.yaml");
const RBAC_AUTHORIZATION: &str = include_str!("../../../../deploy/rbac-authorization.yaml");
/// Name of the operator namespace in the files of `deploy/`.
pub const NAMESPACE: &str = "kubewarm-system";
/// Name of the Lease. The replica that holds the Lease writes the statuses of profiles.
pub const LEASE: &str = "kubewarm";
/// Name of the Secret in `deploy/certificate.yaml`, and of the `ConfigMap` with its CA.
pub const CERTIFICATE_SECRET: &str = "kubewarm-ca";
/// Name of the `ConfigMap` with the CAs of kubewarm and of the API server, in namespaces with the
/// label `kubewarm.io/inject`.
pub const API_CA: &str = "kubewarm-api-ca";
/// URL path of the list of these namespaces. `%2F` is `/`.
pub const INJECTED_NAMESPACES: &str = "/api/v1/namespaces?labelSelector=kubewarm.io%2Finject";
/// The label of these namespaces.
pub const INJECT_LABEL: &str = "kubewarm.io/inject";
/// Value of [`INJECT_LABEL`] with which the API server also injects the namespace's new pods.
pub const INJECT_PODS: &str = "pods";
/// Value of [`INJECT_LABEL`] with which a pod opts out.
pub const INJECT_DISABLED: &str = "disabled";
/// Name of the `ConfigMap` in the operator namespace with the parameters of that injection.
pub const INJECT_PARAMETERS: &str = "kubewarm-inject";
/// The annotation of the Secret [`CERTIFICATE_SECRET`] with which a user lets another CA sign at
/// once. Its value does not matter.
pub const CERTIFICATE_ROTATION: &str = "kubewarm.io/rotate-ca";
/// Name of the Role in each namespace whose profiles the operator runs. The operator namespace
/// already has another Role with the name `kubewarm`. The name of a profile's role has two colons,
/// so it never equals this name.
const NAME: &str = "kubewarm:operator";

/// Optional features of the operator that need further permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorFeature {
    /// Authentication and authorization of clients that read metrics: `kubewarm run
    /// --metrics-auth`.
    MetricsAuth,
    /// Reads of clients: `kubewarm run --api-addr`.
    ReadApi,
    /// Authorization of these clients by RBAC rules: `kubewarm run --authorization=rbac`.
    RbacAuthorization,
    /// A certificate that the operator issues: `kubewarm run --certificate-secret=kubewarm-ca`. Its
    /// permissions are a Role in the operator namespace. The others need a ClusterRole.
    Certificate,
    /// Bundles of CAs in other namespaces: `kubewarm run --inject`.
    Inject,
    /// Injection of pods in labelled namespaces: `kubewarm run --inject-policy`. Its
    /// permissions are a Role in the operator namespace.
    InjectPolicy,
}

/// Returns the YAML of the operator's RBAC objects, for an operator in `namespace`. If `watched`
/// contains namespaces, the YAML has a Role in each of these namespaces instead of a ClusterRole.
///
/// # Errors
///
/// [`ManifestError`] if a file in `deploy/` is not valid YAML. A test checks that the files are
/// valid.
pub fn render_operator(
    namespace: &str,
    watched: &[String],
    more: &[OperatorFeature],
) -> Result<String, ManifestError> {
    let mut shipped = SHIPPED.to_owned();
    for more in more {
        shipped.push_str("---\n");
        shipped.push_str(match more {
            OperatorFeature::MetricsAuth => METRICS_AUTH,
            OperatorFeature::ReadApi => READ_API,
            OperatorFeature::RbacAuthorization => RBAC_AUTHORIZATION,
            OperatorFeature::Certificate => CERTIFICATE,
            OperatorFeature::Inject => INJECT,
            OperatorFeature::InjectPolicy => INJECT_POLICY,
        });
    }
    if watched.is_empty() && namespace == NAMESPACE {
        return Ok(shipped);
    }
    let shipped: Vec<Value> = serde_saphyr::from_multiple(&shipped)
        .map_err(|error| ManifestError::Shipped(error.into()))?;
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

/// Replaces every string [`NAMESPACE`] in `value` by `namespace`.
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

/// Returns the rules in `rules` that a Role can grant: a Role cannot grant access to cluster-scoped
/// resources.
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
    fn manifests_for_all_namespaces_are_the_shipped_files() {
        assert_eq!(render_operator(NAMESPACE, &[], &[]).unwrap(), SHIPPED);
        let moved = render_operator("ops", &[], &[]).unwrap();
        assert!(!moved.contains(NAMESPACE));
        assert_eq!(parse(&moved).len(), parse(SHIPPED).len());
    }

    #[test]
    fn features_add_the_permissions_that_they_need() {
        let plain = render_operator("ops", &[], &[]).unwrap();
        assert!(!plain.contains("tokenreviews"));
        let all = parse(&render_operator("ops", &[], &[OperatorFeature::MetricsAuth]).unwrap());
        let [role, binding] = &all[parse(&plain).len()..] else { panic!("{all:?}") };
        assert_eq!(role["rules"][0]["resources"], json!(["tokenreviews"]));
        assert_eq!(binding["subjects"][0]["namespace"], "ops");
        let shipped = render_operator(NAMESPACE, &[], &[OperatorFeature::MetricsAuth]).unwrap();
        assert_eq!(parse(&shipped).len(), all.len());
        let both = render_operator(
            NAMESPACE,
            &[],
            &[OperatorFeature::MetricsAuth, OperatorFeature::ReadApi],
        )
        .unwrap();
        let names =
            parse(&both).into_iter().map(|document| document["metadata"]["name"].to_string());
        assert_eq!(names.filter(|name| name.contains("read-api")).count(), 2);
    }

    #[test]
    fn for_some_namespaces_every_permission_is_a_role() {
        let watched = ["a".to_owned(), "b".to_owned()];
        let text = render_operator("ops", &watched, &[]).unwrap();
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
        assert_eq!(shipped.pop().unwrap(), "admissionregistration.k8s.io", "cluster-scoped");
        assert_eq!(groups(&documents[2]), shipped);
        assert_eq!(documents[4]["subjects"][0]["namespace"], "ops");
    }
}
