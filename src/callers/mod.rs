//! Who calls, and whether they may: as the API server decides, asked again from the start at most 10 s
//! later.
//!
//! Two questions are asked, one after the other, each remembered on its own: whose credentials these
//! are, and whether that user may do this very thing. A decision about all names is never one about a
//! name, and no group is let through unasked.

mod address;
mod credentials;
mod decisions;
mod places;
mod questions;
#[cfg(test)]
pub(crate) mod sample;

pub use self::{
    address::Address,
    credentials::{Certified, Claim, Credentials, NoCredentials, Shown, Vouched},
    places::{Full, Place, Places},
};
pub use crate::cluster::{Action, User};

use self::address::Bounds;
use self::decisions::{Decisions, Key, QuestionKey, Tag};
use self::questions::{Asked, Questions};
use crate::{
    cluster::{Presented, Reviewer, Verdict, Who},
    model::{DecidedBy, Decision, Fault},
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::{fmt, net::IpAddr, sync::Arc, time::Duration};
use tokio::{runtime::Handle, sync::Semaphore, time::Instant};

/// How long the API server may take to each question: scrapes give up after 10 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// A refusal keeps its place so long: whoever tries tokens tries few.
pub(crate) const REFUSAL: Duration = Duration::from_millis(250);

/// Requests that are sent on at once, watches and tunnels among them: each holds a connection to the API
/// server and some 100 KiB.
const SENT_ON: usize = 1_024;
/// Of one token: a controller watches some hundred kinds.
const SENT_ON_OF_ONE: usize = 256;
/// Of one address: a token may be made up, and is not asked about here.
const SENT_ON_OF_ADDRESS: usize = 512;

/// What a request that is sent on takes up, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the places back"]
pub struct SentOn {
    _of_address: Place,
    _of_token: Place,
}

/// Asks the API server about callers. A port: one implementation sends requests.
pub trait Reviews: Send + Sync + 'static {
    /// Whether the `Impersonate-*` headers of callers are passed on.
    fn passes_impersonation_on(&self) -> bool;

    /// Whose credentials these are.
    fn who(&self, presented: Arc<Presented>) -> BoxFuture<'static, Result<Who, Fault>>;

    /// Whether the user may do this, whose token this is; without one it has shown a certificate.
    fn may(
        &self,
        presented: Option<Arc<Presented>>,
        user: Arc<User>,
        action: Action,
    ) -> BoxFuture<'static, Result<Verdict, Fault>>;
}

/// Takes note of a decision: who made it, what it is, how long it took.
pub type Note = Box<dyn Fn(DecidedBy, Decision, Duration) + Send + Sync>;

/// A caller who may. To be kept until the answer has ended: so long its share is taken.
#[derive(Debug)]
pub struct Caller {
    /// Who it is.
    pub user: Arc<User>,
    _share: Place,
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
    /// Too many callers are asked about, or this one has too many requests under way.
    Busy,
    /// Nobody can say.
    Undecided(Fault),
}

/// Lets callers in whom the API server knows and who may.
pub struct Callers {
    reviews: Arc<dyn Reviews>,
    address: Address,
    key: Key,
    users: Asked<Who>,
    verdicts: Asked<Verdict>,
    questions: Questions,
    shares: Places<Tag>,
    sent_on: Places<Tag>,
    sent_on_from: Places<IpAddr>,
    watches: Places<Tag>,
    note: Note,
}

/// There is no randomness to make a key of: the kernel gives none.
#[derive(Debug, thiserror::Error)]
#[error("the kernel gives no random numbers, which decisions about callers need")]
pub struct NoRandomness;

impl Callers {
    /// Those who ask at `address`. Nobody has been asked about yet. Questions are asked on `runtime`, as its
    /// connections must outlive those of whoever serves. `note` takes note of each decision.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`].
    pub fn new(
        reviews: Arc<dyn Reviews>,
        address: Address,
        runtime: Handle,
        note: Note,
    ) -> Result<Self, NoRandomness> {
        let Bounds { users, actions, share, watches, watches_share, .. } = address.bounds();
        Ok(Self {
            reviews,
            address,
            key: Key::generate().map_err(|_| NoRandomness)?,
            users: Arc::new(Mutex::new(Decisions::new(users))),
            verdicts: Arc::new(Mutex::new(Decisions::new(actions))),
            questions: Questions::new(runtime, address),
            // The listener bounds them all.
            shares: Places::new(Semaphore::MAX_PERMITS, share),
            sent_on: Places::new(SENT_ON, SENT_ON_OF_ONE),
            sent_on_from: Places::new(SENT_ON, SENT_ON_OF_ADDRESS),
            watches: Places::new(watches, watches_share),
            note,
        })
    }

