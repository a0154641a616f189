//! Who calls, and whether they may: as the API server decides, asked again from the start at most 10 s
//! later.
//!
//! Two questions are asked, one after the other, each remembered on its own: whose credentials these
//! are, and whether that user may do this very thing. A decision about all names is never one about a
//! name, and no group is let through unasked.

mod address;
mod credentials;
mod decisions;
mod lately;
mod places;
mod questions;
mod reviews;
#[cfg(test)]
pub(crate) mod sample;
mod sent_on;
mod tags;

pub use self::{
    address::Address,
    credentials::{Certified, Credentials, NoCredentials, Shown},
    places::{Full, Place, Places, network},
    reviews::Reviews,
    sent_on::SentOn,
};
pub use crate::cluster::{Action, User};

use self::{
    address::Bounds,
    decisions::{Answer, Decisions, Kept as _, QuestionKey},
    lately::Lately,
    questions::{Asked, Asker, Questions},
    sent_on::Sending,
    tags::{Key, Tag},
};
use crate::{
    cluster::{Presented, Verdict, Who},
    model::{DecidedBy, Decision, Fault},
};
use parking_lot::Mutex;
use std::{fmt, net::IpAddr, sync::Arc, time::Duration};
use tokio::{runtime::Handle, sync::Semaphore, time::Instant};

/// How long the API server may take to each question: scrapes give up after 10 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// A refusal keeps its place so long: whoever tries tokens tries few.
pub(crate) const REFUSAL: Duration = Duration::from_millis(250);

/// Takes note of a decision: who made it, what it is, how long it took.
pub type Note = Box<dyn Fn(DecidedBy, Decision, Duration) + Send + Sync>;

