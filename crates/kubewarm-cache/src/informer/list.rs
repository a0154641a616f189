//! The first state of a cell, and every later full one: whole, streamed, or in pages.

use super::{
    Relist, RelistReason, Stage, Strategy, Undecodable, Verb,
    endpoint::Part,
    metadata::ListMeta,
    split::{ListSplitter, MAX_OBJECT, Piece},
    state::Step,
    stream::Stream,
    task::{Failure, Next, Task},
};
use futures::StreamExt as _;
use jiff::Timestamp;
use kubewarm_api::model::{Delta, Fault, Outcome, Reason, Reread, ResourceVersion, Tuning};
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// A list that has been applied but not yet swept.
pub(super) struct Listed {
    pub(super) version: ResourceVersion,
    /// A streaming list goes on as a watch.
    pub(super) stream: Option<Stream>,
}

/// Why a list was not completed.
#[derive(Debug)]
pub(super) enum NotListed {
    /// A request failed, or its answer was of no use.
    Fault(Fault),
    /// The list is older than the table.
    RolledBack,
}

impl From<Fault> for NotListed {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Task {
    /// Lists once it is the cell's turn, and says how to go on.
    pub(super) async fn list(&mut self, why: Option<RelistReason>) -> Result<Next, Failure> {
        let failed = |fault| Failure { fault, verb: Verb::List, then: Next::List(why) };
        let is_synced = self.informer.status().is_synced();
        if is_synced {
            self.informer.enter(Step::Queued);
        }
        let tuning = self.informer.tuning(Tuning::clone);
        let shared = Arc::clone(&self.shared);
        // Asked before a slot is taken: a server that is slow to say its version holds up nobody.
        let mut order =
            shared.strategies.order(&shared.operator, &self.informer.key, tuning.lists.strategy).await;
        let slot = shared.lists.acquire(&tuning.member_of).await;
        self.informer.enter(Step::Listing);
        let reread = match why {
            Some(
                RelistReason::Redefined | RelistReason::Recreated | RelistReason::Inconsistent,
            ) => Reread::Everything,
            _ => Reread::Changed,
        };

        if self.broken_lists >= 2 {
            // Whatever breaks long answers off, pages are the shortest.
            order.retain(|&way| way == Strategy::Paged);
        }
        let mut ways = order.into_iter().peekable();
        let (strategy, listed, asked_at) = loop {
            let way = ways.next().unwrap_or(Strategy::Paged);
            let asked_at = Instant::now();
            let listed = self.list_by(way, reread).await;
            match listed {
                Ok(listed) => break (way, listed, asked_at),
                Err(NotListed::Fault(fault))
                    if is_for_want_of(way, &fault) && ways.peek().is_some() =>
                {
                    tracing::info!(cell = %self.informer.key, ?way, %fault, "falling back to another way to list");
                    shared.strategies.avoid(&self.informer.key, way);
                }
                Err(NotListed::RolledBack) => return Ok(self.roll_back()),
                Err(NotListed::Fault(fault)) => {
                    let broke = matches!(fault.reason(), Reason::Unreachable | Reason::Malformed);
                    self.broken_lists = if broke { self.broken_lists.saturating_add(1) } else { 0 };
                    return Err(failed(fault));
                }
            }
        };
        drop(slot);
        self.broken_lists = 0;

        let Listed { version, stream } = listed;
        let swept = self.informer.apply(Delta::ListDone(version.clone()));
        let removed = if let Outcome::Swept { removed } = swept { removed } else { 0 };
        if self.informer.reader.objects() == 0
            && let Some(fault) = self.absent_namespace(asked_at).await
        {
            return Err(failed(fault));
        }
        self.finish_list((why, removed), strategy, &version, asked_at);
        Ok(stream.map_or(Next::Watch, |stream| Next::Follow(Box::new(stream))))
    }

