//! Authenticates callers (clients of kubewarm's HTTP servers) by TokenReview or SelfSubjectReview,
//! and authorizes them by access reviews. kubewarm sends these reviews to the API server.

use super::review::{post, post_with, without_status};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{
        SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
        SubjectAccessReviewSpec, SubjectAccessReviewStatus,
    },
};
use kube::Client;
use kubewarm_api::model::{FaultReason, RequestFault};
use std::{collections::BTreeMap, fmt, sync::Arc};
use zeroize::Zeroizing;

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The bearer token of a caller. kubewarm sends reviews with this token without the caller's
/// `Impersonate-*` headers. RBAC can permit to impersonate a user for reviews only, so a review
/// with these headers would not authorize a read as this user.
pub struct BearerCredentials {
    /// The bearer token, without the prefix `Bearer`. `Debug` does not print the token.
    pub token: Zeroizing<String>,
}

/// The identity of a caller, with the fields that the API server's authorizers evaluate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerInfo {
    /// The name, such as `system:serviceaccount:shop:reader`.
    pub name: String,
    /// UID of the user. Distinguishes users that have the same name at different times. Empty if
    /// the API server sets no UID.
    pub uid: String,
    /// The user's groups, in the API server's order.
    pub groups: Vec<String>,
    /// Additional attributes of the user from the API server's authenticator, by attribute name.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl CallerInfo {
    /// Adds the group `system:authenticated`, unless the user already has this group or
    /// `system:unauthenticated`.
    ///
    /// The API server does the same for each authenticated user. kubewarm calls this method for
    /// users of client certificates, which usually do not contain this group.
    pub fn with_authenticated_group(mut self) -> Self {
        let is_either = |group: &String| [AUTHENTICATED, UNAUTHENTICATED].contains(&&**group);
        if !self.groups.iter().any(is_either) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Returns the spec of a SubjectAccessReview for this user and the action (verb and resource,
    /// or path) in `access`.
    pub fn review(&self, access: &SelfSubjectAccessReviewSpec) -> SubjectAccessReviewSpec {
        let Self { name, uid, groups, extra } = self.clone();
        let SelfSubjectAccessReviewSpec { resource_attributes, non_resource_attributes } =
            access.clone();
        SubjectAccessReviewSpec {
            resource_attributes,
            non_resource_attributes,
            user: Some(name),
            uid: Some(uid).filter(|uid| !uid.is_empty()),
            groups: Some(groups).filter(|groups| !groups.is_empty()),
            extra: Some(extra).filter(|extra| !extra.is_empty()),
        }
    }
}

/// The result of a TokenReview or a SelfSubjectReview, which authenticates a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationResult {
    /// The credentials are valid and identify this user.
    Known(Arc<CallerInfo>),
    /// The credentials are invalid, or identify no user except `system:anonymous`.
    Unknown,
    /// The token is valid, but RBAC does not permit its owner to send a SelfSubjectReview.
    Refused {
        /// The API server's message.
        message: String,
    },
}

impl AuthenticationResult {
    /// Returns [`Self::Known`]; [`Self::Unknown`] if the user's name is empty or
    /// `system:anonymous`, because kubewarm has no anonymous access.
    pub fn of(user: Arc<CallerInfo>) -> Self {
        if user.name.is_empty() || user.name == ANONYMOUS {
            Self::Unknown
        } else {
            Self::Known(user)
        }
    }
}

/// The result of an access review (SubjectAccessReview or SelfSubjectAccessReview), which
/// authorizes an action of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizationResult {
    /// The user is permitted to perform the action.
    Allowed,
    /// The user is not permitted to perform the action.
    Denied {
        /// The authorizer's reason, if it gives one.
        reason: Option<String>,
    },
}

/// Authenticates and authorizes callers by requests to the API server, with the operator's
/// credentials or with the callers' own tokens.
#[derive(Clone)]
pub enum CallerReviewer {
    /// Sends TokenReview and SubjectAccessReview. The operator needs the permission to `create`
    /// both kinds of reviews.
    Operator {
        /// A client with the operator's credentials.
        client: Client,
        /// The accepted audiences: a caller's token must contain one of them. If the list is empty,
        /// a token must be for the API server.
        audiences: Arc<[String]>,
    },
    /// Sends SelfSubjectReview and SelfSubjectAccessReview with the caller's own token. The client
    /// has no credentials, so these reviews need no permissions of the operator.
    Caller(Client),
}

impl CallerReviewer {
    /// Returns whether kubewarm sends SelfSubjectReviews and SelfSubjectAccessReviews with the
    /// caller's own token, which needs no permissions of the operator.
    pub fn sends_callers_token(&self) -> bool {
        matches!(self, Self::Caller(_))
    }

    /// Sends a TokenReview or a SelfSubjectReview to the API server, which authenticates the
    /// caller's token in `presented`.
    ///
    /// # Errors
    ///
    /// [`RequestFault`] if the request fails; [`FaultReason::Malformed`] if the response has no
    /// status.
    ///
    /// # Cost
    ///
    /// One request of at most 10 s.
    pub async fn authenticate(
        &self,
        presented: &BearerCredentials,
    ) -> Result<AuthenticationResult, RequestFault> {
        match self {
            Self::Operator { client, audiences } => {
                token_review(client, &presented.token, audiences).await
            }
            Self::Caller(client) => self_review(client, presented).await,
        }
    }

