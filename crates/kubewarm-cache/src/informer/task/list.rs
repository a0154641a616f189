//! Lists an informer's objects into its store: whole, as a stream or in pages.

use super::{
    TaskAction, TaskFailure, session::InformerSession, task_state::TaskState,
    watch_stream::WatchStream,
};
use crate::informer::{
    DecodeStage, FirstSyncMethod, ListMethod, RelistReason, RelistReport, Verb,
    requests::{request::UpstreamBody, request_builder::ListPaging},
    shared_informer::SharedInformer,
};
use futures::StreamExt as _;
use jiff::Timestamp;
use kubewarm_api::model::{
    Delta, DeltaOutcome, FaultReason, InformerSettings, MetricOutcome, ReplacePolicy, RequestFault,
    ResourceVersion,
};
use kubewarm_wire::upstream::{DecodeError, ListMetadata, ListSplitter, RejectedObject, SplitItem};
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// A complete list response whose objects are in the store. Until [`Delta::ListDone`], the store
/// can also contain objects that the API server has deleted since the previous list.
pub(crate) struct AppliedList {
    pub(crate) version: ResourceVersion,
    pub(crate) end: ListEnd,
}

/// What follows a complete list.
pub(crate) enum ListEnd {
    /// The informer opens a watch.
    Watch,
    /// The open watch of a streaming list continues with changes.
    Follow(Box<WatchStream>),
    /// The store is a copy of another replica's store, and needs no [`Delta::ListDone`]. The
    /// informer opens a watch.
    Copied,
}

/// Where the objects of a list come from. The metrics of requests count only the API server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListSource {
    ApiServer,
    Peer,
}

#[derive(Debug)]
pub(crate) enum ListError {
    Fault(RequestFault),
    /// The list has a lower resource version than the store, for example after an etcd restore.
    RolledBack,
    /// An object cannot be read in protobuf, or the kind of the list is not in the field tables,
    /// with which kubewarm reads protobuf.
    NeedsJson(RejectedObject),
}

impl From<RequestFault> for ListError {
    fn from(fault: RequestFault) -> Self {
        Self::Fault(fault)
    }
}

/// One list. If a method fails, the same `ListRun` tries the next method.
pub(crate) struct ListRun<'a> {
    pub(super) session: &'a mut InformerSession,
    history: &'a mut ListHistory,
    /// Number of bytes that the list received since kubewarm last compared memory and objects with
    /// the profiles' limits.
    pub(super) unchecked_bytes: usize,
    pub(super) source: ListSource,
}

/// State that all lists of one run of the informer's task share.
#[derive(Default)]
pub(crate) struct ListHistory {
    /// Number of consecutive lists that failed because the response was cut off or malformed. After
    /// two, the informer lists in pages, whose short responses break off less often.
    broken_lists: u32,
    /// Number of objects that the current list found with a new UID, including the failed attempts
    /// of this list. A later attempt finds these objects unchanged, so a new attempt does not reset
    /// the number.
    replaced: u64,
    /// When the last list completed.
    listed_at: Option<Instant>,
}

impl ListHistory {
    pub(crate) fn listed_at(&self) -> Option<Instant> {
        self.listed_at
    }

    /// Removes all objects from the store, and resets the number of replaced objects, because a
    /// list cannot replace objects of an empty store.
    pub(crate) fn purge(&mut self, informer: &SharedInformer) {
        self.replaced = 0;
        informer.purge();
    }

    /// Purges the store after an etcd restore, because etcd has lost changes that the store
    /// contains.
    pub(crate) fn roll_back(&mut self, session: &InformerSession) -> TaskAction {
        tracing::warn!(
            informer = %session.informer.key,
            version = session.version().map(|version| version.to_string()),
            "resource versions went back, as after an etcd restore; listing again"
        );
        session.metrics.resource_version_rollbacks.inc();
        self.purge(&session.informer);
        TaskAction::List(Some(RelistReason::Rollback))
    }
}

