//! The access checks and reviews of one identity, in one namespace or cluster-wide, and the
//! permission states of the identity's informers.

use super::{CheckJob, CheckQueues, CheckSchedule, CheckSettings, REVIEW, jittered};
use crate::access::{
    access_state::{AccessSignal, AccessState, is_token_missing},
    excess::{ExcessPermissions, excess},
    rules::{RulesReviewKey, VERBS, grants},
};
use jiff::Timestamp;
use kubewarm_api::model::{
    FaultReason, GroupResource, InformerKey, RequestFault, RulesCompleteness, Verb,
};
use kubewarm_client::ReviewedRules;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Period of rules reviews while the API server returns incomplete rules, or does not support rules
/// reviews. The period can be long: incomplete rules do not show lost access, only permissions that
/// no profile needs.
const INCOMPLETE: Duration = Duration::from_mins(5);

/// The informers and the RBAC rules of one identity, in one namespace or cluster-wide.
#[derive(Debug, Default)]
pub(super) struct NamespaceChecks {
    pub(super) informers: BTreeMap<InformerKey, InformerCheck>,
    pub(super) rules: Option<ReviewedRules>,
    /// Whether the last rules review failed. After two failures in a row, kubewarm sends access
    /// reviews instead.
    pub(super) has_failed: bool,
    pub(super) needed: BTreeSet<GroupResource>,
    pub(super) excess: Option<Arc<ExcessPermissions>>,
}

#[derive(Debug)]
pub(super) struct InformerCheck {
    pub(super) settings: CheckSettings,
    pub(super) access: AccessState,
    /// Time at which the informer's first access check began to wait for the informer's own first
    /// list and watch, which can replace the check. `None` after the wait has ended.
    pub(super) waiting_since: Option<Instant>,
    /// Time at which the API server began to reject the informer's lists or watches, whichever is
    /// later; `None` if it rejects neither. A new time means a further rejection, which is a sign
    /// of lost access.
    pub(super) refused_at: Option<Instant>,
    /// Whether the next access check must start before others, because of a sign of lost or
    /// regained access.
    pub(super) is_urgent: bool,
}

impl CheckSchedule {
    pub(super) fn record_rules(
        &mut self,
        rules_scope: &RulesReviewKey,
        sent: Instant,
        rules: Result<ReviewedRules, RequestFault>,
        now: Instant,
        wall: Timestamp,
    ) {
        let Some(scope) = self.scopes.get_mut(rules_scope) else { return };
        let had_failed = std::mem::replace(&mut scope.has_failed, rules.is_err());
        let was_incomplete = scope.completeness() == Some(RulesCompleteness::Incomplete);
        let incomplete =
            |rules| ReviewedRules { rules, completeness: RulesCompleteness::Incomplete };
        let mut period = INCOMPLETE;
        let rules = match rules {
            Ok(rules) => Some(rules),
            // The API server does not support or permit rules reviews for this namespace. kubewarm
            // therefore sends an access review for each informer.
            Err(fault) if is_permanent(fault.reason()) => Some(incomplete(Vec::new())),
            Err(fault) => {
                period = REVIEW;
                for (key, informer) in &mut scope.informers {
                    let input = AccessSignal::Undecided { sent, fault: fault.clone() };
                    informer.apply_signal(input, key, &mut self.queues, now, wall);
                }
                // Rules reviews count as unavailable after two failures in a row. One response that
                // is too large is enough, because the next response is too large too. A failure
                // without a token does not count, because access reviews need the token too.
                let is_over = had_failed && !is_token_missing(fault.reason())
                    || fault.reason() == FaultReason::TooLarge;
                // Incomplete rules make the schedule send an access review for each informer. The
                // rules of the last successful rules review stay, because the excess permissions
                // come from these rules.
                let known = || scope.rules.clone().map(|known| known.rules).unwrap_or_default();
                is_over.then(known).map(incomplete)
            }
        };
        let is_complete =
            rules.as_ref().is_none_or(|rules| rules.completeness == RulesCompleteness::Complete);
        let period = if is_complete { REVIEW } else { period };
        self.queues.jobs.make_due_by(
            CheckJob::RulesReview(rules_scope.clone()),
            now + jittered(period, (self.random)()),
        );
        let Some(rules) = rules else { return };
        for (key, informer) in &mut scope.informers {
            let review = CheckJob::AccessReview(key.clone());
            if is_complete {
                self.queues.jobs.remove(&review);
                let is_refused = |verb: &Verb| !grants(&rules, key, *verb);
                let refused = VERBS.into_iter().filter(is_refused).collect();
                informer.apply_signal(
                    AccessSignal::Reviewed { sent, refused },
                    key,
                    &mut self.queues,
                    now,
                    wall,
                );
            } else if !was_incomplete {
                self.queues.jobs.make_due_by(review, now);
            }
        }
        if scope.rules.as_ref() != Some(&rules) {
            scope.rules = Some(rules);
            scope.update_excess();
        }
    }
}

impl NamespaceChecks {
    /// Whether the known rules of the identity are complete; `None` before the first rules review.
    /// Without complete rules, the schedule sends an access review for each informer.
    pub(super) fn completeness(&self) -> Option<RulesCompleteness> {
        self.rules.as_ref().map(|rules| rules.completeness)
    }

    /// Whether an informer in `informers` has access that it can lose, or whether the identity's
    /// rules are unknown. If this function returns true, a due rules review starts earlier than
    /// others.
    pub(super) fn has_access(&self) -> bool {
        self.rules.is_none() || self.informers.values().any(|informer| informer.access.has_access())
    }

    pub(super) fn update_excess(&mut self) {
        self.excess = self.rules.as_ref().map(|rules| Arc::new(excess(rules, &self.needed)));
    }
}

impl InformerCheck {
    pub(super) fn new(settings: CheckSettings, max_access_age: Duration, now: Instant) -> Self {
        Self {
            settings,
            access: AccessState::new(max_access_age, now),
            waiting_since: Some(now),
            refused_at: None,
            is_urgent: false,
        }
    }

    /// Applies an access signal to the informer's permission state. If the new state requires an
    /// access check, the informer's next access check runs earlier. If confirmed access now expires
    /// earlier, the informer's next visit is earlier.
    pub(super) fn apply_signal(
        &mut self,
        input: AccessSignal,
        key: &InformerKey,
        queues: &mut CheckQueues,
        now: Instant,
        wall: Timestamp,
    ) {
        if let Some(at) = self.access.apply(input, now, wall) {
            self.is_urgent = true;
            queues.jobs.make_due_by(CheckJob::AccessCheck(key.clone()), at);
        }
        if let Some(at) = self.access.expires_at() {
            queues.visits.make_due_by(key.clone(), at);
        }
    }
}

/// Whether a request that failed with `reason` fails again at every retry, because the API server
/// does not support or permit the request.
pub(in crate::access) fn is_permanent(reason: FaultReason) -> bool {
    matches!(
        reason,
        FaultReason::Forbidden
            | FaultReason::NotServed
            | FaultReason::NotListable
            | FaultReason::Unsupported
    )
}
