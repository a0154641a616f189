//! Lists an informer's objects into its store: whole, as a stream or in pages.

use super::{
    InformerTask, TaskAction, TaskFailure, task_state::TaskState, watch_stream::WatchStream,
};
use crate::informer::{
    DecodeStage, ListMethod, RelistReason, RelistReport, UndecodableObject, Verb,
    requests::{request::UpstreamBody, request_builder::ListPaging},
    upstream::{
        decoder::DecodeError,
        list_splitter::ListSplitter,
        metadata::ListMetadata,
        partial_item::{MAX_OBJECT, SplitItem},
    },
};
use futures::StreamExt as _;
use jiff::Timestamp;
use kubewarm_api::model::{
    Delta, DeltaOutcome, FaultReason, InformerSettings, MetricOutcome, ReplacePolicy, RequestFault,
    ResourceVersion,
};
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// A complete list response whose objects are in the store. The store can also contain objects that
/// the API server has deleted since the previous list.
pub(crate) struct AppliedList {
    pub(crate) version: ResourceVersion,
    /// The open watch of a streaming list, which continues with changes. `None` if the list was not
    /// a streaming list.
    pub(crate) stream: Option<WatchStream>,
}

#[derive(Debug)]
pub(crate) enum ListError {
    Fault(RequestFault),
    /// The list has a lower resource version than the store, for example after an etcd restore.
    RolledBack,
    /// An object cannot be read in protobuf, or the field tables lack the kind of the list.
    NeedsJson(UndecodableObject),
}

impl From<RequestFault> for ListError {
    fn from(fault: RequestFault) -> Self {
        Self::Fault(fault)
    }
}

impl InformerTask {
    /// Waits for a list slot (a permit for one concurrent list), lists, and returns what the
    /// informer does next. `why` is the reason of a relist, or `None` for a first list.
    pub(crate) async fn list(
        &mut self,
        why: Option<RelistReason>,
    ) -> Result<TaskAction, TaskFailure> {
        let failed = |fault| TaskFailure { fault, verb: Verb::List, then: TaskAction::List(why) };
        let is_synced = self.informer.status().is_synced();
        if is_synced {
            self.informer.enter(TaskState::Queued);
        }
        let settings = self.informer.settings(InformerSettings::clone);
        let shared = Arc::clone(&self.shared);
        // Choose the list strategies and the encoding before waiting for a permit to list. Both can send
        // requests, and a slow response must not occupy a permit.
        let mut order = shared
            .list_methods
            .order(&shared.operator, &self.informer.key, settings.lists.strategy)
            .await;
        self.choose_media_type().await;
        let slot = shared.lists.acquire(&settings.list_slot_owner).await;
        self.informer.enter(TaskState::Listing);
        let replace_policy = match why {
            Some(
                RelistReason::Redefined | RelistReason::Recreated | RelistReason::Inconsistent,
            ) => ReplacePolicy::Everything,
            _ => ReplacePolicy::Changed,
        };

        if self.broken_lists >= 2 {
            // At least two consecutive lists broke off or were malformed. Use pages, because short
            // responses break off less often.
            order.retain(|&method| method == ListMethod::PagedList);
        }
        let mut methods = order.into_iter().peekable();
        let (strategy, listed, requested_at) = loop {
            let method = methods.peek().copied().unwrap_or(ListMethod::PagedList);
            let requested_at = Instant::now();
            let listed = self.list_with(method, replace_policy).await;
            match listed {
                Ok(listed) => break (method, listed, requested_at),
                Err(ListError::NeedsJson(object)) if self.list_watch.accepts_protobuf() => {
                    self.fall_back_to_json(&object);
                }
                // The server ignores that only JSON is accepted.
                Err(ListError::NeedsJson(object)) => {
                    return Err(failed(RequestFault::new(
                        FaultReason::Malformed,
                        &*object.problem,
                    )));
                }
                Err(ListError::Fault(fault))
                    if needs_other_method(method, &fault) && methods.len() > 1 =>
                {
                    methods.next();
                    tracing::info!(informer = %self.informer.key, ?method, %fault, "falling back to another list method");
                    shared.list_methods.avoid(&self.informer.key, method);
                }
                Err(ListError::RolledBack) => return Ok(self.roll_back()),
                Err(ListError::Fault(fault)) => {
                    let broke =
                        matches!(fault.reason(), FaultReason::Unreachable | FaultReason::Malformed);
                    self.broken_lists = if broke { self.broken_lists.saturating_add(1) } else { 0 };
                    return Err(failed(fault));
                }
            }
        };
        drop(slot);
        self.broken_lists = 0;

        let AppliedList { version, stream } = listed;
        let swept = self.informer.apply(Delta::ListDone(version.clone()));
        let removed = if let DeltaOutcome::Swept { removed } = swept { removed } else { 0 };
        if self.informer.reader.objects() == 0
            && let Some(fault) = self.absent_namespace(requested_at).await
        {
            return Err(failed(fault));
        }
        self.finish_list(why, removed, strategy, &version, requested_at);
        Ok(stream.map_or(TaskAction::Watch, |stream| TaskAction::Follow(Box::new(stream))))
    }

