//! Checks before an installation of kubewarm that the user can create the objects of the
//! installation.

use super::super::{advice::program, profile_source::OperatorArgs, report::ReportRow};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{
    Client, Resource as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use kubewarm_api::{manifests, model::RequestFault};
use kubewarm_client::{ApiResponse, dry_run, is_allowed};
use serde_json::Value;

/// Returns a row for each object of the installation, which shows whether the user can create the
/// object. For the Deployment, an access review decides, because the Deployment depends on the
/// chart's values. For all other objects, a dry run decides.
pub(super) async fn permitted(
    client: &Client,
    args: &OperatorArgs,
) -> Result<Vec<ReportRow>, manifests::ManifestError> {
    let namespace = args.operator_namespace.name();
    let mut findings = Vec::new();
    for object in objects(namespace, &args.watch_namespaces)? {
        let answer = dry_run(client, &path(&object), &object).await;
        findings.push(of_object(&object, answer, args));
    }
    let attributes = ResourceAttributes {
        verb: Some("create".to_owned()),
        group: Some("apps".to_owned()),
        resource: Some("deployments".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    let what = format!("create Deployments in namespace {namespace}");
    let row = is_allowed(client, attributes).await.map(|is_allowed| {
        if is_allowed {
            return ReportRow::good(format!("you may {what}"));
        }
        ReportRow::bad(format!("you may not {what}"))
            .next(format!("kubectl auth can-i create deployments.apps -n {namespace}"))
    });
    findings.push(ReportRow::or_unseen(row, &format!("whether you may {what}")));
    Ok(findings)
}

/// Returns all objects of an installation except the Deployment, which depends on the chart's
/// values.
fn objects(namespace: &str, watched: &[String]) -> Result<Vec<Value>, manifests::ManifestError> {
    let texts = [
        manifests::render_crd()?,
        manifests::render_operator(namespace, watched, &[])?,
        manifests::ACCOUNT_POLICY.to_owned(),
    ];
    let mut objects = Vec::new();
    for text in &texts {
        let all: Vec<Value> = serde_saphyr::from_multiple(text)
            .map_err(|error| manifests::ManifestError::Shipped(error.into()))?;
        objects.extend(all.into_iter().filter(Value::is_object));
    }
    Ok(objects)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the URL path of a request that creates `object`.
fn path(object: &Value) -> String {
    let version = text(object, "/apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, text(object, "/kind"));
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    DynamicObject::url_path(&ApiResource::from_gvk(&kind), namespace)
}

/// Returns kind, name and namespace of `object` for messages, such as
/// `Role kubewarm in namespace ops`.
fn title(object: &Value) -> String {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    match text(object, "/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {name} in namespace {namespace}"),
    }
}

/// Returns the row that shows whether the user can create `object`. `answer` is the response to a
/// dry run of this request.
fn of_object(
    object: &Value,
    answer: Result<ApiResponse, RequestFault>,
    args: &OperatorArgs,
) -> ReportRow {
    let name = title(object);
    let row = answer.and_then(|answer| {
        let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match answer.status.as_u16() {
            200..=299 => Ok(ReportRow::good(format!("you may create {name}"))),
            409 => Ok(ReportRow::good(format!("{name} is there already"))),
            403 => {
                let message = format!("you may not create {name}: {}", answer.fault());
                Ok(ReportRow::bad(message).next(remedy(text(object, "/kind"), args)))
            }
            // The API server checks permissions before it looks up the namespace. A 404 for the
            // namespace therefore means that the user may create the object.
            404 if status["details"]["kind"] == "namespaces" => {
                Ok(ReportRow::good(format!("you may create {name}")))
            }
            404 if status["kind"] != "Status" && object["kind"] != "Namespace" => {
                Ok(not_served(object))
            }
            _ => Err(answer.fault()),
        }
    });
    ReportRow::or_unseen(row, &format!("whether you may create {name}"))
}

fn not_served(object: &Value) -> ReportRow {
    let text = format!("{} cannot be created, as the API server serves none", title(object));
    if is_policy(self::text(object, "/kind")) {
        let text = format!(
            "{text}: no admission policy will limit profiles to ServiceAccounts that their authors may use"
        );
        return ReportRow::note(text).next("helm install … --set accountPolicy.enabled=false");
    }
    ReportRow::bad(text).next("kubectl api-versions")
}

fn is_policy(kind: &str) -> bool {
    matches!(kind, "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding")
}

/// Returns the command to run next if the user cannot create an object of the kind `kind`.
fn remedy(kind: &str, args: &OperatorArgs) -> String {
    let (program, operator) = (program(), args.operator_namespace.shown());
    match kind {
        "CustomResourceDefinition" => {
            format!("{program} crd | kubectl apply --server-side -f - # as an administrator")
        }
        "ClusterRole" | "ClusterRoleBinding" => {
            let flags = format!("--operator-namespace {operator} --watch-namespaces NAMESPACE");
            format!("{program} check --pre {flags} # without them")
        }
        kind if is_policy(kind) => {
            "kubectl apply -f deploy/account-policy.yaml # as an administrator".to_owned()
        }
        _ => {
            let mut rbac = format!("{program} rbac --operator --operator-namespace {operator}");
            if !args.watch_namespaces.is_empty() {
                rbac.push_str(" --watch-namespaces ");
                rbac.push_str(&args.watch_namespaces.join(","));
            }
            format!("{rbac} | kubectl apply -f - # as an administrator")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{fixtures::parse, report::RowMark},
        *,
    };
    use serde_json::json;

    fn answer(code: u16, body: &Value) -> ApiResponse {
        let status = http::StatusCode::from_u16(code).unwrap();
        ApiResponse { status, body: body.to_string().into(), ..ApiResponse::default() }
    }

    #[test]
    fn an_installation_consists_of_the_shipped_manifests() {
        let paths = |watched: &[String]| -> Vec<String> {
            objects("ops", watched).unwrap().iter().map(path).collect()
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
    fn a_forbidden_object_has_a_next_step() {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "kubewarm"},
        });
        let status =
            |details: Value| json!({"kind": "Status", "message": "no", "details": details});
        let args = parse::<OperatorArgs>("--operator-namespace ops").unwrap();
        let row = |code, body: &Value| of_object(&role, Ok(answer(code, body)), &args);
        assert_eq!(row(201, &json!({})).text(), "you may create ClusterRole kubewarm");
        assert_eq!(row(409, &status(json!({}))).mark, RowMark::Good);
        assert_eq!(row(404, &status(json!({"kind": "namespaces"}))).mark, RowMark::Good);
        assert_eq!(row(500, &status(json!({}))).mark, RowMark::Unseen);
        let refused = row(403, &status(json!({})));
        assert_eq!(refused.text(), "you may not create ClusterRole kubewarm: no");
        assert_eq!(
            refused.next,
            [
                "kubewarm check --pre --operator-namespace ops --watch-namespaces NAMESPACE # without them"
            ]
        );
        let args = parse::<OperatorArgs>("--watch-namespaces a,b").unwrap();
        assert_eq!(
            remedy("Role", &args),
            "kubewarm rbac --operator --operator-namespace NAMESPACE --watch-namespaces a,b | kubectl apply -f - \
             # as an administrator"
        );
    }

    #[test]
    fn missing_admission_policies_are_only_a_remark() {
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "kubewarm-accounts"},
        });
        assert_eq!(
            of_object(&policy, Ok(answer(404, &json!("x"))), &parse("").unwrap()).mark,
            RowMark::Note
        );
    }
}
