//! Leaders, followers, restarts and profiles that come and go.

use super::fixtures::{World, declared, pods, said, target};
use crate::{
    api::CacheProfileStatus,
    informer::Verb,
    model::{CellKey, Declared, ProfileRef, Reason},
    status::{
        Cause, CellView, Notice, Observed, Outcome, Profiles, Reporter, Role, StatusSink, Write,
        run,
    },
};
use futures::FutureExt as _;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;

fn observed(declared: Declared, in_cluster: Option<&CacheProfileStatus>) -> Observed {
    Observed {
        excess: None,
        declared: Arc::new(declared),
        access: None,
        plan: None,
        in_cluster: in_cluster.cloned().map(Arc::new),
    }
}

fn named(name: &str, uid: &str) -> Declared {
    Declared {
        profile: ProfileRef { namespace: "shop".into(), name: name.into() },
        uid: uid.into(),
        ..declared(vec![target("pods", &[pods("a")])])
    }
}

/// What a look came to.
struct Round {
    writes: Vec<Write>,
    notices: Vec<Notice>,
}

fn look(reporter: &mut Reporter, world: &World, profiles: &[Observed], role: Role) -> Round {
    let cells = |key: &CellKey| world.cells.get(key).cloned();
    let notices = reporter.round(profiles, &cells, role, world.clock);
    let writes = reporter.due(world.clock.mono);
    for write in &writes {
        reporter.done(write, Outcome::Written, world.clock.mono);
    }
    Round { writes, notices }
}

fn warm() -> World {
    let mut world = World::new();
    world.runs(pods("a"), world.watching());
    world
}

#[test]
fn a_follower_computes_and_sends_nothing() {
    let world = warm();
    let mut reporter = Reporter::default();
    let round = look(&mut reporter, &world, &[observed(named("p", "u"), None)], Role::Follower);
    assert_eq!((round.writes, round.notices), (vec![], vec![]));
    let profile = ProfileRef { namespace: "shop".into(), name: "p".into() };
    let status = reporter.status(&profile).unwrap();
    assert_eq!(said(&status.conditions, "Ready"), "True/Ready");
}

#[test]
fn a_new_leader_writes_what_differs_and_keeps_the_clusters_times() {
    let mut world = warm();
    let mut old = Reporter::default();
    let written = look(&mut old, &world, &[observed(named("p", "u"), None)], Role::Leader).writes;
    let in_cluster = (*written[0].status).clone();

    let mut new = Reporter::default();
    world.pass(Duration::from_secs(30));
    world.runs(pods("a"), world.watching());
    let profiles = [observed(named("p", "u"), Some(&in_cluster))];
    assert!(look(&mut new, &world, &profiles, Role::Follower).writes.is_empty());
    let round = look(&mut new, &world, &profiles, Role::Leader);
    for write in &round.writes {
        assert_eq!(write.status.conditions, in_cluster.conditions, "nothing has changed since");
    }
    assert_eq!(round.notices, [], "it was told that it is Ready");
    world.runs(pods("a"), world.failing(world.watching(), Reason::Forbidden, Verb::Watch));
    world.pass(Duration::from_secs(1));
    let round = look(&mut new, &world, &profiles, Role::Leader);
    assert_eq!(said(&round.writes[0].status.conditions, "Ready"), "False/PermissionsMissing");
    let causes: Vec<_> = round.notices.iter().map(|notice| notice.cause).collect();
    assert_eq!(causes, [Cause::NotReady, Cause::PermissionsMissing]);
}

#[test]
fn a_restart_measures_its_own_time_to_warm() {
    let world = warm();
    let status = world.compute(&named("p", "u"), None);
    let foreign = CacheProfileStatus { time_to_warm_milliseconds: Some(99_000), ..status };
    let mut reporter = Reporter::default();
    let profiles = [observed(named("p", "u"), Some(&foreign))];
    let round = look(&mut reporter, &world, &profiles, Role::Leader);
    assert_eq!(round.writes[0].status.time_to_warm_milliseconds, Some(2_000));
}

#[test]
fn a_profile_that_is_created_again_begins_anew() {
    let world = warm();
    let mut reporter = Reporter::default();
    assert_eq!(
        look(&mut reporter, &world, &[observed(named("p", "u1"), None)], Role::Leader).writes.len(),
        1
    );
    let round = look(&mut reporter, &world, &[observed(named("p", "u2"), None)], Role::Leader);
    assert_eq!(&*round.writes[0].uid, "u2");
}

#[test]
fn leadership_that_was_lost_and_won_again_compares_with_the_cluster() {
    let mut world = warm();
    let mut reporter = Reporter::default();
    let profiles = [observed(named("p", "u"), None)];
    assert_eq!(look(&mut reporter, &world, &profiles, Role::Leader).writes.len(), 1);
    world.pass(Duration::from_secs(20));
    assert_eq!(look(&mut reporter, &world, &profiles, Role::Leader).writes.len(), 0);
    assert_eq!(look(&mut reporter, &world, &profiles, Role::Follower).writes.len(), 0);
    // The other leader wrote nothing: the cluster still has no status.
    assert_eq!(look(&mut reporter, &world, &profiles, Role::Leader).writes.len(), 1);
}