    fn finish_list(
        &mut self,
        why: Option<RelistReason>,
        removed: u64,
        strategy: ListMethod,
        version: &ResourceVersion,
        requested_at: Instant,
    ) {
        let replaced = std::mem::take(&mut self.replaced);
        self.listed_at = Some(Instant::now());
        let warmed = {
            let mut status = self.informer.status();
            status.report.fault.take_if(|fault| fault.verb == Verb::List);
            status.record_list(version, strategy, requested_at, self.epoch)
        };
        self.shared.changes.notify();
        if let Some(warmed) = warmed {
            tracing::info!(
                informer = %self.informer.key, objects = self.informer.reader.objects(), ?strategy,
                milliseconds = u64::try_from(warmed.took.as_millis()).unwrap_or(u64::MAX), "synced"
            );
            self.metrics.observe_warmup(strategy, warmed.took);
        }
        if let Some(reason) = why {
            self.metrics.count_relist(reason, replaced, removed);
            let relist =
                RelistReport { at: Timestamp::now(), reason, replaced, deleted_objects: removed };
            self.informer.status().report.last_relist = Some(relist);
            tracing::info!(
                informer = %self.informer.key, ?reason, replaced, deleted_objects = removed, "relisted"
            );
        }
    }

    async fn list_with(
        &mut self,
        method: ListMethod,
        replace_policy: ReplacePolicy,
    ) -> Result<AppliedList, ListError> {
        self.rejected = 0;
        self.informer.status().begin_list();
        self.informer.apply(Delta::ListStarted(replace_policy));
        // An undecodable object can be deleted while no watch is open. The list then ends its report without
        // a change of the store, but the earlier versions of the store lacked the object.
        if self.informer.status().has_undecodable() {
            self.informer.apply(Delta::Unreadable);
        }
        match method {
            ListMethod::List => self.list_whole().await,
            ListMethod::WatchList => self.list_streaming().await,
            ListMethod::PagedList => self.list_pages(replace_policy).await,
        }
    }

    async fn list_whole(&mut self) -> Result<AppliedList, ListError> {
        let meta = self.page(ListPaging::Whole).await?;
        Ok(AppliedList { version: meta.version()?, stream: None })
    }

    /// Lists in pages. If the continue token expires, lists the whole resource instead, as
    /// client-go does. A list that continues with a new token would mix objects of two resource
    /// versions.
    async fn list_pages(
        &mut self,
        replace_policy: ReplacePolicy,
    ) -> Result<AppliedList, ListError> {
        let limit = self.informer.settings(|settings| settings.lists.page_size);
        let mut meta = self.page(ListPaging::Page { limit, token: "" }).await?;
        while !meta.token.is_empty() {
            let token = std::mem::take(&mut meta.token);
            let mut broken = 0;
            meta = loop {
                match self.page(ListPaging::Page { limit, token: &token }).await {
                    Ok(meta) => break meta,
                    Err(ListError::Fault(fault)) if fault.reason() == FaultReason::Gone => {
                        self.informer.apply(Delta::ListStarted(replace_policy));
                        return self.list_whole().await;
                    }
                    // The page is malformed: fetch it again. kubewarm then stores the page's first
                    // objects twice, which is harmless.
                    Err(ListError::Fault(fault))
                        if fault.reason() == FaultReason::Malformed && broken < 2 =>
                    {
                        broken += 1;
                    }
                    Err(other) => return Err(other),
                }
            };
            if meta.token == token {
                let message = "a page has its own continue token";
                return Err(RequestFault::new(FaultReason::Malformed, message).into());
            }
        }
        Ok(AppliedList { version: meta.version()?, stream: None })
    }

    /// Requests a whole list or one page of a list, stores its objects as they arrive, and records
    /// duration and outcome.
    async fn page(&mut self, part: ListPaging<'_>) -> Result<ListMetadata, ListError> {
        let started = Instant::now();
        let received = self.receive(part).await;
        self.count_list(&received, started);
        received
    }

    pub(crate) fn count_list<T>(&self, received: &Result<T, ListError>, started: Instant) {
        let took = started.elapsed();
        let outcome = if received.is_ok() {
            self.informer.status().record_list_duration(took);
            MetricOutcome::Success
        } else {
            MetricOutcome::Error
        };
        self.metrics.count_list(outcome, took);
    }

