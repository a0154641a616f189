//! Authorizes callers by the RBAC rules of the cluster, which kubewarm's own informers follow, and
//! verifies the decisions by access reviews.
//!
//! ```text
//!  request ──► rules allow? ──no, or not current──► access review, as without rules
//!                   │ yes
//!                   ▼
//!          allowed before? ──no──► access review ──allowed──► remember, answer
//!                   │ yes                  │ denied
//!                   ▼                      ▼
//!      answer; one a second          disagreement: reviews decide about this kind of request for
//!      is reviewed afterwards        10 s. If all three deny: fall back to access reviews.
//! ```

mod cluster_rules;
mod fallback;
#[cfg(test)]
pub(crate) mod fixtures;
mod rules_writer;
#[cfg(test)]
mod tests;

pub use self::{
    cluster_rules::ClusterRules, fallback::RbacFallback, rules_writer::ClusterRulesWriter,
};

use self::cluster_rules::{RulesDecision, SETTLE_TIME};
use super::{
    CallerRejection, ReadLimit,
    authenticator::{AuthenticatedCaller, TTL},
    authorizer::AccessReviewer,
    caller_digest::CallerDigest,
    limits::MAX_REVIEW_WAIT,
    outage_grace::OutageGrace,
};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReviewSpec, SubjectAccessReviewSpec,
};
use kubewarm_client::{AuthorizationResult, ExpiringCache};
use kubewarm_rbac::RbacDecision;
use parking_lot::Mutex;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, sleep_until},
};

/// If the API server has not confirmed the rules for this time, access reviews decide. Together
/// with the 10 s for which kubewarm caches these, a revocation takes effect within 30 s.
pub const MAX_RULES_AGE: Duration = Duration::from_secs(20);
/// The keys of a user's `extra` that no known authorizer evaluates. With another key, for example
/// the scopes of a token, access reviews decide.
const HARMLESS_EXTRA: &str = "authentication.kubernetes.io/";
/// How long kubewarm remembers that the API server allowed a kind of request, as the rules do.
const VERIFIED_FOR: Duration = Duration::from_hours(1);
/// The maximum number of remembered kinds of requests, about 200 bytes each. For a forgotten one,
/// kubewarm sends an access review.
const MAX_VERIFIED: u64 = 16_384;
/// The time between two access reviews of requests that were allowed before.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The time between the three access reviews that confirm a disagreement.
const CONFIRMATION_PAUSE: Duration = Duration::from_secs(5);
/// The interval at which a confirmation looks for a new proof of the rules.
const PROOF_PAUSE: Duration = Duration::from_secs(1);
/// After a fallback, open watches send one review in this time, until the switch has ended.
const SWITCH_PAUSE: Duration = Duration::from_millis(20);
const SWITCH_TIME: Duration = Duration::from_mins(1);

/// Returns the time before which the rules contain every change at the API server. `None` if the
/// rules are incomplete.
pub type RulesProof = Box<dyn Fn() -> Option<Instant> + Send + Sync>;

/// Authorizes callers by the cluster's RBAC rules, and verifies that the API server agrees.
pub struct RbacAuthorizer {
    pub(super) rules: Arc<ClusterRules>,
    proven_at: RulesProof,
    /// The kinds of requests that the API server has allowed, as the rules do.
    pub(super) verified: ExpiringCache<CallerDigest, (), CallerRejection>,
    /// The kinds of requests that the API server has recently denied, although the rules allow
    /// them.
    disputed: ExpiringCache<CallerDigest, ()>,
    /// The earliest time of the next sample.
    next_sample: Mutex<Instant>,
    is_confirming: AtomicBool,
    switch: Mutex<Option<FallbackSwitch>>,
}

/// The first minute after a fallback.
#[derive(Clone, Copy, Debug)]
struct FallbackSwitch {
    ends_at: Instant,
    next_review: Instant,
}

/// What the rules say about a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum RulesVerdict {
    /// The rules are incomplete or not used, or do not suffice for this caller. Or they are too
    /// old, and no rule allows the request.
    Undecided,
    /// A rule allows the request, but the rules are older than [`MAX_RULES_AGE`].
    OutdatedAllow,
    /// No rule allows the request. The rules last changed at this time.
    NoOpinion(Instant),
    /// A rule allows the request.
    Allow(RulesGrant),
}

