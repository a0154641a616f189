//! Keeps the forecasts of all profiles that are only planned: made when ordered, and anew after 10
//! minutes, or once more of it may be read.

use super::{Forecast, Surveyor, accepted, is_accepted, survey::Round};
use kubewarm_api::model::{CellKey, Declared, ProfileRef, same_cells};
use kubewarm_client::{KeyedSemaphore, WorkQueue};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, interval},
};
use tokio_util::sync::CancellationToken;

/// How long a forecast holds.
const HOLDS: Duration = Duration::from_mins(10);
/// After the namespaces of a selector were found: until the order names their cells.
const AGAIN: Duration = Duration::from_secs(5);
/// The least between two forecasts of one order, whatever its permissions do.
const REGRANTED: Duration = Duration::from_secs(15);
/// How often orders are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Profiles that are looked at at the same time, and of these those of one namespace.
const AT_ONCE: usize = 4;
const NAMESPACE_AT_ONCE: usize = 1;
/// The rest before each request of the operator's surveyor: with the bounds above at most 20 requests a second, 5 for
/// one namespace.
pub const REST: Duration = Duration::from_millis(200);

/// Planned profiles in, forecasts out. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Forecasts {
    book: Arc<Mutex<Book>>,
    changed: watch::Sender<()>,
}

/// Bounded by the profiles and the selectors that are ordered.
#[derive(Debug)]
struct Book {
    orders: BTreeMap<ProfileRef, Entry>,
    queue: WorkQueue<ProfileRef>,
    names: BTreeMap<CellKey, Vec<Arc<str>>>,
}

#[derive(Debug)]
struct Entry {
    order: Arc<Declared>,
    /// Of this generation of the profile.
    forecast: Option<Arc<Forecast>>,
    /// When it was looked at last.
    looked_at: Option<Instant>,
}

impl Default for Book {
    fn default() -> Self {
        // What cannot be found out is said in the forecast, so that none fails.
        let queue = WorkQueue::new(AGAIN, HOLDS);
        Self { orders: BTreeMap::new(), queue, names: BTreeMap::new() }
    }
}

impl Forecasts {
    /// Takes all profiles that are planned; what was found for others is forgotten.
    pub fn order(&self, planned: impl IntoIterator<Item = Arc<Declared>>) {
        let mut book = self.book.lock();
        let mut known = std::mem::take(&mut book.orders);
        for order in planned {
            let profile = order.profile.clone();
            let is_of_generation = |old: &Entry| {
                old.order.uid == order.uid && old.order.generation == order.generation
            };
            let old = known.remove(&profile).filter(is_of_generation);
            let entry = match old {
                Some(old)
                    if same_cells(&old.order.targets, &order.targets)
                        && same_cells(accepted(&old.order), accepted(&order)) =>
                {
                    old
                }
                old => {
                    book.queue.add_at(profile.clone(), Instant::now());
                    let forecast = old.and_then(|old| old.forecast);
                    Entry { order, forecast, looked_at: None }
                }
            };
            book.orders.insert(profile, entry);
        }
        let Book { orders, queue, names } = &mut *book;
        queue.retain(|profile| orders.contains_key(profile));
        let targets = || orders.values().flat_map(|entry| accepted(&entry.order));
        names.retain(|key, _| {
            targets().filter_map(|target| target.namespaces.as_ref()).any(|spec| spec.key == *key)
        });
    }

    /// What was found for the generation of a profile that was ordered last.
    #[must_use]
    pub fn get(&self, profile: &ProfileRef) -> Option<Arc<Forecast>> {
        self.book.lock().orders.get(profile)?.forecast.clone()
    }

    /// The namespaces that a selector finds; `None` before they have been listed.
    #[must_use]
    pub fn names(&self, selector: &CellKey) -> Option<Vec<Arc<str>>> {
        self.book.lock().names.get(selector).cloned()
    }

