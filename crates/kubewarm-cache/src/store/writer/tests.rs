//! Tests what each delta changes in a store. The tests check the store through its reader.

use super::*;
use crate::store::{
    StoreCatalog, StoreUsage,
    fixtures::{self, all, body, informer_key, remove, uid, upsert, version},
};
use kubewarm_api::model::{
    FieldPath, LabelRequirement, LabelSelector, LabelSelectorOperator, ObjectKey,
};
use std::collections::BTreeSet;

fn open_store() -> (StoreWriter, StoreReader) {
    let catalog = StoreCatalog::new();
    let writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
    (writer, catalog.reader(&informer_key("pods")).unwrap())
}

fn keys(reader: &StoreReader) -> Vec<String> {
    fixtures::keys(reader).iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect()
}

fn labelled(reader: &StoreReader, value: &str) -> Vec<String> {
    let app = LabelRequirement::new("app", LabelSelectorOperator::In, [value]).unwrap();
    let objects = fixtures::labelled(reader, LabelSelector::new([app]));
    objects.iter().map(|object| object.key.name.to_string()).collect()
}

#[test]
fn an_object_is_added_changed_and_removed() {
    let (mut writer, reader) = open_store();
    let (web, api) = (body(r#"{"app":"web"}"#, ""), body(r#"{"app":"api"}"#, ""));
    assert_eq!(writer.apply(upsert("a/x", 1, "5", &web)), DeltaOutcome::Added);
    assert_eq!(labelled(&reader, "web"), ["x"]);
    assert_eq!(writer.apply(upsert("a/x", 1, "6", &api)), DeltaOutcome::Modified);
    assert_eq!((labelled(&reader, "web").len(), labelled(&reader, "api").len()), (0, 1));
    let key = ObjectKey { namespace: "a".into(), name: "x".into() };
    let object = reader.get(&key).unwrap();
    assert_eq!(object.bytes, api.as_bytes());
    assert_eq!((object.uid, object.version), (uid(1), Some(version("6"))));
    assert_eq!(reader.version(), Some(version("6")));
    assert_eq!(writer.apply(remove("a/x", "7")), DeltaOutcome::Removed);
    assert_eq!(writer.apply(remove("a/x", "7")), DeltaOutcome::Replayed);
    assert_eq!(writer.apply(remove("a/x", "8")), DeltaOutcome::Outdated);
    assert_eq!((reader.get(&key), reader.usage()), (None, StoreUsage::default()));
    assert_eq!(reader.version(), Some(version("8")));
}

#[test]
fn an_index_has_no_values_until_an_object_has_one() {
    let path = FieldPath::parse("spec.color").unwrap();
    let catalog = StoreCatalog::new();
    let mut writer = catalog.open(&informer_key("configmaps"), &BTreeSet::from([path.clone()]));
    let reader = writer.reader();
    let (red, plain) = (body("{}", r#","spec":{"color":"red"}"#), body("{}", ""));
    let without = || reader.paths_without_values();
    assert_eq!(without(), std::slice::from_ref(&path));
    writer.apply(upsert("a/x", 1, "1", &plain));
    assert_eq!(without(), std::slice::from_ref(&path));
    writer.apply(upsert("a/y", 2, "2", &red));
    writer.apply(upsert("a/z", 3, "3", &red));
    assert_eq!(without(), []);
    writer.apply(upsert("a/y", 2, "4", &plain));
    assert_eq!(without(), [], "another object has a value");
    writer.apply(remove("a/z", "5"));
    assert_eq!(without(), std::slice::from_ref(&path));
    writer.apply(upsert("a/x", 1, "6", &red));
    writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
    writer.apply(Delta::ListDone(version("7")));
    assert_eq!((without(), reader.objects()), (vec![path], 0), "the list contained no object");
}

#[test]
fn an_older_or_equal_version_is_not_applied() {
    let (mut writer, reader) = open_store();
    let (new, old) = (body("{}", r#","a":2"#), body("{}", r#","a":1"#));
    writer.apply(upsert("a/x", 1, "10", &new));
    assert_eq!(writer.apply(upsert("a/x", 1, "9", &old)), DeltaOutcome::Outdated);
    assert_eq!(writer.apply(upsert("a/x", 2, "9", &old)), DeltaOutcome::Outdated);
    assert_eq!(writer.apply(upsert("a/x", 1, "10", &old)), DeltaOutcome::Unchanged);
    assert_eq!(writer.apply(remove("a/x", "9")), DeltaOutcome::Replayed);
    assert_eq!(all(&reader).first().unwrap().bytes, new.as_bytes());
    assert_eq!(reader.version(), Some(version("10")));
}

#[test]
fn an_event_that_is_not_newer_than_the_store_adds_no_object() {
    let (mut writer, reader) = open_store();
    let event = |key, version| {
        let Delta::Upsert(item) = upsert(key, 1, version, "{}") else { unreachable!() };
        Delta::WatchEvent(item)
    };
    assert_eq!(writer.apply(event("a/x", "5")), DeltaOutcome::Added);
    writer.apply(Delta::Progress(version("9")));
    assert_eq!(writer.apply(event("a/y", "9")), DeltaOutcome::OutOfOrder);
    assert_eq!(writer.apply(event("a/x", "5")), DeltaOutcome::Replayed);
    assert_eq!(writer.apply(event("a/x", "7")), DeltaOutcome::Replayed);
    assert_eq!((keys(&reader), reader.version()), (vec!["a/x".to_owned()], Some(version("9"))));
    assert_eq!(writer.apply(event("a/y", "10")), DeltaOutcome::Added);
    // A list that follows a purge can be older.
    writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
    assert_eq!(writer.apply(event("a/z", "3")), DeltaOutcome::Added);
}

#[test]
fn another_uid_is_another_object() {
    let (mut writer, reader) = open_store();
    writer.apply(upsert("a/x", 1, "10", "{}"));
    assert_eq!(writer.apply(upsert("a/x", 2, "11", "{}")), DeltaOutcome::Replaced);
    assert_eq!(writer.apply(upsert("a/x", 3, "11", "{}")), DeltaOutcome::Replaced);
    assert_eq!(all(&reader).first().unwrap().uid, uid(3));
    assert_eq!(reader.usage().objects, 1);
}

#[test]
fn versions_without_order_are_always_applied() {
    let (mut writer, reader) = open_store();
    let (a, b) = (body("{}", r#","a":1"#), body("{}", r#","a":2"#));
    for (version, body, outcome) in [
        ("v9", &a, DeltaOutcome::Added),
        ("v1", &b, DeltaOutcome::Modified),
        ("v1", &a, DeltaOutcome::Unchanged),
        ("", &a, DeltaOutcome::Modified),
        ("", &a, DeltaOutcome::Unchanged),
        ("7", &a, DeltaOutcome::Modified),
        ("", &b, DeltaOutcome::Modified),
    ] {
        assert_eq!(writer.apply(upsert("a/x", 1, version, body)), outcome, "{version}");
    }
    assert_eq!(all(&reader).first().unwrap().version, None);
    assert_eq!(writer.apply(remove("a/x", "v0")), DeltaOutcome::Removed);
    assert_eq!(reader.usage(), StoreUsage::default());
}

#[test]
fn a_list_removes_objects_that_it_did_not_contain() {
    let (mut writer, reader) = open_store();
    for (n, key) in ["a/gone", "a/old", "b/same"].iter().enumerate() {
        writer.apply(upsert(key, u8::try_from(n).unwrap(), "10", "{}"));
    }
    assert_eq!(writer.apply(Delta::ListStarted(ReplacePolicy::Changed)), DeltaOutcome::Noted);
    // The second `ListStarted` discards the first list, so this upsert does not keep `a/gone` in
    // the store.
    writer.apply(upsert("a/gone", 0, "10", "{}"));
    writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
    // An etcd restore can lower resource versions. A list is a consistent read, so its objects
    // replace stored objects that have higher versions.
    assert_eq!(writer.apply(upsert("a/old", 1, "9", "{}")), DeltaOutcome::Modified);
    assert_eq!(writer.apply(upsert("b/same", 2, "10", "{}")), DeltaOutcome::Unchanged);
    assert_eq!(writer.apply(upsert("c/new", 3, "11", "{}")), DeltaOutcome::Added);
    assert_eq!(reader.version(), Some(version("10")));
    assert_eq!(keys(&reader), ["a/gone", "a/old", "b/same", "c/new"]);
    let done = writer.apply(Delta::ListDone(version("12")));
    assert_eq!(done, DeltaOutcome::Swept { removed: 1 });
    assert_eq!(keys(&reader), ["a/old", "b/same", "c/new"]);
    assert_eq!(reader.version(), Some(version("12")));
    let again = writer.apply(Delta::ListDone(version("11")));
    assert_eq!(
        (again, reader.version()),
        (DeltaOutcome::Swept { removed: 0 }, Some(version("12")))
    );
}

#[test]
fn a_sweep_of_many_rows_removes_their_index_entries() {
    let (mut writer, reader) = open_store();
    let web = body(r#"{"app":"web"}"#, "");
    let names: Vec<_> = (0..1000).map(|n| format!("a/x{n:04}")).collect();
    for name in &names {
        writer.apply(upsert(name, 1, "10", &web));
    }
    writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
    for name in &names[..5] {
        writer.apply(upsert(name, 1, "10", &web));
    }
    let done = writer.apply(Delta::ListDone(version("12")));
    assert_eq!(done, DeltaOutcome::Swept { removed: 995 });
    assert_eq!((labelled(&reader, "web").len(), keys(&reader).len()), (5, 5));
    writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
    writer.apply(Delta::ListDone(version("13")));
    assert_eq!(reader.usage(), StoreUsage::default());
}

#[test]
fn a_list_that_rereads_everything_stores_equal_versions_again() {
    let (mut writer, reader) = open_store();
    let (old, new) = (body("{}", ""), body(r#"{"app":"web"}"#, ""));
    writer.apply(upsert("a/x", 1, "10", &old));
    writer.apply(upsert("a/y", 2, "10", &old));
    writer.apply(Delta::ListStarted(ReplacePolicy::Everything));
    assert_eq!(writer.apply(upsert("a/x", 1, "10", &new)), DeltaOutcome::Modified);
    assert_eq!(writer.apply(upsert("a/y", 2, "10", &old)), DeltaOutcome::Unchanged);
    assert_eq!(writer.apply(Delta::ListDone(version("10"))), DeltaOutcome::Swept { removed: 0 });
    assert_eq!(labelled(&reader, "web"), ["x"]);
}

#[test]
fn a_purge_removes_all_objects_and_the_version() {
    let (mut writer, reader) = open_store();
    writer.apply(upsert("a/x", 1, "10", "{}"));
    writer.apply(Delta::Progress(version("20")));
    writer.apply(Delta::Progress(version("15")));
    assert_eq!(reader.version(), Some(version("20")));
    assert_eq!(writer.apply(Delta::Purge), DeltaOutcome::Noted);
    assert_eq!((reader.usage(), reader.version()), (StoreUsage::default(), None));
    assert_eq!(writer.apply(upsert("a/x", 1, "3", "{}")), DeltaOutcome::Added);
    assert_eq!(reader.version(), Some(version("3")));
}

#[test]
fn versions_are_returned_in_pages() {
    let (mut writer, reader) = open_store();
    for (key, at) in [("a/x", "5"), ("a/y", "9"), ("b/x", "")] {
        writer.apply(upsert(key, 1, at, "{}"));
    }
    let page = reader.versions(None, 2);
    let seen: Vec<_> = page.iter().map(|(key, at)| (&*key.name, at.clone())).collect();
    assert_eq!(seen, [("x", Some(version("5"))), ("y", Some(version("9")))]);
    let rest = reader.versions(Some(&page[1].0), 2);
    assert_eq!(rest.len(), 1);
    assert_eq!((&*rest[0].0.namespace, &rest[0].1), ("b", &None));
}
