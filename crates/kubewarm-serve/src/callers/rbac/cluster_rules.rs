//! The RBAC rules of the cluster, which informers write and authorization reads.

use super::RbacFallback;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReviewSpec;
use kubewarm_client::CallerInfo;
use kubewarm_rbac::{RbacDecision, RbacRules};
use parking_lot::RwLock;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, SetOnce, watch},
    time::{Instant, sleep},
};

/// How long after a change of a rule kubewarm relies on reviews about it. The API server's own
/// authorizer can receive the change some milliseconds later than kubewarm. Also the minimum time
/// between two publications, so that many changes wake each watch only twice a second.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(500);

/// The RBAC rules of the cluster. [`ClusterRulesWriter`](super::ClusterRulesWriter) writes them.
#[derive(Debug)]
pub struct ClusterRules {
    state: RwLock<RulesState>,
    changed: Notify,
    /// The number of changes so far, [`SETTLE_TIME`] after the last one.
    settled: watch::Sender<u64>,
    fallback: SetOnce<RbacFallback>,
    max_bytes: usize,
}

#[derive(Debug)]
struct RulesState {
    rules: RbacRules,
    /// The number of changes so far.
    changes: u64,
    /// The time of the last change.
    changed_at: Instant,
}

/// What the rules decided, and which rules these were.
#[derive(Clone, Copy, Debug)]
pub(super) struct RulesDecision {
    pub(super) decision: RbacDecision,
    /// The number of changes of the rules so far.
    pub(super) changes: u64,
    /// The time of the last change.
    pub(super) changed_at: Instant,
}

impl ClusterRules {
    /// Creates an empty set of rules. If the rules need more than `max_bytes` bytes, this process
    /// drops them and decides no longer by rules.
    pub fn new(max_bytes: usize) -> Arc<Self> {
        let state =
            RulesState { rules: RbacRules::default(), changes: 0, changed_at: Instant::now() };
        Arc::new(Self {
            state: RwLock::new(state),
            changed: Notify::new(),
            settled: watch::Sender::default(),
            fallback: SetOnce::new(),
            max_bytes,
        })
    }

    pub(super) fn decide(
        &self,
        user: &CallerInfo,
        access: &SelfSubjectAccessReviewSpec,
    ) -> RulesDecision {
        let state = self.state.read();
        let decision = state.rules.decide(&user.name, &user.groups, access);
        RulesDecision { decision, changes: state.changes, changed_at: state.changed_at }
    }

    /// Changes the rules by `change`, which returns whether other decisions can follow. Does
    /// nothing after a fallback, so that the rules stay empty.
    pub(super) fn update(&self, change: impl FnOnce(&mut RbacRules) -> RulesEffect) {
        let mut state = self.state.write();
        if self.fallback().is_some() {
            return;
        }
        if change(&mut state.rules) == RulesEffect::None {
            return;
        }
        state.changes += 1;
        state.changed_at = Instant::now();
        let is_too_large = state.rules.memory_bytes() > self.max_bytes;
        drop(state);
        if is_too_large {
            self.fall_back(RbacFallback::Memory { max_bytes: self.max_bytes });
        }
        self.changed.notify_one();
    }

    /// From now on, this process decides by access reviews. Drops the rules. Only the first call
    /// has an effect.
    pub(super) fn fall_back(&self, fallback: RbacFallback) {
        let mut state = self.state.write();
        if self.fallback.set(fallback).is_err() {
            return;
        }
        let rules = std::mem::take(&mut state.rules);
        drop(state);
        drop(rules);
    }

    /// Why this process no longer decides by rules. `None` if it does.
    pub fn fallback(&self) -> Option<&RbacFallback> {
        self.fallback.get()
    }

    /// Waits until this process no longer decides by rules, and returns why.
    pub async fn wait_for_fallback(&self) -> &RbacFallback {
        self.fallback.wait().await
    }

    /// Tells open watches about changes of the rules, until a fallback. The caller must run this
    /// for as long as the rules are in use.
    pub async fn publish_changes(&self) {
        let publish = async {
            loop {
                self.changed.notified().await;
                sleep(SETTLE_TIME).await;
                self.settled.send_replace(self.state.read().changes);
            }
        };
        // After a fallback, watches keep to their own times, so that not all of them send reviews
        // at once.
        tokio::select! {
            () = publish => {}
            _ = self.wait_for_fallback() => {}
        }
    }

    /// Returns when the rules have changed since this call, half a second after the change.
    pub(crate) fn next_change(&self) -> impl Future<Output = ()> + use<> {
        let mut settled = self.settled.subscribe();
        async move {
            // The sender lives as long as the rules, so an error means that the process ends.
            let _changed = settled.changed().await;
        }
    }
}

/// Whether a change of the rules can lead to other decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RulesEffect {
    None,
    Changed,
}
