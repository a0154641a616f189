//! Sends one `TokenRequest` for a ServiceAccount with the operator's credentials.

use super::{super::api_client::ApiClient, token::AccountToken};
use http::StatusCode;
use kube::Client;
use kubewarm_api::model::{FaultReason, RequestFault, is_dns_label, is_dns_subdomain};
use serde::Deserialize;
use std::{borrow::Cow, sync::Arc, time::Duration};
use tokio::time::Instant;
use zeroize::Zeroize as _;

/// Body of a `TokenRequest`. The empty list `audiences` requests a token for the API server's own
/// audiences, because the API server accepts no other token.
const REQUEST: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":[],"expirationSeconds":3600}}"#;
/// The requested lifetime of a token, in seconds. The API server can grant a shorter lifetime.
const LIFE: u64 = 3_600;
/// Size limit of the response. A token has a few KiB.
const MAX_BYTES: usize = 256 << 10;

#[derive(Clone, Debug)]
pub(super) struct ServiceAccountRef {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

#[derive(Deserialize)]
struct TokenResponse<'a> {
    spec: TokenResponseSpec,
    #[serde(borrow)]
    status: TokenResponseStatus<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenResponseSpec {
    #[serde(default)]
    expiration_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct TokenResponseStatus<'a> {
    #[serde(borrow)]
    token: Cow<'a, str>,
}

impl ServiceAccountRef {
    /// Requests a new token for the ServiceAccount with the credentials of `operator`.
    ///
    /// The function computes the expiry from the lifetime in the response and the local clock,
    /// because the server's clock can differ.
    ///
    /// # Errors
    ///
    /// [`FaultReason::ServiceAccountNotFound`], [`FaultReason::TokenRequestDenied`] or another
    /// failure of the request. The function never returns reasons such as `Forbidden` and
    /// `NotServed`. From these reasons, a caller would conclude that the API server rejected the
    /// list or watch, not the token request.
    ///
    /// # Cost
    ///
    /// One request of at most 10 s.
    pub(super) async fn mint(&self, operator: &Client) -> Result<AccountToken, RequestFault> {
        let Self { namespace, name } = self;
        // The URL path of the request contains the namespace and the name, so an invalid name such
        // as `a/b` could address another resource.
        if !is_dns_label(namespace) || !is_dns_subdomain(name) {
            return Err(self.absent());
        }
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = ApiClient::new(operator).post(path, REQUEST).at_most(MAX_BYTES);
        let asked_at = Instant::now();
        let response = request.send().await.map_err(|fault| self.failed(&fault))?;
        if response.status == StatusCode::NOT_FOUND {
            return Err(self.absent());
        }
        if !response.status.is_success() {
            return Err(self.failed(&response.fault()));
        }
        let token = self.read(&response.body, asked_at);
        // The response body contains a second copy of the token, so the next lines overwrite it
        // with zeros.
        if let Ok(mut body) = response.body.try_into_mut() {
            body.zeroize();
        }
        token
    }

    fn read(&self, body: &[u8], asked_at: Instant) -> Result<AccountToken, RequestFault> {
        let malformed = || {
            let what = format!("the answer to a token request for {self} holds no token");
            RequestFault::new(FaultReason::Malformed, what)
        };
        // The parser's error might quote the token, so the fault does not contain it.
        let TokenResponse { spec, status } =
            serde_json::from_slice(body).map_err(|_| malformed())?;
        let life = spec.expiration_seconds.unwrap_or(LIFE).clamp(1, LIFE);
        let token =
            AccountToken::new(&status.token, Duration::from_secs(life), asked_at, fastrand::f64());
        if status.token.is_empty() || token.header().is_none() {
            return Err(malformed());
        }
        Ok(token)
    }

    fn absent(&self) -> RequestFault {
        RequestFault::new(FaultReason::ServiceAccountNotFound, format!("{self} does not exist"))
    }

    /// Converts the fault of a token request into the fault of the request that needs the token.
    fn failed(&self, fault: &RequestFault) -> RequestFault {
        let reason = match fault.reason() {
            FaultReason::Forbidden => FaultReason::TokenRequestDenied,
            reason @ (FaultReason::Throttled
            | FaultReason::Unreachable
            | FaultReason::TimedOut
            | FaultReason::TooLarge
            | FaultReason::Malformed) => reason,
            // Each reason below means that the API server rejected the operator's own credentials,
            // or sent an unexpected response.
            FaultReason::Unauthorized
            | FaultReason::NotServed
            | FaultReason::NamespaceNotFound
            | FaultReason::NotListable
            | FaultReason::Gone
            | FaultReason::Unsupported
            | FaultReason::ServerError
            | FaultReason::ClosedAtOnce
            | FaultReason::TokenRequestDenied
            | FaultReason::ServiceAccountNotFound
            | FaultReason::Unverified
            | FaultReason::Internal => FaultReason::ServerError,
        };
        let message = format!("no token of {self}: {}", fault.message());
        RequestFault::new(reason, message).with_retry_after(fault.retry_after())
    }
}

impl std::fmt::Display for ServiceAccountRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServiceAccount {}/{}", self.namespace, self.name)
    }
}