    /// Marked as changed when names or forecasts are new.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The orders that are due and that `admit` lets in, which are under way from now on: also those of
    /// which a cell was refused that `may_read` now.
    fn due<P>(
        &self,
        may_read: &impl Fn(&CellKey) -> bool,
        admit: impl Fn(&ProfileRef) -> Option<P>,
        now: Instant,
    ) -> Vec<(Arc<Declared>, P)> {
        let mut book = self.book.lock();
        let Book { orders, queue, .. } = &mut *book;
        for (profile, entry) in &*orders {
            let is_rested = entry.looked_at.is_some_and(|at| at + REGRANTED <= now);
            if is_rested && entry.forecast.iter().flat_map(|f| &f.refused).any(may_read) {
                queue.add_at(profile.clone(), now);
            }
        }
        let taken = queue.take(now, admit);
        let order = |(profile, permit)| Some((Arc::clone(&orders.get(&profile)?.order), permit));
        taken.into_iter().filter_map(order).collect()
    }

    fn done(&self, order: &Arc<Declared>, forecast: Option<Forecast>, now: Instant) {
        let mut book = self.book.lock();
        let Book { orders, queue, .. } = &mut *book;
        queue.done(&order.profile);
        // Another order that came meanwhile is due already.
        if let Some(entry) = orders.get_mut(&order.profile)
            && Arc::ptr_eq(&entry.order, order)
        {
            let pause = if forecast.is_some() { HOLDS } else { AGAIN };
            queue.add_at(order.profile.clone(), now + pause);
            entry.looked_at = Some(now);
            entry.forecast = forecast.map(Arc::new).or_else(|| entry.forecast.take());
        }
        drop(book);
        self.changed.send_replace(());
    }

    fn found(&self, selector: &CellKey, names: Vec<Arc<str>>) {
        self.book.lock().names.insert(selector.clone(), names);
        self.changed.send_replace(());
    }
}

/// Keeps forecasts until `stop`; asks nothing unless `leads` says that this replica writes statuses. Asks through
/// `surveyor`, and once more where a cell was refused that `may_read` says is allowed by now.
///
/// Cancel safe.
pub async fn run(
    forecasts: Forecasts,
    surveyor: Surveyor,
    leads: impl Fn() -> bool,
    may_read: impl Fn(&CellKey) -> bool,
    stop: CancellationToken,
) {
    let surveyor = Arc::new(surveyor);
    let permits = KeyedSemaphore::new(AT_ONCE, NAMESPACE_AT_ONCE);
    let admit = |profile: &ProfileRef| permits.try_acquire(&profile.namespace);
    let mut under_way = JoinSet::new();
    let mut ticks = interval(LOOK);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = under_way.join_next() => {}
            _ = ticks.tick() => {}
        }
        if !leads() {
            continue;
        }
        for (order, permit) in forecasts.due(&may_read, admit, Instant::now()) {
            let (forecasts, surveyor) = (forecasts.clone(), Arc::clone(&surveyor));
            under_way.spawn(async move {
                let forecast = look(&forecasts, &surveyor, &order).await;
                drop(permit);
                forecasts.done(&order, forecast, Instant::now());
            });
        }
    }
}

