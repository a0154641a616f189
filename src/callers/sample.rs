//! An API server that says of callers what a test wants.

use super::{Address, Callers, Note, Reviews};
use crate::{
    cluster::{Action, Presented, User, Verdict, Who},
    model::Fault,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, time::sleep};

pub(crate) use super::{PATIENCE, REFUSAL};

/// What it says.
pub(crate) enum Said {
    /// The token is of this user, who may.
    Allowed(&'static str),
    /// It is of this user, who may not.
    Denied(&'static str),
    /// It is of nobody.
    Unknown,
    /// Its owner may not act as another.
    NotAnother(&'static str),
    /// Nothing.
    Nothing(Fault),
}

/// How often it was asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    /// Who somebody is.
    pub(crate) who: Arc<AtomicUsize>,
    /// Whether somebody may do something.
    pub(crate) may: Arc<AtomicUsize>,
    /// The most questions at once.
    pub(crate) most: Arc<AtomicUsize>,
}

/// By token and verb.
pub(crate) type Say = fn(&str, &str) -> Said;

/// Answers after `delay`.
pub(super) struct Fake {
    pub(super) say: Arc<Mutex<Say>>,
    pub(super) count: Count,
    pub(super) delay: Duration,
    pub(super) passes_on: bool,
    pub(crate) now: Arc<AtomicUsize>,
}

impl Fake {
    pub(super) fn new(say: Say) -> Self {
        Self {
            say: Arc::new(Mutex::new(say)),
            count: Count::default(),
            delay: Duration::ZERO,
            passes_on: false,
            now: Arc::default(),
        }
    }

    /// An answer to come, counted while it does.
    fn later<T: Send + 'static>(
        &self,
        answer: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Fault>> {
        let (now, most, delay) = (Arc::clone(&self.now), Arc::clone(&self.count.most), self.delay);
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            sleep(delay).await;
            now.fetch_sub(1, Ordering::Relaxed);
            answer()
        })
    }
}

impl Reviews for Fake {
    fn passes_impersonation_on(&self) -> bool {
        self.passes_on
    }

    fn who(&self, presented: Arc<Presented>) -> BoxFuture<'static, Result<Who, Fault>> {
        let (say, asked) = (Arc::clone(&self.say), Arc::clone(&self.count.who));
        self.later(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            let say = *say.lock();
            match say(&presented.token, "") {
                Said::Allowed(name) | Said::Denied(name) => {
                    // As of bound tokens: each makes another identity of the account.
                    let id = "authentication.kubernetes.io/credential-id";
                    let extra = [(id.to_owned(), vec![presented.token.to_string()])].into();
                    let user = User { name: name.to_owned(), extra, ..User::default() };
                    Ok(Who::Known(Arc::new(user)))
                }
                Said::Unknown => Ok(Who::Unknown),
                Said::NotAnother(message) => Ok(Who::Refused { message: message.to_owned() }),
                Said::Nothing(fault) => Err(fault),
            }
        })
    }

    fn may(
        &self,
        presented: Option<Arc<Presented>>,
        user: Arc<User>,
        action: Action,
    ) -> BoxFuture<'static, Result<Verdict, Fault>> {
        let (say, asked) = (Arc::clone(&self.say), Arc::clone(&self.count.may));
        self.later(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            let verb = match &action {
                Action::Path { verb, .. } => verb,
                Action::Resource { verb, .. } => *verb,
            };
            let say = *say.lock();
            // Of whom there is no token, the name tells.
            let token = presented.as_ref().map_or(&user.name, |it| &*it.token);
            match say(token, verb) {
                Said::Allowed(name) => {
                    assert_eq!(user.name, name, "the user of another token");
                    Ok(Verdict::Allowed)
                }
                Said::Denied(_) | Said::Unknown | Said::NotAnother(_) => {
                    Ok(Verdict::Denied { reason: None })
                }
                Said::Nothing(fault) => Err(fault),
            }
        })
    }
}

/// Callers of the admin address about whom `say` decides.
pub(crate) fn callers(say: Say) -> (Callers, Count) {
    let fake = Fake::new(say);
    let count = fake.count.clone();
    (of(fake, Address::Admin), count)
}

/// Callers of the read address about whom it is decided as the returned `say` says by then.
pub(crate) fn changing(say: Say) -> (Callers, Arc<Mutex<Say>>) {
    let fake = Fake::new(say);
    let say = Arc::clone(&fake.say);
    (of(fake, Address::Reads), say)
}

/// Callers of `address` about whom nobody ever says anything.
pub(crate) fn silent(address: Address) -> Callers {
    let delay = Duration::from_hours(1);
    of(Fake { delay, ..Fake::new(|_, _| Said::Unknown) }, address)
}

pub(super) fn of(fake: Fake, address: Address) -> Callers {
    noted(fake, address, Box::new(|_, _, _| ()))
}

pub(super) fn noted(fake: Fake, address: Address, note: Note) -> Callers {
    Callers::new(Arc::new(fake), address, Handle::current(), note).unwrap()
}
