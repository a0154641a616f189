//! Authorizes callers by access reviews or RBAC rules, and caches the decisions.

use super::{
    CallerRejection, RbacAuthorizer, ReviewClient,
    authenticator::{AuthenticatedCaller, TTL},
    caller_digest::{CallerDigest, DigestKey},
    limit_key::LimitKey,
    outage_grace::OutageGrace,
    rbac::{GrantVerification, RulesGrant, RulesVerdict, request_kind},
    review_queue::ReviewQueue,
};
use futures::future::{BoxFuture, FutureExt as _, pending};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReviewSpec, SubjectAccessReviewSpec,
};
use kubewarm_api::model::DecisionSource;
use kubewarm_client::{AuthorizationResult, BearerCredentials, CacheEntry, ExpiringCache};
use std::{sync::Arc, time::Duration};
use tokio::{runtime::Handle, time::Instant};

/// The maximum number of cached access reviews for each permitted connection, about 300 bytes each.
/// A client that caches three resources needs six: a list and a watch of each. With the default of
/// 1,024 connections, the cache has 8,192 entries, as the API server's own cache for webhook
/// authorizers.
const CACHED_PER_CONNECTION: usize = 8;

/// How old a positive access review can be at the beginning of an outage, so that it still counts
/// as positive then. A revocation takes effect on open watches within the same time.
const MAX_KEPT_AGE: Duration = Duration::from_secs(30);

/// How kubewarm authorizes requests.
#[derive(Clone, Debug, Default)]
pub enum AuthorizationMode {
    /// One access review with everything that the API server's own authorizers see.
    #[default]
    Reviews,
    /// First an access review without the user's `extra`, the object's name and the selectors,
    /// which requests of all pods of a ServiceAccount share. If this access review is denied, a
    /// complete one follows, because a rule can permit single names. This mode is right only if no
    /// authorizer of the API server decides by an omitted value.
    SharedReviews,
    /// By the cluster's RBAC rules. What they do not allow, access reviews decide. This is right
    /// only if no authorizer of the API server denies what RBAC allows.
    Rbac(Arc<RbacAuthorizer>),
}

pub(super) struct Authorizer {
    reviewer: AccessReviewer,
    key: Arc<DigestKey>,
    runtime: Handle,
    verdicts: ExpiringCache<CallerDigest, AuthorizationResult, CallerRejection>,
    pub(super) mode: AuthorizationMode,
    pub(super) grace: OutageGrace,
}

/// Sends access reviews within the limits on concurrent and waiting reviews.
#[derive(Clone)]
pub(super) struct AccessReviewer {
    reviews: Arc<dyn ReviewClient>,
    queue: ReviewQueue,
}

