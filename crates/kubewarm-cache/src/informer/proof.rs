//! Proves to readers that a table is current, by one request upstream that all who wait share.
//!
//! A consistent read says up to which version the API server has come. A table is current as of that read once
//! it has come to that version itself, by an event or a bookmark, or once it names the very objects that the
//! read named, in the same versions: then nothing has happened in between, whatever its own version is. Versions
//! are those of all of etcd: other kinds move them on, and a quiet cell hears of that once a minute. So tables that
//! fit into a page are compared with one; for others the cell is told to ask a second watch, which takes 2 s.

use super::{Reports, cell::Informer, digest::NameDigest, endpoint::Part, list_watch::ListWatch};
use kubewarm_api::model::{CellKey, Fault, Reason, ResourceVersion};
use kubewarm_client::{Buckets, Expiring};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, sleep, sleep_until, timeout_at},
};

/// What fits into one request of some ten milliseconds, and is compared in a fraction of one.
const FEW: u32 = 200;
/// How long a proof may take, from its beginning.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is looked whether the table has come there. What was written is on its way for a few
/// milliseconds.
const POLL: Duration = Duration::from_millis(5);
/// When a small table is taken for one whose watch brings nothing.
const LATE: Duration = Duration::from_millis(100);
/// Proofs under way at once: a connection each, for 3 s at most. Beyond it they wait for one another.
const UNDER_WAY: usize = 32;

/// That a table is current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// As of when.
    pub at: Instant,
    /// The version that it had when it was found to be.
    held: ResourceVersion,
    /// The version that the API server had come to.
    newest: ResourceVersion,
}

/// For how long a proof is kept. Nobody takes one of before he asked.
const KEPT: Duration = Duration::from_secs(10);
/// Tables whose last proof is kept: more than can be under way, with those who are about to take them.
const MAX_KEPT: u64 = 1_024;

/// Proves tables current, one proof at a time for each. Cheap to clone.
#[derive(Clone)]
pub struct Proofs {
    reports: Reports,
    buckets: Buckets,
    under_way: Arc<Semaphore>,
    kept: Expiring<CellKey, Proof>,
    /// Where proofs run to their end.
    runtime: Handle,
}

impl Proof {
    /// Whether what a table shows at this version is as new as what was proved. Between the version that it
    /// had and the one that the API server had come to, it may go through states that are over.
    #[must_use]
    pub fn covers(&self, version: Option<&ResourceVersion>) -> bool {
        version.is_some_and(|version| *version == self.held || *version >= self.newest)
    }
}

impl Proofs {
    /// To be called on the runtime on which proofs are to run.
    pub(super) fn new(reports: Reports, buckets: Buckets) -> Self {
        let under_way = Arc::new(Semaphore::new(UNDER_WAY));
        let kept = Expiring::new(MAX_KEPT, KEPT);
        Self { reports, buckets, under_way, kept, runtime: Handle::current() }
    }

    /// Proves the table of `key` current as of a moment after `since`, at the expense of the namespace
    /// `payer`.
    ///
    /// # Errors
    ///
    /// That of the request. [`Reason::TimedOut`] if the watch has not brought what the API server has.
    /// [`Reason::Throttled`] if too much is requested for the namespace, or for readers at all. [`Reason::Unverified`]
    /// while nothing keeps the table current: paused, fenced, or not listed yet. All who wait for a proof get its
    /// error.
    ///
    /// # Cost
    ///
    /// One request, shared by all who came before it was sent: a page of metadata for up to 200 objects; for
    /// more of them one object, and a second watch for some 2 s. Waits for at most 3 s.
    pub async fn prove(
        &self,
        key: &CellKey,
        payer: &Arc<str>,
        since: Instant,
    ) -> Result<Proof, Fault> {
        let (proofs, of, payer) = (self.clone(), key.clone(), Arc::clone(payer));
        let proving = async move { proofs.make(&of, &payer).await };
        let (kept, runtime) = (&self.kept, &self.runtime);
        let proof = kept.get_or_fetch(runtime, key.clone(), Some(since), || proving).await?;
        Ok(proof.value)
    }