    /// Whether somebody who acts as another can be answered here at all.
    #[must_use]
    pub fn can_check_impersonation(&self) -> bool {
        self.reviews.passes_impersonation_on()
    }

    /// A place for a request that is sent on with the token `bearer` from `peer`, whoever that is: of 1,024, 256 of
    /// which are one token's, and 512 one address's. To be kept until the answer, or the tunnel, has ended.
    ///
    /// # Errors
    ///
    /// [`Refused::Busy`].
    pub fn send_on(&self, bearer: &[u8], peer: IpAddr) -> Result<SentOn, Refused> {
        let of_address = self.sent_on_from.take(peer.to_canonical()).ok_or(Refused::Busy)?;
        let of_token = self.sent_on.take(self.key.of_bearer(bearer)).ok_or(Refused::Busy)?;
        Ok(SentOn { _of_address: of_address, _of_token: of_token })
    }

    /// Lets the owner of `credentials`, who calls from `peer`, pass if `action` is allowed.
    ///
    /// # Errors
    ///
    /// [`Refused`]. Of those that the API server just decided, each takes a quarter of a second.
    ///
    /// # Cost
    ///
    /// Two small requests, one after the other, if nothing is remembered; those who ask the same at the
    /// same time share them.
    pub async fn admit(
        &self,
        credentials: &Credentials,
        action: &Action,
        peer: IpAddr,
    ) -> Result<Caller, Refused> {
        let mut deciding = Deciding::begin();
        let share_of = |user: &User| {
            let tag = self.key.of_user(user);
            Ok((tag, self.shares.take(tag).ok_or(Refused::Busy)?))
        };
        // Of whom it is known who that was, before that is asked anew: those questions are not bounded otherwise.
        let was = self.lately(credentials).map(|user| share_of(&user)).transpose()?;
        let known = self.known(credentials, peer, &mut deciding).await?;
        let is_same = |(tag, _): &(Tag, Place)| *tag == self.key.of_user(&known.user);
        let (_, share) = was.filter(is_same).map_or_else(|| share_of(&known.user), Ok)?;
        self.allowed(&known, action, (peer, &mut deciding)).await?;
        Ok(Caller { user: known.user, _share: share })
    }

    /// Whether one who was let in still may, from authentication on. Takes no share.
    ///
    /// # Errors
    ///
    /// As of [`Callers::admit`].
    pub async fn recheck(
        &self,
        credentials: &Credentials,
        action: &Action,
        peer: IpAddr,
    ) -> Result<(), Refused> {
        let mut deciding = Deciding::begin();
        let known = self.known(credentials, peer, &mut deciding).await?;
        self.allowed(&known, action, (peer, &mut deciding)).await
    }

    /// A place for a watch of somebody who was let in, in exchange for that among the requests.
    ///
    /// # Errors
    ///
    /// [`Refused::Busy`] if there is none, or that user has too many.
    pub fn watch(&self, caller: &Caller) -> Result<Place, Refused> {
        self.watches.take(self.key.of_user(&caller.user)).ok_or(Refused::Busy)
    }

    /// Forgets what was decided about `namespace`, and who its accounts are; everything, if none is named: it
    /// may be so no more.
    pub fn forget(&self, namespace: Option<&str>) {
        let now = Instant::now();
        self.users.lock().forget(namespace, now);
        self.verdicts.lock().forget(namespace, now);
    }

