//! Decides which targets stop when stores exceed the memory or object limit of a profile, a
//! namespace or the process.

use super::{cluster_view::ClusterView, known_target::KnownTarget, target_charges::TargetCharges};
use jiff::Timestamp;
use kubewarm_api::model::{Budget, LimitKind, LimitOverrun, LimitScope, ProfileRef};
use std::{cmp::Reverse, sync::Arc, time::Duration};

pub(super) struct RunningTarget<'a> {
    pub(super) profile: &'a ProfileRef,
    pub(super) created: Option<Timestamp>,
    pub(super) target: &'a Arc<str>,
    pub(super) budget: &'a Arc<Budget>,
    pub(super) state: &'a mut KnownTarget,
}

impl RunningTarget<'_> {
    fn is_counting(&self, cluster: &ClusterView<'_>) -> bool {
        self.state.charges.as_ref().is_some_and(|charges| charges.is_counting(cluster))
    }
}

/// Compares the memory and the objects in stores with the budgets of profiles, namespaces and the
/// process. Stops targets until every budget is kept.
pub(super) struct BudgetEnforcer<'a> {
    pub(super) operator_namespace: &'a str,
    pub(super) cluster: &'a ClusterView<'a>,
    /// Time since the start of the process, from which the enforcer computes when a stopped target
    /// runs again.
    pub(super) now: Duration,
    /// The exceeded memory and object limits, one entry for each target that this enforcer stopped.
    pub(super) exceeded: Vec<LimitOverrun>,
}

impl BudgetEnforcer<'_> {
    /// Stops targets until each profile, then each namespace, and finally the process is within its
    /// budget. `running` is sorted by profile.
    ///
    /// While an informer asks the API server for the number of its objects, the limits of its
    /// profile stop no target. With this number, the status can name a limit that would be enough.
    pub(super) fn enforce_all(&mut self, mut running: Vec<RunningTarget<'_>>) {
        for of_profile in running.chunk_by_mut(|a, b| a.profile == b.profile) {
            self.enforce(of_profile, LimitScope::Profile);
        }
        for of_namespace in running.chunk_by_mut(|a, b| a.profile.namespace == b.profile.namespace)
        {
            self.enforce(of_namespace, LimitScope::Namespace);
        }
        self.enforce(&mut running, LimitScope::Process);
    }

    /// Stops targets until the usage of the remaining `targets` fits into the budget of scope
    /// `bound`, which all `targets` share.
    ///
    /// First drops informers of earlier profile generations, which serve reads until the informers
    /// of the edited profile are synced. Then stops targets in the order of
    /// [`stop_order`](Self::stop_order).
    fn enforce(&mut self, targets: &mut [RunningTarget<'_>], bound: LimitScope) {
        let budget = targets.first().and_then(|target| {
            target.budget.self_and_ancestors().find(|budget| budget.bound() == bound)
        });
        let Some(budget) = budget.cloned() else { return };
        for measure in [LimitKind::Objects, LimitKind::Memory] {
            let Some(limit) = budget.limit(measure) else { continue };
            let can_fit = || budget.used(measure) <= limit;
            if can_fit() {
                continue;
            }
            // The informer notifies the controller when the number of objects arrives, so the next
            // reconciliation enforces the limit. The limits of the namespace and the process do not
            // wait: a tenant could delay the number and meanwhile use other tenants' memory.
            if bound == LimitScope::Profile
                && targets.iter().any(|target| target.is_counting(self.cluster))
            {
                continue;
            }
            targets.sort_by_cached_key(|target| self.stop_order(target, bound, measure, limit));
            for target in &mut *targets {
                if !can_fit() {
                    target.state.drop_old_charges();
                }
            }
            let mut stopped = Vec::new();
            for target in &mut *targets {
                let is_part =
                    |charges: &mut TargetCharges| !can_fit() && charges.size(bound, measure) > 0;
                if let Some(charges) = target.state.charges.take_if(is_part) {
                    stopped.push((target, self.overrun(&charges, bound, measure, limit)));
                }
            }
            let others = budget.used(measure);
            for (target, overrun) in stopped {
                let overrun = LimitOverrun { others, ..overrun };
                target.state.stop(target.profile, target.target, overrun, self.now);
                self.exceeded.push(overrun);
            }
        }
    }

    /// Sort key: the target with the smallest key stops first.
    ///
    /// 1. Targets that exceed the limit alone, because they do not fit even after other targets
    ///    stop.
    /// 2. For the process limit, targets outside the operator namespace.
    /// 3. Targets with an informer whose first list is not complete, because clients cannot read
    ///    its store yet.
    /// 4. Within a profile, the lowest priority.
    /// 5. The largest target, so that few targets stop. Of equally large targets, the target of the
    ///    newest profile.
    fn stop_order(
        &self,
        target: &RunningTarget<'_>,
        bound: LimitScope,
        measure: LimitKind,
        limit: u64,
    ) -> impl Ord + use<> {
        let charges = target.state.charges.as_ref();
        let size = charges.map_or(0, |charges| charges.size(bound, measure));
        let is_operators =
            bound == LimitScope::Process && *target.profile.namespace == *self.operator_namespace;
        let is_synced = charges.is_some_and(|charges| charges.is_synced(self.cluster));
        // A target's priority counts only against other targets of the same profile. Otherwise each
        // tenant would choose the highest priority.
        let priority =
            charges.filter(|_| bound == LimitScope::Profile).map(|charges| charges.priority);
        let created = target.created.unwrap_or(Timestamp::MAX);
        (size <= limit, is_operators, is_synced, priority, Reverse(size), Reverse(created))
    }

    /// Returns the exceeded limit and the usage of `charges`. The caller must set the field
    /// `others` to the usage of the targets that continue, because that usage is known only after
    /// the last of these targets has stopped.
    fn overrun(
        &self,
        charges: &TargetCharges,
        bound: LimitScope,
        measure: LimitKind,
        limit: u64,
    ) -> LimitOverrun {
        LimitOverrun {
            bound,
            measure,
            limit,
            reached: charges.size(bound, measure),
            others: 0,
            objects: charges.objects(),
            expected: charges.expected(measure, self.cluster),
        }
    }
}
