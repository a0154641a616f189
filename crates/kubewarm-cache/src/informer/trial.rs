//! One `list` and one `watch` of a cell, as small as they can be: whether the API server allows them.

use super::{list_watch::ListWatch, task::missing_namespace};
use kubewarm_api::model::{CellKey, Fault, NamespaceCheck, Reason, ResourceVersion, Verb};
use kubewarm_client::existence;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The API server gives up by itself after 60 s; nobody waits that long for an answer to this.
const WITHIN: Duration = Duration::from_secs(20);
/// `timeoutSeconds` of the watch, of which nothing is read.
const MOMENT: Duration = Duration::from_secs(1);
/// A version that every cluster has left behind: a watch from it is authorized, and ends at once.
const ANCIENT: u64 = 1;

/// What the API server said to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is authorized.
    Allowed,
    /// The identity is refused ([`Reason::refuses_identity`]), or would be if its namespace existed.
    Refused(Fault),
    /// Nothing that has to do with permissions: no answer, 5xx, a kind that is not served.
    Undecided(Fault),
}

/// What a trial came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// When its first request was sent.
    pub sent: Instant,
    /// Requests sent: two, or three where a namespace had to be asked for.
    pub requests: usize,
    /// To the list.
    pub list: Answer,
    /// To the watch.
    pub watch: Answer,
}

impl Trial {
    /// Lists one object of `key` and opens a watch from the list's version, with the very path and
    /// selectors of the cell; of the object it reads the metadata, of the watch the headers. The watch
    /// is tried, too, where the list is refused.
    ///
    /// # Cost
    ///
    /// Two requests of at most 20 s each, and one for the namespace where it is in question; none for
    /// a key that no request is built for.
    pub async fn of(client: &Arc<kube::Client>, key: &CellKey, check: NamespaceCheck) -> Self {
        let sent = Instant::now();
        let list_watch = match ListWatch::new(client, key) {
            Ok(list_watch) => list_watch,
            Err(fault) => {
                let refused = || Answer::Refused(fault.clone());
                return Self { sent, requests: 0, list: refused(), watch: refused() };
            }
        };
        let peek = list_watch.peek(WITHIN).await;
        let version = peek.as_ref().ok().and_then(|meta| meta.version().ok());
        let list = peek.map_or_else(Answer::of, |_| Answer::Allowed);
        if let Answer::Undecided(fault) = &list {
            let watch = Answer::Undecided(fault.clone());
            return Self { sent, requests: 1, list, watch };
        }
        let version = version.unwrap_or_else(|| ResourceVersion::from(ANCIENT));
        let opened = list_watch.open(WITHIN, |endpoint| endpoint.watch(&version, MOMENT)).await;
        let watch = match opened {
            Ok(_ended_by_dropping) => Answer::Allowed,
            // Authorization comes before anything looks at the version.
            Err(fault) if fault.reason() == Reason::Gone => Answer::Allowed,
            Err(fault) => Answer::of(fault),
        };
        let mut trial = Self { sent, requests: 2, list, watch };
        if let (Some(_), NamespaceCheck::Ask, Some(name)) =
            (trial.refusal(), check, key.extent.namespace())
        {
            trial.requests += 1;
            if let Some(fault) = missing_namespace(&key.extent, existence(client, name).await) {
                trial.refuse_for(&fault);
            }
        }
        trial
    }

    /// The first refusal, if there is one, and what was refused.
    #[must_use]
    pub fn refusal(&self) -> Option<(Verb, &Fault)> {
        fn refused(verb: Verb, answer: &Answer) -> Option<(Verb, &Fault)> {
            match answer {
                Answer::Refused(fault) => Some((verb, fault)),
                Answer::Allowed | Answer::Undecided(_) => None,
            }
        }
        refused(Verb::List, &self.list).or_else(|| refused(Verb::Watch, &self.watch))
    }

    /// Gives every refusal this reason.
    fn refuse_for(&mut self, fault: &Fault) {
        for answer in [&mut self.list, &mut self.watch] {
            if matches!(answer, Answer::Refused(_)) {
                *answer = Answer::Refused(fault.clone());
            }
        }
    }
}

impl Answer {
    /// Why it says nothing, if it does not.
    #[must_use]
    pub fn undecided(&self) -> Option<&Fault> {
        match self {
            Self::Undecided(fault) => Some(fault),
            Self::Allowed | Self::Refused(_) => None,
        }
    }

    fn of(fault: Fault) -> Self {
        if fault.reason().refuses_identity() {
            Self::Refused(fault)
        } else {
            Self::Undecided(fault)
        }
    }
}