#[test]
fn profiles_are_written_once_and_then_let_be() {
    let mut world = warm();
    let mut reporter = Reporter::default();
    let profiles: Vec<_> =
        (0..100).map(|number| observed(named(&format!("p{number}"), "u"), None)).collect();
    let mut writes = 0;
    for second in 0..30 {
        writes += look(&mut reporter, &world, &profiles, Role::Leader).writes.len();
        if second == 15 {
            assert_eq!(writes, 100);
        }
        world.pass(Duration::from_secs(1));
        world.runs(pods("a"), world.watching());
    }
    assert_eq!(writes, 100);
    assert_eq!(look(&mut reporter, &world, &[], Role::Leader).writes.len(), 0);
    assert!(reporter.status(&profiles[0].declared.profile).is_none(), "forgotten");
}

/// Profiles whose only cell is warm.
struct Warm {
    world: World,
    profiles: usize,
    /// What a look at them takes.
    cost: Duration,
}

fn one_profile() -> Warm {
    Warm { world: warm(), profiles: 1, cost: Duration::ZERO }
}

impl Profiles for Warm {
    fn observed(&self) -> Vec<Observed> {
        // The clock goes on when it is first polled.
        let _rest = advance(self.cost).now_or_never();
        (0..self.profiles).map(|number| observed(named(&format!("p{number}"), "u"), None)).collect()
    }
    fn cell(&self, key: &CellKey) -> Option<CellView> {
        self.world.cells.get(key).cloned()
    }
    fn computed(&self, statuses: Vec<(ProfileRef, Arc<CacheProfileStatus>)>) {
        assert_eq!(statuses.len(), self.profiles, "one for each that was observed");
    }
}

/// Counts; the first write is never answered.
#[derive(Default)]
struct Hanging {
    begun: Mutex<Vec<Instant>>,
    told: Mutex<Vec<Cause>>,
}

impl StatusSink for Hanging {
    async fn publish(&self, _: &Write) -> Outcome {
        let first = {
            let mut begun = self.begun.lock();
            begun.push(Instant::now());
            begun.len() == 1
        };
        if first {
            sleep(Duration::from_hours(1)).await;
        }
        Outcome::Written
    }
    async fn tell(&self, notice: &Notice, _: jiff::Timestamp) {
        self.told.lock().push(notice.cause);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_given_up_and_repeated_and_only_a_leader_writes() {
    let start = Instant::now();
    let (sink, leads) = (Arc::new(Hanging::default()), Arc::new(AtomicBool::new(false)));
    let stop = CancellationToken::new();
    let is_leader = {
        let leads = Arc::clone(&leads);
        move || leads.load(Ordering::Relaxed)
    };
    let world = one_profile();
    let task = tokio::spawn(run(world, Arc::clone(&sink), is_leader, start, stop.clone()));
    sleep(Duration::from_secs(5)).await;
    assert!(sink.begun.lock().is_empty());
    leads.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(30)).await;
    let seconds: Vec<_> =
        sink.begun.lock().iter().map(|at| at.duration_since(start).as_secs()).collect();
    assert_eq!(seconds.len(), 2, "{seconds:?}");
    assert!(seconds[1] - seconds[0] >= 10, "{seconds:?}");
    assert_eq!(*sink.told.lock(), [Cause::Ready]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_was_stopped_between_a_look_and_its_writes_sends_nothing_of_it() {
    let (sink, asked) = (Arc::new(Hanging::default()), AtomicUsize::new(0));
    // The lease runs out after the first look.
    let is_leader = move || asked.fetch_add(1, Ordering::Relaxed) == 0;
    let (world, stop) = (one_profile(), CancellationToken::new());
    let task = tokio::spawn(run(world, Arc::clone(&sink), is_leader, Instant::now(), stop.clone()));
    sleep(Duration::from_secs(30)).await;
    assert!(sink.begun.lock().is_empty());
    assert!(sink.told.lock().is_empty());
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn looks_that_take_long_keep_no_writes_waiting() {
    let (sink, stop) = (Arc::new(Hanging::default()), CancellationToken::new());
    let world = Warm { profiles: 41, cost: Duration::from_millis(200), ..one_profile() };
    let start = Instant::now();
    let task = tokio::spawn(run(world, Arc::clone(&sink), || true, start, stop.clone()));
    // The next look is after ten seconds.
    sleep(Duration::from_secs(5)).await;
    let begun: Vec<_> = sink.begun.lock().iter().map(|at| at.duration_since(start)).collect();
    assert_eq!(begun.len(), 41, "{begun:?}");
    for (first, eleventh) in begun.iter().zip(&begun[10..]) {
        assert!(*eleventh >= *first + Duration::from_secs(1), "{begun:?}");
    }
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_lease_cut_off_is_written_as_soon_as_it_is_back() {
    let (sink, leads) = (Arc::new(Hanging::default()), Arc::new(AtomicBool::new(true)));
    let is_leader = {
        let leads = Arc::clone(&leads);
        move || leads.load(Ordering::Relaxed)
    };
    let stop = CancellationToken::new();
    // The next look for itself would be after 51 s.
    let world = Warm { cost: Duration::from_secs(1), ..one_profile() };
    let start = Instant::now();
    let task = tokio::spawn(run(world, Arc::clone(&sink), is_leader, start, stop.clone()));
    sleep(Duration::from_secs(2)).await;
    leads.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(sink.begun.lock().len(), 1);
    leads.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(sink.begun.lock().len(), 2);
    stop.cancel();
    task.await.unwrap();
}
