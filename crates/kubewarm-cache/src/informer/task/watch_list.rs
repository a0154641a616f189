//! Lists an informer's objects with a watch that first sends all existing objects
//! (`sendInitialEvents`).

use super::{
    list::{AppliedList, ListEnd, ListError, ListRun, ListSource},
    watch_stream::{WatchStream, random_timeout},
};
use crate::informer::{DecodeStage, Verb};
use futures::StreamExt as _;
use kubewarm_api::model::{Delta, FaultReason, RequestFault, ResourceVersion};
use kubewarm_client::fault;
use kubewarm_wire::upstream::{SplitEvent, SplitItem, UpstreamEvent, UpstreamEventType};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

impl ListRun<'_> {
    /// Lists with a watch that first sends all existing objects, until the bookmark that ends these
    /// initial events.
    ///
    /// The list fails if no bytes arrive for `watch_list_timeout`, or if it takes longer than ten
    /// times `watch_list_timeout`. Without these limits, an API server that does not support
    /// `sendInitialEvents`, and so never sends that bookmark, would block the informer.
    pub(crate) async fn list_streaming(&mut self) -> Result<AppliedList, ListError> {
        let started = Instant::now();
        let listed = self.open_and_receive().await;
        self.count_list(&listed, started);
        listed
    }

    async fn open_and_receive(&mut self) -> Result<AppliedList, ListError> {
        let timing = self.session.shared.timing.clone();
        let deadline = self.session.informer.settings(|settings| settings.lists.watch_list_timeout);
        let timeout = random_timeout(&timing).max(deadline * 10);
        let started = Instant::now();
        let within = timing.list_headers;
        let body =
            self.session.list_watch.open(within, |endpoint| endpoint.stream(timeout)).await?;
        self.session.informer.record_success(Verb::Watch, started);
        let mut stream = Box::new(WatchStream::new(body, timeout));
        let until = started + deadline * 10;
        let version = self.receive_events(&mut stream, deadline, until, Self::take_initial).await?;
        Ok(AppliedList { version, end: ListEnd::Follow(stream) })
    }

    /// Calls `take` for each event, until it returns the version of the bookmark that ends the
    /// events. Returns this version. Fails after `silence` without bytes, and at the time `until`.
    pub(super) async fn receive_events(
        &mut self,
        stream: &mut WatchStream,
        silence: Duration,
        until: Instant,
        take: impl Fn(&mut Self, SplitEvent<'_>) -> Result<Option<ResourceVersion>, ListError>,
    ) -> Result<ResourceVersion, ListError> {
        let late = || {
            let message = "the response contained no end bookmark in time";
            RequestFault::new(FaultReason::TimedOut, message)
        };
        loop {
            while !stream.rest.is_empty() {
                let chunk = stream.rest.clone();
                let (consumed, split) = stream.splitter.feed(&chunk);
                stream.rest = chunk.slice(consumed.min(chunk.len())..);
                let Some(split) = split else { continue };
                let length = split.item.bytes().len();
                if let Some(version) = take(self, split)? {
                    return Ok(version);
                }
                if self.wait_for_budget(length).await? {
                    stream.last_bytes_at = Instant::now();
                }
            }
            let limit = (stream.last_bytes_at + silence).min(until);
            match timeout_at(limit, stream.chunks.next()).await {
                Ok(Some(chunk)) => stream.rest = chunk?,
                Ok(None) => {
                    let message = "the response ended before its end bookmark";
                    return Err(RequestFault::new(FaultReason::ClosedAtOnce, message).into());
                }
                Err(_elapsed) => return Err(late().into()),
            }
            let length = u64::try_from(stream.rest.len()).unwrap_or(u64::MAX);
            if self.source == ListSource::ApiServer {
                self.session.metrics.upstream_list_bytes.inc_by(length);
            }
            stream.last_bytes_at = Instant::now();
        }
    }

    /// Applies one of the initial events of a streaming list. If the event is the bookmark that
    /// ends the initial events, returns the bookmark's version.
    pub(super) fn take_initial(
        &mut self,
        SplitEvent { item, event }: SplitEvent<'_>,
    ) -> Result<Option<ResourceVersion>, ListError> {
        let undecodable = || {
            RequestFault::new(
                FaultReason::Malformed,
                "the streaming list sent a line that is not an event",
            )
        };
        if matches!(item, SplitItem::Oversized(_)) {
            let rejected =
                self.session.oversized(event.map_or_else(|| item.bytes(), |event| event.object));
            self.session.reject(rejected, DecodeStage::WatchObject);
            if let Some(event) = &event {
                self.drop_earlier_state(event);
            }
            return Ok(None);
        }
        let event = event.ok_or_else(undecodable)?;
        if event.kind == UpstreamEventType::Error {
            return Err(fault::of_event(&event).into());
        }
        self.use_encoding(event.encoding)?;
        match event.kind {
            UpstreamEventType::Added | UpstreamEventType::Modified => {
                if self.source == ListSource::ApiServer {
                    self.session.metrics.upstream_list_items.inc();
                }
                self.session.informer.status().report.listed += 1;
                if !self.apply_listed(event.object, DecodeStage::WatchObject)? {
                    self.drop_earlier_state(&event);
                }
            }
            UpstreamEventType::Deleted => {
                let gone = event.tombstone().ok_or_else(undecodable)?;
                self.session.informer.apply(Delta::Remove(gone));
            }
            UpstreamEventType::Error => {}
            UpstreamEventType::Bookmark => {
                let bookmark = event.bookmark().ok_or_else(undecodable)?;
                if bookmark.is_initial_events_end {
                    self.refuse_rollback(&bookmark.version)?;
                    return Ok(Some(bookmark.version));
                }
            }
        }
        Ok(None)
    }

    /// Removes the object of `event`, whose state cannot be stored. An earlier event of this list
    /// can have stored an earlier state, which the end of the list would keep.
    fn drop_earlier_state(&mut self, event: &UpstreamEvent<'_>) {
        if let Some(gone) = event.tombstone() {
            self.session.informer.apply(Delta::Remove(gone));
        }
    }
}
