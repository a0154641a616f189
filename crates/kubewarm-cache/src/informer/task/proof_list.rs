//! Proof lists. A proof list is a consistent list of one object, whose version proves that the
//! store is current once the store has reached this version.

use super::{watch::WatchRun, watch_stream::WatchStreamEnd};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
};
use kubewarm_api::model::{FaultReason, RequestFault, ResourceVersion, Verb};
use std::sync::Arc;
use tokio::time::Instant;

/// The version of a proof list (a consistent list of one object).
#[derive(Debug)]
pub(crate) struct ProofList {
    requested_at: Instant,
    newest: ResourceVersion,
    /// The store's version before kubewarm sent the list. If the list has a lower version, an etcd
    /// restore has lowered the versions. `None` if another informer sent the list earlier, because
    /// the store could have had a lower version then.
    known: Option<ResourceVersion>,
    /// Whether kubewarm sent the list for this informer alone. Only then, the response shows that
    /// RBAC permits this informer to list, because a shared list can be in another namespace.
    is_own: bool,
}

impl WatchRun<'_> {
    /// Sends a proof list (a consistent list of one object), or shares a recent one that another
    /// informer of the same identity and resource sent.
    pub(crate) fn list_for_proof(
        &self,
    ) -> Fuse<BoxFuture<'static, Result<ProofList, RequestFault>>> {
        let (known, now) = (self.session.version(), Instant::now());
        let within = self.session.shared.timing.list_for_proof;
        let recent = self.proofs.shared_since(&self.proof_need(), now);
        // First try a recent list of another informer. If its version is lower than the store's,
        // the store has changed since, or an etcd restore has lowered the versions. Then share a
        // list that is sent from now on, whose version shows which.
        let shared = [recent, now].map(|since| self.session.newest_version(since, within));
        let (list_watch, metrics) =
            (self.session.list_watch.clone(), Arc::clone(&self.session.metrics));
        let is_refused =
            self.session.informer.status().report.fault.as_ref().is_some_and(|fault| {
                fault.verb == Verb::List && fault.reason == FaultReason::Forbidden
            });
        async move {
            for listing in shared.into_iter().filter(|_| !is_refused) {
                match listing.await {
                    Ok((requested_at, newest)) => {
                        let is_new = requested_at >= now;
                        if is_new || known.as_ref().is_none_or(|known| newest >= *known) {
                            let known = known.filter(|_| is_new);
                            return Ok(ProofList { requested_at, newest, known, is_own: false });
                        }
                    }
                    // The shared list was possibly in another namespace, so this 403 does not
                    // concern this informer. Send an own list.
                    Err(fault) if fault.reason() == FaultReason::Forbidden => break,
                    // For other faults than a 403, the informer's own list would fail too. If each
                    // informer sent one, an overloaded API server would receive many at once.
                    Err(fault) => return Err(fault),
                }
            }
            let requested_at = Instant::now();
            metrics.count_freshness_request(Verb::List);
            let newest = list_watch.peek(within).await?.version()?;
            Ok(ProofList { requested_at, newest, known, is_own: true })
        }
        .boxed()
        .fuse()
    }

    /// Evaluates a proof list: a consistent list of one object, whose version proves that the store
    /// is current once the store has reached this version. Returns the reason if the result shows
    /// that the informer's watch must end, for instance because the versions went back.
    pub(crate) async fn evaluate_proof_list(
        &mut self,
        listed: Result<ProofList, RequestFault>,
    ) -> Option<WatchStreamEnd> {
        let ProofList { requested_at, newest, known, is_own } = match listed {
            Ok(listed) => listed,
            Err(fault) => {
                // During the deletion of a namespace, Roles disappear first. So a 403 can mean that
                // the namespace is being deleted.
                if fault.reason() == FaultReason::Forbidden
                    && let Some(fault) = self.session.missing_namespace(Instant::now()).await
                {
                    return Some(WatchStreamEnd::NamespaceGone(fault));
                }
                self.record_proof_fault(Verb::List, &fault);
                return None;
            }
        };
        // A consistent list never has a lower version than earlier responses of the API server. So
        // if it has, an etcd restore has lowered the versions.
        if known.is_some_and(|known| newest.is_older_than(&known)) {
            return Some(WatchStreamEnd::VersionDecreased);
        }
        self.proofs.record_list(requested_at);
        let reached = self.session.version();
        let mut status = self.session.informer.status();
        status.record_newest(requested_at, newest, reached.as_ref());
        if is_own {
            status.clear_refusal(Verb::List);
        }
        // A successful list ends the fault of an earlier list. This is also correct after a 403,
        // because `list_for_proof` then sends an own list instead of sharing one.
        if status.report.fault.take_if(|fault| fault.verb == Verb::List).is_some() {
            self.session.shared.changes.notify();
        }
        drop(status);
        self.end_silence();
        None
    }

    /// Records that a proof list or a probe (a second, short watch) failed, and the time of the
    /// next attempt. The informer's own watch goes on.
    pub(crate) fn record_proof_fault(&mut self, verb: Verb, fault: &RequestFault) {
        self.session.metrics.count_request_error(verb, fault.code());
        let pause = self.session.shared.timing.probe_pause;
        let delay = self.backoff.record_failure(fault.retry_after(), fastrand::f64()).max(pause);
        self.session.informer.record_fault(verb, fault, self.backoff.failures(), delay);
        self.proofs.record_failure(Instant::now() + delay);
        self.session.shared.changes.notify();
    }
}
