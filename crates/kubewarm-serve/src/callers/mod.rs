//! Who calls, and whether they may: as the API server decides, asked again from the start at most 10 s
//! later.
//!
//! Two reviews are sent, one after the other, each remembered on its own: whose credentials these
//! are, and whether that user may do this very thing. A decision about all names is never one about a
//! name, and no group is let through unasked.

mod authenticator;
mod authorizer;
mod credentials;
mod failures;
mod identity;
mod key;
mod limits;
mod network;
mod queue;
mod reviews;
#[cfg(test)]
pub(crate) mod sample;

pub(crate) use self::identity::{Asking, Chain};
pub use self::{
    authenticator::Caller,
    credentials::{Credentials, NoCredentials},
    identity::Authority,
    key::random_key,
    limits::{CallerLimits, LimitUsage, ReadLimit, ReaderLimits},
    network::network,
    reviews::Reviews,
};

use self::{
    authenticator::Authenticator,
    authorizer::Authorizer,
    key::{Digest, HashKey},
    limits::quarter,
    queue::ReviewQueue,
};
use crate::ServeError;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReviewSpec;
use kubewarm_api::model::{DecisionSource, Fault, MetricOutcome};
use kubewarm_client::{KeyedPermit, KeyedSemaphore};
use std::{fmt, net::IpAddr, sync::Arc, time::Duration};
use tokio::{runtime::Handle, time::Instant};

/// What bytes that are not written are counted in.
pub const UNWRITTEN_UNIT: usize = 1 << 10;

/// Observes each decision about a caller: its source, its outcome, its duration.
pub type Note = Box<dyn Fn(DecisionSource, MetricOutcome, Duration) + Send + Sync>;

/// What one user has of something, such as the turns in which large answers are written.
#[derive(Clone, Debug)]
pub struct UserPermits {
    permits: KeyedSemaphore<Digest>,
    user: Digest,
}

/// Why a caller is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The API server does not accept the credentials.
    Unauthorized,
    /// It does, but does not allow this.
    Forbidden {
        /// The caller's name; empty where the API server refused before it said who that is.
        user: String,
        /// Why, where an authorizer says so.
        reason: Option<String>,
    },
    /// The caller wants to act as somebody else, which cannot be checked here.
    Impersonation,
    /// A limit was reached.
    Limited(ReadLimit),
    /// Nobody can say.
    Undecided(Fault),
}

/// Lets callers in whom the API server knows and who may.
pub struct Callers {
    reviews: Arc<dyn Reviews>,
    authenticator: Authenticator,
    authorizer: Authorizer,
    requests: KeyedSemaphore<Digest>,
    watches: KeyedSemaphore<Digest>,
    connections: KeyedSemaphore<Digest>,
    forwarded: KeyedSemaphore<Digest>,
    large: KeyedSemaphore<Digest>,
    unwritten: KeyedSemaphore<Digest>,
    note: Note,
}

impl Callers {
    /// Those who may have as much as `limits` say. Nobody has been asked about yet. Reviews are sent on `runtime`, as its
    /// connections must outlive those of whoever serves. `note` takes note of each decision.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the kernel gives no random numbers.
    pub fn new(
        reviews: Arc<dyn Reviews>,
        limits: &CallerLimits,
        runtime: Handle,
        note: Note,
    ) -> Result<Self, ServeError> {
        let key = Arc::new(HashKey::generate()?);
        let is_failing = Arc::default();
        let token_reviews = ReviewQueue::new(limits.token_reviews, limits, Arc::clone(&is_failing));
        let access_reviews = ReviewQueue::new(limits.access_reviews, limits, is_failing);
        let readers = &limits.readers;
        let by_user = |limit: usize| KeyedSemaphore::new(limit, readers.share(limit));
        Ok(Self {
            authenticator: Authenticator::new(
                Arc::clone(&reviews),
                Arc::clone(&key),
                runtime.clone(),
                token_reviews,
            ),
            authorizer: Authorizer::new(Arc::clone(&reviews), key, runtime, access_reviews),
            reviews,
            requests: by_user(readers.requests.get()),
            watches: by_user(readers.watches.get()),
            connections: by_user(readers.connections.get()),
            forwarded: by_user(limits.forwarded),
            large: KeyedSemaphore::new(limits.large, quarter(limits.large)),
            unwritten: by_user(readers.unwritten_bytes / UNWRITTEN_UNIT),
            note,
        })
    }

    /// Whether somebody who acts as another can be answered here at all.
    #[must_use]
    pub fn can_check_impersonation(&self) -> bool {
        self.reviews.passes_impersonation_on()
    }

    /// Lets the owner of `credentials`, who calls from `peer`, pass if it may do what `access` says. The request
    /// counts against the limit of its user until the permit is dropped: keep it in the response. `let (caller, _)`
    /// drops it at once.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    ///
    /// # Cost
    ///
    /// Two small requests, one after the other, if nothing is remembered; those who ask the same at the
    /// same time share them.
    pub async fn admit(
        &self,
        credentials: &Credentials,
        access: &SelfSubjectAccessReviewSpec,
        peer: IpAddr,
    ) -> Result<(Caller, KeyedPermit), Refused> {
        self.noted(async |by| {
            let caller = self.authenticator.authenticate(credentials, peer, by).await?;
            let permit = self.requests.acquire_now(&caller.name);
            let limits = (ReadLimit::Requests, ReadLimit::UserRequests);
            let permit = permit.map_err(|reached| ReadLimit::reached(reached, limits))?;
            let asked = self.authorizer.authorize(&caller, access, by).await?;
            Ok((Caller { asked, ..caller }, permit))
        })
        .await
    }