/// A caller who may. To be kept until the answer has ended: so long its share is taken.
#[derive(Debug)]
pub struct Caller {
    /// Who it is.
    pub user: Arc<User>,
    /// When the older of the two answers was asked for that let the caller in: at most 10 s ago, at first.
    pub asked: Instant,
    tag: Tag,
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
    key: Arc<Key>,
    users: Asked<Who>,
    verdicts: Asked<Verdict>,
    lately: Lately,
    questions: Questions,
    shares: Places<Tag>,
    sending: Sending,
    watches: Places<Tag>,
    connections: Places<Tag>,
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
        let bounds = address.bounds();
        let Bounds { users, actions, share, watches, watches_share, .. } = bounds;
        let key = Arc::new(Key::generate().map_err(|_| NoRandomness)?);
        Ok(Self {
            reviews,
            address,
            users: Arc::new(Mutex::new(Decisions::new(users, Arc::clone(&key)))),
            verdicts: Arc::new(Mutex::new(Decisions::new(actions, Arc::clone(&key)))),
            lately: Lately::new(users),
            key,
            questions: Questions::new(runtime, address),
            // The listener bounds them all.
            shares: Places::new(Semaphore::MAX_PERMITS, share),
            sending: Sending::new(&bounds),
            watches: Places::new(watches, watches_share),
            connections: Places::new(bounds.connections, bounds.connections_share),
            note,
        })
    }

    /// Whether somebody who acts as another can be answered here at all.
    #[must_use]
    pub fn can_check_impersonation(&self) -> bool {
        self.reviews.passes_impersonation_on()
    }

    /// A place for a request that is sent on with the token `bearer` from `peer`, whoever that is: of 1,024, 256 of
    /// which are one token's, and 512 one address's; if the API server has not accepted that token within 10 minutes,
    /// of 150 others, 50 of which are one address's. To be kept until the answer, or the tunnel, has ended.
    ///
    /// # Errors
    ///
    /// [`Refused::Busy`].
    pub fn send_on(&self, bearer: &[u8], peer: IpAddr) -> Result<SentOn, Refused> {
        self.sending.take(&self.key, bearer, peer, Instant::now()).ok_or(Refused::Busy)
    }

    /// The API server has accepted the token of `sent`: its place is exchanged, if there is one among those of tokens
    /// that are known.
    pub fn accepted(&self, sent: SentOn) -> SentOn {
        self.sending.accept(sent, Instant::now())
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
        let mut deciding = Deciding::begin(Asker::LetIn);
        let share_of = |tag| Ok((tag, self.shares.take(tag).ok_or(Refused::Busy)?));
        // Of whom it is known who that was, before that is asked anew: those questions are not bounded otherwise.
        let showing = self.showing(credentials);
        let taken = showing.was().map(share_of).transpose()?;
        let known = self.known(showing, peer, &mut deciding).await?;
        let is_same = |(tag, _): &(Tag, Place)| *tag == known.tag;
        let (_, share) = taken.filter(is_same).map_or_else(|| share_of(known.tag), Ok)?;
        let asked = self.allowed(&known, action, &mut deciding).await?;
        Ok(Caller { user: known.user, asked, tag: known.tag, _share: share })
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
        action: &Action,
        peer: IpAddr,
    ) -> Result<Instant, Refused> {
        self.decided(credentials, action, peer, Asker::Watching).await
    }

    /// Whether one who was let in may do `action`, too, for the same request, which has its share. Returns when the
    /// older of the two answers was asked for.
    ///
    /// # Errors
    ///
    /// As of [`Callers::admit`].
    pub async fn may_also(
        &self,
        credentials: &Credentials,
        action: &Action,
        peer: IpAddr,
    ) -> Result<Instant, Refused> {
        self.decided(credentials, action, peer, Asker::LetIn).await
    }

    async fn decided(
        &self,
        credentials: &Credentials,
        action: &Action,
        peer: IpAddr,
        let_in: fn(Tag) -> Asker,
    ) -> Result<Instant, Refused> {
        let mut deciding = Deciding::begin(let_in);
        let known = self.known(self.showing(credentials), peer, &mut deciding).await?;
        self.allowed(&known, action, &mut deciding).await
    }

    /// A place for a watch of somebody who was let in, in exchange for that among the requests.
    ///
    /// # Errors
    ///
    /// [`Refused::Busy`] if there is none, or that user has too many.
    pub fn watch(&self, caller: &Caller) -> Result<Place, Refused> {
        self.watches.take(caller.tag).ok_or(Refused::Busy)
    }

    /// A place for the connection of somebody who was let in, so that it need not make room for others: of 1,024;
    /// `None` if that user has 512 already.
    #[must_use]
    pub fn connection(&self, caller: &Caller) -> Option<Place> {
        self.connections.take(caller.tag)
    }

    /// The same for the connection over which `sent` came, which the API server has answered: of 512 in all, as nobody
    /// knows how many tokens are one user's; `None` if its token has 256.
    #[must_use]
    pub fn connection_sent_on(&self, sent: &SentOn) -> Option<Place> {
        self.sending.connection(sent)
    }

    /// What tells who shows `credentials`.
    fn showing<'c>(&self, credentials: &'c Credentials) -> Showing<'c> {
        if credentials.impersonates() && !self.reviews.passes_impersonation_on() {
            return Showing::Impersonation;
        }
        let shown = credentials.shown().and_then(Shown::who);
        match (shown, credentials.presented()) {
            // A token beside it is not looked at, as the API server does not.
            (Some(who), _) => Showing::Certificate(who),
            (None, Some(presented)) => {
                let tag = self.key.of_credentials(presented);
                let users = self.users.lock();
                let was = users.was(&tag, Instant::now()).and_then(|who| who.user(&self.key));
                Showing::Token(Token { presented, tag, was })
            }
            (None, None) => Showing::Nothing,
        }
    }

    async fn known<'c>(
        &self,
        showing: Showing<'c>,
        peer: IpAddr,
        deciding: &mut Deciding,
    ) -> Result<Known<'c>, Refused> {
        let known = self.identified(showing, peer, deciding).await;
        known.inspect_err(|refused| deciding.end(&self.note, refused.decision()))
    }

    async fn identified<'c>(
        &self,
        showing: Showing<'c>,
        peer: IpAddr,
        deciding: &mut Deciding,
    ) -> Result<Known<'c>, Refused> {
        let now = Instant::now();
        let (Answer { decision, asked }, token) = match showing {
            Showing::Impersonation => return Err(Refused::Impersonation),
            // Verified by this process, each time.
            Showing::Certificate(who) => (Answer { decision: who, asked: now }, None),
            Showing::Token(token) => {
                let presented = token.presented;
                (self.owner(token, peer, deciding).await?, Some(presented))
            }
            Showing::Nothing => (Answer { decision: Who::Unknown, asked: now }, None),
        };
        match decision {
            Who::Known(user) => Ok(Known { tag: self.key.of_name(&user), user, asked, token }),
            Who::Unknown => Err(Refused::Unauthorized),
            Who::Refused { message } => {
                Err(Refused::Forbidden { user: String::new(), reason: Some(message) })
            }
        }
    }

    /// For whom something is asked about the user `tag`; as `let_in`, if that was let in lately.
    fn asker(&self, tag: Tag, let_in: fn(Tag) -> Asker) -> Asker {
        if self.lately.has(&tag, Instant::now()) { let_in(tag) } else { Asker::Known(tag) }
    }

    /// Whose token it is.
    async fn owner(
        &self,
        Token { presented, tag, was }: Token<'_>,
        peer: IpAddr,
        deciding: &mut Deciding,
    ) -> Result<Answer<Who>, Refused> {
        let key = QuestionKey { tag, user: None };
        let for_whom = || {
            deciding.by = DecidedBy::Api;
            was.map_or(Asker::Stranger(peer), |user| self.asker(user, deciding.let_in))
        };
        let ask = || self.reviews.who(Arc::clone(presented));
        self.questions.answer(&self.users, key, for_whom, ask).await
    }

    async fn allowed(
        &self,
        Known { user, asked: of_token, tag: of_user, token }: &Known<'_>,
        action: &Action,
        deciding: &mut Deciding,
    ) -> Result<Instant, Refused> {
        let tag = self.key.of_action(token.map(AsRef::as_ref), user, action);
        let key = QuestionKey { tag, user: Some(*of_user) };
        let for_whom = || {
            deciding.by = DecidedBy::Api;
            self.asker(*of_user, deciding.let_in)
        };
        let ask = || self.reviews.may(token.cloned(), Arc::clone(user), action.clone());
        let answer = self.questions.answer(&self.verdicts, key, for_whom, ask).await;
        let allowed = answer.and_then(|Answer { decision, asked }| match decision {
            Verdict::Allowed => Ok(asked.min(*of_token)),
            Verdict::Denied { reason } => {
                Err(Refused::Forbidden { user: user.name.clone(), reason })
            }
        });
        let decision = allowed.as_ref().err().map_or(Decision::Allow, Refused::decision);
        // What is remembered ends soon: whoever goes on is asked about again.
        if allowed.is_ok() && deciding.by == DecidedBy::Api && self.address.tells_users(action) {
            self.lately.let_in(*of_user, Instant::now());
        }
        deciding.end(&self.note, decision);
        allowed
    }
}

