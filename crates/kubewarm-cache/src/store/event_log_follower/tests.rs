use super::*;
use crate::store::{
    StoreCatalog, StoreWriter,
    event_log::WINDOW,
    fixtures::{body, informer_key, remove, upsert, version},
};
use kubewarm_api::model::{Delta, DeltaSink as _, ReplacePolicy};
use std::{collections::BTreeSet, time::Instant};

/// Returns a store after a complete list at version 5.
fn listed_store() -> (StoreCatalog, StoreWriter, StoreReader) {
    let catalog = StoreCatalog::new();
    let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
    writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
    for name in ["a/x", "a/y"] {
        writer.apply(upsert(name, 1, "4", &body(r#"{"app":"web"}"#, "")));
    }
    writer.apply(Delta::ListDone(version("5")));
    let reader = catalog.reader(&informer_key("pods")).unwrap();
    (catalog, writer, reader)
}

fn web(text: &str) -> String {
    body(r#"{"app":"web"}"#, &format!(r#","text":"{text}""#))
}

/// Returns each unread change in the form `6 a/x one>two`: the version, the key, and the field
/// `text` before and after the change. If the follower has ended, the last element is the reason.
fn news(follower: &mut EventLogFollower) -> Vec<String> {
    let there = |body: Option<Bytes>| match body {
        Some(body) => String::from_utf8_lossy(&body).split('"').rev().nth(1).unwrap().to_owned(),
        None => String::new(),
    };
    let mut events = Vec::new();
    loop {
        match follower.next_event() {
            FollowerEvent::Change(change) => {
                let name = String::from_utf8_lossy(change.name()).into_owned();
                let (version, namespace) = (change.version(), change.namespace());
                let (before, now) =
                    (there(follower.bytes_before(&change)), there(follower.bytes_after(&change)));
                events.push(format!("{version} {namespace}/{name} {before}>{now}"));
            }
            FollowerEvent::None(_) => return events,
            other @ (FollowerEvent::Overtaken | FollowerEvent::Lost | FollowerEvent::Closed) => {
                return [events, vec![format!("{other:?}")]].concat();
            }
        }
    }
}

#[test]
fn a_follower_receives_every_change_once_and_in_order() {
    let (_catalog, mut writer, reader) = listed_store();
    let mut from_list = reader.follow(&version("5")).unwrap();
    let mut from_here = reader.follow_from_now();
    let mut ahead = reader.follow(&version("7")).unwrap();
    writer.apply(upsert("a/x", 1, "6", &web("one")));
    writer.apply(upsert("b/z", 2, "7", &web("new")));
    writer.apply(Delta::Progress(version("8")));
    writer.apply(remove("a/x", "9"));
    let all = ["6 a/x web>one", "7 b/z >new", "9 a/x one>"];
    assert_eq!(news(&mut from_list), all);
    assert_eq!(news(&mut from_here), all);
    assert_eq!(news(&mut ahead), all[2..], "`ahead` skips changes up to version 7");
    assert_eq!(news(&mut from_list), [""; 0]);
    for (at, known) in [("5", 0), ("6", 1), ("7", 2), ("8", 2), ("9", 3), ("99", 3)] {
        let mut follower = reader.follow(&version(at)).unwrap();
        assert_eq!(news(&mut follower), all[known..], "from {at}");
    }
    let forgotten = reader.follow(&version("4")).unwrap_err();
    assert_eq!(forgotten.oldest, Some(version("5")));
}

#[test]
fn versions_before_an_equal_list_have_expired_because_the_log_can_lack_objects() {
    let (_catalog, mut writer, reader) = listed_store();
    writer.apply(upsert("a/x", 1, "6", &web("one")));
    writer.apply(Delta::Equal(version("50")));
    assert_eq!(reader.version(), Some(version("50")));
    let assert_known = |expected: &[(&str, bool)]| {
        for (at, is_known) in expected {
            assert_eq!(reader.follow(&version(at)).is_ok(), *is_known, "from {at}");
        }
    };
    assert_known(&[("5", true), ("6", true), ("7", false), ("49", false), ("50", true)]);
    // A client can have got the first page of a list at version 50 or 53.
    writer.apply(upsert("a/x", 1, "53", &web("two")));
    writer.apply(upsert("a/x", 1, "55", &web("three")));
    writer.apply(Delta::Equal(version("60")));
    assert_known(&[("6", true), ("7", false), ("50", true), ("53", true), ("59", false)]);
    // Many comparisons of a store without changes: the oldest gaps become one.
    for at in 61..=100 {
        writer.apply(Delta::Equal(version(&at.to_string())));
    }
    assert_known(&[("6", true), ("50", false), ("60", false), ("70", true), ("100", true)]);
}

#[test]
fn the_event_log_counts_each_body_once() {
    let (_catalog, mut writer, reader) = listed_store();
    let mut random = fastrand::Rng::with_seed(7);
    let before = reader.usage().bytes;
    for n in 6..16 {
        let text: String = (0..64 << 10).map(|_| random.alphanumeric()).collect();
        writer.apply(upsert("a/x", 1, &n.to_string(), &web(&text)));
    }
    // Nine of the ten object bodies belong to two changes: to one change as its new object, and to
    // the next change as its previous object. The event log counts each body once.
    let body_bytes = reader.place_of(0).1 as u64;
    let all_bytes = reader.usage().bytes - before;
    assert!(
        (body_bytes * 10..body_bytes * 11).contains(&all_bytes),
        "{all_bytes} bytes for ten bodies of {body_bytes}"
    );
    writer.apply(Delta::Purge);
    assert_eq!(reader.usage(), crate::store::StoreUsage::default());
}

#[test]
fn select_and_follow_leaves_no_gap_before_the_first_change() {
    let (_catalog, mut writer, reader) = listed_store();
    writer.apply(upsert("a/x", 1, "6", &web("one")));
    let (selected, mut follower) = reader.select_and_follow(&ObjectQuery::default());
    assert_eq!(selected.version(), Some(&version("6")));
    writer.apply(upsert("a/x", 1, "7", &web("two")));
    writer.apply(upsert("a/x", 9, "8", &web("another")));
    assert_eq!(news(&mut follower), ["7 a/x one>two", "8 a/x two>another"]);
    let (_, mut at_version) = reader.select_and_follow(&ObjectQuery::default());
    assert!(matches!(at_version.next_event(), FollowerEvent::None(Some(at)) if at == version("8")));
}

#[test]
fn a_relist_restarts_the_event_log_only_if_it_finds_a_change() {
    let (_catalog, mut writer, reader) = listed_store();
    let mut follower = reader.follow(&version("5")).unwrap();
    writer.apply(upsert("a/x", 1, "6", &web("one")));
    let relist = |writer: &mut StoreWriter, y: &str, at: &str| {
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        writer.apply(upsert("a/x", 1, "6", &web("one")));
        writer.apply(upsert("a/y", 1, y, &body(r#"{"app":"web"}"#, "")));
        writer.apply(Delta::ListDone(version(at)));
    };
    relist(&mut writer, "4", "10");
    assert_eq!(news(&mut follower), ["6 a/x web>one"]);
    assert!(reader.follow(&version("5")).is_ok());
    // An object can have been created and deleted between versions 6 and 10. The list at version 10
    // does not show such an object, so the event log cannot serve watches from the versions 7 to 9.
    for (at, is_known) in [("6", true), ("7", false), ("9", false), ("10", true), ("11", true)] {
        assert_eq!(reader.follow(&version(at)).is_ok(), is_known, "{at}");
        assert_eq!(reader.remembers(&version(at)), is_known && at != "11", "{at}");
    }
    let mut next = reader.follow(&version("10")).unwrap();
    relist(&mut writer, "12", "20");
    for follower in [&mut follower, &mut next] {
        assert_eq!(news(follower), ["Lost"]);
    }
    assert_eq!(reader.follow(&version("19")).unwrap_err().oldest, Some(version("20")));
    assert!(reader.follow(&version("20")).is_ok());
    // While a list runs, the follower returns the store's version only until the list finds a
    // change.
    let mut follower = reader.follow(&version("20")).unwrap();
    writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
    let at = |follower: &mut EventLogFollower| {
        let FollowerEvent::None(version) = follower.next_event() else {
            panic!("expected no change")
        };
        version
    };
    assert_eq!(at(&mut follower), Some(version("20")), "the list has found no change");
    writer.apply(upsert("a/x", 1, "6", &web("one")));
    writer.apply(upsert("a/z", 1, "25", &web("new")));
    assert_eq!(at(&mut follower), None, "the list has found a change");
    writer.apply(Delta::ListDone(version("30")));
    assert_eq!(news(&mut follower), ["Lost"]);
}

#[test]
fn a_later_follower_never_receives_purged_changes() {
    let (_catalog, mut writer, reader) = listed_store();
    writer.apply(upsert("a/x", 1, "6", &web("one")));
    let mut follower = reader.follow(&version("5")).unwrap();
    writer.apply(Delta::Purge);
    assert_eq!(news(&mut follower), ["Lost"]);
    assert_eq!(reader.follow(&version("5")).unwrap_err().oldest, None);
    writer.apply(upsert("a/x", 1, "9", &web("later")));
    assert!(reader.follow(&version("9")).is_err(), "the log is empty until a list completes");
}

#[test]
fn a_change_out_of_version_order_restarts_the_event_log() {
    let (_catalog, mut writer, reader) = listed_store();
    writer.apply(Delta::Progress(version("9")));
    let mut follower = reader.follow(&version("9")).unwrap();
    writer.apply(upsert("a/x", 1, "7", &web("late")));
    assert_eq!(news(&mut follower), ["Lost"]);
    assert!(reader.follow(&version("8")).is_err());
    assert!(reader.follow(&version("9")).is_ok());
}

#[test]
fn followers_of_a_store_without_a_writer_are_closed() {
    let (catalog, _writer, reader) = listed_store();
    let mut follower = reader.follow_from_now();
    catalog.close(&informer_key("pods"));
    assert_eq!(news(&mut follower), ["Closed"]);
}

#[test]
fn the_event_log_is_bounded_by_age_and_bytes_and_counted() {
    let (_catalog, mut writer, reader) = listed_store();
    let began = Instant::now();
    let mut random = fastrand::Rng::with_seed(1);
    let mut text = |length| -> String {
        std::iter::repeat_with(|| random.alphanumeric()).take(length).collect()
    };
    let mut slow = reader.follow(&version("5")).unwrap();
    let empty = reader.usage().bytes;
    for number in 0..400_u64 {
        writer.apply(Delta::Arrived(began));
        writer.apply(upsert("a/x", 1, &(number + 6).to_string(), &web(&text(4_096))));
    }
    let full = reader.usage().bytes;
    assert!(full > empty + (1 << 20) && full < empty + (2 << 20), "{full} bytes");
    assert_eq!(slow.lag().changes(), 400);
    assert_eq!(news(&mut slow), ["Overtaken"]);
    assert!(reader.follow(&version("5")).is_err());
    writer.apply(Delta::Arrived(began + WINDOW * 2));
    writer.apply(Delta::Progress(version("1000")));
    let quiet = reader.usage().bytes;
    assert!(quiet < empty + (48 << 10), "{quiet} bytes after the log dropped old changes");
    assert!(reader.follow(&version("405")).is_ok());
    // The event log keeps the last 100 changes at any age. So a store that rarely changes can still
    // serve an old version.
    let (_catalog, mut writer, reader) = listed_store();
    writer.apply(Delta::Arrived(began));
    writer.apply(upsert("a/x", 1, "6", &web("one")));
    writer.apply(Delta::Arrived(began + WINDOW * 100));
    writer.apply(Delta::Progress(version("1000")));
    assert_eq!(news(&mut reader.follow(&version("5")).unwrap()), ["6 a/x web>one"]);
}
