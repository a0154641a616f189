//! Compares followers that read only the changes of their key with followers that read every
//! change, on random histories.

use super::*;
use crate::store::{
    StoreCatalog,
    fixtures::{field_query, informer_key},
    random_history_tests::{HistoryStep, StoreHistory, node_path, steps},
};
use futures::FutureExt as _;
use kubewarm_api::model::{LabelRequirement, LabelSelector, LabelSelectorOperator};
use proptest::prelude::*;
use std::{collections::VecDeque, mem};

/// Two followers of one query that started together. The test reads `scanning` after each step, and
/// `keyed` rarely.
struct FollowerPair {
    number: usize,
    query: ObjectQuery,
    keyed: EventLogFollower,
    scanning: EventLogFollower,
    /// The number and the version of each change that only `scanning` has read, and that the query
    /// selects before or after the change.
    unread: VecDeque<(u64, ResourceVersion)>,
    /// Whether `keyed` reads exactly the changes of its key: the key is the whole query, and the
    /// client knows no later version.
    is_exact: bool,
    is_lost: bool,
    version: Option<ResourceVersion>,
}

impl FollowerPair {
    /// Starts a pair of the query `number` after the resource version `version`, or from now on if
    /// the event log lacks changes after this version.
    fn start(reader: &StoreReader, number: usize, version: u64) -> Self {
        let query = queries().swap_remove(number);
        let follow = || reader.follow(&version.into()).unwrap_or_else(|_| reader.follow_from_now());
        let keyed = follow().narrow_to(&query);
        let is_indexed = reader.store.contents.read().paths.all().contains(&node_path());
        let mut pair = Self {
            number,
            is_exact: number < EXACT
                && (is_indexed || !NEEDS_INDEX.contains(&number))
                && keyed.after.is_none(),
            keyed,
            scanning: follow(),
            query,
            unread: VecDeque::new(),
            is_lost: false,
            version: None,
        };
        pair.scan();
        pair
    }

    fn selects(&self, change: &StoreChange) -> bool {
        let is_selected = |bytes: Bytes| {
            self.query.selects(ObjectBody::json(&bytes), &mut BodyFieldCache::default())
        };
        let query = &self.query;
        query.namespace.as_deref().is_none_or(|namespace| namespace == change.namespace())
            && query.name.as_deref().is_none_or(|name| name.as_bytes() == change.name())
            && (self.scanning.bytes_before(change).is_some_and(is_selected)
                || self.scanning.bytes_after(change).is_some_and(is_selected))
    }

    /// Reads `scanning` to its end. Returns whether `keyed` must wake.
    fn scan(&mut self) -> bool {
        let before = self.unread.len();
        loop {
            match self.scanning.next_event() {
                FollowerEvent::Change(change) if self.selects(&change) => {
                    let number = self.scanning.lag.next.load(Ordering::Relaxed) - 1;
                    self.unread.push_back((number, change.version().clone()));
                }
                FollowerEvent::Change(_) => {}
                FollowerEvent::None(version) => {
                    self.version = version;
                    return self.unread.len() > before;
                }
                FollowerEvent::Lost => return !mem::replace(&mut self.is_lost, true),
                other @ (FollowerEvent::Overtaken | FollowerEvent::Closed) => panic!("{other:?}"),
            }
        }
    }

    /// `keyed` must return the changes that [`Self::scan`] has found. This function reads `keyed`
    /// until the event log has no more changes for it. The event log begins with the change number
    /// `first`. Returns whether the pair has ended.
    fn compare(&mut self, first: u64) -> Result<bool, TestCaseError> {
        let lag = self.keyed.lag();
        let is_registered = |key: DispatchKey| lag.next.load(Ordering::Relaxed) >= key.since;
        let is_exact = self.is_exact && lag.key.is_some_and(is_registered);
        let has_missed = self.unread.front().is_some_and(|(number, _)| *number < first);
        if is_exact && !self.is_lost && !has_missed {
            prop_assert_eq!(lag.changes(), self.unread.len() as u64);
        }
        loop {
            match self.keyed.next_event() {
                FollowerEvent::Change(change) => {
                    if self.unread.front().is_some_and(|(_, next)| next == change.version()) {
                        self.unread.pop_front();
                    } else {
                        prop_assert!(!is_exact && !self.selects(&change), "{:?}", change);
                    }
                }
                FollowerEvent::None(version) => {
                    prop_assert!(!self.is_lost);
                    prop_assert_eq!(&self.unread, &VecDeque::new());
                    prop_assert_eq!((&version, lag.changes()), (&self.version, 0));
                    return Ok(false);
                }
                FollowerEvent::Lost => {
                    prop_assert!(self.is_lost);
                    return Ok(true);
                }
                FollowerEvent::Overtaken => {
                    prop_assert!(has_missed || !is_exact, "the log dropped no selected change");
                    return Ok(true);
                }
                FollowerEvent::Closed => panic!("the store is open"),
            }
        }
    }
}

