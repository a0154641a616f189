use super::{
    sample::{Count, Fake, Said, Say, noted, of},
    *,
};
use crate::model::{FieldSelector, LabelSelector, Reason};
use futures::{FutureExt as _, future::join_all};
use parking_lot::Mutex;
use std::{net::Ipv4Addr, sync::atomic::Ordering};
use tokio::{
    task::yield_now,
    time::{advance, sleep, timeout},
};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

/// What becomes of these tokens; others are not known.
fn said(token: &str, verb: &str) -> Said {
    match (token, verb) {
        ("good", "" | "get") => Said::Allowed("jane"),
        ("good" | "weak", _) => Said::Denied("jane"),
        ("pretender", _) => Said::NotAnother("jane cannot impersonate john"),
        ("lost", _) => Said::Nothing(Fault::new(Reason::Unreachable, "refused")),
        _ => Said::Unknown,
    }
}

fn credentials(token: &str, more: &[(&'static str, &'static str)]) -> Credentials {
    let bearer = format!("Bearer {token}");
    let more = more.iter().map(|(name, value)| (*name, value.as_bytes()));
    Credentials::of([("authorization", bearer.as_bytes())].into_iter().chain(more)).unwrap()
}

fn action(verb: &'static str, name: Option<&str>) -> Action {
    Action::Resource {
        verb,
        group: "".into(),
        version: "v1".into(),
        resource: "pods".into(),
        namespace: Some("shop".into()),
        name: name.map(Into::into),
        labels: LabelSelector::default(),
        fields: FieldSelector::default(),
    }
}

/// Of the read address.
fn reading(fake: Fake) -> (Callers, Count) {
    let count = fake.count.clone();
    (of(fake, Address::Reads), count)
}

