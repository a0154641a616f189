//! Who calls us, and whether they may: what the API server says of a bearer token, or of whoever a certificate names.

use super::review::{post, post_with, without_status};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{
        SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
        SubjectAccessReviewSpec, SubjectAccessReviewStatus,
    },
};
use kube::Client;
use kubewarm_api::model::{Fault, Reason};
use std::{collections::BTreeMap, fmt, sync::Arc};
use zeroize::Zeroizing;

/// Whom an API server with anonymous access takes callers for that it does not know.
const ANONYMOUS: &str = "system:anonymous";
/// The group of everybody who is known, and that of everybody else.
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// What a caller shows of itself.
pub struct Presented {
    /// The bearer token, without `Bearer`. Never shown.
    pub token: Zeroizing<String>,
    /// The `Impersonate-*` headers, in their order.
    pub impersonation: Vec<(HeaderName, HeaderValue)>,
}

/// Who a caller is, as far as authorizers look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name, such as `system:serviceaccount:shop:reader`.
    pub name: String,
    /// Tells one of this name from a later one.
    pub uid: String,
    /// In the server's order.
    pub groups: Vec<String>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The same, of the group that the API server puts everybody into whom it knows.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        let is_either = |group: &String| [AUTHENTICATED, UNAUTHENTICATED].contains(&&**group);
        if !self.groups.iter().any(is_either) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// The review whether this user may do what `access` says.
    #[must_use]
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

/// What the API server says to credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// They are of this user.
    Known(Arc<User>),
    /// It does not accept them.
    Unknown,
    /// It accepts the token, but not what comes with it: its owner may not act as somebody else.
    Refused {
        /// In the server's words.
        message: String,
    },
}

impl Who {
    /// This user: nobody without a name, and nobody whom the API server does not know either, as there is no
    /// anonymous access here.
    #[must_use]
    pub fn of(user: Arc<User>) -> Self {
        if user.name.is_empty() || user.name == ANONYMOUS {
            Self::Unknown
        } else {
            Self::Known(user)
        }
    }
}

/// What the API server says to a user's action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is allowed.
    Allowed,
    /// It is not.
    Denied {
        /// Why, where an authorizer says so.
        reason: Option<String>,
    },
}

/// Asks the API server about callers: as the operator, or as the callers themselves.
#[derive(Clone)]
pub enum Reviewer {
    /// By `TokenReview` and `SubjectAccessReview`, for which the operator needs `create` on both.
    Operator {
        /// With the operator's permissions.
        client: Client,
        /// Whom tokens have to be for; empty for the API server itself.
        audiences: Arc<[String]>,
    },
    /// By `SelfSubjectReview` and `SelfSubjectAccessReview` with the caller's own token, which need
    /// nothing of the operator's: the client has no credentials.
    Caller(Client),
}

impl Reviewer {
    /// Whether the callers' own tokens and `Impersonate-*` headers reach the API server, which alone can say
    /// whether they may act as another.
    #[must_use]
    pub fn passes_impersonation_on(&self) -> bool {
        matches!(self, Self::Caller(_))
    }

    /// Whose credentials `presented` are. A token counts if it is for the API server itself, or for one of
    /// the audiences that are wanted instead.
    ///
    /// # Errors
    ///
    /// The fault of the request; [`Reason::Malformed`] for an answer without a status.
    ///
    /// # Cost
    ///
    /// One request of at most 10 s.
    pub async fn who(&self, presented: &Presented) -> Result<Who, Fault> {
        match self {
            Self::Operator { client, audiences } => {
                token_review(client, &presented.token, audiences).await
            }
            Self::Caller(client) => self_review(client, presented).await,
        }
    }

    /// Whether the user may do what `spec` says; `presented` is the user's token. Of a user without one only the
    /// operator can ask.
    ///
    /// # Errors
    ///
    /// As for [`Self::who`].
    ///
    /// # Cost
    ///
    /// One request of at most 10 s.
    pub async fn may(
        &self,
        presented: Option<&Presented>,
        spec: SubjectAccessReviewSpec,
    ) -> Result<Verdict, Fault> {
        match self {
            Self::Operator { client, .. } => access_review(client, spec).await,
            Self::Caller(client) => {
                let no_token = || Fault::new(Reason::Internal, "there is no token to ask with");
                let presented = presented.ok_or_else(no_token)?;
                self_access_review(client, presented, spec).await
            }
        }
    }
}

