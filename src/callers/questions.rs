//! Questions to the API server about callers: in turns, and one for all who have the same. Whoever was let in lately
//! does not wait behind others, nor whoever is known behind strangers, however many there are.

use super::{
    PATIENCE, REFUSAL, Refused,
    address::{Address, Bounds},
    decisions::{Answer, Decisions, Kept, QuestionKey},
    places::{Place, Places, network},
    tags::Tag,
};
use crate::model::{Fault, Reason};
use futures::future::{BoxFuture, FutureExt as _, Shared};
use parking_lot::Mutex;
use std::{
    hash::Hash,
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
pub(super) type Question<T> = Shared<BoxFuture<'static, Result<Answer<T>, Unanswered>>>;

/// For whom something is asked. Each kind has turns of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// For a user that was let in lately.
    LetIn(Tag),
    /// For a watch of such a user, in the same turns.
    Watching(Tag),
    /// For one that the API server knows.
    Known(Tag),
    /// For whoever calls from there, with a token that nobody has been asked about.
    Stranger(IpAddr),
}

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
    let_in: Turns<Tag>,
    known: Turns<Tag>,
    strangers: Turns<IpAddr>,
    queue: Duration,
    /// Whether the last question had no answer.
    failing: Arc<AtomicBool>,
}

/// Of callers of one kind.
struct Turns<K> {
    questions: Places<K>,
    /// For questions that have no answer yet, whoever has left, and for those who wait with them.
    waiting: Places<K>,
}

/// A question's turn, to be waited for.
type Turn = BoxFuture<'static, Option<Place>>;

impl<K: Copy + Eq + Hash + Send + Sync + 'static> Turns<K> {
    fn new(bounds: &Bounds, (waiting, waiting_of_one): (usize, usize)) -> Self {
        Self {
            questions: Places::new(bounds.questions, bounds.questions_of_one),
            waiting: Places::new(waiting, waiting_of_one),
        }
    }
}

/// Waits for one of `places` for at most `queue`.
fn turn<K: Copy + Eq + Hash + Send + Sync + 'static>(
    places: &Places<K>,
    one: K,
    queue: Duration,
) -> Turn {
    let places = places.clone();
    Box::pin(async move { places.wait(one, queue).await })
}

impl Questions {
    pub(super) fn new(runtime: Handle, address: Address) -> Self {
        let bounds = address.bounds();
        Self {
            runtime,
            address,
            let_in: Turns::new(&bounds, (bounds.waiting_let_in, bounds.share)),
            known: Turns::new(&bounds, (bounds.waiting, bounds.waiting_of_one)),
            strangers: Turns::new(&bounds, (bounds.waiting, bounds.waiting_of_one)),
            queue: bounds.queue,
            failing: Arc::default(),
        }
    }

    /// A turn for a question of `asker`, and room to wait for the answer; `None` if too many wait.
    fn turn(&self, asker: Asker) -> Option<(Turn, Option<Place>)> {
        Some(match asker {
            Asker::LetIn(user) => {
                let waits = self.let_in.waiting.take(user)?;
                (turn(&self.let_in.questions, user, self.queue), Some(waits))
            }
            // Each has one question at a time, and a place among the watches.
            Asker::Watching(user) => (turn(&self.let_in.questions, user, self.queue), None),
            Asker::Known(user) => {
                let waits = self.known.waiting.take(user)?;
                (turn(&self.known.questions, user, self.queue), Some(waits))
            }
            Asker::Stranger(peer) => {
                let peer = network(peer);
                let waits = self.strangers.waiting.take(peer)?;
                (turn(&self.strangers.questions, peer, self.queue), Some(waits))
            }
        })
    }

    /// What is remembered of the question `key`, else what `ask` brings; `for_whom` is called before that.
    ///
    /// # Errors
    ///
    /// [`Refused::Busy`]: at once where too many wait. [`Refused::Undecided`].
    pub(super) async fn answer<T: Kept>(
        &self,
        asked: &Asked<T>,
        key: QuestionKey,
        for_whom: impl FnOnce() -> Asker,
        ask: impl FnOnce() -> BoxFuture<'static, Result<T, Fault>>,
    ) -> Result<Answer<T>, Refused> {
        let (question, _waits) = {
            let mut decisions = asked.lock();
            let tag = key.tag;
            if let Some(known) = decisions.get(&tag, Instant::now()) {
                return Ok(known);
            }
            let (turn, waits) = self.turn(for_whom()).ok_or(Refused::Busy)?;
            if let Some(question) = decisions.question(&tag) {
                (question, waits)
            } else {
                let posed = self.pose(asked, key, (turn, waits), ask());
                decisions.pose(tag, posed.clone());
                (posed, None)
            }
        };
        question.await.map_err(|unanswered| match unanswered {
            Unanswered::Busy => Refused::Busy,
            Unanswered::Fault(fault) => Refused::Undecided(fault),
        })
    }

    /// Has `asking` sent in its turn, and heard to its end, whoever leaves: others may have joined. So long it waits
    /// in its place.
    fn pose<T: Kept>(
        &self,
        asked: &Asked<T>,
        key: QuestionKey,
        (turn, waits): (Turn, Option<Place>),
        asking: BoxFuture<'static, Result<T, Fault>>,
    ) -> Question<T> {
        let posed = Posed { asked: Arc::clone(asked), tag: key.tag };
        let (address, failing) = (self.address, Arc::clone(&self.failing));
        let hearing = async move {
            let _waits = waits;
            let Some(_place) = turn.await else {
                return Err(Unanswered::Busy);
            };
            // From here on, not from the answer: what it says may have changed meanwhile.
            let asked = Instant::now();
            let answer = timeout(PATIENCE, asking).await.unwrap_or_else(|_| {
                Err(Fault::new(Reason::TimedOut, format!("no decision within {PATIENCE:?}")))
            });
            tell(&failing, answer.as_ref().err(), address);
            let answer = answer.map(|decision| Answer { decision, asked });
            if let Ok(answer) = &answer {
                posed.asked.lock().put(key, answer.clone());
            }
            if !answer.as_ref().is_ok_and(|answer| answer.decision.lets_in()) {
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
}

impl<T: Kept> Drop for Posed<T> {
    fn drop(&mut self) {
        self.asked.lock().end(&self.tag);
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
