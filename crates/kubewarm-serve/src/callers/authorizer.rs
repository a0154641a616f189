//! Authorizes callers by access reviews, and caches the decisions.

use super::{
    CallerRejection, ReviewClient,
    authenticator::{AuthenticatedCaller, TTL},
    caller_digest::{CallerDigest, DigestKey},
    review_queue::ReviewQueue,
};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReviewSpec, SubjectAccessReviewSpec,
};
use kubewarm_api::model::DecisionSource;
use kubewarm_client::{AuthorizationResult, ExpiringCache};
use std::sync::Arc;
use tokio::{runtime::Handle, time::Instant};

/// The maximum number of cached access reviews for each permitted connection, about 300 bytes each.
/// A client that caches three resources needs six: a list and a watch of each. With the default of
/// 1,024 connections, the cache has 8,192 entries, as the API server's own cache for webhook
/// authorizers.
const CACHED_PER_CONNECTION: usize = 8;

/// Which access reviews kubewarm sends for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// One access review with everything that the API server's own authorizers see.
    #[default]
    Reviews,
    /// First an access review without the user's `extra`, the object's name and the selectors,
    /// which requests of all pods of a ServiceAccount share. If this access review is denied, a
    /// complete one follows, because a rule can permit single names. This mode is right only if no
    /// authorizer of the API server decides by an omitted value.
    SharedReviews,
}

pub(super) struct Authorizer {
    reviews: Arc<dyn ReviewClient>,
    key: Arc<DigestKey>,
    runtime: Handle,
    verdicts: ExpiringCache<CallerDigest, AuthorizationResult, CallerRejection>,
    queue: ReviewQueue,
    pub(super) mode: AuthorizationMode,
}

impl Authorizer {
    /// Creates an `Authorizer` without cached decisions, for clients with this number of
    /// `connections`.
    pub(super) fn new(
        reviews: Arc<dyn ReviewClient>,
        key: Arc<DigestKey>,
        runtime: Handle,
        queue: ReviewQueue,
        connections: usize,
    ) -> Self {
        let capacity = connections.saturating_mul(CACHED_PER_CONNECTION);
        let verdicts = ExpiringCache::new(capacity as u64, TTL);
        Self { reviews, key, runtime, verdicts, queue, mode: AuthorizationMode::default() }
    }

    /// Authorizes `access` for `caller`. Sets `by`, the source of the decision for the metrics, to
    /// `ApiServer` if the cache has no decision. Returns the time at which kubewarm sent the access
    /// review.
    ///
    /// # Errors
    ///
    /// [`CallerRejection`] if the API server denies the access or returns no decision.
    pub(super) async fn authorize(
        &self,
        caller: &AuthenticatedCaller,
        access: &SelfSubjectAccessReviewSpec,
        by: &mut DecisionSource,
    ) -> Result<Instant, CallerRejection> {
        let mut exact = caller.user.review(access);
        if self.reviews.sends_callers_token() {
            // A SelfSubjectAccessReview with the caller's own token never contains `extra`. Without
            // this line, the shared review could differ only in `extra`, and kubewarm would send
            // the same review twice.
            exact.extra = None;
        }
        if self.mode == AuthorizationMode::SharedReviews {
            let shared = shared_review(&exact);
            if shared != exact {
                match self.review(caller, shared, by).await {
                    // The denial of the shared review is not final, because an RBAC rule can permit
                    // single names. So the complete review below decides.
                    Err(CallerRejection::Forbidden { .. }) => {}
                    decided => return decided,
                }
            }
        }
        self.review(caller, exact, by).await
    }

    /// Returns the time of the access review `spec` if the API server allows it.
    async fn review(
        &self,
        caller: &AuthenticatedCaller,
        spec: SubjectAccessReviewSpec,
        by: &mut DecisionSource,
    ) -> Result<Instant, CallerRejection> {
        let has_callers_token = self.reviews.sends_callers_token();
        let presented = caller.credentials.as_ref().filter(|_| has_callers_token);
        let key = self.key.of_access(presented.map(AsRef::as_ref), &spec)?;
        let entry = if let Some(known) = self.verdicts.get(&key) {
            known
        } else {
            *by = DecisionSource::ApiServer;
            let limit_key = caller.limit_key;
            let review = || {
                let (queue, waits) = (self.queue.clone(), self.queue.line.enter(limit_key));
                let review = self.reviews.authorize(presented.cloned(), spec);
                async move {
                    let _waits = waits?;
                    let _slot = queue.line.wait(limit_key).await?;
                    queue.await_decision(review).await
                }
            };
            self.verdicts.get_or_fetch(&self.runtime, key, None, review).await?
        };
        match entry.value {
            AuthorizationResult::Allowed => Ok(entry.requested_at),
            AuthorizationResult::Denied { reason } => {
                Err(CallerRejection::Forbidden { user: caller.user.name.clone(), reason })
            }
        }
    }
}

/// The review of the same access without the user's `extra`, the object's name and the selectors.
/// An absent name means all names, so this review never covers fewer objects than `exact`.
pub(super) fn shared_review(exact: &SubjectAccessReviewSpec) -> SubjectAccessReviewSpec {
    let resource_attributes = exact.resource_attributes.clone().map(|attributes| {
        let (name, field_selector, label_selector) = (None, None, None);
        ResourceAttributes { name, field_selector, label_selector, ..attributes }
    });
    SubjectAccessReviewSpec { resource_attributes, extra: None, ..exact.clone() }
}