/// What tells who somebody is.
enum Showing<'c> {
    /// Nothing here, as they want to act as somebody else.
    Impersonation,
    /// A certificate.
    Certificate(Who),
    /// The API server's word about this token.
    Token(Token<'c>),
    Nothing,
}

/// A token, of whomever.
struct Token<'c> {
    presented: &'c Arc<Presented>,
    tag: Tag,
    /// Whose it was when that was last asked, if that is not long ago.
    was: Option<Tag>,
}

impl Showing<'_> {
    /// Whose it is as far as that is known unasked.
    fn was(&self) -> Option<Tag> {
        if let Self::Token(token) = self { token.was } else { None }
    }
}

/// Who somebody is, and by which token; without one, by a certificate.
struct Known<'c> {
    user: Arc<User>,
    /// When that was asked.
    asked: Instant,
    /// Of the user.
    tag: Tag,
    token: Option<&'c Arc<Presented>>,
}

/// A decision under way; one that nobody waits for any more is none.
struct Deciding {
    by: DecidedBy,
    began: Instant,
    /// For whom it is if the user was let in lately.
    let_in: fn(Tag) -> Asker,
}

impl Deciding {
    fn begin(let_in: fn(Tag) -> Asker) -> Self {
        Self { by: DecidedBy::Cache, began: Instant::now(), let_in }
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

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