async fn token_review(client: &Client, token: &str, audiences: &[String]) -> Result<Who, Fault> {
    let wanted = (!audiences.is_empty()).then(|| audiences.to_vec());
    let spec = TokenReviewSpec { token: token.to_owned(), audiences: wanted };
    let review = TokenReview { spec, ..TokenReview::default() };
    let answer: TokenReview = post(client, &review).await?.json()?;
    let status = answer.status.ok_or_else(without_status::<TokenReview>)?;
    // An authenticator that knows no audiences names none, and accepts tokens that are for anybody.
    let are_met = audiences.is_empty()
        || status.audiences.iter().flatten().any(|named| audiences.contains(named));
    let user = status.user.filter(|_| status.authenticated == Some(true) && are_met);
    Ok(user.map_or(Who::Unknown, known))
}

async fn self_review(client: &Client, presented: &Presented) -> Result<Who, Fault> {
    let credentials = headers_of(presented)?;
    let review = SelfSubjectReview::default();
    let answer = post_with(client, &review, credentials).await?;
    if answer.status == StatusCode::UNAUTHORIZED {
        return Ok(Who::Unknown);
    }
    if answer.status == StatusCode::FORBIDDEN {
        return Ok(Who::Refused { message: answer.fault().message().to_owned() });
    }
    let answer: SelfSubjectReview = answer.json()?;
    let status = answer.status.ok_or_else(without_status::<SelfSubjectReview>)?;
    Ok(status.user_info.map_or(Who::Unknown, known))
}

async fn access_review(client: &Client, spec: SubjectAccessReviewSpec) -> Result<Verdict, Fault> {
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer: SubjectAccessReview = post(client, &review).await?.json()?;
    answer.status.map(verdict).ok_or_else(without_status::<SubjectAccessReview>)
}

async fn self_access_review(
    client: &Client,
    presented: &Presented,
    spec: SubjectAccessReviewSpec,
) -> Result<Verdict, Fault> {
    let credentials = headers_of(presented)?;
    let SubjectAccessReviewSpec { resource_attributes, non_resource_attributes, .. } = spec;
    let spec = SelfSubjectAccessReviewSpec { resource_attributes, non_resource_attributes };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = post_with(client, &review, credentials).await?;
    // Between the two reviews the credentials may have ended, or the right to ask.
    if matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Ok(Verdict::Denied { reason: Some(answer.fault().message().to_owned()) });
    }
    let answer: SelfSubjectAccessReview = answer.json()?;
    answer.status.map(verdict).ok_or_else(without_status::<SelfSubjectAccessReview>)
}

fn known(user: UserInfo) -> Who {
    let UserInfo { username, uid, groups, extra } = user;
    Who::of(Arc::new(User {
        name: username.unwrap_or_default(),
        uid: uid.unwrap_or_default(),
        groups: groups.unwrap_or_default(),
        extra: extra.unwrap_or_default(),
    }))
}

fn verdict(status: SubjectAccessReviewStatus) -> Verdict {
    if status.allowed && status.denied != Some(true) {
        return Verdict::Allowed;
    }
    Verdict::Denied { reason: status.reason.filter(|reason| !reason.is_empty()) }
}

/// The caller's credentials and nothing else.
fn headers_of(presented: &Presented) -> Result<HeaderMap, Fault> {
    let bearer = Zeroizing::new(format!("Bearer {}", presented.token.as_str()));
    let mut token = HeaderValue::from_str(&bearer)
        .map_err(|_| Fault::new(Reason::Internal, "the token is not one that a header can hold"))?;
    token.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, token);
    for (name, value) in &presented.impersonation {
        headers.append(name, value.clone());
    }
    Ok(headers)
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let impersonates = !self.impersonation.is_empty();
        f.debug_struct("Presented").field("impersonates", &impersonates).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The clients may hold credentials.
        let own = self.passes_impersonation_on();
        f.debug_struct("Reviewer").field("by_callers_tokens", &own).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