    /// Sends an access review to the API server, for the user and the action in `spec`. `presented`
    /// contains the user's own token.
    ///
    /// Only `CallerReviewer::Operator` can authorize a user without a token, such as the owner of a
    /// client certificate. `CallerReviewer::Caller` needs the token to send its
    /// SelfSubjectAccessReview.
    ///
    /// # Errors
    ///
    /// The same as for [`Self::authenticate`]; [`FaultReason::Internal`] if a required token is
    /// missing.
    ///
    /// # Cost
    ///
    /// One request of at most 10 s.
    pub async fn authorize(
        &self,
        presented: Option<&BearerCredentials>,
        spec: SubjectAccessReviewSpec,
    ) -> Result<AuthorizationResult, RequestFault> {
        match self {
            Self::Operator { client, .. } => access_review(client, spec).await,
            Self::Caller(client) => {
                let no_token =
                    || RequestFault::new(FaultReason::Internal, "no token to send the review with");
                let presented = presented.ok_or_else(no_token)?;
                self_access_review(client, presented, spec).await
            }
        }
    }
}

async fn token_review(
    client: &Client,
    token: &str,
    audiences: &[String],
) -> Result<AuthenticationResult, RequestFault> {
    let wanted = (!audiences.is_empty()).then(|| audiences.to_vec());
    let spec = TokenReviewSpec { token: token.to_owned(), audiences: wanted };
    let review = TokenReview { spec, ..TokenReview::default() };
    let response: TokenReview = post(client, &review).await?.json()?;
    let status = response.status.ok_or_else(without_status::<TokenReview>)?;
    // An authenticator that does not support audiences returns no audience in the TokenReview.
    // kubewarm then rejects the token, because such an authenticator might accept a token for
    // another audience.
    let are_met = audiences.is_empty()
        || status.audiences.iter().flatten().any(|audience| audiences.contains(audience));
    let user = status.user.filter(|_| status.authenticated == Some(true) && are_met);
    Ok(user.map_or(AuthenticationResult::Unknown, known))
}

async fn self_review(
    client: &Client,
    presented: &BearerCredentials,
) -> Result<AuthenticationResult, RequestFault> {
    let credentials = headers_of(presented)?;
    let review = SelfSubjectReview::default();
    let response = post_with(client, &review, credentials).await?;
    if response.status == StatusCode::UNAUTHORIZED {
        return Ok(AuthenticationResult::Unknown);
    }
    if response.status == StatusCode::FORBIDDEN {
        return Ok(AuthenticationResult::Refused {
            message: response.fault().message().to_owned(),
        });
    }
    let response: SelfSubjectReview = response.json()?;
    let status = response.status.ok_or_else(without_status::<SelfSubjectReview>)?;
    Ok(status.user_info.map_or(AuthenticationResult::Unknown, known))
}

async fn access_review(
    client: &Client,
    spec: SubjectAccessReviewSpec,
) -> Result<AuthorizationResult, RequestFault> {
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let response: SubjectAccessReview = post(client, &review).await?.json()?;
    verdict(response.status.ok_or_else(without_status::<SubjectAccessReview>)?)
}

async fn self_access_review(
    client: &Client,
    presented: &BearerCredentials,
    spec: SubjectAccessReviewSpec,
) -> Result<AuthorizationResult, RequestFault> {
    let credentials = headers_of(presented)?;
    let SubjectAccessReviewSpec { resource_attributes, non_resource_attributes, .. } = spec;
    let spec = SelfSubjectAccessReviewSpec { resource_attributes, non_resource_attributes };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let response = post_with(client, &review, credentials).await?;
    // The token can have expired since it authenticated the caller, or the caller can have lost the
    // permission to send SelfSubjectAccessReviews. In both cases, kubewarm denies the action.
    if matches!(response.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Ok(AuthorizationResult::Denied {
            reason: Some(response.fault().message().to_owned()),
        });
    }
    let response: SelfSubjectAccessReview = response.json()?;
    verdict(response.status.ok_or_else(without_status::<SelfSubjectAccessReview>)?)
}

fn known(user: UserInfo) -> AuthenticationResult {
    let UserInfo { username, uid, groups, extra } = user;
    AuthenticationResult::of(Arc::new(CallerInfo {
        name: username.unwrap_or_default(),
        uid: uid.unwrap_or_default(),
        groups: groups.unwrap_or_default(),
        extra: extra.unwrap_or_default(),
    }))
}

/// Returns the decision in the status of an access review.
///
/// # Errors
///
/// [`FaultReason::ServerError`] if an authorizer of the API server failed and no other authorizer
/// allowed the action. The API server itself then responds with 500 instead of 403, because no
/// authorizer has decided. This also applies to a failed webhook with `failurePolicy: Deny`,
/// although the access review then contains a denial.
fn verdict(status: SubjectAccessReviewStatus) -> Result<AuthorizationResult, RequestFault> {
    if crate::review::is_granted(&status) {
        return Ok(AuthorizationResult::Allowed);
    }
    if let Some(error) = status.evaluation_error.filter(|error| !error.is_empty()) {
        let message = format!("an authorizer of the API server failed: {error}");
        return Err(RequestFault::new(FaultReason::ServerError, &message));
    }
    let reason = status.reason.filter(|reason| !reason.is_empty());
    Ok(AuthorizationResult::Denied { reason })
}

fn headers_of(presented: &BearerCredentials) -> Result<HeaderMap, RequestFault> {
    let bearer = Zeroizing::new(format!("Bearer {}", presented.token.as_str()));
    let mut token = HeaderValue::from_str(&bearer).map_err(|_| {
        RequestFault::new(
            FaultReason::Internal,
            "the token has characters that a header cannot contain",
        )
    })?;
    token.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, token);
    Ok(headers)
}

impl fmt::Debug for BearerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerCredentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
