//! The consistent list whose version proves, once the store has reached it, that the store is current.

use super::{InformerTask, watch_stream::WatchStreamEnd};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
};
use kubewarm_api::model::{FaultReason, RequestFault, ResourceVersion, Verb};
use std::sync::Arc;
use tokio::time::Instant;

/// The version of a consistent list of one object.
#[derive(Debug)]
pub(crate) struct ProofList {
    requested_at: Instant,
    newest: ResourceVersion,
    /// The store's version before kubewarm sent the list. `None` for a list that was sent before this
    /// informer wanted it, because the store could have had a lower version then.
    known: Option<ResourceVersion>,
    /// Whether kubewarm sent the list for this informer alone. Only then, the answer shows that this
    /// informer may list.
    is_own: bool,
}

impl InformerTask {
    /// Sends the list, or shares a recent list of another informer.
    pub(crate) fn list_for_proof(
        &self,
    ) -> Fuse<BoxFuture<'static, Result<ProofList, RequestFault>>> {
        let (known, now) = (self.version(), Instant::now());
        let within = self.shared.timing.list_for_proof;
        let recent = self.proofs.shared_since(&self.proof_need(), now);
        // A list from before a change of this store confirms nothing, so a list from now on follows.
        let shared = [recent, now].map(|since| self.newest_version(since, within));
        let (list_watch, metrics) = (self.list_watch.clone(), Arc::clone(&self.metrics));
        let is_refused = self.informer.status().report.fault.as_ref().is_some_and(|fault| {
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
                    // The list can be refused in another namespace only.
                    Err(fault) if fault.reason() == FaultReason::Forbidden => break,
                    // The informer's own list would fail, too. If each informer sent one, an overloaded
                    // API server would receive many at once.
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

    /// Records the list's version. Returns the reason if the informer's own watch must end.
    pub(crate) async fn evaluate_proof_list(
        &mut self,
        listed: Result<ProofList, RequestFault>,
    ) -> Option<WatchStreamEnd> {
        let ProofList { requested_at, newest, known, is_own } = match listed {
            Ok(listed) => listed,
            Err(fault) => {
                // During the deletion of a namespace, Roles disappear first.
                if fault.reason() == FaultReason::Forbidden
                    && let Some(fault) = self.missing_namespace(Instant::now()).await
                {
                    return Some(WatchStreamEnd::NamespaceGone(fault));
                }
                self.record_proof_fault(Verb::List, &fault);
                return None;
            }
        };
        // A consistent list is never older than what the API server has sent before, so an etcd restore
        // has lowered the versions.
        if known.is_some_and(|known| newest.is_older_than(&known)) {
            return Some(WatchStreamEnd::VersionDecreased);
        }
        self.proofs.record_list(requested_at);
        let mut status = self.informer.status();
        status.record_newest(requested_at, newest);
        if is_own {
            status.clear_refusal(Verb::List);
        }
        // After a refusal, the list was this informer's own.
        if status.report.fault.take_if(|fault| fault.verb == Verb::List).is_some() {
            self.shared.changes.notify();
        }
        drop(status);
        self.end_silence();
        None
    }

    /// Records a failed request for a proof, and the time of the next one. The informer's own watch goes
    /// on.
    pub(crate) fn record_proof_fault(&mut self, verb: Verb, fault: &RequestFault) {
        self.metrics.count_request_error(verb, fault.code());
        let pause = self.shared.timing.probe_pause;
        let delay = self.backoff.record_failure(fault.retry_after(), fastrand::f64()).max(pause);
        self.informer.status().record_fault(verb, fault, self.backoff.failures(), delay);
        self.proofs.record_failure(Instant::now() + delay);
        self.shared.changes.notify();
    }
}
