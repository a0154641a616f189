//! What the API server is asked about callers.

use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use kubewarm_api::model::Fault;
use kubewarm_client::{Presented, Reviewer, Verdict, Who};
use std::sync::Arc;

/// Asks the API server about callers. A port: one implementation sends requests.
pub trait Reviews: Send + Sync + 'static {
    /// Whether callers' own tokens and their `Impersonate-*` headers are sent with the reviews.
    fn passes_impersonation_on(&self) -> bool;

    /// Whose credentials these are.
    fn who(&self, presented: Arc<Presented>) -> BoxFuture<'static, Result<Who, Fault>>;

    /// Whether the user may do what `spec` says; `presented` are the credentials of a review by callers' own tokens.
    fn may(
        &self,
        presented: Option<Arc<Presented>>,
        spec: SubjectAccessReviewSpec,
    ) -> BoxFuture<'static, Result<Verdict, Fault>>;
}

impl Reviews for Reviewer {
    fn passes_impersonation_on(&self) -> bool {
        Self::passes_impersonation_on(self)
    }

    fn who(&self, presented: Arc<Presented>) -> BoxFuture<'static, Result<Who, Fault>> {
        let reviewer = self.clone();
        Box::pin(async move { reviewer.who(&presented).await })
    }

    fn may(
        &self,
        presented: Option<Arc<Presented>>,
        spec: SubjectAccessReviewSpec,
    ) -> BoxFuture<'static, Result<Verdict, Fault>> {
        let reviewer = self.clone();
        Box::pin(async move { reviewer.may(presented.as_deref(), spec).await })
    }
}