    async fn receive(&mut self, part: ListPaging<'_>) -> Result<ListMetadata, ListError> {
        let timing = self.shared.timing.clone();
        let sent = Instant::now();
        let within = timing.list_headers;
        let UpstreamBody { mut chunks, media_type } =
            self.list_watch.open(within, |endpoint| endpoint.list(part)).await?;
        self.informer.status().record_success(Verb::List, sent);
        let mut items = ListSplitter::new(media_type);
        let mut checked = false;
        let mut window = (Instant::now() + timing.list_window, 0);
        loop {
            let chunk = match timeout_at(window.0, chunks.next()).await {
                Ok(Some(chunk)) => chunk?,
                Ok(None) => break,
                Err(_elapsed) => return Err(too_slow().into()),
            };
            let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            self.metrics.upstream_list_bytes.inc_by(length);
            window.1 += length;
            if window.1 >= timing.list_min_bytes {
                window = (Instant::now() + timing.list_window, 0);
            }
            let mut rest = &chunk[..];
            let mut arrived = 0;
            while !rest.is_empty() {
                if !checked && items.has_head() {
                    checked = true;
                    self.refuse_older(&items.metadata()?)?;
                    self.use_encoding(items.encoding())?;
                }
                let (consumed, item) = items.feed(rest)?;
                if let Some(item) = item {
                    self.apply_item(item)?;
                    arrived += 1;
                    if self.wait_for_budget(item.bytes().len()).await? {
                        window = (Instant::now() + timing.list_window, 0);
                    }
                }
                rest = rest.get(consumed..).unwrap_or_default();
            }
            self.metrics.upstream_list_items.inc_by(arrived);
            self.informer.status().report.listed += arrived;
        }
        if !items.is_complete() {
            return Err(self.truncated().into());
        }
        let meta = items.metadata()?;
        self.use_encoding(items.encoding())?;
        self.refuse_older(&meta)?;
        if let Some(remaining) = meta.remaining_item_count {
            let mut status = self.informer.status();
            let report = &mut status.report;
            report.expected = Some(report.listed.saturating_add(remaining));
        }
        Ok(meta)
    }

    fn apply_item(&mut self, item: SplitItem<'_>) -> Result<(), ListError> {
        match item {
            SplitItem::Whole(object) => self.apply_listed(object, DecodeStage::ListItem),
            SplitItem::Oversized(head) => {
                self.reject(self.oversized(head), DecodeStage::ListItem);
                Ok(())
            }
        }
    }

    /// Decodes one object of the current list, and stores the object. An undecodable object is
    /// counted, logged and reported instead.
    pub(crate) fn apply_listed(
        &mut self,
        object: &[u8],
        stage: DecodeStage,
    ) -> Result<(), ListError> {
        match self.decoder.decode(object) {
            Ok(item) => {
                let outcome = self.informer.apply(Delta::Upsert(item));
                self.replaced += u64::from(outcome == DeltaOutcome::Replaced);
            }
            Err(DecodeError::Undecodable(rejected)) => self.reject(rejected, stage),
            Err(DecodeError::NeedsJson(object)) => return Err(ListError::NeedsJson(object)),
        }
        Ok(())
    }

    pub(crate) fn oversized(&self, head: &[u8]) -> UndecodableObject {
        let problem = format!("it is larger than {} MiB", MAX_OBJECT >> 20);
        UndecodableObject::new(self.decoder.encoding, head, problem)
    }

    /// Returns an error if the list is older than the store. Returns `Ok` if `meta` has no version.
    ///
    /// The API server sends the version of built-in kinds before the items. It sends the version of
    /// custom resources after the items.
    fn refuse_older(&self, meta: &ListMetadata) -> Result<(), ListError> {
        match ResourceVersion::parse(&meta.resource_version) {
            Some(listed) => self.refuse_rollback(&listed),
            None => Ok(()),
        }
    }

    /// Returns [`ListError::RolledBack`] if `listed` is older than the store's version. Every list
    /// is a consistent read, so an older list shows that resource versions went back.
    pub(crate) fn refuse_rollback(&self, listed: &ResourceVersion) -> Result<(), ListError> {
        match self.informer.status().version() {
            Some(known) if listed.is_older_than(known) => Err(ListError::RolledBack),
            Some(_) | None => Ok(()),
        }
    }

    fn truncated(&self) -> RequestFault {
        self.metrics.count_decode_error(DecodeStage::List);
        RequestFault::new(FaultReason::Malformed, "the list ended before it was complete")
    }
}

/// Whether `fault` shows that the list strategy `method` does not work for the resource. Any other
/// fault would affect every strategy.
fn needs_other_method(method: ListMethod, fault: &RequestFault) -> bool {
    match method {
        ListMethod::List => matches!(fault.reason(), FaultReason::TimedOut | FaultReason::TooLarge),
        ListMethod::WatchList => matches!(
            fault.reason(),
            FaultReason::TimedOut
                | FaultReason::TooLarge
                | FaultReason::Unsupported
                | FaultReason::ClosedAtOnce
        ),
        ListMethod::PagedList => false,
    }
}

fn too_slow() -> RequestFault {
    RequestFault::new(FaultReason::TimedOut, "the list received too few bytes in time")
}