    /// Whether one who was let in, and watches, still may, from authentication on. Takes no share. Returns when the
    /// older of the two answers was asked for.
    ///
    /// # Errors
    ///
    /// As of [`Callers::admit`].
    pub async fn recheck(
        &self,
        credentials: &Credentials,
        access: &SelfSubjectAccessReviewSpec,
        peer: IpAddr,
    ) -> Result<Instant, Refused> {
        self.noted(async |by| {
            let caller = self.authenticator.authenticate(credentials, peer, by).await?;
            self.authorizer.authorize(&caller, access, by).await
        })
        .await
    }

    /// Whether one who was let in may do what `access` says, too, for the same request, which has its permit. Returns
    /// when the oldest of the answers was asked for by which the caller may do all of that.
    ///
    /// # Errors
    ///
    /// As of [`Callers::admit`].
    pub async fn may_also(
        &self,
        caller: &Caller,
        access: &SelfSubjectAccessReviewSpec,
    ) -> Result<Instant, Refused> {
        self.noted(async |by| self.authorizer.authorize(caller, access, by).await).await
    }

    /// Who owns `credentials`, and a place for a request of theirs that is sent on from `peer`: what it may, the API server
    /// decides. To be kept until the answer, or the tunnel, has ended.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    pub async fn forward(
        &self,
        credentials: &Credentials,
        peer: IpAddr,
    ) -> Result<(Caller, KeyedPermit), Refused> {
        self.noted(async |by| {
            let caller = self.authenticator.authenticate(credentials, peer, by).await?;
            let place = self.forwarded.acquire_now(&caller.name);
            let limits = (ReadLimit::ForwardedRequests, ReadLimit::UserForwardedRequests);
            let place = place.map_err(|reached| ReadLimit::reached(reached, limits))?;
            Ok((caller, place))
        })
        .await
    }

    /// A place for the connection of somebody whose request was accepted; `None` if that user has its share of them
    /// already.
    #[must_use]
    pub fn connection(&self, caller: &Caller) -> Option<KeyedPermit> {
        self.connections.try_acquire(&caller.name)
    }

    /// The turns in which large answers to `caller` are written: at most so many pieces at once, a quarter of which are
    /// one user's.
    #[must_use]
    pub fn large_answers(&self, caller: &Caller) -> UserPermits {
        UserPermits { permits: self.large.clone(), user: caller.name }
    }

    /// What answers to somebody take until they are written, in units of [`UNWRITTEN_UNIT`].
    #[must_use]
    pub fn unwritten(&self, caller: &Caller) -> UserPermits {
        UserPermits { permits: self.unwritten.clone(), user: caller.name }
    }

    /// A place for a watch of somebody who was let in, in exchange for that among the requests.
    ///
    /// # Errors
    ///
    /// [`Refused::Limited`] if all watches, or those of the user, are in use.
    pub fn watch(&self, caller: &Caller) -> Result<KeyedPermit, Refused> {
        let limits = (ReadLimit::Watches, ReadLimit::UserWatches);
        let permit = self.watches.acquire_now(&caller.name);
        permit.map_err(|reached| ReadLimit::reached(reached, limits))
    }

    /// The slots in use, by limit. Visits each user that has a slot: for a scrape, not for a request.
    #[must_use]
    pub fn usage(&self) -> Vec<LimitUsage> {
        let connections = self.connections.usage();
        let connections = LimitUsage {
            limit: ReadLimit::UserConnections,
            in_use: connections.most_of_one,
            size: connections.part,
        };
        let others = [
            (&self.requests, ReadLimit::Requests, ReadLimit::UserRequests),
            (&self.watches, ReadLimit::Watches, ReadLimit::UserWatches),
            (&self.forwarded, ReadLimit::ForwardedRequests, ReadLimit::UserForwardedRequests),
        ];
        let others =
            others.map(|(slots, of_all, of_user)| LimitUsage::of(slots.usage(), of_all, of_user));
        std::iter::once(connections).chain(others.into_iter().flatten()).collect()
    }

    /// Runs `deciding` and notes its outcome. A future that is dropped notes nothing.
    async fn noted<T>(
        &self,
        deciding: impl AsyncFnOnce(&mut DecisionSource) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let (mut source, began) = (DecisionSource::Cache, Instant::now());
        let decided = deciding(&mut source).await;
        let outcome = decided.as_ref().err().map_or(MetricOutcome::Success, Refused::outcome);
        (self.note)(source, outcome, began.elapsed());
        decided
    }
}

impl UserPermits {
    /// So many, waiting for them.
    pub async fn acquire(&self, count: usize) -> Option<KeyedPermit> {
        self.permits.acquire_many(&self.user, count).await
    }
}

impl Refused {
    const fn outcome(&self) -> MetricOutcome {
        match self {
            Self::Unauthorized | Self::Forbidden { .. } | Self::Impersonation => {
                MetricOutcome::Rejected
            }
            Self::Limited(limit) if limit.is_callers_own() => MetricOutcome::Rejected,
            Self::Limited(_) | Self::Undecided(_) => MetricOutcome::Error,
        }
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self::Undecided(fault)
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