    fn finish_list(
        &mut self,
        (why, removed): (Option<RelistReason>, u64),
        strategy: Strategy,
        version: &ResourceVersion,
        asked_at: Instant,
    ) {
        let replaced = std::mem::take(&mut self.replaced);
        self.listed_at = Some(Instant::now());
        let warmed = {
            let mut status = self.informer.status();
            status.report.fault.take_if(|fault| fault.verb == Verb::List);
            status.listed(version, strategy, (asked_at, self.epoch))
        };
        self.shared.changes.notify();
        if let Some(warmed) = warmed {
            tracing::info!(
                cell = %self.informer.key, objects = self.informer.reader.objects(), ?strategy,
                milliseconds = u64::try_from(warmed.took.as_millis()).unwrap_or(u64::MAX), "synced"
            );
            self.metrics.warmed(strategy, warmed.took);
        }
        if let Some(reason) = why {
            self.metrics.relisted(reason, replaced, removed);
            let relist = Relist { at: Timestamp::now(), reason, replaced, deleted_objects: removed };
            self.informer.status().report.last_relist = Some(relist);
            tracing::info!(
                cell = %self.informer.key, ?reason, replaced, deleted_objects = removed, "relisted"
            );
        }
    }

    async fn list_by(&mut self, way: Strategy, reread: Reread) -> Result<Listed, NotListed> {
        self.rejected = 0;
        {
            let mut status = self.informer.status();
            status.forget_undecodable();
            let report = &mut status.report;
            (report.listed, report.expected) = (0, None);
        }
        self.informer.apply(Delta::ListStarted(reread));
        match way {
            Strategy::Whole => self.list_whole().await,
            Strategy::Streaming => self.list_streaming().await,
            Strategy::Paged => self.list_pages(reread).await,
        }
    }

    async fn list_whole(&mut self) -> Result<Listed, NotListed> {
        let meta = self.page(Part::Whole).await?;
        Ok(Listed { version: meta.version()?, stream: None })
    }

    /// A token that has expired ends in one whole list, as in client-go: going on with a newer
    /// token would mix two versions in one table.
    async fn list_pages(&mut self, reread: Reread) -> Result<Listed, NotListed> {
        let limit = self.informer.tuning(|tuning| tuning.lists.page_size);
        let mut meta = self.page(Part::Page { limit, token: "" }).await?;
        while !meta.token.is_empty() {
            let token = std::mem::take(&mut meta.token);
            let mut broken = 0;
            meta = loop {
                match self.page(Part::Page { limit, token: &token }).await {
                    Ok(meta) => break meta,
                    Err(NotListed::Fault(fault)) if fault.reason() == Reason::Gone => {
                        self.informer.apply(Delta::ListStarted(reread));
                        return self.list_whole().await;
                    }
                    // The same page once more: upserts can be repeated.
                    Err(NotListed::Fault(fault))
                        if fault.reason() == Reason::Malformed && broken < 2 =>
                    {
                        broken += 1;
                    }
                    Err(other) => return Err(other),
                }
            };
            if meta.token == token {
                let message = "a page points to itself as the next";
                return Err(Fault::new(Reason::Malformed, message).into());
            }
        }
        Ok(Listed { version: meta.version()?, stream: None })
    }

    /// Receives one response and applies its items as they arrive.
    async fn page(&mut self, part: Part<'_>) -> Result<ListMeta, NotListed> {
        let started = Instant::now();
        let received = self.receive(part).await;
        self.count_list(&received, started);
        received
    }

    /// Counts a list, or a page of it, that has ended.
    pub(super) fn count_list<T>(&self, received: &Result<T, NotListed>, started: Instant) {
        let took = started.elapsed();
        if received.is_ok() {
            self.informer.status().list_took(took);
        }
        self.metrics.listed(received.is_ok(), took);
    }