    async fn known<'c>(
        &self,
        credentials: &'c Credentials,
        peer: IpAddr,
        deciding: &mut Deciding,
    ) -> Result<Known<'c>, Refused> {
        let known = self.identified(credentials, peer, deciding).await;
        known.inspect_err(|refused| deciding.end(&self.note, refused.decision()))
    }

    async fn identified<'c>(
        &self,
        credentials: &'c Credentials,
        peer: IpAddr,
        deciding: &mut Deciding,
    ) -> Result<Known<'c>, Refused> {
        if credentials.impersonates() && !self.reviews.passes_impersonation_on() {
            return Err(Refused::Impersonation);
        }
        let shown = credentials.shown().and_then(Shown::who);
        let (who, token) = match (shown, credentials.presented()) {
            // A token beside it is not looked at, as the API server does not.
            (Some(who), _) => (who, None),
            (None, Some(token)) => (self.owner(token, peer, deciding).await?, Some(token)),
            (None, None) => (Who::Unknown, None),
        };
        match who {
            Who::Known(user) => Ok(Known { user, token }),
            Who::Unknown => Err(Refused::Unauthorized),
            Who::Refused { message } => {
                Err(Refused::Forbidden { user: String::new(), reason: Some(message) })
            }
        }
    }

    /// Whose token it was when that was last asked, if that is not long ago.
    fn lately(&self, credentials: &Credentials) -> Option<Arc<User>> {
        if credentials.shown().and_then(Shown::who).is_some() {
            return None;
        }
        let tag = self.key.of_credentials(credentials.presented()?);
        match self.users.lock().let_in_lately(&tag, Instant::now())? {
            Who::Known(user) => Some(user),
            Who::Unknown | Who::Refused { .. } => None,
        }
    }

    /// Whose token it is.
    async fn owner(
        &self,
        presented: &Arc<Presented>,
        peer: IpAddr,
        deciding: &mut Deciding,
    ) -> Result<Who, Refused> {
        let tag = self.key.of_credentials(presented);
        let ask = || self.reviews.who(Arc::clone(presented));
        let key = QuestionKey { tag, namespace: None };
        self.questions.answer(&self.users, key, (peer, || deciding.by = DecidedBy::Api), ask).await
    }

    async fn allowed(
        &self,
        Known { user, token }: &Known<'_>,
        action: &Action,
        (peer, deciding): (IpAddr, &mut Deciding),
    ) -> Result<(), Refused> {
        let tag = self.key.of_action(token.map(AsRef::as_ref), user, action);
        let ask = || self.reviews.may(token.cloned(), Arc::clone(user), action.clone());
        let namespace = match action {
            Action::Path { .. } => None,
            Action::Resource { namespace, .. } => namespace.clone(),
        };
        let key = QuestionKey { tag, namespace };
        let is_asked = || deciding.by = DecidedBy::Api;
        let answer = self.questions.answer(&self.verdicts, key, (peer, is_asked), ask).await;
        let allowed = answer.and_then(|verdict| match verdict {
            Verdict::Allowed => Ok(()),
            Verdict::Denied { reason } => {
                Err(Refused::Forbidden { user: user.name.clone(), reason })
            }
        });
        let decision = allowed.as_ref().err().map_or(Decision::Allow, Refused::decision);
        deciding.end(&self.note, decision);
        allowed
    }
}

/// Who somebody is, and by which token; without one, by a certificate.
struct Known<'c> {
    user: Arc<User>,
    token: Option<&'c Arc<Presented>>,
}

/// A decision under way; one that nobody waits for any more is none.
struct Deciding {
    by: DecidedBy,
    began: Instant,
}

impl Deciding {
    fn begin() -> Self {
        Self { by: DecidedBy::Cache, began: Instant::now() }
    }

    fn end(&self, note: &Note, decision: Decision) {
        note(self.by, decision, self.began.elapsed());
    }
}

impl Refused {
    const fn decision(&self) -> Decision {
        match self {
            Self::Unauthorized | Self::Forbidden { .. } | Self::Impersonation => Decision::Deny,
            Self::Busy | Self::Undecided(_) => Decision::Error,
        }
    }
}

impl Reviews for Reviewer {
    fn passes_impersonation_on(&self) -> bool {
        Self::passes_impersonation_on(self)
    }

    fn who(&self, presented: Arc<Presented>) -> BoxFuture<'static, Result<Who, Fault>> {
        let reviewer = self.clone();
        Box::pin(async move { reviewer.who(&presented).await })
    }

    fn may(
        &self,
        presented: Option<Arc<Presented>>,
        user: Arc<User>,
        action: Action,
    ) -> BoxFuture<'static, Result<Verdict, Fault>> {
        let reviewer = self.clone();
        Box::pin(async move { reviewer.may(presented.as_deref(), &user, &action).await })
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