/// The first seven queries consist of one key each.
const EXACT: usize = 7;
/// The numbers of the queries whose key is a field, if the store indexes it.
const NEEDS_INDEX: [usize; 2] = [3, 4];

fn queries() -> Vec<ObjectQuery> {
    let all = ObjectQuery::default;
    let within =
        |namespace: &str, query| ObjectQuery { namespace: Some(namespace.into()), ..query };
    let named = |name: &str| ObjectQuery { name: Some(name.into()), ..all() };
    let node = |value| field_query(&node_path(), value);
    let labels = |requirements: &[(&str, LabelSelectorOperator, &[&str])]| {
        let requirements = requirements.iter().map(|(key, operator, values)| {
            LabelRequirement::new(key, *operator, values.iter().copied()).unwrap()
        });
        ObjectQuery { labels: LabelSelector::new(requirements), ..all() }
    };
    let web = ("k0", LabelSelectorOperator::In, &["v1"][..]);
    vec![
        named("x05"),
        within("n1", named("x03")),
        within("n3", all()),
        node("node-2"),
        within("n0", node("node-1")),
        labels(&[web]),
        within("n2", labels(&[web])),
        within("n1", labels(&[web, ("k1", LabelSelectorOperator::NotIn, &["v2"])])),
        labels(&[("k0", LabelSelectorOperator::In, &["v0", "v1"])]),
        all(),
    ]
}

/// Makes a step of a watch from any step: most changes have rising versions, and lists, purges and
/// changes without a version are rare, because with them the event log drops all its changes.
fn in_order(step: HistoryStep, at: usize) -> HistoryStep {
    let is_rare = at.is_multiple_of(4);
    let rising = |version| if version == 0 && is_rare { 0 } else { 100 + at as u64 };
    match step {
        HistoryStep::Upsert { key: (namespace, name), uid, version, labels, node } => {
            let (key, version) = ((namespace, name % 6), rising(version));
            HistoryStep::Upsert { key, uid, version, labels, node }
        }
        HistoryStep::Remove { key: (namespace, name), version } => {
            HistoryStep::Remove { key: (namespace, name % 6), version: rising(version) }
        }
        HistoryStep::ListStarted(_) | HistoryStep::ListDone | HistoryStep::Purge if !is_rare => {
            HistoryStep::Arrived(0)
        }
        other @ (HistoryStep::ListStarted(_)
        | HistoryStep::ListDone
        | HistoryStep::Purge
        | HistoryStep::Declare(_)
        | HistoryStep::Arrived(_)) => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn followers_with_a_key_read_what_followers_of_every_change_read(
        steps in steps(),
        // The event log of Secrets keeps no old changes, so with 20 s for each millisecond of a
        // step it drops changes all the time.
        milliseconds in prop_oneof![Just(1), Just(20_000)],
        seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (catalog, secrets) = (StoreCatalog::new(), informer_key("secrets"));
        let mut history = StoreHistory::start(&catalog, secrets.clone(), milliseconds);
        history.perform(&catalog, &HistoryStep::ListStarted(false));
        history.perform(&catalog, &HistoryStep::ListDone);
        let reader = catalog.reader(&secrets).unwrap();
        let mut pairs: Vec<_> =
            (0..queries().len()).map(|number| FollowerPair::start(&reader, number, 30)).collect();
        for (at, step) in steps.into_iter().enumerate() {
            let notifiers: Vec<_> = pairs.iter().map(|pair| pair.keyed.change_notifier()).collect();
            let wait = |notifier: &Arc<Notify>| {
                let mut wait = Box::pin(Arc::clone(notifier).notified_owned());
                wait.as_mut().enable();
                wait
            };
            let waits: Vec<_> = notifiers.iter().map(wait).collect();
            history.perform(&catalog, &in_order(step, at));
            for (pair, wait) in pairs.iter_mut().zip(waits) {
                let (must_wake, is_woken) = (pair.scan(), wait.now_or_never().is_some());
                prop_assert!(is_woken || !must_wake, "query {} sleeps", pair.number);
                prop_assert!(must_wake || !is_woken || !pair.is_exact || pair.is_lost);
            }
            let first = reader.store.contents.read().log.first();
            for pair in &mut pairs {
                if random.u8(..8) == 0 && pair.compare(first)? {
                    let version = (at + 105).saturating_sub(random.usize(..40)) as u64;
                    *pair = FollowerPair::start(&reader, pair.number, version);
                }
            }
        }
    }
}
