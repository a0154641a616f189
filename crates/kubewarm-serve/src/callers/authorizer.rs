use super::{
    CallerRejection, ReviewClient,
    authenticator::{AuthenticatedCaller, TTL},
    caller_digest::{CallerDigest, DigestKey},
    review_queue::ReviewQueue,
};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReviewSpec};
use kubewarm_api::model::DecisionSource;
use kubewarm_client::{AuthorizationResult, ExpiringCache};
use std::sync::Arc;
use tokio::{runtime::Handle, time::Instant};

/// The maximum number of cached access reviews, about 300 bytes each. Kubernetes' webhook
/// authorizer caches the same number.
const MAX_CACHED: u64 = 8_192;

pub(super) struct Authorizer {
    reviews: Arc<dyn ReviewClient>,
    key: Arc<DigestKey>,
    runtime: Handle,
    verdicts: ExpiringCache<CallerDigest, AuthorizationResult, CallerRejection>,
    queue: ReviewQueue<CallerDigest>,
    /// Whether [`Self::authorize_request`] first sends an access review for all names when the
    /// request is a `get` of one object. One decision then covers the gets of all objects.
    pub(super) can_review_all_names: bool,
}

impl Authorizer {
    pub(super) fn new(
        reviews: Arc<dyn ReviewClient>,
        key: Arc<DigestKey>,
        runtime: Handle,
        queue: ReviewQueue<CallerDigest>,
    ) -> Self {
        let verdicts = ExpiringCache::new(MAX_CACHED, TTL);
        Self { reviews, key, runtime, verdicts, queue, can_review_all_names: false }
    }

    /// Authorizes a request for `access`, like [`Self::authorize`]. With `can_review_all_names`, an
    /// access to all names also authorizes a `get` of one name.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::authorize`].
    pub(super) async fn authorize_request(
        &self,
        caller: &AuthenticatedCaller,
        access: &SelfSubjectAccessReviewSpec,
        by: &mut DecisionSource,
    ) -> Result<Instant, CallerRejection> {
        let all_names = if self.can_review_all_names { get_of_all_names(access) } else { None };
        if let Some(all_names) = all_names {
            match self.authorize(caller, &all_names, by).await {
                // The API server denied the access to all names, but can permit the access to this
                // name.
                Err(CallerRejection::Forbidden { .. }) => {}
                decided => return decided,
            }
        }
        self.authorize(caller, access, by).await
    }

    /// Authorizes `access` for `caller` with an access review. Sets `by`, the source of the
    /// decision for the metrics, to `ApiServer` if the cache has no decision. Returns the time at
    /// which kubewarm sent the access review, or [`AuthenticatedCaller::reviewed_at`] if that time
    /// is earlier.
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
        let spec = caller.user.review(access);
        let has_callers_token = self.reviews.sends_callers_token();
        let presented = caller.credentials.as_ref().filter(|_| has_callers_token);
        let key = self.key.of_access(presented.map(AsRef::as_ref), &spec)?;
        let entry = if let Some(known) = self.verdicts.get(&key) {
            known
        } else {
            *by = DecisionSource::ApiServer;
            let name = caller.name;
            let review = || {
                let (queue, waits) = (self.queue.clone(), self.queue.acquire_waiting(name));
                let review = self.reviews.authorize(presented.cloned(), spec);
                async move {
                    let _waits = waits?;
                    let _slot = queue.acquire_slot(name).await?;
                    queue.await_decision(review).await
                }
            };
            self.verdicts.get_or_fetch(&self.runtime, key, None, review).await?
        };
        match entry.value {
            AuthorizationResult::Allowed => Ok(entry.requested_at.min(caller.reviewed_at)),
            AuthorizationResult::Denied { reason } => {
                Err(CallerRejection::Forbidden { user: caller.user.name.clone(), reason })
            }
        }
    }
}

/// Returns the access review for the `get` of all names, if `access` is the `get` of one name. In
/// an access review, an absent name means all names.
fn get_of_all_names(access: &SelfSubjectAccessReviewSpec) -> Option<SelfSubjectAccessReviewSpec> {
    let attributes = access.resource_attributes.as_ref()?;
    if attributes.verb.as_deref() != Some("get") || attributes.name.is_none() {
        return None;
    }
    let all = ResourceAttributes { name: None, ..attributes.clone() };
    Some(SelfSubjectAccessReviewSpec { resource_attributes: Some(all), ..access.clone() })
}