/// A request that the rules allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RulesGrant {
    /// The rules contained every change before this time.
    pub(super) proven_at: Instant,
    /// The number of changes of the rules so far.
    changes: u64,
}

/// A request that the rules allow, to be verified by an access review.
#[derive(Clone)]
pub(super) struct GrantVerification {
    /// The request's kind.
    pub(super) key: CallerDigest,
    pub(super) caller: AuthenticatedCaller,
    pub(super) access: SelfSubjectAccessReviewSpec,
    pub(super) grant: RulesGrant,
    pub(super) reviewer: AccessReviewer,
    pub(super) runtime: Handle,
}

impl RbacAuthorizer {
    /// Creates an authorizer that has verified nothing yet.
    pub fn new(rules: Arc<ClusterRules>, proven_at: RulesProof) -> Arc<Self> {
        Arc::new(Self {
            rules,
            proven_at,
            verified: ExpiringCache::new(MAX_VERIFIED, VERIFIED_FOR),
            disputed: ExpiringCache::new(MAX_VERIFIED, TTL),
            next_sample: Mutex::new(Instant::now() + SAMPLE_INTERVAL),
            is_confirming: AtomicBool::new(false),
            switch: Mutex::new(None),
        })
    }

    pub(super) fn decide(
        &self,
        caller: &AuthenticatedCaller,
        access: &SelfSubjectAccessReviewSpec,
        grace: &OutageGrace,
    ) -> RulesVerdict {
        let is_harmless = |key: &String| key.starts_with(HARMLESS_EXTRA);
        if self.rules.fallback().is_some() || !caller.user.extra.keys().all(is_harmless) {
            return RulesVerdict::Undecided;
        }
        // The proof comes before the decision, so that it is about the decision's rules or older
        // ones.
        let Some(mut proven_at) = (self.proven_at)() else { return RulesVerdict::Undecided };
        let is_current = proven_at.elapsed() < MAX_RULES_AGE;
        // The rules as they were when the API server went away. A denial by old rules is still no
        // decision.
        let is_kept = !is_current && grace.keeps(proven_at, MAX_RULES_AGE);
        if is_kept {
            proven_at = Instant::now();
        }
        let RulesDecision { decision, changes, changed_at } =
            self.rules.decide(&caller.user, access);
        match (decision, is_current) {
            (RbacDecision::Allow, _) if is_current || is_kept => {
                RulesVerdict::Allow(RulesGrant { proven_at, changes })
            }
            (RbacDecision::Allow, _) => RulesVerdict::OutdatedAllow,
            (RbacDecision::NoOpinion, true) => RulesVerdict::NoOpinion(changed_at),
            (RbacDecision::NoOpinion, false) => RulesVerdict::Undecided,
        }
    }

    /// Whether access reviews decide about a kind of requests for now, although the rules allow it.
    pub(super) fn is_disputed(&self, key: &CallerDigest) -> bool {
        self.disputed.get(key).is_some()
    }

    /// Waits until the API server's own authorizer knows the change of the rules at `changed_at`.
    pub(super) async fn settle(&self, changed_at: Instant) {
        sleep_until(changed_at + SETTLE_TIME).await;
    }

    /// Verifies a request that was allowed before, in the background, unless another request was
    /// verified less than a second ago.
    pub(super) fn sample(self: &Arc<Self>, verification: impl FnOnce() -> GrantVerification) {
        let now = Instant::now();
        {
            let mut next = self.next_sample.lock();
            if now < *next {
                return;
            }
            *next = now + SAMPLE_INTERVAL;
        }
        let (authorizer, verification) = (Arc::clone(self), verification());
        let runtime = verification.runtime.clone();
        runtime.spawn(async move { authorizer.verify(verification).await });
    }