impl<'a> ListRun<'a> {
    pub(crate) fn new(session: &'a mut InformerSession, history: &'a mut ListHistory) -> Self {
        Self { session, history, unchecked_bytes: 0, source: ListSource::ApiServer }
    }

    /// Waits for a list slot, lists, and returns what the informer does next. `why` is the reason
    /// of a relist, or `None` for a first list.
    pub(crate) async fn list(
        mut self,
        why: Option<RelistReason>,
    ) -> Result<TaskAction, TaskFailure> {
        let failed = |fault| TaskFailure { fault, verb: Verb::List, then: TaskAction::List(why) };
        let is_synced = self.session.informer.status().is_synced();
        if is_synced {
            self.session.informer.enter(TaskState::Queued);
        }
        let settings = self.session.informer.settings(InformerSettings::clone);
        let shared = Arc::clone(&self.session.shared);
        // Choose the list methods and the encoding before waiting for a list slot. Both choices can
        // send requests, and a slow response must not occupy a slot.
        let version = shared.list_methods.server_version().await;
        let key = &self.session.informer.key;
        let mut order = shared.list_methods.order(version.as_ref(), key, settings.lists.strategy);
        self.session.choose_media_type(version.as_ref()).await;
        let slot = shared.lists.acquire(&settings.list_slot_owner).await;
        let began_at = Instant::now();
        self.session.informer.enter(TaskState::Listing);
        let replace_policy = match why {
            Some(
                RelistReason::Redefined | RelistReason::Recreated | RelistReason::Inconsistent,
            ) => ReplacePolicy::Everything,
            _ => ReplacePolicy::Changed,
        };

        if self.history.broken_lists >= 2 {
            // At least two consecutive lists broke off or were malformed, so use only pages.
            order.retain(|&method| method == ListMethod::PagedList);
        }
        let mut methods = order.into_iter().peekable();
        let mut copied = self.copy_store(why).await;
        let (strategy, listed, requested_at) = loop {
            if let Some((copied, confirmed_at)) = copied.take() {
                break (FirstSyncMethod::Peer, copied, confirmed_at);
            }
            let method = methods.peek().copied().unwrap_or(ListMethod::PagedList);
            let requested_at = Instant::now();
            let listed = self.list_with(method, replace_policy).await;
            match listed {
                Ok(listed) => break (method.into(), listed, requested_at),
                Err(ListError::NeedsJson(object)) if self.session.list_watch.can_use_protobuf() => {
                    self.session.fall_back_to_json(&object);
                }
                // The request accepted only JSON, but the API server responded in protobuf.
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
                    tracing::info!(informer = %self.session.informer.key, ?method, %fault, "falling back to another list method");
                    shared.list_methods.avoid(&self.session.informer.key, method);
                }
                Err(ListError::RolledBack) => return Ok(self.history.roll_back(self.session)),
                Err(ListError::Fault(fault)) => {
                    let broke =
                        matches!(fault.reason(), FaultReason::Unreachable | FaultReason::Malformed);
                    self.history.broken_lists =
                        if broke { self.history.broken_lists.saturating_add(1) } else { 0 };
                    return Err(failed(fault));
                }
            }
        };
        drop(slot);
        self.history.broken_lists = 0;

