//! Questions to the API server about callers: in turns, and one for all who have the same. Whoever was let in lately
//! does not wait behind strangers, however many there are.

use super::{
    PATIENCE, REFUSAL, Refused,
    address::{Address, Bounds},
    decisions::{Age, Decisions, Kept, QuestionKey, Tag},
    places::Places,
};
use crate::model::{Fault, Reason};
use futures::future::{BoxFuture, FutureExt as _, Shared};
use parking_lot::Mutex;
use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout},
};

/// Questions of one kind: what was answered, and what is being asked.
pub(super) type Asked<T> = Arc<Mutex<Decisions<T, Question<T>>>>;
/// A question that everybody waits for who has the same.
pub(super) type Question<T> = Shared<BoxFuture<'static, Result<T, Unanswered>>>;

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) enum Unanswered {
    /// No turn in time.
    Busy,
    /// The request failed.
    Fault(Fault),
}

/// Asks, on a runtime whose connections outlive those of whoever serves.
pub(super) struct Questions {
    runtime: Handle,
    address: Address,
    /// For questions about what was let in lately.
    anew: Places<IpAddr>,
    /// For all others.
    first: Places<IpAddr>,
    /// For those who wait for one of these others: each waits with a request.
    waiting: Places<IpAddr>,
    queue: Duration,
    /// Whether the last question had no answer.
    failing: Arc<AtomicBool>,
}

impl Questions {
    pub(super) fn new(runtime: Handle, address: Address) -> Self {
        let Bounds { anew, first, of_address, waiting, waiting_of_address, queue, .. } =
            address.bounds();
        Self {
            runtime,
            address,
            anew: Places::new(anew, of_address),
            first: Places::new(first, of_address),
            waiting: Places::new(waiting, waiting_of_address),
            queue,
            failing: Arc::default(),
        }
    }

    /// What is remembered of the question `key`, else what `ask` brings; `is_asked` is told before that.
    ///
    /// # Errors
    ///
    /// [`Refused::Busy`]: at once for a stranger where too many of them wait. [`Refused::Undecided`].
    pub(super) async fn answer<T: Kept>(
        &self,
        asked: &Asked<T>,
        key: QuestionKey,
        (peer, is_asked): (IpAddr, impl FnOnce()),
        ask: impl FnOnce() -> BoxFuture<'static, Result<T, Fault>>,
    ) -> Result<T, Refused> {
        let peer = peer.to_canonical();
        let (question, _waits) = {
            let mut decisions = asked.lock();
            let (tag, now) = (key.tag, Instant::now());
            if let Some(known) = decisions.get(&tag, now) {
                return Ok(known);
            }
            is_asked();
            let is_stranger = decisions.let_in_lately(&tag, now).is_none();
            let waits = is_stranger.then(|| self.waiting.take(peer).ok_or(Refused::Busy));
            let waits = waits.transpose()?;
            if let Some(posed) = decisions.question(&tag) {
                (posed, waits)
            } else {
                let places = if is_stranger { &self.first } else { &self.anew };
                let posed = self.pose((asked, decisions.age()), key, (peer, places), ask());
                decisions.pose(tag, posed.clone());
                (posed, waits)
            }
        };
        question.await.map_err(|unanswered| match unanswered {
            Unanswered::Busy => Refused::Busy,
            Unanswered::Fault(fault) => Refused::Undecided(fault),
        })
    }

    /// Has `asking` sent in its turn, and heard to its end, whoever leaves: others may have joined.
    fn pose<T: Kept>(
        &self,
        (asked, age): (&Asked<T>, Age),
        key: QuestionKey,
        (peer, places): (IpAddr, &Places<IpAddr>),
        asking: BoxFuture<'static, Result<T, Fault>>,
    ) -> Question<T> {
        let posed = Posed { asked: Arc::clone(asked), tag: key.tag, age };
        let (places, queue, address) = (places.clone(), self.queue, self.address);
        let failing = Arc::clone(&self.failing);
        let hearing = async move {
            let Some(_place) = places.wait(peer, queue).await else {
                return Err(Unanswered::Busy);
            };
            // From here on, not from the answer: what it says may have changed meanwhile.
            let began = Instant::now();
            let answer = timeout(PATIENCE, asking).await.unwrap_or_else(|_| {
                Err(Fault::new(Reason::TimedOut, format!("no decision within {PATIENCE:?}")))
            });
            tell(&failing, answer.as_ref().err(), address);
            if let Ok(answer) = &answer {
                posed.asked.lock().put(key, answer.clone(), (began, age));
            }
            if !answer.as_ref().is_ok_and(Kept::lets_in) {
                sleep(REFUSAL).await;
            }
            answer.map_err(Unanswered::Fault)
        };
        let runtime = self.runtime.clone();
        // Spawned when it is first waited for, and not here, under a lock that its end takes.
        let heard = async move {
            let heard = runtime.spawn(hearing).await;
            heard.unwrap_or_else(|_| Err(Unanswered::Fault(Fault::broke_off())))
        };
        heard.boxed().shared()
    }
}

/// A question under way, until it is dropped.
struct Posed<T: Kept> {
    asked: Asked<T>,
    tag: Tag,
    age: Age,
}

impl<T: Kept> Drop for Posed<T> {
    fn drop(&mut self) {
        self.asked.lock().end(&self.tag, self.age);
    }
}

/// Logs that callers cannot be asked about, and that they can be again; not each time.
fn tell(failing: &AtomicBool, fault: Option<&Fault>, address: Address) {
    let was_failing = failing.swap(fault.is_some(), Ordering::Relaxed);
    match fault {
        Some(fault) if !was_failing => tracing::warn!(%fault, "{}", address.unanswered()),
        None if was_failing => tracing::info!("callers are told apart again"),
        Some(_) | None => {}
    }
}
