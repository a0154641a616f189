//! What callers may do while the API server does not answer.

use super::*;
use crate::callers::{
    fixtures::changing_counted,
    rbac::fixtures::{RuledCallers, by_rules},
};
use kubewarm_client::ServerReachability;
use parking_lot::Mutex as Script;

const GRACE: Duration = Duration::from_mins(20);

fn unreachable(_: &str, _: &str) -> ReviewAnswer {
    ReviewAnswer::Nothing(RequestFault::new(FaultReason::Unreachable, "refused"))
}

/// A `CallerGate` with a grace period, and an API server that goes away and returns.
struct Outage {
    callers: CallerGate,
    reachability: ServerReachability,
    say: Arc<Script<FakeReviewFn>>,
    count: FakeReviewCounts,
}

impl Outage {
    fn new(grace: Duration) -> Self {
        let (callers, say, count) = changing_counted(said);
        let reachability = ServerReachability::default();
        let callers = callers.with_reachability(reachability.clone()).with_outage_grace(grace);
        reachability.record_answer(Instant::now());
        Self { callers, reachability, say, count }
    }

    /// From now on, the API server answers nobody.
    fn begin(&self) {
        self.reachability.record_answer(Instant::now());
        *self.say.lock() = unreachable;
    }

    async fn read(&self, token: &str, verb: &str) -> Result<(), CallerRejection> {
        let access = action(verb, Some("web"));
        let token = credentials(token, &[]);
        self.callers.admit(&token, &access, PEER, RequestKind::Read).await.map(drop)
    }
}

fn is_undecided(result: &Result<(), CallerRejection>) -> bool {
    matches!(result, Err(CallerRejection::Undecided(_)))
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_only_what_was_permitted_before_goes_on_and_only_for_the_grace_period() {
    let outage = Outage::new(GRACE);
    assert!(outage.read("good", "get").await.is_ok());
    assert!(outage.read("good", "list").await.is_err(), "denied");
    advance(Duration::from_secs(20)).await;
    outage.begin();
    let sent = counts(&outage.count);
    advance(Duration::from_mins(1)).await;
    assert!(outage.read("good", "get").await.is_ok());
    assert_eq!(counts(&outage.count), sent, "no review is sent during the outage");
    for (token, verb) in [("good", "list"), ("good", "watch"), ("weak", "get"), ("bad", "get")] {
        assert!(is_undecided(&outage.read(token, verb).await), "{token} {verb}");
    }
    advance(GRACE.saturating_sub(Duration::from_secs(61))).await;
    assert!(outage.read("good", "get").await.is_ok());
    advance(Duration::from_secs(2)).await;
    assert!(is_undecided(&outage.read("good", "get").await), "the grace period is over");
    // The API server has returned, and revoked the permission meanwhile.
    *outage.say.lock() = |_, verb| {
        if verb.is_empty() { ReviewAnswer::Allowed("jane") } else { ReviewAnswer::Denied("jane") }
    };
    outage.reachability.record_answer(Instant::now());
    assert!(matches!(outage.read("good", "get").await, Err(CallerRejection::Forbidden { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_older_decision_an_expired_token_and_a_zero_period_are_not_kept() {
    let outage = Outage::new(GRACE);
    assert!(outage.read("good", "get").await.is_ok());
    advance(Duration::from_secs(31)).await;
    outage.begin();
    advance(Duration::from_secs(10)).await;
    assert!(
        is_undecided(&outage.read("good", "get").await),
        "it was not positive at the beginning"
    );

    let outage = Outage::new(Duration::ZERO);
    assert!(outage.read("good", "get").await.is_ok());
    outage.begin();
    advance(Duration::from_secs(11)).await;
    assert!(is_undecided(&outage.read("good", "get").await));

    // The token expires one real second after its review; the tests' clock does not matter here.
    let expiry = jiff::Timestamp::now().as_duration().as_secs_f64() + 1.0;
    let claims = {
        use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
        URL_SAFE_NO_PAD.encode(format!("{{\"exp\": {expiry}}}"))
    };
    let token = format!("e30.{claims}.c2ln");
    let outage = Outage::new(GRACE);
    *outage.say.lock() = |_, _| ReviewAnswer::Allowed("jane");
    assert!(outage.read(&token, "get").await.is_ok());
    outage.begin();
    advance(Duration::from_secs(11)).await;
    std::thread::sleep(Duration::from_millis(1_100));
    assert!(is_undecided(&outage.read(&token, "get").await));
}

#[tokio::test(start_paused = true)]
async fn rbac_rules_decide_during_an_outage_as_they_were_when_it_began() {
    let RuledCallers { callers, rules, say, count } =
        by_rules(|_, _| ReviewAnswer::Allowed("jane"));
    let reachability = ServerReachability::default();
    let callers = Arc::into_inner(callers).unwrap().with_reachability(reachability.clone());
    let callers = callers.with_outage_grace(GRACE);
    let list = async |namespace: &str| {
        let mut access = action("list", None);
        access.resource_attributes.as_mut().unwrap().namespace = Some(namespace.to_owned());
        let token = credentials("good", &[]);
        callers.admit(&token, &access, PEER, RequestKind::Read).await
    };
    assert!(list("shop").await.is_ok());
    reachability.record_answer(Instant::now());
    *say.lock() = unreachable;
    advance(Duration::from_mins(5)).await;
    *rules.age.lock() = Some(Duration::from_mins(5));
    let began = counts(&count);
    let listed = list("shop").await.unwrap();
    assert_eq!(listed.authorized_at, Instant::now(), "open watches go on");
    assert!(list("other").await.is_err(), "no rule allows it, and no review answers");
    assert_eq!(counts(&count).0, began.0);
    // The rules were older than 20 s when the outage began.
    *rules.age.lock() = Some(Duration::from_secs(321));
    assert!(list("shop").await.is_err());
}