        let AppliedList { version, end } = listed;
        let removed = match end {
            ListEnd::Copied => 0,
            ListEnd::Watch | ListEnd::Follow(_) => {
                let swept = self.session.informer.apply(Delta::ListDone(version.clone()));
                if let DeltaOutcome::Swept { removed } = swept { removed } else { 0 }
            }
        };
        // A copy contains every change before `requested_at`, which can be minutes ago. A namespace
        // that was absent at that time can exist now.
        let since = requested_at.max(began_at);
        if self.session.informer.reader.objects() == 0
            && let Some(fault) = self.session.absent_namespace(since).await
        {
            return Err(failed(fault));
        }
        self.finish_list(why, removed, strategy, &version, requested_at);
        Ok(match end {
            ListEnd::Follow(stream) => TaskAction::Follow(stream),
            ListEnd::Watch | ListEnd::Copied => TaskAction::Watch,
        })
    }

    /// Removes all objects from the store.
    pub(crate) fn purge(&mut self) {
        self.history.purge(&self.session.informer);
    }

    fn finish_list(
        &mut self,
        why: Option<RelistReason>,
        removed: u64,
        strategy: FirstSyncMethod,
        version: &ResourceVersion,
        requested_at: Instant,
    ) {
        let replaced = std::mem::take(&mut self.history.replaced);
        self.history.listed_at = Some(Instant::now());
        let refusals = self.session.refusals;
        let informer = &self.session.informer;
        let warmed = informer.record_list(version, strategy, requested_at, refusals);
        if let Some(warmed) = warmed {
            tracing::info!(
                informer = %self.session.informer.key, objects = self.session.informer.reader.objects(), ?strategy,
                milliseconds = u64::try_from(warmed.took.as_millis()).unwrap_or(u64::MAX), "synced"
            );
            self.session.metrics.observe_warmup(strategy, warmed.took);
        }
        if let Some(reason) = why {
            self.session.metrics.count_relist(reason, replaced, removed);
            let relist =
                RelistReport { at: Timestamp::now(), reason, replaced, deleted_objects: removed };
            self.session.informer.status().report.last_relist = Some(relist);
            tracing::info!(
                informer = %self.session.informer.key, ?reason, replaced, deleted_objects = removed, "relisted"
            );
        }
    }

    async fn list_with(
        &mut self,
        method: ListMethod,
        replace_policy: ReplacePolicy,
    ) -> Result<AppliedList, ListError> {
        match method {
            ListMethod::List => self.begin(replace_policy).list_whole().await,
            ListMethod::WatchList => self.begin(replace_policy).list_streaming().await,
            ListMethod::PagedList => self.begin(replace_policy).list_pages(replace_policy).await,
        }
    }

    /// Begins a list. Objects of the list are stored from now on.
    pub(super) fn begin(&mut self, replace_policy: ReplacePolicy) -> &mut Self {
        self.session.rejected = 0;
        self.session.informer.status().begin_list();
        self.session.informer.apply(Delta::ListStarted(replace_policy));
        // An undecodable object can be deleted while no watch is open. When the list completes, the
        // object's report ends without a change of the store. But the earlier versions of the store
        // lacked the object, so the event log must not serve them.
        if self.session.informer.status().has_undecodable() {
            self.session.informer.apply(Delta::Unreadable);
        }
        self
    }

    async fn list_whole(&mut self) -> Result<AppliedList, ListError> {
        let meta = self.page(ListPaging::Whole).await?;
        Ok(AppliedList { version: meta.version()?, end: ListEnd::Watch })
    }

    /// Lists in pages. If the continue token expires, lists the whole resource instead, as
    /// client-go does. A list that continues with a new token would mix objects of two resource
    /// versions.
    async fn list_pages(
        &mut self,
        replace_policy: ReplacePolicy,
    ) -> Result<AppliedList, ListError> {
        let limit = self.session.informer.settings(|settings| settings.lists.page_size);
        let mut meta = self.page(ListPaging::Page { limit, token: "" }).await?;
        while !meta.token.is_empty() {
            let token = std::mem::take(&mut meta.token);
            let mut broken = 0;
            meta = loop {
                match self.page(ListPaging::Page { limit, token: &token }).await {
                    Ok(meta) => break meta,
                    Err(ListError::Fault(fault)) if fault.reason() == FaultReason::Gone => {
                        self.session.informer.apply(Delta::ListStarted(replace_policy));
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
        Ok(AppliedList { version: meta.version()?, end: ListEnd::Watch })
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
            self.session.informer.status().record_list_duration(took);
            MetricOutcome::Success
        } else {
            MetricOutcome::Error
        };
        self.session.metrics.count_list(outcome, took);
    }

    async fn receive(&mut self, part: ListPaging<'_>) -> Result<ListMetadata, ListError> {
        let timing = self.session.shared.timing.clone();
        let sent = Instant::now();
        let within = timing.list_headers;
        let UpstreamBody { mut chunks, media_type, .. } =
            self.session.list_watch.open(within, |endpoint| endpoint.list(part)).await?;
        self.session.informer.record_success(Verb::List, sent);
        let mut items = ListSplitter::new(media_type);
        let mut is_checked = false;
        let mut window = (Instant::now() + timing.list_window, 0);
        loop {
            let chunk = match timeout_at(window.0, chunks.next()).await {
                Ok(Some(chunk)) => chunk?,
                Ok(None) => break,
                Err(_elapsed) => return Err(too_slow().into()),
            };
            let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            self.session.metrics.upstream_list_bytes.inc_by(length);
            window.1 += length;
            if window.1 >= timing.list_min_bytes {
                window = (Instant::now() + timing.list_window, 0);
            }
            let mut rest = &chunk[..];
            let mut arrived = 0;
            while !rest.is_empty() {
                if !is_checked && items.has_head() {
                    is_checked = true;
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
            self.session.metrics.upstream_list_items.inc_by(arrived);
            self.session.informer.status().report.listed += arrived;
        }
        if !items.is_complete() {
            return Err(self.truncated().into());
        }
        let meta = items.metadata()?;
        self.use_encoding(items.encoding())?;
        self.refuse_older(&meta)?;
        if let Some(remaining) = meta.remaining_item_count {
            let mut status = self.session.informer.status();
            let report = &mut status.report;
            report.expected = Some(report.listed.saturating_add(remaining));
        }
        Ok(meta)
    }

    fn apply_item(&mut self, item: SplitItem<'_>) -> Result<(), ListError> {
        match item {
            SplitItem::Whole(object) => {
                self.apply_listed(object, DecodeStage::ListItem).map(|_is_stored| ())
            }
            SplitItem::Oversized(head) => {
                self.session.reject(self.session.oversized(head), DecodeStage::ListItem);
                Ok(())
            }
        }
    }

    /// Decodes one object of the current list, and stores the object. An undecodable object is
    /// counted, logged and reported instead. Returns whether the object is stored.
    pub(crate) fn apply_listed(
        &mut self,
        object: &[u8],
        stage: DecodeStage,
    ) -> Result<bool, ListError> {
        match self.session.decoder.decode(object) {
            Ok(item) => {
                let outcome = self.session.informer.apply(Delta::Upsert(item));
                self.history.replaced += u64::from(outcome == DeltaOutcome::Replaced);
                Ok(true)
            }
            Err(DecodeError::Undecodable(rejected)) => {
                self.session.reject(rejected, stage);
                Ok(false)
            }
            Err(DecodeError::NeedsJson(object)) => Err(ListError::NeedsJson(object)),
        }
    }

    /// Returns an error if the list is older than the store, which shows an etcd restore. Returns
    /// `Ok` if `meta` has no version yet.
    ///
    /// The API server sends the version of built-in kinds before the items, and the version of
    /// custom resources after the items. So the caller checks the version before the first item and
    /// at the end.
    fn refuse_older(&self, meta: &ListMetadata) -> Result<(), ListError> {
        match ResourceVersion::parse(&meta.resource_version) {
            Some(listed) => self.refuse_rollback(&listed),
            None => Ok(()),
        }
    }

    /// Returns [`ListError::RolledBack`] if `listed` is older than the store's version. Every list
    /// is a consistent read, so an older list shows that resource versions went back.
    pub(crate) fn refuse_rollback(&self, listed: &ResourceVersion) -> Result<(), ListError> {
        match self.session.version() {
            Some(known) if listed.is_older_than(&known) => Err(ListError::RolledBack),
            Some(_) | None => Ok(()),
        }
    }

    fn truncated(&self) -> RequestFault {
        self.session.metrics.count_decode_error(DecodeStage::List);
        RequestFault::new(FaultReason::Malformed, "the list ended before it was complete")
    }
}

/// Whether `fault` shows that the list method `method` does not work for the resource. Any other
/// fault would affect every method.
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
