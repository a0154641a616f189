//! Proof that tables leave nothing of a secret in the memory that they give back.

use super::{
    Catalog, Reader, Writer,
    record::Packing,
    samples::{body, cell, remove, upsert},
};
use crate::model::{
    CellKey, Delta, DeltaSink as _, ObjectKey, Outcome, Projection, SensitiveData, remains,
};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// Long enough that what an allocator writes into free memory does not hide it.
const PAYLOAD: &str = "aHVudGVyMi1odW50ZXIyLWh1bnRlcjItaHVudGVyMg==";

fn secrets() -> CellKey {
    let key = CellKey { sensitive_data: SensitiveData::Allow, ..cell("secrets") };
    assert!(matches!(key.projection, Projection::Full(_)), "whole");
    key
}

fn payload(n: usize) -> String {
    let payload = PAYLOAD.repeat(n);
    body(r#"{"app":"web"}"#, &format!(r#","data":{{"password":"{payload}"}}"#))
}

/// A table of `key` with the secret a/x, and where its record is.
fn table(key: &CellKey) -> (Catalog, Writer, Reader, (usize, usize)) {
    let catalog = Catalog::new();
    let mut writer = catalog.open(key, &BTreeSet::new());
    writer.apply(upsert("a/x", 1, "5", &payload(9)));
    let reader = catalog.reader(key).unwrap();
    let place = reader.place_of(0);
    (catalog, writer, reader, place)
}

fn is_left((at, length): (usize, usize)) -> bool {
    let found = remains(at, length).unwrap_or_default();
    found.windows(PAYLOAD.len()).any(|window| window == PAYLOAD.as_bytes())
}

#[test]
fn a_secret_is_wiped_when_it_is_changed_removed_purged_or_its_table_goes() {
    let (_catalog, mut writer, reader, place) = table(&secrets());
    assert!(is_left(place), "it is held");
    writer.apply(upsert("a/x", 1, "6", &payload(8)));
    assert!(!is_left(place), "changed");
    let place = reader.place_of(0);
    writer.apply(remove("a/x", "7"));
    assert!(!is_left(place), "removed");

    let (_catalog, mut writer, _reader, place) = table(&secrets());
    writer.apply(Delta::Purge);
    assert!(!is_left(place), "purged");

    let (_catalog, mut writer, reader, place) = table(&secrets());
    writer.apply(Delta::Arrived(Instant::now()));
    writer.apply(upsert("a/x", 1, "6", &payload(8)));
    assert!(!is_left(place), "changed, though access may have been lost before");
    assert_eq!(writer.apply(Delta::TakeBack), Outcome::Forgotten);
    assert_eq!(reader.usage().objects, 0);

    let (catalog, writer, reader, place) = table(&secrets());
    catalog.close(&secrets());
    assert!(is_left(place), "its reader still has it");
    drop((writer, reader));
    assert!(!is_left(place), "closed");
}

#[test]
fn secrets_that_crowd_out_what_is_remembered_do_not_hide_that_one_was_changed() {
    let (_catalog, mut writer, reader, _) = table(&secrets());
    let began = Instant::now();
    let after = |seconds| Delta::Arrived(began + Duration::from_secs(seconds));
    let crowd = |writer: &mut Writer, kind: &str| {
        for n in 0..600 {
            writer.apply(upsert(&format!("a/{kind}{n}"), 1, "6", &payload(1)));
        }
    };
    writer.apply(after(5));
    crowd(&mut writer, "old");
    writer.apply(after(10));
    writer.apply(upsert("a/x", 1, "7", &payload(8)));
    // The oldest of all these arrived at 5 s, and are forgotten last.
    crowd(&mut writer, "new");
    writer.apply(Delta::Verified(began + Duration::from_secs(7)));
    assert_eq!(writer.apply(Delta::TakeBack), Outcome::Forgotten);
    assert_eq!(reader.usage().objects, 0);
}

#[test]
fn what_a_reader_was_given_is_wiped_when_it_lets_go() {
    let (_catalog, _writer, reader, _) = table(&secrets());
    let object = reader.get(&ObjectKey { namespace: "a".into(), name: "x".into() }).unwrap();
    assert_eq!(object.body, payload(9).as_bytes());
    assert!(!format!("{object:?}").contains("data"), "{object:?}");
    let place = (object.body.as_ptr() as usize, object.body.len());
    let shared = object.body.clone();
    drop(object);
    assert!(is_left(place), "somebody still has it");
    drop(shared);
    assert!(!is_left(place));
}

#[test]
fn secrets_are_not_compressed_nor_learnt_from() {
    let catalog = Catalog::new();
    let mut writer = catalog.open(&secrets(), &BTreeSet::new());
    let names: Vec<_> = (0..2_000).map(|n| format!("a/x{n}")).collect();
    for name in &names {
        writer.apply(upsert(name, 1, "5", &payload(9)));
    }
    catalog.settle();
    let reader = catalog.reader(&secrets()).unwrap();
    assert_eq!(reader.packing_of(0), Packing::Secret);
    assert!(catalog.kind(&secrets()).current().is_none());
}
