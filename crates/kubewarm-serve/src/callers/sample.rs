//! An API server that says of callers what a test wants.

use super::{
    CallerLimits, Callers, Note, ReaderLimits, Reviews, UserPermits, key::HashKey, limits::quarter,
};
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReviewSpec, SubjectAccessReviewSpec,
};
use kubewarm_api::model::Fault;
use kubewarm_client::KeyedSemaphore;
use kubewarm_client::{Presented, User, Verdict, Who};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, time::sleep};

/// As the API server puts it.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

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
                    let extra = [(CREDENTIAL.to_owned(), vec![presented.token.to_string()])].into();
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
        _: Option<Arc<Presented>>,
        spec: SubjectAccessReviewSpec,
    ) -> BoxFuture<'static, Result<Verdict, Fault>> {
        let (say, asked) = (Arc::clone(&self.say), Arc::clone(&self.count.may));
        self.later(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            let of_resource = spec.resource_attributes.and_then(|it| it.verb);
            let verb = of_resource.or_else(|| spec.non_resource_attributes?.verb);
            let user = spec.user.unwrap_or_default();
            // Whose token it was stands in the identity; of a certificate, the name tells.
            let shown = spec.extra.and_then(|extra| extra.get(CREDENTIAL)?.first().cloned());
            let say = *say.lock();
            let (token, verb) = (shown.as_ref().unwrap_or(&user), verb.unwrap_or_default());
            match say(token, &verb) {
                Said::Allowed(name) => {
                    assert_eq!(user, name, "the user of another token");
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

/// Callers of the read address about whom it is decided as the returned `say` says by then.
pub(crate) fn changing(say: Say) -> (Callers, Arc<Mutex<Say>>) {
    let fake = Fake::new(say);
    let say = Arc::clone(&fake.say);
    (of(fake, &CallerLimits::reads(ReaderLimits::default())), say)
}

pub(super) fn of(fake: Fake, limits: &CallerLimits) -> Callers {
    noted(fake, limits, Box::new(|_, _, _| ()))
}

pub(super) fn noted(fake: Fake, limits: &CallerLimits, note: Note) -> Callers {
    Callers::new(Arc::new(fake), limits, Handle::current(), note).unwrap()
}

/// What each of some users has of so many in all.
pub(crate) fn user_permits<const N: usize>(all: usize, names: [&str; N]) -> [UserPermits; N] {
    let (permits, key) = (KeyedSemaphore::new(all, quarter(all)), HashKey::generate().unwrap());
    names.map(|name| {
        let user = User { name: name.to_owned(), ..User::default() };
        UserPermits { permits: permits.clone(), user: key.of_name(&user).unwrap() }
    })
}

/// A request for pods of a namespace.
pub(crate) fn pods(verb: &str, name: Option<&str>) -> SelfSubjectAccessReviewSpec {
    let pods = ResourceAttributes {
        verb: Some(verb.to_owned()),
        version: Some("v1".to_owned()),
        resource: Some("pods".to_owned()),
        namespace: Some("shop".to_owned()),
        name: name.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    SelfSubjectAccessReviewSpec { resource_attributes: Some(pods), non_resource_attributes: None }
}