    /// Verifies a request by an access review. If the API server denies the request, access reviews
    /// decide about its kind for 10 s, and this function confirms the disagreement in the
    /// background.
    ///
    /// # Errors
    ///
    /// [`CallerRejection`] if the API server denies the request or returns no decision.
    pub(super) async fn verify(
        self: &Arc<Self>,
        verification: GrantVerification,
    ) -> Result<(), CallerRejection> {
        match verification.review().await? {
            AuthorizationResult::Allowed => Ok(()),
            AuthorizationResult::Denied { reason } => {
                let user = verification.caller.user.name.clone();
                self.disputed.insert(verification.key, (), Instant::now());
                self.verified.remove(&verification.key);
                if !self.is_confirming.swap(true, Ordering::Relaxed) {
                    let confirmation = DisagreementConfirmation(Arc::clone(self));
                    let runtime = verification.runtime.clone();
                    runtime.spawn(async move { confirmation.confirm(verification).await });
                }
                Err(CallerRejection::Forbidden { user, reason })
            }
        }
    }

    /// Waits for the turn of an open watch's review. Returns at once, except in the minute after a
    /// fallback, when all watches that the rules allowed need reviews.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Limited`] if the wait would be longer than 8 s.
    pub(super) async fn pace_switch(&self) -> Result<(), CallerRejection> {
        if self.rules.fallback().is_none() {
            return Ok(());
        }
        let now = Instant::now();
        let turn = {
            let mut switch = self.switch.lock();
            let first = FallbackSwitch { ends_at: now + SWITCH_TIME, next_review: now };
            let switch = switch.get_or_insert(first);
            if now >= switch.ends_at {
                return Ok(());
            }
            let turn = switch.next_review.max(now);
            if turn.saturating_duration_since(now) > MAX_REVIEW_WAIT {
                return Err(CallerRejection::Limited(ReadLimit::Reviews));
            }
            switch.next_review = turn + SWITCH_PAUSE;
            turn
        };
        sleep_until(turn).await;
        Ok(())
    }
}

impl GrantVerification {
    async fn review(&self) -> Result<AuthorizationResult, CallerRejection> {
        let spec = self.caller.user.review(&self.access);
        self.reviewer.send(self.caller.limit_key, None, spec).await
    }
}

/// The confirmation of a disagreement. An authorizer has at most one at a time.
struct DisagreementConfirmation(Arc<RbacAuthorizer>);

impl Drop for DisagreementConfirmation {
    fn drop(&mut self) {
        self.0.is_confirming.store(false, Ordering::Relaxed);
    }
}

impl DisagreementConfirmation {
    /// After a first denial, sends two more reviews of the request. If the API server denies both,
    /// and the rules did not change before the first denial, other authorizers decide, too.
    async fn confirm(self, verification: GrantVerification) {
        let Self(authorizer) = &self;
        let GrantVerification { caller, access, grant, .. } = &verification;
        let denied_at = Instant::now();
        for _ in 0..2 {
            sleep(CONFIRMATION_PAUSE).await;
            let review = verification.review().await;
            if !matches!(review, Ok(AuthorizationResult::Denied { .. })) {
                return;
            }
        }
        // A revocation whose event is late is no disagreement. So wait until the rules are proven
        // to contain every change before the first denial.
        loop {
            match authorizer.decide(caller, access, &OutageGrace::default()) {
                RulesVerdict::Allow(now) if now.changes != grant.changes => return,
                RulesVerdict::Allow(now) if now.proven_at > denied_at => break,
                RulesVerdict::Allow(_) => sleep(PROOF_PAUSE).await,
                RulesVerdict::Undecided
                | RulesVerdict::OutdatedAllow
                | RulesVerdict::NoOpinion(_) => {
                    return;
                }
            }
        }
        let (user, access) = (caller.user.name.clone(), access.clone().into());
        authorizer.rules.fall_back(RbacFallback::Disagreement { user, access });
    }
}

/// The kind of a request: who does what where, without the user's `extra`, the version, the name
/// and the selectors.
pub(super) fn request_kind(exact: &SubjectAccessReviewSpec) -> SubjectAccessReviewSpec {
    let resource_attributes = exact.resource_attributes.clone().map(|attributes| {
        // An empty name stands for all names, so that requests with and without a name differ.
        let name = attributes.name.map(|_| String::new());
        let (version, field_selector, label_selector) = (None, None, None);
        ResourceAttributes { name, version, field_selector, label_selector, ..attributes }
    });
    SubjectAccessReviewSpec { resource_attributes, extra: None, ..exact.clone() }
}

impl fmt::Debug for RbacAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RbacAuthorizer").finish_non_exhaustive()
    }
}
