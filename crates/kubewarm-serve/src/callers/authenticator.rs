//! Who calls: what the API server says of the credentials, or a certificate.

use super::{
    Credentials, Refused, Reviews,
    failures::FailedTokens,
    identity::Chain,
    key::{Digest, HashKey},
    network::network,
    queue::ReviewQueue,
};
use kubewarm_api::model::DecisionSource;
use kubewarm_client::{Expiring, Presented, User, Who};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::{runtime::Handle, time::Instant};

/// How long an answer counts, whatever it is: a right that is revoked, or granted, is so after it.
pub(super) const TTL: Duration = Duration::from_secs(10);
/// Credentials that are remembered.
const REMEMBERED: u64 = 1_024;

/// Tells whose credentials are shown.
pub(super) struct Authenticator {
    reviews: Arc<dyn Reviews>,
    key: Arc<HashKey>,
    runtime: Handle,
    users: Expiring<Digest, Who, Refused>,
    queue: ReviewQueue<IpAddr>,
    failed: Arc<FailedTokens>,
}

/// A caller whose credentials were accepted. Only a caller that [`Callers::admit`](super::Callers::admit) has returned
/// has passed an access review.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who it is.
    pub user: Arc<User>,
    /// When the API server was asked: of the answers that let the caller in, when the oldest was asked for.
    pub asked: Instant,
    /// What the user is counted by.
    pub(super) name: Digest,
    /// What was shown; nothing, where a certificate counts.
    pub(super) presented: Option<Arc<Presented>>,
}

impl Authenticator {
    pub(super) fn new(
        reviews: Arc<dyn Reviews>,
        key: Arc<HashKey>,
        runtime: Handle,
        queue: ReviewQueue<IpAddr>,
    ) -> Self {
        let users = Expiring::new(REMEMBERED, TTL);
        Self { reviews, key, runtime, users, queue, failed: Arc::default() }
    }

    /// Whose `credentials` these are, shown by `peer`; `by` tells who says so.
    ///
    /// # Errors
    ///
    /// [`Refused`], at once where too many wait and where too many of the address were not accepted.
    pub(super) async fn authenticate(
        &self,
        credentials: &Credentials,
        peer: IpAddr,
        by: &mut DecisionSource,
    ) -> Result<Caller, Refused> {
        if credentials.impersonates && !self.reviews.passes_impersonation_on() {
            return Err(Refused::Impersonation);
        }
        // A token beside a certificate is not looked at, as the API server does not.
        let certified = credentials.chain.as_deref().and_then(Chain::who);
        let (who, asked, presented) = match (certified, &credentials.token) {
            // Verified by this process, each time.
            (Some(who), _) => (who, Instant::now(), None),
            (None, Some(presented)) => {
                let (who, asked) = self.owner(presented, network(peer), by).await?;
                (who, asked, Some(Arc::clone(presented)))
            }
            (None, None) => return Err(Refused::Unauthorized),
        };
        match who {
            Who::Known(user) => {
                let name = self.key.of_name(&user)?;
                Ok(Caller { user, asked, name, presented })
            }
            Who::Unknown => Err(Refused::Unauthorized),
            Who::Refused { message } => {
                Err(Refused::Forbidden { user: String::new(), reason: Some(message) })
            }
        }
    }

    /// Whose token was shown from `peer`, and when the API server was asked.
    async fn owner(
        &self,
        presented: &Arc<Presented>,
        peer: IpAddr,
        by: &mut DecisionSource,
    ) -> Result<(Who, Instant), Refused> {
        let key = self.key.of_credentials(presented)?;
        if let Some(known) = self.users.get(&key) {
            return Ok((known.value, known.asked_at));
        }
        *by = DecisionSource::ApiServer;
        // Behind one address there may be others than those who try tokens.
        let last = self.users.get_stale(&key);
        let was_accepted = last.is_some_and(|it| matches!(it.value, Who::Known(_)));
        let mut one_at_a_time =
            if was_accepted { None } else { self.failed.attempt(peer, Instant::now())? };
        // Nobody knows yet who waits, so whoever joins a review waits in a place, too.
        let mut waits = Some(self.queue.enter(peer)?);
        let review = || {
            let (waits, permit) = (waits.take(), one_at_a_time.take());
            let (queue, failed) = (self.queue.clone(), Arc::clone(&self.failed));
            let review = self.reviews.who(Arc::clone(presented));
            async move {
                let _waits = waits;
                let _slot = queue.slot(peer).await?;
                let _one_at_a_time = match permit {
                    // Others may have failed while it waited.
                    None if !was_accepted => failed.attempt(peer, Instant::now())?,
                    permit => permit,
                };
                let answer = queue.decide(review).await;
                if matches!(answer, Ok(Who::Unknown | Who::Refused { .. })) {
                    failed.fail(peer, Instant::now());
                }
                answer
            }
        };
        let entry = self.users.get_or_fetch(&self.runtime, key, None, review).await?;
        drop(waits);
        Ok((entry.value, entry.asked_at))
    }
}