    async fn make(&self, key: &CellKey, payer: &Arc<str>) -> Result<Proof, Fault> {
        let informer = self.reports.informer(key).ok_or_else(idle)?;
        let deadline = Instant::now() + PATIENCE;
        let list_watch = informer.list_watch.as_ref().map_err(Fault::clone)?;
        let _one = self.turn(payer, deadline).await?;
        if !informer.glance().is_kept_current() {
            return Err(idle());
        }
        let before = informer.reader.version();
        let is_small = informer.reader.objects() <= FEW.into();
        let sent = Instant::now();
        let within = deadline.saturating_duration_since(sent);
        let (newest, all) = newest(list_watch, is_small, within).await?;
        if before.is_some_and(|before| newest.is_older_than(&before)) {
            // Versions went back, or it lags: the cell is to find out.
            informer.probe.notify_one();
            return Err(behind());
        }
        let mut probe_at = Some(if all.is_some() { sent + LATE } else { sent });
        loop {
            if let Some(proof) = informer.prove(sent, &newest, all.as_ref()) {
                return Ok(proof);
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(behind());
            }
            if !informer.glance().is_kept_current() {
                return Err(idle());
            }
            if probe_at.take_if(|at| *at <= now).is_some() {
                self.buckets.charge(payer, 1, now);
                informer.probe.notify_one();
            }
            sleep(POLL).await;
        }
    }

    /// Room for one proof more, and for a request of `payer`'s.
    async fn turn(
        &self,
        payer: &Arc<str>,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, Fault> {
        // Never closed.
        let Ok(Ok(one)) = timeout_at(deadline, self.under_way.acquire()).await else {
            return Err(busy());
        };
        while let Err(open_at) = self.buckets.draw_spare(payer, Instant::now()) {
            if open_at >= deadline {
                return Err(busy());
            }
            sleep_until(open_at).await;
        }
        Ok(one)
    }
}

fn idle() -> Fault {
    Fault::new(Reason::Unverified, "nothing keeps it current")
}

fn behind() -> Fault {
    Fault::new(Reason::TimedOut, "the watch has not brought what the API server has")
}

fn busy() -> Fault {
    let message = "too many requests are made upstream, for the namespace or for readers at all";
    Fault::new(Reason::Throttled, message)
}

/// Up to which version the API server has come; and what a list names that is small, if it is still.
async fn newest(
    list_watch: &ListWatch,
    is_small: bool,
    within: Duration,
) -> Result<(ResourceVersion, Option<NameDigest>), Fault> {
    if !is_small {
        return Ok((list_watch.peek(within).await?.version()?, None));
    }
    let mut named = NameDigest::new();
    let part = Part::Page { limit: FEW, token: "" };
    let meta = named.add_page(list_watch, None, part, within).await?;
    Ok((meta.version()?, meta.token.is_empty().then_some(named)))
}

impl Informer {
    /// Whether the table has come to `newest`, or is `all` that there was then: so it is current as of `sent`.
    fn prove(
        &self,
        sent: Instant,
        newest: &ResourceVersion,
        all: Option<&NameDigest>,
    ) -> Option<Proof> {
        if !self.glance().is_kept_current() {
            return None;
        }
        // Nothing is written meanwhile: the table is not emptied before it counts as current.
        let no_writer = self.sink.lock();
        let mut held = self.reader.version()?;
        let has_come = held >= *newest;
        if !has_come {
            let all = all.filter(|all| all.objects() == self.reader.objects())?;
            let (digest, version) = all.of_table(&self.reader);
            held = version.filter(|_| digest.matches(all))?;
        }
        self.status().current(sent);
        drop(no_writer);
        Some(Proof { at: sent, held, newest: newest.clone() })
    }
}

impl fmt::Debug for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proofs").field("reports", &self.reports).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::join;

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_waited_for_no_longer_than_a_proof_may_take() {
        let proofs = Proofs::new(Reports::default(), Buckets::default());
        let (payer, began) = ("ns".into(), Instant::now());
        let all = proofs.under_way.acquire_many(UNDER_WAY.try_into().unwrap()).await.unwrap();
        let turn = || async { proofs.turn(&payer, Instant::now() + PATIENCE).await.map(drop) };
        assert_eq!(turn().await, Err(busy()));
        assert_eq!(began.elapsed(), PATIENCE);
        let others_end = async {
            sleep(PATIENCE / 2).await;
            drop(all);
        };
        assert_eq!(join!(turn(), others_end).0, Ok(()));
        assert_eq!(began.elapsed(), PATIENCE + PATIENCE / 2);
        proofs.buckets.charge(&payer, 1_000, Instant::now());
        assert_eq!(turn().await, Err(busy()), "the namespace has asked for too much");
    }
}
