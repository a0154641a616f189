//! Sends TokenReviews and access reviews of callers to the API server.

use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use kubewarm_api::model::RequestFault;
use kubewarm_client::{
    AuthenticationResult, AuthorizationResult, BearerCredentials, CallerReviewer,
};
use std::sync::Arc;

/// Sends TokenReviews and access reviews of callers. Tests implement this trait to script the
/// results.
pub trait ReviewClient: Send + Sync + 'static {
    /// Whether this `ReviewClient` sends access reviews with the caller's own token. The cache key
    /// of an access review then includes this token.
    fn sends_callers_token(&self) -> bool;

    /// Authenticates the credentials, and returns the user that the credentials identify.
    fn authenticate(
        &self,
        presented: Arc<BearerCredentials>,
    ) -> BoxFuture<'static, Result<AuthenticationResult, RequestFault>>;

    /// Requests a decision about the access in `spec`. `presented` contains the caller's
    /// credentials if this `ReviewClient` sends access reviews with the caller's credentials.
    fn authorize(
        &self,
        presented: Option<Arc<BearerCredentials>>,
        spec: SubjectAccessReviewSpec,
    ) -> BoxFuture<'static, Result<AuthorizationResult, RequestFault>>;
}

impl ReviewClient for CallerReviewer {
    fn sends_callers_token(&self) -> bool {
        Self::sends_callers_token(self)
    }

    fn authenticate(
        &self,
        presented: Arc<BearerCredentials>,
    ) -> BoxFuture<'static, Result<AuthenticationResult, RequestFault>> {
        let reviewer = self.clone();
        Box::pin(async move { reviewer.authenticate(&presented).await })
    }

    fn authorize(
        &self,
        presented: Option<Arc<BearerCredentials>>,
        spec: SubjectAccessReviewSpec,
    ) -> BoxFuture<'static, Result<AuthorizationResult, RequestFault>> {
        let reviewer = self.clone();
        Box::pin(async move { reviewer.authorize(presented.as_deref(), spec).await })
    }
}
