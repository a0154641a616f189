//! Checks whether an admission policy restricts which ServiceAccounts the author of a profile can
//! name.

use super::api_client::{ApiClient, ApiResponse};
use http::StatusCode;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Client;
use kubewarm_api::model::{AccountPolicyEnforcement, RequestFault};

/// Name of the `ValidatingAdmissionPolicy` and of its binding in `deploy/account-policy.yaml`.
const NAME: &str = "kubewarm-accounts";

/// Reads kubewarm's `ValidatingAdmissionPolicy` and its binding with the operator's permissions.
///
/// Returns `Enforced` if the failure policy is `Fail`, and the binding names the policy and has the
/// action `Deny`. Returns `Unknown` if the API server rejects the request for the policy or the
/// binding with 401 or 403. Otherwise returns `Missing`.
///
/// # Errors
///
/// [`RequestFault`] if a request fails. A missing permission or a missing object is not an error.
///
/// # Cost
///
/// Two requests of at most 10 s.
pub async fn fetch_account_policy_enforcement(
    operator: &Client,
) -> Result<AccountPolicyEnforcement, RequestFault> {
    let policy = get(operator, "validatingadmissionpolicies").await?;
    let binding = get(operator, "validatingadmissionpolicybindings").await?;
    for response in [&policy, &binding] {
        match response.status {
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                return Ok(AccountPolicyEnforcement::Unknown);
            }
            StatusCode::NOT_FOUND => return Ok(AccountPolicyEnforcement::Missing),
            _ => {}
        }
    }
    let policy = policy.json::<ValidatingAdmissionPolicy>()?.spec.unwrap_or_default();
    let binding = binding.json::<ValidatingAdmissionPolicyBinding>()?.spec;
    let is_closed = policy.failure_policy.is_none_or(|policy| policy == "Fail");
    let is_denying = binding.validation_actions.iter().any(|action| action == "Deny");
    let is_bound = binding.policy_name == NAME;
    Ok(if is_closed && is_denying && is_bound {
        AccountPolicyEnforcement::Enforced
    } else {
        AccountPolicyEnforcement::Missing
    })
}

async fn get(operator: &Client, resource: &str) -> Result<ApiResponse, RequestFault> {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}/{NAME}");
    ApiClient::new(operator).get(path).send().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use std::convert::Infallible;
    use tower::service_fn;

    const POLICY: &str = r#"{"spec": {"failurePolicy": "Fail"}}"#;
    const BINDING: &str =
        r#"{"spec": {"policyName": "kubewarm-accounts", "validationActions": ["Deny"]}}"#;

    async fn check(
        policy: (u16, &'static str),
        binding: (u16, &'static str),
    ) -> AccountPolicyEnforcement {
        let service = service_fn(move |request: Request<Body>| async move {
            let path = request.uri().path();
            assert!(path.ends_with("/kubewarm-accounts"), "{path}");
            let (code, body) = if path.contains("bindings/") { binding } else { policy };
            let body = Body::from(body.as_bytes().to_vec());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        });
        fetch_account_policy_enforcement(&Client::new(service, "default")).await.unwrap()
    }

    #[tokio::test]
    async fn only_a_bound_policy_that_denies_is_reported_as_enforced() {
        let (policy, binding) = ((200, POLICY), (200, BINDING));
        assert_eq!(check(policy, binding).await, AccountPolicyEnforcement::Enforced);
        let audit =
            r#"{"spec": {"policyName": "kubewarm-accounts", "validationActions": ["Audit"]}}"#;
        let other = r#"{"spec": {"policyName": "other", "validationActions": ["Deny"]}}"#;
        let lenient = (200, r#"{"spec": {"failurePolicy": "Ignore"}}"#);
        for (policy, binding) in [
            ((404, "{}"), binding),
            (policy, (404, "{}")),
            (policy, (200, audit)),
            (policy, (200, other)),
            (lenient, binding),
        ] {
            assert_eq!(
                check(policy, binding).await,
                AccountPolicyEnforcement::Missing,
                "{policy:?} {binding:?}"
            );
        }
        assert_eq!(check((403, "{}"), (403, "{}")).await, AccountPolicyEnforcement::Unknown);
    }
}
