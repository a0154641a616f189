//! Fills a store from another replica instead of listing: the objects, and then the latest changes,
//! so that clients can continue their watches at this replica.

use super::{
    list::{AppliedList, ListEnd, ListError, ListRun, ListSource},
    task_state::TaskState,
    watch_stream::WatchStream,
};
use crate::informer::{
    RelistReason, Verb,
    requests::{digest::ObjectSetDigest, request},
};
use http::Request;
use kubewarm_api::model::{
    Delta, DeltaOutcome, FaultReason, ObjectEncoding, ReplacePolicy, RequestFault, ResourceVersion,
};
use kubewarm_client::{PeerReplica, fault};
use kubewarm_wire::{
    PEER_SUMMARY_HEADER, PeerStoreSummary,
    upstream::{DecodeError, SplitEvent, SplitItem, UpstreamEventType},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long a peer may take until its response begins, and between two parts of the response. A
/// peer copies a store of 50,000 objects in a tenth of a second, so a slower one has a problem, and
/// a list is the better source.
const SILENCE: Duration = Duration::from_secs(5);
/// Time limit of the whole copy. A copy of 50,000 objects takes about a second.
const COPY_TIMEOUT: Duration = Duration::from_mins(1);

/// A peer's store, which the informer's store now equals.
struct CopiedStore {
    version: ResourceVersion,
    /// The copy contains every change before this time.
    confirmed_at: Instant,
}

impl ListRun<'_> {
    /// Returns the replicas that can have a copy for this list. None has one:
    ///
    /// - for a relist, which must show what the API server has now;
    /// - for CacheProfiles, which decide what informers run, and so come from the API server;
    /// - if objects of the kind must be read in JSON, because a peer that chose protobuf earlier
    ///   can lack their new fields.
    async fn find_peers(&self, why: Option<RelistReason>) -> Vec<PeerReplica> {
        let informer = &self.session.informer;
        match self.session.shared.peers.get() {
            Some(peers)
                if why.is_none()
                    && !informer.key.is_own()
                    && !informer.status().must_read_json() =>
            {
                peers.find().await
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Copies the store of the first peer that has it. Then sends a list of one object to the
    /// API server, as after an interrupted watch: it shows that the informer's identity may still
    /// read, and that versions have not decreased. Returns the copy, and the time before which it
    /// contains every change. `None` if the informer must list: the store is then empty.
    pub(super) async fn copy_store(
        &mut self,
        why: Option<RelistReason>,
    ) -> Option<(AppliedList, Instant)> {
        let peers = self.find_peers(why).await;
        self.source = ListSource::Peer;
        let mut copied = None;
        for peer in &peers {
            match self.copy(peer).await {
                Ok(copy) => {
                    copied = Some(copy);
                    break;
                }
                Err(failure) => self.drop_copy(&failure),
            }
        }
        self.source = ListSource::ApiServer;
        match self.confirm(copied?).await {
            Ok(confirmed) => Some(confirmed),
            Err(failure) => {
                self.drop_copy(&failure);
                None
            }
        }
    }

    /// Empties the store after a failed copy. Its objects can be incomplete or of no API server's
    /// version, so the list that follows must not build on them.
    fn drop_copy(&mut self, failure: &ListError) {
        tracing::info!(informer = %self.session.informer.key, ?failure, "no copy of a peer's store");
        self.purge();
        self.session.informer.enter(TaskState::Listing);
    }

    /// Records whether `peer` is there. A peer that refuses a connection or stays silent has no
    /// clients that could come here.
    async fn record_answer(&self, peer: &PeerReplica, failure: Option<&RequestFault>) {
        let Some(peers) = self.session.shared.peers.get() else { return };
        match failure.map(RequestFault::reason) {
            Some(FaultReason::Unreachable | FaultReason::TimedOut) => {
                peers.record_silence(peer).await;
            }
            Some(_) | None => peers.record_answer(),
        }
    }

    async fn copy(&mut self, peer: &PeerReplica) -> Result<CopiedStore, ListError> {
        let requested_at = Instant::now();
        let path = Request::get(&*self.session.informer.peer_path).body(Vec::new());
        let path = path.map_err(|_| malformed("the path of the peer's store"))?;
        let body = request::open(&peer.client, path, SILENCE).await;
        self.record_answer(peer, body.as_ref().err()).await;
        let body = body?;
        let summary = body.headers.get(PEER_SUMMARY_HEADER);
        let summary = summary.and_then(|header| PeerStoreSummary::parse(header.as_bytes()));
        let summary = summary.ok_or_else(|| malformed("the peer describes no store"))?;
        let version = summary.version().ok_or_else(|| malformed("the store has no version"))?;
        self.begin(ReplacePolicy::Changed);
        let until = requested_at + COPY_TIMEOUT;
        let mut stream = WatchStream::new(body, COPY_TIMEOUT);
        let start = self.receive_events(&mut stream, SILENCE, until, Self::take_initial).await?;
        self.session.informer.apply(Delta::ListDone(start));
        // The event log keeps the copied changes for its whole window, because clients continue
        // their watches here.
        self.session.informer.apply(Delta::Arrived(requested_at.into_std()));
        let end = self.receive_events(&mut stream, SILENCE, until, Self::take_change).await?;
        let reader = &self.session.informer.reader;
        let (digest, reached) = ObjectSetDigest::with_fixed_keys().of_store(reader);
        let is_equal = digest.parts() == (summary.objects, summary.digest)
            && end == version
            && reached.as_ref() == Some(&version);
        if !is_equal || self.session.rejected > 0 {
            return Err(malformed("the copy differs from the peer's store"));
        }
        // The peer measured the age after it received the request.
        let confirmed_at = requested_at.checked_sub(summary.age()).unwrap_or(requested_at);
        Ok(CopiedStore { version, confirmed_at })
    }

    /// Applies one of the changes that follow the objects in a copy. If the event is the bookmark
    /// that ends the copy, returns the bookmark's version.
    fn take_change(
        &mut self,
        SplitEvent { item, event }: SplitEvent<'_>,
    ) -> Result<Option<ResourceVersion>, ListError> {
        let (SplitItem::Whole(_), Some(event)) = (item, event) else {
            return Err(malformed("the peer sent a change that is not an event"));
        };
        let informer = Arc::clone(&self.session.informer);
        let outcome = match event.kind {
            UpstreamEventType::Added | UpstreamEventType::Modified => {
                let item = self.session.decoder.decode(event.object).map_err(|error| {
                    let (DecodeError::Undecodable(object) | DecodeError::NeedsJson(object)) = error;
                    malformed(&object.problem)
                })?;
                informer.apply(Delta::WatchEvent(item))
            }
            UpstreamEventType::Deleted => {
                let gone = event.tombstone().ok_or_else(|| malformed("a deletion has no name"))?;
                informer.apply(Delta::Remove(gone))
            }
            UpstreamEventType::Bookmark => {
                let end = event.bookmark().ok_or_else(|| malformed("an empty bookmark"))?.version;
                informer.apply(Delta::Progress(end.clone()));
                return Ok(Some(end));
            }
            UpstreamEventType::Error => return Err(fault::of_event(&event).into()),
        };
        if matches!(outcome, DeltaOutcome::OutOfOrder | DeltaOutcome::Replayed) {
            return Err(malformed("the peer sent a change that is older than the store"));
        }
        Ok(None)
    }

    async fn confirm(
        &mut self,
        CopiedStore { version, confirmed_at }: CopiedStore,
    ) -> Result<(AppliedList, Instant), ListError> {
        let (informer, sent) = (Arc::clone(&self.session.informer), Instant::now());
        let within = self.session.shared.timing.list_headers;
        let newest = self.session.list_watch.peek(within).await?.version()?;
        informer.record_success(Verb::List, sent);
        self.refuse_rollback(&newest)?;
        informer.status().record_newest(sent, newest, Some(&version));
        // The watch after the copy must have the encoding of the store.
        let is_protobuf = informer.reader.encoding() != ObjectEncoding::Json;
        self.session.list_watch.accept_protobuf(is_protobuf);
        Ok((AppliedList { version, end: ListEnd::Copied }, confirmed_at))
    }
}

fn malformed(message: &str) -> ListError {
    RequestFault::new(FaultReason::Malformed, message).into()
}