fn counts(count: &Count) -> (usize, usize) {
    (count.who.load(Ordering::Relaxed), count.may.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn each_refusal_says_what_it_is() {
    let (callers, _) = reading(Fake::new(said));
    let get = action("get", Some("web"));
    let forbidden = |user: &str, reason: Option<&str>| {
        Err(Refused::Forbidden { user: user.to_owned(), reason: reason.map(ToOwned::to_owned) })
    };
    for (token, action, expected) in [
        ("good", &get, Ok("jane")),
        ("good", &action("list", None), forbidden("jane", None)),
        ("weak", &get, forbidden("jane", None)),
        ("bad", &get, Err(Refused::Unauthorized)),
        ("pretender", &get, forbidden("", Some("jane cannot impersonate john"))),
        ("lost", &get, Err(Refused::Undecided(Fault::new(Reason::Unreachable, "refused")))),
    ] {
        let found = callers.admit(&credentials(token, &[]), action, PEER).await;
        let found = found.as_ref().map(|caller| caller.user.name.as_str()).map_err(Clone::clone);
        assert_eq!(found, expected, "{token}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_decision_is_noted_with_who_made_it() {
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let notes = Arc::clone(&seen);
    let note: Note = Box::new(move |by, decision, took| notes.lock().push((by, decision, took)));
    let delay = Duration::from_secs(1);
    let callers = noted(Fake { delay, ..Fake::new(said) }, Address::Reads, note);
    let (get, list) = (action("get", Some("web")), action("list", None));
    for (token, action, more, expected) in [
        ("good", &get, &[] as &[_], (DecidedBy::Api, Decision::Allow, 2 * delay)),
        ("good", &get, &[], (DecidedBy::Cache, Decision::Allow, Duration::ZERO)),
        ("good", &list, &[], (DecidedBy::Api, Decision::Deny, delay + REFUSAL)),
        ("good", &list, &[], (DecidedBy::Cache, Decision::Deny, Duration::ZERO)),
        ("bad", &get, &[], (DecidedBy::Api, Decision::Deny, delay + REFUSAL)),
        ("bad", &get, &[], (DecidedBy::Cache, Decision::Deny, Duration::ZERO)),
        ("lost", &get, &[], (DecidedBy::Api, Decision::Error, delay + REFUSAL)),
        (
            "good",
            &get,
            &[("impersonate-user", "john")],
            (DecidedBy::Cache, Decision::Deny, Duration::ZERO),
        ),
    ] {
        let _admitted = callers.admit(&credentials(token, more), action, PEER).await;
        assert_eq!(seen.lock().drain(..).collect::<Vec<_>>(), [expected], "{token}");
    }
    let (good, bad) = (credentials("good", &[]), credentials("bad", &[]));
    assert!(callers.recheck(&good, &get, PEER).await.is_ok());
    assert!(callers.recheck(&bad, &get, PEER).await.is_err());
    let decisions: Vec<_> = seen.lock().drain(..).map(|(_, decision, _)| decision).collect();
    assert_eq!(decisions, [Decision::Allow, Decision::Deny]);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_away_ends_within_ten_seconds_from_authentication_on() {
    let fake = Fake::new(said);
    let say = Arc::clone(&fake.say);
    let (callers, count) = reading(fake);
    let (good, get) = (credentials("good", &[]), action("get", Some("web")));
    let admit = async || callers.admit(&good, &get, PEER).await;
    assert!(admit().await.is_ok());
    for (now, expected) in [
        ((|_, _| Said::Unknown) as Say, Refused::Unauthorized),
        (
            (|_, _| Said::Denied("jane")) as Say,
            Refused::Forbidden { user: "jane".to_owned(), reason: None },
        ),
    ] {
        *say.lock() = said;
        advance(Duration::from_secs(10)).await;
        assert!(admit().await.is_ok());
        *say.lock() = now;
        advance(Duration::from_millis(9_900)).await;
        assert!(admit().await.is_ok(), "still remembered");
        advance(Duration::from_millis(100)).await;
        assert_eq!(admit().await.unwrap_err(), expected);
        assert_ne!(counts(&count), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_about_all_names_never_answers_a_named_get() {
    let (callers, count) = reading(Fake::new(|_, _| Said::Allowed("jane")));
    let good = credentials("good", &[]);
    for (action, asked) in [
        (action("list", None), 1),
        (action("get", None), 2),
        (action("get", Some("web")), 3),
        (action("get", Some("db")), 4),
        (action("get", Some("web")), 4),
    ] {
        assert!(callers.admit(&good, &action, PEER).await.is_ok());
        assert_eq!(counts(&count), (1, asked), "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_the_same_at_once_share_one_question_even_if_the_first_leaves() {
    let delay = Duration::from_secs(1);
    let (callers, count) = reading(Fake { delay, ..Fake::new(said) });
    let (good, get) = (credentials("good", &[]), action("get", Some("web")));
    let leaving = timeout(delay / 2, callers.admit(&good, &get, PEER));
    assert!(leaving.await.is_err());
    let found = join_all((0..99).map(|_| callers.admit(&good, &get, PEER))).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(counts(&count), (1, 1));
    assert!(
        callers
            .users
            .lock()
            .question(&callers.key.of_credentials(good.presented().unwrap()))
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_and_leaves_keeps_a_place_until_the_answer() {
    let delay = Duration::from_secs(1);
    let (callers, _) = reading(Fake { delay, ..Fake::new(said) });
    let (good, get) = (credentials("good", &[]), action("get", Some("web")));
    let leaves = async |token: &Credentials, action: &Action| {
        let found = callers.admit(token, action, PEER).now_or_never();
        // The question itself goes on.
        yield_now().await;
        found.map(|found| found.map(drop))
    };
    let gone = |all: Vec<Option<Result<(), Refused>>>| {
        let busy = |found: &Option<_>| *found == Some(Err(Refused::Busy));
        (
            all.iter().filter(|found| found.is_none()).count(),
            all.iter().filter(|it| busy(it)).count(),
        )
    };
    let mut strangers = Vec::new();
    for n in 0..150 {
        strangers.push(leaves(&credentials(&n.to_string(), &[]), &get).await);
    }
    assert_eq!(gone(strangers), (100, 50), "of one address");
    sleep(10 * delay).await;
    assert!(callers.admit(&good, &get, PEER).await.is_ok());
    let mut let_in = Vec::new();
    for n in 0..150 {
        let_in.push(leaves(&good, &action("get", Some(&n.to_string()))).await);
    }
    assert_eq!(gone(let_in), (100, 50), "of one user");
    sleep(10 * delay).await;
    assert!(callers.admit(&good, &action("get", Some("db")), PEER).await.is_ok());
    let mut further = Vec::new();
    for n in 0..150 {
        let get = action("get", Some(&format!("further-{n}")));
        let found = callers.may_also(&good, &get, PEER).now_or_never();
        yield_now().await;
        further.push(found.map(|found| found.map(drop)));
    }
    assert_eq!(gone(further), (100, 50), "of further questions of a request, too");
}

#[tokio::test(start_paused = true)]
async fn one_address_asks_a_few_questions_at_once_and_the_others_wait_or_go() {
    let delay = Duration::from_secs(1);
    let say =
        |token: &str, _: &str| if token == "other" { Said::Allowed("john") } else { Said::Unknown };
    let (callers, count) = reading(Fake { delay, ..Fake::new(say) });
    let tokens: Vec<_> = (0..100).map(|n| credentials(&n.to_string(), &[])).collect();
    let get = action("get", Some("web"));
    let asking = tokens.iter().map(|token| callers.admit(token, &get, PEER));
    let all = join_all(asking);
    let other = async {
        sleep(delay / 2).await;
        let began = Instant::now();
        let peer = Ipv4Addr::new(10, 0, 0, 8).into();
        assert!(callers.admit(&credentials("other", &[]), &get, peer).await.is_ok());
        began.elapsed()
    };
    let (found, waited) = tokio::join!(all, other);
    assert_eq!(count.most.load(Ordering::Relaxed), 16 + 1);
    assert!(waited < 3 * delay, "{waited:?}");
    let busy = found.iter().filter(|found| matches!(found, Err(Refused::Busy))).count();
    let unknown = found.iter().filter(|it| matches!(it, Err(Refused::Unauthorized))).count();
    assert_eq!(busy + unknown, 100, "{found:?}");
    assert!(busy > 0 && unknown >= 16, "{busy} and {unknown}");
}

#[tokio::test(start_paused = true)]
async fn one_user_asks_a_few_questions_at_once_wherever_it_calls_from() {
    let delay = Duration::from_secs(1);
    let (callers, count) = reading(Fake { delay, ..Fake::new(said) });
    let good = credentials("good", &[]);
    let ask = async |n: u8| {
        let (get, peer) = (action("get", Some(&n.to_string())), Ipv4Addr::new(10, 0, 2, n));
        callers.admit(&good, &get, peer.into()).await.map(drop)
    };
    // Let in for the first time, and then lately.
    for names in [0..50, 50..100] {
        let found = join_all(names.map(ask)).await;
        assert!(found.iter().filter(|found| found.is_ok()).count() >= 32, "{found:?}");
        assert_eq!(count.most.swap(0, Ordering::Relaxed), 16);
    }
}

#[tokio::test(start_paused = true)]
async fn however_many_strangers_wait_whoever_was_let_in_is_answered_and_asked_about_at_once() {
    let delay = Duration::from_secs(1);
    let (callers, _) = reading(Fake { delay, ..Fake::new(said) });
    let (good, get) = (credentials("good", &[]), action("get", Some("web")));
    assert!(callers.admit(&good, &get, PEER).await.is_ok());
    // What was decided ends 10 s after it was asked, while the strangers wait.
    advance(Duration::from_secs(7)).await;
    let tokens: Vec<_> = (0..400).map(|n| credentials(&n.to_string(), &[])).collect();
    let peers = (0..8).map(|n| IpAddr::from(Ipv4Addr::new(10, 0, 1, n)));
    let strangers = tokens.iter().zip(peers.cycle()).map(async |(token, peer)| {
        let began = Instant::now();
        (callers.admit(token, &get, peer).await.err(), began.elapsed())
    });
    let (found, most) = tokio::join!(join_all(strangers), longest(&callers, &good, delay));
    assert!(most <= 2 * delay, "{most:?}");
    let at_once = found.iter().filter(|(refused, took)| {
        assert!(took.is_zero() || *took >= delay, "{took:?}");
        *refused == Some(Refused::Busy) && took.is_zero()
    });
    assert_eq!(at_once.count(), 400 - 150, "the others may wait");
}

/// How long `reader` waits at most who asks for what it asked before, and for something new each time.
async fn longest(callers: &Callers, reader: &Credentials, delay: Duration) -> Duration {
    let mut most = Duration::ZERO;
    for n in 0..30 {
        for name in ["web", &format!("web-{n}")] {
            sleep(delay / 10).await;
            let began = Instant::now();
            let admitted = callers.admit(reader, &action("get", Some(name)), PEER).await;
            assert!(admitted.is_ok(), "{admitted:?}");
            most = most.max(began.elapsed());
        }
    }
    most
}

#[tokio::test(start_paused = true)]
async fn whoever_was_let_in_does_not_wait_behind_those_who_may_nothing() {
    const USERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let say = |token: &str, _: &str| match USERS.iter().find(|user| **user == token) {
        Some(user) => Said::Denied(user),
        None => Said::Allowed("jane"),
    };
    let delay = Duration::from_millis(100);
    let (callers, _) = reading(Fake { delay, ..Fake::new(say) });
    let (good, web) = (credentials("good", &[]), action("get", Some("web")));
    assert!(callers.admit(&good, &web, PEER).await.is_ok());
    let trying = USERS.iter().map(async |user| {
        let token = credentials(user, &[]);
        let mut at_once = 0;
        for round in 0..40 {
            let names = (0..50).map(async |n| {
                let began = Instant::now();
                let get = action("get", Some(&format!("{round}-{n}")));
                let refused = callers.admit(&token, &get, PEER).await.unwrap_err();
                refused == Refused::Busy && began.elapsed().is_zero()
            });
            at_once += join_all(names).await.into_iter().filter(|it| *it).count();
            sleep(delay).await;
        }
        at_once
    });
    let (at_once, most) = tokio::join!(join_all(trying), longest(&callers, &good, delay));
    assert!(most <= 2 * delay, "{most:?}");
    assert!(at_once.iter().sum::<usize>() > 0, "all of them may not wait: {at_once:?}");
    // Discovery is everybody's: it makes nobody come before others.
    let path = Action::Path { verb: "get".to_owned(), path: "/api".to_owned() };
    assert!(callers.admit(&credentials("other", &[]), &path, PEER).await.is_ok());
    assert_eq!(callers.lately.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_user_has_a_share_of_the_connections_that_make_no_room() {
    let say = |token: &str, _: &str| Said::Allowed(if token == "other" { "john" } else { "jane" });
    let (callers, _) = reading(Fake::new(say));
    let get = action("get", Some("web"));
    let admit = async |token| callers.admit(&credentials(token, &[]), &get, PEER).await.unwrap();
    let jane = [admit("one").await, admit("two").await];
    let mut held: Vec<_> = (0..1_000).filter_map(|n| callers.connection(&jane[n % 2])).collect();
    assert_eq!(held.len(), 512);
    assert!(callers.connection(&admit("other").await).is_some());
    held.pop();
    assert!(callers.connection(&jane[0]).is_some());
}

#[tokio::test(start_paused = true)]
async fn however_many_names_and_tokens_there_are_a_quarter_of_the_connections_makes_room() {
    let say = |token: &str, _: &str| {
        Said::Allowed(match token {
            "one" => "jane",
            "two" => "john",
            _ => "joan",
        })
    };
    let (callers, _) = reading(Fake::new(say));
    let get = action("get", Some("web"));
    let mut held = Vec::new();
    for (token, expected) in [("one", 512), ("two", 512), ("three", 0)] {
        let caller = callers.admit(&credentials(token, &[]), &get, PEER).await.unwrap();
        let more: Vec<_> = (0..600).filter_map(|_| callers.connection(&caller)).collect();
        assert_eq!(more.len(), expected, "{token}");
        held.extend(more);
    }
    for (token, expected) in [(1, 256), (2, 256), (3, 0)] {
        let sent = callers.send_on(&[token], PEER).unwrap();
        let take = |_| callers.connection_sent_on(&sent);
        let more: Vec<_> = (0..600).filter_map(take).collect();
        assert_eq!(more.len(), expected, "{token}");
        held.extend(more);
    }
    drop(held);
    assert!(callers.connection_sent_on(&callers.send_on(b"x", PEER).unwrap()).is_some());
}

#[tokio::test(start_paused = true)]
async fn one_users_tokens_that_are_asked_about_anew_have_its_share_of_the_requests() {
    let delay = Duration::from_millis(10);
    let (callers, _) = reading(Fake { delay, ..Fake::new(|_, _| Said::Allowed("jane")) });
    let get = action("get", Some("web"));
    let tokens: Vec<_> = (0..150).map(|n| credentials(&n.to_string(), &[])).collect();
    for some in tokens.chunks(50) {
        let admitted = join_all(some.iter().map(|token| callers.admit(token, &get, PEER))).await;
        assert!(admitted.iter().all(Result::is_ok));
    }
    advance(Duration::from_secs(10)).await;
    let asking = tokens.iter().map(async |token| {
        let began = Instant::now();
        let refused = callers.admit(token, &get, PEER).await.err();
        refused == Some(Refused::Busy) && began.elapsed().is_zero()
    });
    let at_once = join_all(asking).await.into_iter().filter(|it| *it).count();
    assert_eq!(at_once, 50);
}

#[tokio::test(start_paused = true)]
async fn impersonation_is_refused_where_nobody_can_check_it_and_asks_nobody() {
    let (callers, count) = reading(Fake::new(said));
    let acting = credentials("good", &[("impersonate-user", "john")]);
    let found = callers.admit(&acting, &action("get", None), PEER).await;
    assert_eq!(found.unwrap_err(), Refused::Impersonation);
    assert_eq!(counts(&count), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn impersonation_that_is_passed_on_is_never_answered_as_the_tokens_owner() {
    let (callers, count) = reading(Fake { passes_on: true, ..Fake::new(said) });
    let get = action("get", Some("web"));
    for (more, asked) in [
        (vec![], 1),
        (vec![("impersonate-user", "john")], 2),
        (vec![("impersonate-user", "joan")], 3),
        (vec![("impersonate-user", "john"), ("impersonate-group", "admins")], 4),
        (vec![("impersonate-user", "john")], 4),
    ] {
        assert!(callers.admit(&credentials("good", &more), &get, PEER).await.is_ok());
        assert_eq!(counts(&count), (asked, asked), "{more:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_none_and_is_not_remembered() {
    let delay = Duration::from_hours(1);
    let (callers, _) = reading(Fake { delay, ..Fake::new(said) });
    let began = Instant::now();
    let found = callers.admit(&credentials("good", &[]), &action("get", None), PEER).await;
    assert!(matches!(&found, Err(Refused::Undecided(fault)) if fault.reason() == Reason::TimedOut));
    assert!(began.elapsed() >= PATIENCE + REFUSAL, "{:?}", began.elapsed());
    let (callers, count) = reading(Fake::new(said));
    for asked in [1, 2] {
        let found = callers.admit(&credentials("lost", &[]), &action("get", None), PEER).await;
        assert!(matches!(found, Err(Refused::Undecided(_))));
        assert_eq!(counts(&count), (asked, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn one_user_has_a_share_of_the_requests_whatever_its_tokens() {
    let say = |token: &str, _: &str| Said::Allowed(if token == "other" { "john" } else { "jane" });
    let (callers, _) = reading(Fake::new(say));
    let get = action("get", Some("web"));
    let mut held = Vec::new();
    for n in 0..100 {
        let token = ["one", "two"][n % 2];
        held.push(callers.admit(&credentials(token, &[]), &get, PEER).await.unwrap());
    }
    let more = async |token| callers.admit(&credentials(token, &[]), &get, PEER).await;
    assert_eq!(more("one").await.unwrap_err(), Refused::Busy);
    assert!(more("other").await.is_ok());
    held.pop();
    assert!(more("two").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_user_has_a_share_of_the_watches_and_keeps_its_share_of_the_requests() {
    let say = |token: &str, _: &str| Said::Allowed(if token == "other" { "john" } else { "jane" });
    let (callers, _) = reading(Fake::new(say));
    let get = action("watch", None);
    let admit = async |token| callers.admit(&credentials(token, &[]), &get, PEER).await.unwrap();
    let mut held = Vec::new();
    for n in 0..1_024 {
        let caller = admit(["one", "two"][n % 2]).await;
        held.push(callers.watch(&caller).unwrap());
    }
    let (jane, john) = (admit("one").await, admit("other").await);
    assert_eq!(callers.watch(&jane).unwrap_err(), Refused::Busy);
    assert!(callers.watch(&john).is_ok());
    held.pop();
    assert!(callers.watch(&jane).is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_open_watch_is_asked_about_from_authentication_on() {
    let fake = Fake::new(said);
    let say = Arc::clone(&fake.say);
    let (callers, _) = reading(fake);
    let (good, get) = (credentials("good", &[]), action("get", Some("web")));
    let recheck = async || callers.recheck(&good, &get, PEER).await;
    let asked = Instant::now();
    assert_eq!(recheck().await, Ok(asked));
    for (now, expected) in [
        ((|_, _| Said::Unknown) as Say, Refused::Unauthorized),
        (
            (|_, _| Said::Denied("jane")) as Say,
            Refused::Forbidden { user: "jane".to_owned(), reason: None },
        ),
    ] {
        *say.lock() = said;
        advance(Duration::from_secs(10)).await;
        let asked = Instant::now();
        assert_eq!(recheck().await, Ok(asked));
        advance(Duration::from_secs(9)).await;
        assert_eq!(recheck().await, Ok(asked), "the answer is 9 s old");
        *say.lock() = now;
        advance(Duration::from_secs(1)).await;
        assert_eq!(recheck().await, Err(expected));
    }
}