/// `None` if the profile declares cells of other namespaces than its selectors match.
async fn look(forecasts: &Forecasts, surveyor: &Surveyor, profile: &Declared) -> Option<Forecast> {
    let mut is_current = true;
    let mut round = Round::of(profile);
    let mut listed: BTreeMap<&CellKey, Vec<Arc<str>>> = BTreeMap::new();
    for target in &profile.targets {
        let Some(selector) = &target.namespaces else { continue };
        if !listed.contains_key(&selector.key) {
            // What went wrong is met again by the survey, which says so.
            let Ok(names) = surveyor.names(&selector.key, &mut round).await else { continue };
            forecasts.found(&selector.key, names.clone());
            listed.insert(&selector.key, names);
        }
        let names = listed.get(&selector.key).into_iter().flatten();
        let matched: BTreeSet<_> = names.map(|name| &**name).collect();
        let declared: BTreeSet<_> =
            target.cells.iter().filter_map(|cell| cell.key.extent.namespace()).collect();
        // A target that is refused declares no cells, however many namespaces match.
        is_current &= declared == matched || !is_accepted(target);
    }
    if is_current { Some(surveyor.survey_in(profile, round).await) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::samples::{declared, spec, target};
    use http::{Request, Response};
    use kube::client::Body;
    use kubewarm_api::model::{
        DeclaredTarget, FieldRequirement, FieldSelector, Identity, Refusal, RefusalReason,
    };
    use kubewarm_client::{Buckets, Clients};
    use std::{convert::Infallible, future::ready};
    use tokio::time::timeout;
    use tower::service_fn;

    fn order(generation: i64) -> Arc<Declared> {
        Arc::new(Declared { generation, ..declared("a", "p", Vec::new()) })
    }

    fn nothing(_: &CellKey) -> bool {
        false
    }

    fn due(
        forecasts: &Forecasts,
        may_read: impl Fn(&CellKey) -> bool,
        now: Instant,
    ) -> Vec<Arc<Declared>> {
        let taken = forecasts.due(&may_read, |_| Some(()), now);
        taken.into_iter().map(|(order, ())| order).collect()
    }

    fn get(forecasts: &Forecasts) -> Option<Arc<Forecast>> {
        forecasts.get(&order(1).profile)
    }

    #[test]
    fn an_order_is_looked_at_once_in_ten_minutes_and_at_once_when_it_changes() {
        let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
        forecasts.order([order(1)]);
        let taken = due(&forecasts, nothing, now);
        assert_eq!(taken.len(), 1);
        forecasts.order([order(1)]);
        assert!(due(&forecasts, nothing, now).is_empty(), "it is under way");
        forecasts.done(&taken[0], Some(Forecast::default()), now);
        assert!(get(&forecasts).is_some());
        assert!(due(&forecasts, nothing, now + HOLDS / 2).is_empty());
        assert_eq!(due(&forecasts, nothing, now + HOLDS).len(), 1);
        forecasts.order([order(2)]);
        assert!(due(&forecasts, nothing, now).is_empty(), "its former is under way");
        forecasts.done(&taken[0], Some(Forecast::default()), now);
        assert_eq!(due(&forecasts, nothing, now).len(), 1);
        assert!(get(&forecasts).is_none(), "what was found for another generation");
    }

    /// An API server that holds nothing, and notes when it is asked and about which namespace.
    #[derive(Default)]
    struct Noting(Arc<Mutex<Vec<(Instant, String)>>>);

    impl Clients for Noting {
        fn client_for(&self, _: &Identity) -> Arc<kube::Client> {
            let noted = Arc::clone(&self.0);
            let service = service_fn(move |request: Request<Body>| {
                let path = request.uri().path();
                let namespace = path.split('/').nth(4).unwrap_or_default().to_owned();
                noted.lock().push((Instant::now(), namespace));
                let body = match path {
                    "/version" => r#"{"major":"1","minor":"36"}"#,
                    _ => r#"{"kind":"List","metadata":{"resourceVersion":"7"},"items":[]}"#,
                };
                ready(Ok::<_, Infallible>(Response::new(Body::from(body.as_bytes().to_vec()))))
            });
            Arc::new(kube::Client::new(service, "default"))
        }
    }

    /// The most of these that came within a second.
    fn in_a_second(times: &[Instant]) -> usize {
        let second = Duration::from_secs(1);
        let within = |at: &Instant| {
            times.iter().filter(|other| (*at..*at + second).contains(*other)).count()
        };
        times.iter().map(within).max().unwrap_or(0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_asked_for_five_times_a_second_and_all_of_them_twenty_times() {
        let server = Noting::default();
        let noted = Arc::clone(&server.0);
        let forecasts = Forecasts::default();
        let orders = (0..18).map(|n| {
            let (namespace, name) = (format!("n{}", n % 6), format!("p{n}"));
            let cells = (0..12).map(|cell| {
                let mut spec = spec("pods", &namespace);
                let value = format!("x{n}-{cell}");
                let field = FieldRequirement::new("spec.nodeName", true, &value).unwrap();
                spec.key.fields = FieldSelector::new([field]);
                spec
            });
            Arc::new(declared(&namespace, &name, vec![target("pods", cells.collect())]))
        });
        forecasts.order(orders);
        let surveyor = Surveyor::new(Arc::new(server), REST, Buckets::default());
        let running = run(forecasts, surveyor, || true, nothing, CancellationToken::new());
        let _elapsed = timeout(Duration::from_mins(1), running).await;
        let noted = noted.lock();
        let all: Vec<_> = noted.iter().map(|(at, _)| *at).collect();
        assert!((16..=20).contains(&in_a_second(&all)), "{} of all", in_a_second(&all));
        for n in 0..6 {
            let name = format!("n{n}");
            let own = noted.iter().filter(|(_, of)| *of == name).map(|(at, _)| *at);
            let most = in_a_second(&own.collect::<Vec<_>>());
            assert!((4..=5).contains(&most), "{most} of {name}");
        }
    }

    #[test]
    fn what_comes_too_late_for_an_order_is_dropped() {
        let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
        forecasts.order([order(1)]);
        let old = due(&forecasts, nothing, now);
        forecasts.order([order(2)]);
        forecasts.done(&old[0], Some(Forecast::default()), now);
        assert!(get(&forecasts).is_none());
        forecasts.order([]);
        assert!(due(&forecasts, nothing, now + HOLDS).is_empty());
    }

    #[test]
    fn what_a_forecast_does_not_depend_on_begins_none() {
        let refused = |message: &str| {
            let refusal = Refusal::new(RefusalReason::TooManyCells, message);
            DeclaredTarget { resolved: Some(Err(refusal)), ..target("refused", Vec::new()) }
        };
        let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
        let pods = target("pods", vec![spec("pods", "a")]);
        let targets = vec![pods, refused("the profiles of the namespace have 998 cells")];
        let first = Arc::new(declared("a", "p", targets));
        forecasts.order([Arc::clone(&first)]);
        let taken = due(&forecasts, nothing, now);
        forecasts.done(&taken[0], Some(Forecast::default()), now);
        let mut other = Declared::clone(&first);
        other.targets[1] = refused("the profiles of the namespace have 999 cells");
        other.accepted_at = HOLDS;
        forecasts.order([Arc::new(other)]);
        assert!(due(&forecasts, nothing, now + HOLDS / 2).is_empty(), "its cells are the same");
        let mut other = Declared::clone(&first);
        other.targets[0].cells = [spec("pods", "a"), spec("pods", "b")].into();
        forecasts.order([Arc::new(other)]);
        assert_eq!(due(&forecasts, nothing, now + HOLDS / 2).len(), 1);
    }

    #[test]
    fn the_selector_of_a_refused_target_is_looked_at_as_it_is_now() {
        let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
        let refusal = Refusal::new(RefusalReason::TooManyCells, "2,050 cells");
        let refused = DeclaredTarget { resolved: Some(Err(refusal)), ..target("p", Vec::new()) };
        let first = Arc::new(declared("a", "p", vec![refused]));
        forecasts.order([Arc::clone(&first)]);
        let taken = due(&forecasts, nothing, now);
        forecasts.done(&taken[0], Some(Forecast::default()), now);
        let mut other = Declared::clone(&first);
        other.targets[0].namespaces = Some(spec("namespaces", "a"));
        forecasts.order([Arc::new(other)]);
        let taken = due(&forecasts, nothing, now);
        assert!(taken[0].targets[0].namespaces.is_some());
    }

    #[test]
    fn what_was_refused_and_may_be_read_now_is_looked_at_again_soon() {
        let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
        forecasts.order([order(1)]);
        let taken = due(&forecasts, nothing, now);
        let refused = vec![spec("pods", "a").key];
        forecasts.done(&taken[0], Some(Forecast { refused, ..Forecast::default() }), now);
        let all = |_: &CellKey| true;
        assert!(due(&forecasts, all, now + REGRANTED / 2).is_empty());
        assert!(due(&forecasts, nothing, now + REGRANTED).is_empty());
        assert_eq!(due(&forecasts, all, now + REGRANTED).len(), 1);
    }
}
