//! Which cells answer a read, and what they answer.
//!
//! Callers have passed an access review before anything here is called. No object is fetched: what no profile keeps warm
//! is refused in a way that no client takes for "deleted" or for "empty". Only definitions of custom resources are fetched
//! (`kinds.rs`).

mod access;
mod allowed;
mod answer;
mod cover;
mod fields;
mod floors;
mod frame;
mod kind;
mod kinds;
mod list;
mod offers;
mod retry;
mod route;
#[cfg(test)]
mod sample;
mod watch;

pub use self::{
    answer::{Answer, Body, Cut, PART_BYTES, PIECE_BYTES, Pages, Source},
    kinds::Kinds,
    offers::{Offering, Offers},
    watch::{Feed, Piece, Progress},
};

use self::{cover::Candidate, floors::Floors, kind::Kind, retry::NotYet, route::Route};
use crate::metrics::ReadMetrics;
use kubewarm_api::model::{ObjectKey, ProfileRef, Resource, ResourceInfo, ResourceVersion};
use kubewarm_cache::{
    informer::{Changes, InformerMetrics, Proofs, Reports},
    store::{Catalog, Object},
};
use kubewarm_wire::{At, Failure, Objects, Written};
use std::{fmt, slice, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// When to try again what is not warm, or not current: a first list, or a probe, takes about as long.
const RETRY_AFTER_SECONDS: u64 = 2;
/// How often changes that watches share are dropped.
const SHARED_PERIOD: Duration = Duration::from_secs(15);

/// What reads are answered from.
pub struct Surroundings {
    /// The tables.
    pub catalog: Catalog,
    /// How the cells stand.
    pub reports: Reports,
    /// Wakes those who wait for one.
    pub changes: Changes,
    /// Proves them current where that is not known.
    pub proofs: Proofs,
    /// Counts how old the tables are that answer, by kind.
    pub ages: Arc<InformerMetrics>,
    /// Counts how long reads wait.
    pub metrics: ReadMetrics,
    /// What profiles offer; `None` before they have been listed. Asked at every read.
    pub offers: Box<dyn Fn() -> Option<Arc<Offers>> + Send + Sync>,
    /// Looks kinds up.
    pub kinds: Kinds,
    /// The operator's namespace, whose profiles answer for every namespace.
    pub home: Arc<str>,
}

/// Answers reads.
pub struct Reads {
    from: Surroundings,
    floors: Floors,
    /// Changes that watches look at.
    shared: watch::Shared,
}

impl Reads {
    /// Answers from these.
    #[must_use]
    pub fn new(from: Surroundings) -> Self {
        Self { from, floors: Floors::new(), shared: watch::Shared::default() }
    }

    /// Something was written through this process, and `version` is in the answer to that: whoever reads
    /// there and says nothing of versions waits for it, for at most 3 s and within the next minute.
    pub fn wrote(&self, written: Written, version: &ResourceVersion) {
        self.floors.raise(written, version, Instant::now());
    }

    /// Answers a get or a list; of `profile`'s cells alone, if one is named.
    ///
    /// # Errors
    ///
    /// What the API server would say, and what it has no words for: 421 for what nobody keeps warm, 429
    /// for what is not warm yet, 504 for what is not known to be current.
    ///
    /// # Cost
    ///
    /// Waits for a cell to warm as long as its profiles say, for a version up to 3 s, and for a proof that the
    /// cell is current up to 3 s, which it shares with others.
    pub async fn answer(
        &self,
        asked: &Objects,
        profile: Option<&ProfileRef>,
    ) -> Result<Answer, Failure> {
        let began = Instant::now();
        let answered = self.when_ready(asked, profile, async |route| match &asked.name {
            Some(name) => self.get(route, name),
            None => self.list(route).await,
        });
        let (answer, waited) = answered.await?;
        self.from.reports.read_took(&answer.source.cell, began.elapsed());
        if let Some(age) = answer.source.age {
            self.from.ages.for_resource(&asked.resource).observe_staleness(age);
        }
        Ok(Answer { waited, ..answer })
    }

    /// Every kind that reads may get something of, in the order of the API server's discovery: group, then
    /// version; of `profile` alone, if one is named.
    ///
    /// # Errors
    ///
    /// 503 while the profiles have not been listed, or the API server cannot be asked what a kind is.
    pub async fn kinds(&self, profile: Option<&ProfileRef>) -> Result<Vec<ResourceInfo>, Failure> {
        let offers = self.offers()?;
        let mut kinds = Vec::new();
        for resource in offers.resources(profile) {
            kinds.extend(self.kind(resource).await?.map(|kind| kind.document));
        }
        Ok(kinds)
    }

    fn offers(&self) -> Result<Arc<Offers>, Failure> {
        let not_listed = || Failure::unavailable("the CacheProfiles have not been listed yet", 1);
        (self.from.offers)().ok_or_else(not_listed)
    }

    /// What a kind is; `None` for one that is not served to readers.
    async fn kind(&self, resource: &Resource) -> Result<Option<Kind>, Failure> {
        self.from.kinds.look(resource).await.map_err(|fault| {
            tracing::debug!(%fault, "a kind could not be looked up");
            Failure::unavailable("the API server cannot be asked what this kind is; try again", 1)
        })
    }

    fn get(&self, route: &Route<'_>, name: &str) -> Result<Answer, NotYet> {
        let asked = route.asked;
        let namespace = asked.namespace.as_deref().unwrap_or_default();
        let key = ObjectKey { namespace: namespace.into(), name: name.into() };
        let (candidate, reader) = self.choose(route)?;
        let (found, version) = reader.get_at(&key);
        self.confirm(route, candidate, version.as_ref())?;
        let not_found = || Failure::not_found(asked.resource.group_resource(), name);
        let (candidate, object) = match found {
            Some(object) => (candidate, object),
            // Only a cell that is known to be current says that an object does not exist, be it another candidate.
            None if route.is_current(candidate) => return Err(not_found().into()),
            None => match self.known_by(route, &key) {
                Some((_, None)) => return Err(not_found().into()),
                Some((other, Some(object))) if matches!(asked.at, At::Any | At::Latest) => {
                    (other, object)
                }
                // The read asks this cell again once it is proved.
                Some((_, Some(_))) | None => {
                    return Err(route.unproven(slice::from_ref(candidate)));
                }
            },
        };
        let body = frame::whole(&route.kind, &object, asked.form);
        Ok(Answer::new(Body::Whole(body), candidate, route.max_staleness))
    }

    /// What the first candidate holds under `key` that is known to be current and can be read; `None` if none is.
    fn known_by<'r>(
        &self,
        route: &'r Route<'_>,
        key: &ObjectKey,
    ) -> Option<(&'r Candidate<'r>, Option<Object>)> {
        route.candidates.iter().filter(|it| route.is_current(it)).find_map(|candidate| {
            let found = self.from.catalog.reader(candidate.key)?.get(key);
            self.is_undisturbed(candidate).then_some((candidate, found))
        })
    }

    /// Lets go of what nobody asks for any more, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            loop {
                sleep(SHARED_PERIOD).await;
                self.shared.clear();
            }
        })
        .await;
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("home", &self.home).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").field("home", &self.from.home).finish_non_exhaustive()
    }
}