    async fn receive(&mut self, part: Part<'_>) -> Result<ListMeta, NotListed> {
        let timing = self.shared.timing.clone();
        let sent = Instant::now();
        let within = timing.list_headers;
        let mut chunks = self.list_watch.open(within, |endpoint| endpoint.list(part)).await?;
        self.informer.status().allowed(Verb::List, sent);
        let mut splitter = ListSplitter::new(MAX_OBJECT);
        let mut checked = false;
        let mut window = (Instant::now() + timing.list_window, 0);
        loop {
            let chunk = match timeout_at(window.0, chunks.next()).await {
                Ok(Some(chunk)) => chunk?,
                Ok(None) => break,
                Err(_elapsed) => return Err(too_slow().into()),
            };
            let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            self.metrics.list_bytes.inc_by(length);
            window.1 += length;
            if window.1 >= timing.list_least {
                window = (Instant::now() + timing.list_window, 0);
            }
            let mut rest = &chunk[..];
            let mut arrived = 0;
            while !rest.is_empty() {
                if !checked && splitter.in_items() {
                    checked = true;
                    self.refuse_older(&ListMeta::of(&splitter)?)?;
                }
                let (consumed, piece) = splitter.feed(rest)?;
                if let Some(piece) = piece {
                    self.take_item(&piece);
                    arrived += 1;
                    if self.wait_for_room(piece.len()).await? {
                        window = (Instant::now() + timing.list_window, 0);
                    }
                }
                rest = rest.get(consumed..).unwrap_or_default();
            }
            self.metrics.list_items.inc_by(arrived);
            self.informer.status().report.listed += arrived;
        }
        if !splitter.is_complete() {
            return Err(self.truncated().into());
        }
        let meta = ListMeta::of(&splitter)?;
        self.refuse_older(&meta)?;
        if let Some(remaining) = meta.remaining_item_count {
            let mut status = self.informer.status();
            let report = &mut status.report;
            report.expected = Some(report.listed.saturating_add(remaining));
        }
        Ok(meta)
    }

    fn take_item(&mut self, piece: &Piece<'_>) {
        match piece {
            Piece::Whole(json) => self.take_listed(json, Stage::ListItem),
            Piece::Oversized(head) => self.reject(oversized(head), Stage::ListItem),
        }
    }

    /// Applies an object of the list under way.
    pub(super) fn take_listed(&mut self, json: &[u8], stage: Stage) {
        match self.decoder.decode(json) {
            Ok(item) => {
                let outcome = self.informer.apply(Delta::Upsert(item));
                self.replaced += u64::from(outcome == Outcome::Replaced);
            }
            Err(rejected) => self.reject(rejected, stage),
        }
    }

    /// Lists of built-in kinds name their version before the items, those of custom resources behind them.
    fn refuse_older(&self, meta: &ListMeta) -> Result<(), NotListed> {
        match ResourceVersion::parse(&meta.resource_version) {
            Some(listed) => self.refuse_rollback(&listed),
            None => Ok(()),
        }
    }

    /// Every list is a consistent read: one that is older than what the table was complete at shows that
    /// versions have gone back.
    pub(super) fn refuse_rollback(&self, listed: &ResourceVersion) -> Result<(), NotListed> {
        match self.informer.status().version() {
            Some(known) if listed.is_older_than(known) => Err(NotListed::RolledBack),
            Some(_) | None => Ok(()),
        }
    }

    fn truncated(&self) -> Fault {
        self.metrics.undecodable(Stage::List);
        Fault::new(Reason::Malformed, "the list ended before it was complete")
    }
}

/// Whether a fault says that this way does not work here, rather than that nothing does.
fn is_for_want_of(way: Strategy, fault: &Fault) -> bool {
    match way {
        Strategy::Whole => matches!(fault.reason(), Reason::TimedOut | Reason::TooLarge),
        Strategy::Streaming => matches!(
            fault.reason(),
            Reason::TimedOut | Reason::TooLarge | Reason::Unsupported | Reason::ClosedAtOnce
        ),
        Strategy::Paged => false,
    }
}

fn too_slow() -> Fault {
    Fault::new(Reason::TimedOut, "the list brought too few bytes to count as progress")
}

/// An object above the size cap, named as far as its head tells.
pub(super) fn oversized(head: &[u8]) -> Undecodable {
    Undecodable::new(head, format!("it is larger than {} MiB", MAX_OBJECT >> 20))
}