impl AccessReviewer {
    /// Sends an access review for a caller, whose credentials are in `presented` if the review
    /// needs them. The review counts against the limits of `limit_key` from this call on.
    pub(super) fn send(
        &self,
        limit_key: LimitKey,
        presented: Option<Arc<BearerCredentials>>,
        spec: SubjectAccessReviewSpec,
    ) -> impl Future<Output = Result<AuthorizationResult, CallerRejection>> + Send + use<> {
        let (queue, waits) = (self.queue.clone(), self.queue.line.enter(limit_key));
        let review = self.reviews.authorize(presented, spec);
        async move {
            let _waits = waits?;
            let _slot = queue.line.wait(limit_key).await?;
            queue.await_decision(review).await
        }
    }
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
        let (reviewer, mode) = (AccessReviewer { reviews, queue }, AuthorizationMode::default());
        Self { reviewer, key, runtime, verdicts, mode, grace: OutageGrace::default() }
    }

    /// Authorizes `access` for `caller`. Sets `by`, the source of the decision for the metrics, to
    /// `ApiServer` if the cache has no decision.
    ///
    /// kubewarm sent the access review at the returned time. If RBAC rules permit the access, the
    /// rules contain every change before this time. If a decision is kept because the API server is
    /// away, the time is now.
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
        if self.reviewer.reviews.sends_callers_token() {
            // A SelfSubjectAccessReview with the caller's own token never contains `extra`. Without
            // this line, the shared review could differ only in `extra`, and kubewarm would send
            // the same review twice.
            exact.extra = None;
        }
        let since = match &self.mode {
            AuthorizationMode::Reviews => None,
            AuthorizationMode::SharedReviews => {
                return self.review_shared_first(caller, exact, by).await;
            }
            AuthorizationMode::Rbac(rbac) => {
                let key = self.key.of_access(None, &request_kind(&exact))?;
                match rbac.decide(caller, access, &self.grace) {
                    RulesVerdict::Allow(grant) if !rbac.is_disputed(&key) => {
                        return self.confirm_grant(rbac, (key, grant), caller, access, by).await;
                    }
                    // Many requests at once can find the rules outdated, for example when the pods
                    // of a DaemonSet start after an hour without requests. What RBAC allows without
                    // a name, it allows for each name, and it does not know `extra`.
                    RulesVerdict::OutdatedAllow if !rbac.is_disputed(&key) => {
                        return self.review_shared_first(caller, exact, by).await;
                    }
                    // The rules allowed this before. A review from that time says nothing now.
                    RulesVerdict::NoOpinion(changed_at) if rbac.verified.get(&key).is_some() => {
                        rbac.settle(changed_at).await;
                        Some(changed_at)
                    }
                    RulesVerdict::Allow(_)
                    | RulesVerdict::OutdatedAllow
                    | RulesVerdict::NoOpinion(_)
                    | RulesVerdict::Undecided => None,
                }
            }
        };
        self.review(caller, exact, since, by).await
    }

    /// Authorizes by the review that requests of all pods of a ServiceAccount share. If this review
    /// is denied, the complete review `exact` decides, because an RBAC rule can permit single
    /// names.
    async fn review_shared_first(
        &self,
        caller: &AuthenticatedCaller,
        exact: SubjectAccessReviewSpec,
        by: &mut DecisionSource,
    ) -> Result<Instant, CallerRejection> {
        let shared = shared_review(&exact);
        if shared != exact {
            match self.review(caller, shared, None, by).await {
                Err(CallerRejection::Forbidden { .. }) => {}
                decided => return decided,
            }
        }
        self.review(caller, exact, None, by).await
    }

    /// Confirms what the RBAC rules allow: the first request of a kind by an access review, and
    /// later requests by the rules alone.
    async fn confirm_grant(
        &self,
        rbac: &Arc<RbacAuthorizer>,
        (key, grant): (CallerDigest, RulesGrant),
        caller: &AuthenticatedCaller,
        access: &SelfSubjectAccessReviewSpec,
        by: &mut DecisionSource,
    ) -> Result<Instant, CallerRejection> {
        // Most requests need no verification, so they do not copy what a verification needs.
        let verification = || GrantVerification {
            key,
            caller: caller.clone(),
            access: access.clone(),
            grant,
            reviewer: self.reviewer.clone(),
            runtime: self.runtime.clone(),
        };
        if rbac.verified.get(&key).is_some() {
            if *by == DecisionSource::Cache {
                *by = DecisionSource::Rules;
            }
            rbac.sample(verification);
            return Ok(grant.proven_at);
        }
        *by = DecisionSource::ApiServer;
        let verify = || {
            let (rbac, verification) = (Arc::clone(rbac), verification());
            async move { rbac.verify(verification).await }
        };
        let entry = rbac.verified.get_or_fetch(&self.runtime, key, None, verify).await?;
        Ok(entry.requested_at.max(grant.proven_at))
    }

    /// Whether the RBAC rules allow `access` now, whatever other authorizers decide.
    pub(super) fn is_allowed_by_rules(
        &self,
        caller: &AuthenticatedCaller,
        access: &SelfSubjectAccessReviewSpec,
    ) -> bool {
        match &self.mode {
            AuthorizationMode::Reviews | AuthorizationMode::SharedReviews => false,
            AuthorizationMode::Rbac(rbac) => {
                matches!(rbac.decide(caller, access, &self.grace), RulesVerdict::Allow(_))
            }
        }
    }

    /// Returns when the RBAC rules have changed. Without rules, it never returns.
    pub(super) fn rules_change(&self) -> BoxFuture<'static, ()> {
        match &self.mode {
            AuthorizationMode::Reviews | AuthorizationMode::SharedReviews => pending().boxed(),
            AuthorizationMode::Rbac(rbac) => rbac.rules.next_change().boxed(),
        }
    }

    /// Waits for the turn of an open watch's review.
    pub(super) async fn pace_watch(&self) -> Result<(), CallerRejection> {
        match &self.mode {
            AuthorizationMode::Reviews | AuthorizationMode::SharedReviews => Ok(()),
            AuthorizationMode::Rbac(rbac) => rbac.pace_switch().await,
        }
    }

    /// Returns the time of the access review `spec` if the API server allows it. With `since`, the
    /// review must be newer than this time.
    async fn review(
        &self,
        caller: &AuthenticatedCaller,
        spec: SubjectAccessReviewSpec,
        since: Option<Instant>,
        by: &mut DecisionSource,
    ) -> Result<Instant, CallerRejection> {
        let has_callers_token = self.reviewer.reviews.sends_callers_token();
        let presented = caller.credentials.as_ref().filter(|_| has_callers_token);
        let key = self.key.of_access(presented.map(AsRef::as_ref), &spec)?;
        let is_new = |at: Instant| since.is_none_or(|since| at > since);
        let is_kept = |last: &CacheEntry<AuthorizationResult>| {
            last.value == AuthorizationResult::Allowed
                && is_new(last.requested_at)
                && self.grace.keeps(last.requested_at, MAX_KEPT_AGE)
        };
        let known = self.verdicts.get(&key);
        if known.is_none() && self.verdicts.get_stale(&key).is_some_and(|last| is_kept(&last)) {
            return Ok(Instant::now());
        }
        let entry = if let Some(known) = known.filter(|known| is_new(known.requested_at)) {
            known
        } else {
            *by = DecisionSource::ApiServer;
            let review = || self.reviewer.send(caller.limit_key, presented.cloned(), spec);
            self.verdicts.get_or_fetch(&self.runtime, key, since, review).await?
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
