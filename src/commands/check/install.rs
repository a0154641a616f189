//! Before installing: whether whoever asks may create what an installation consists of.

use super::super::report::ReportRow;
use crate::cli::program;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{
    Client, Resource as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use kubewarm_api::{manifests, model::Fault};
use kubewarm_client::{Answer, dry_run, is_allowed};
use serde_json::Value;

/// An object of an installation.
struct Object {
    value: Value,
    /// As people call it: `ClusterRole kubewarm`.
    name: String,
    path: String,
}

/// A line for each object that `objects` names.
pub(super) async fn permitted(
    client: &Client,
    namespace: &str,
    watched: &[String],
) -> Result<Vec<ReportRow>, manifests::Unwritable> {
    let mut findings = Vec::new();
    for object in objects(namespace, watched)? {
        let answer = dry_run(client, &object.path, &object.value).await;
        findings.push(of_object(&object, answer, program()));
    }
    let attributes = ResourceAttributes {
        verb: Some("create".to_owned()),
        group: Some("apps".to_owned()),
        resource: Some("deployments".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    let what = format!("create Deployments in namespace {namespace}");
    findings.push(match is_allowed(client, attributes).await {
        Ok(true) => ReportRow::good(format!("you may {what}")),
        Ok(false) => ReportRow::bad(format!("you may not {what}"))
            .next(format!("kubectl auth can-i create deployments.apps -n {namespace}")),
        Err(fault) => ReportRow::unseen(&format!("whether you may {what}"), &fault),
    });
    Ok(findings)
}

/// All that an installation creates but for the Deployment, whose details are a matter of the chart.
fn objects(namespace: &str, watched: &[String]) -> Result<Vec<Object>, manifests::Unwritable> {
    let texts = [
        manifests::crd_yaml()?,
        manifests::operator(namespace, watched, &[])?,
        manifests::ACCOUNT_POLICY.to_owned(),
    ];
    let mut objects = Vec::new();
    for text in &texts {
        let all: Vec<Value> = serde_saphyr::from_multiple(text)
            .map_err(|error| manifests::Unwritable::Shipped(error.into()))?;
        objects.extend(all.into_iter().filter(Value::is_object).map(Object::of));
    }
    Ok(objects)
}

impl Object {
    fn of(value: Value) -> Self {
        let text =
            |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (kind, version) = (text("/kind"), text("/apiVersion"));
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str);
        let path = DynamicObject::url_path(&resource, namespace);
        let place = namespace.map_or_else(String::new, |name| format!(" in namespace {name}"));
        let name = format!("{kind} {}{place}", text("/metadata/name"));
        Self { value, name, path }
    }

    fn is(&self, kind: &str) -> bool {
        self.value["kind"] == kind
    }

    fn is_policy(&self) -> bool {
        self.is("ValidatingAdmissionPolicy") || self.is("ValidatingAdmissionPolicyBinding")
    }
}

/// What the answer to a dry run says.
fn of_object(object: &Object, answer: Result<Answer, Fault>, program: &str) -> ReportRow {
    let name = &object.name;
    let unseen = |fault| ReportRow::unseen(&format!("whether you may create {name}"), &fault);
    let answer = match answer {
        Ok(answer) => answer,
        Err(fault) => return unseen(fault),
    };
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    match answer.status.as_u16() {
        200..=299 => ReportRow::good(format!("you may create {name}")),
        409 => ReportRow::good(format!("{name} is there already")),
        403 => {
            let found = ReportRow::bad(format!("you may not create {name}: {}", answer.fault()));
            found.next(remedy(object, program))
        }
        // Whoever may create it may do so; its namespace comes first.
        404 if status["details"]["kind"] == "namespaces" => {
            ReportRow::good(format!("you may create {name}"))
        }
        404 if status["kind"] != "Status" && !object.is("Namespace") => not_served(object),
        _ => unseen(answer.fault()),
    }
}

fn not_served(object: &Object) -> ReportRow {
    let text = format!("{} cannot be created, as the API server serves none", object.name);
    if object.is_policy() {
        let text = format!(
            "{text}: nothing will hold authors of profiles to the ServiceAccounts that they may act as"
        );
        return ReportRow::note(text).next("helm install … --set accountPolicy.enabled=false");
    }
    ReportRow::bad(text).next("kubectl api-versions")
}

/// What to run where it may not be created.
fn remedy(object: &Object, program: &str) -> String {
    if object.is("CustomResourceDefinition") {
        format!("{program} crd | kubectl apply --server-side -f - # as an administrator")
    } else if object.is_policy() {
        "kubectl apply -f deploy/account-policy.yaml # as an administrator".to_owned()
    } else if object.is("ClusterRole") || object.is("ClusterRoleBinding") {
        format!("{program} check --pre --watch-namespaces NAMESPACE # without them")
    } else {
        format!("{program} rbac --operator | kubectl apply -f - # as an administrator")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::report::Mark, *};
    use serde_json::json;

    fn answer(code: u16, body: &Value) -> Answer {
        let status = http::StatusCode::from_u16(code).unwrap();
        Answer { status, body: body.to_string().into(), ..Answer::default() }
    }

    #[test]
    fn an_installation_is_what_is_shipped() {
        let paths = |watched: &[String]| -> Vec<String> {
            objects("ops", watched).unwrap().into_iter().map(|object| object.path).collect()
        };
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let admission = "/apis/admissionregistration.k8s.io/v1";
        assert_eq!(
            paths(&[]),
            [
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                "/api/v1/namespaces",
                "/api/v1/namespaces/ops/serviceaccounts",
                &format!("{rbac}/clusterroles"),
                &format!("{rbac}/clusterrolebindings"),
                &format!("{rbac}/namespaces/ops/roles"),
                &format!("{rbac}/namespaces/ops/rolebindings"),
                &format!("{admission}/validatingadmissionpolicies"),
                &format!("{admission}/validatingadmissionpolicybindings"),
            ]
        );
        let some = paths(&["shop".to_owned()]);
        assert!(!some.iter().any(|path| path.contains("clusterrole")), "{some:?}");
        assert!(some.contains(&format!("{rbac}/namespaces/shop/roles")), "{some:?}");
    }

    #[test]
    fn what_may_not_be_created_comes_with_what_to_do() {
        let role = Object::of(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "kubewarm"},
        }));
        let status =
            |details: Value| json!({"kind": "Status", "message": "no", "details": details});
        let found = |code, body: &Value| of_object(&role, Ok(answer(code, body)), "kubectl warm");
        assert_eq!(found(201, &json!({})).text(), "you may create ClusterRole kubewarm");
        assert_eq!(found(409, &status(json!({}))).mark, Mark::Good);
        assert_eq!(found(404, &status(json!({"kind": "namespaces"}))).mark, Mark::Good);
        assert_eq!(found(500, &status(json!({}))).mark, Mark::Unseen);
        let refused = found(403, &status(json!({})));
        assert_eq!(refused.text(), "you may not create ClusterRole kubewarm: no");
        assert_eq!(
            refused.next,
            ["kubectl warm check --pre --watch-namespaces NAMESPACE # without them"]
        );
    }

    #[test]
    fn without_admission_policies_an_installation_works_all_the_same() {
        let policy = Object::of(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "kubewarm-accounts"},
        }));
        assert_eq!(of_object(&policy, Ok(answer(404, &json!("x"))), "kubewarm").mark, Mark::Note);
    }
}
