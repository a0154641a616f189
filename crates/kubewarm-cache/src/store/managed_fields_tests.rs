//! Tests of objects with managedFields, which share templates.

use super::{
    StoreCatalog, StoreReader, StoreWriter,
    fixtures::{all, body, informer_key, remove, uid, upsert},
    packed_object::BodyCompression,
};
use kubewarm_api::model::{
    DecodedObject, Delta, DeltaSink as _, ObjectEncoding, ObjectKey, ReplacePolicy, ResourceVersion,
};
use kubewarm_wire::protobuf::{message_of_kind, write_bytes};
use std::{collections::BTreeSet, ops::ControlFlow};

fn open_store() -> (StoreCatalog, StoreWriter, StoreReader) {
    let catalog = StoreCatalog::new();
    let writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
    let reader = catalog.reader(&informer_key("pods")).unwrap();
    (catalog, writer, reader)
}

/// Returns a pod whose managedFields are of this length. Only their time and IP depend on `n`.
fn pod(n: u32, length: usize) -> String {
    let fields = format!(
        r#"[{{"manager":"{}","time":"2026-01-01T00:00:{:02}Z","fieldsV1":{{"k:{{\"ip\":\"10.0.0.{n}\"}}":{{}}}}}}]"#,
        "m".repeat(length),
        n % 60
    );
    body(&format!(r#"{{"app":"app-{n}"}},"managedFields":{fields}"#), r#","spec":{"a":1}"#)
}

fn fill(writer: &mut StoreWriter, objects: u32, length: usize) {
    for n in 0..objects {
        writer.apply(upsert(&format!("a/x{n:03}"), 1, "5", &pod(n, length)));
    }
}

fn templates(reader: &StoreReader) -> usize {
    let contents = reader.store.contents.read();
    let rows = contents.slab.numbers_from(0).filter_map(|number| contents.slab.get(number));
    rows.filter(|row| row.record.template().is_some()).count()
}

#[test]
fn objects_with_a_template_are_read_unchanged() {
    let (catalog, mut writer, reader) = open_store();
    fill(&mut writer, 200, 1_000);
    catalog.wait_until_settled();
    assert_eq!(templates(&reader), 197);
    assert!(matches!(reader.packing_of(100), BodyCompression::Dictionary(_)));
    let objects = all(&reader);
    for (n, object) in (0..).zip(&objects) {
        assert_eq!(object.bytes, pod(n, 1_000));
    }
    // A list response reads its length before it decompresses objects.
    let selected = reader.select(&super::ObjectQuery::default(), None, None);
    let mut lengths = Vec::new();
    selected.visit_lengths_from(0, |_, _, length| {
        lengths.push(length);
        ControlFlow::Continue(())
    });
    assert_eq!(lengths, objects.iter().map(|object| object.bytes.len()).collect::<Vec<_>>());
}

#[test]
fn objects_with_equal_managed_fields_take_one_template_of_memory() {
    let bytes = |length| {
        let (_catalog, mut writer, reader) = open_store();
        // So few objects have no dictionary.
        fill(&mut writer, 30, length);
        reader.usage().bytes
    };
    // The template takes 10 KB, once. zstd has compressed the first three objects to some hundred
    // bytes.
    let (small, large) = (bytes(100), bytes(10_000));
    assert!((9_000..12_000).contains(&(large - small)), "{small} {large}");
}

#[test]
fn templates_are_freed_with_their_objects_but_not_while_they_are_read() {
    let (_catalog, mut writer, reader) = open_store();
    for remove_all in [
        |writer: &mut StoreWriter| {
            writer.apply(Delta::Purge);
        },
        |writer: &mut StoreWriter| {
            writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
            writer.apply(Delta::ListDone(ResourceVersion::from(7)));
        },
        |writer: &mut StoreWriter| {
            for n in 0..20 {
                writer.apply(remove(&format!("a/x{n:03}"), "6"));
            }
            writer.apply(Delta::Unreadable);
        },
    ] {
        fill(&mut writer, 20, 1_000);
        assert_eq!(templates(&reader), 17);
        let mut kept = reader.select(&super::ObjectQuery::default(), None, None);
        remove_all(&mut writer);
        assert!(reader.usage().bytes > 1_000);
        let mut bodies = Vec::new();
        let mut add = |object: super::StoredObjectView<'_>| {
            bodies.push(String::from_utf8_lossy(object.body.bytes).into_owned());
            ControlFlow::Continue(())
        };
        while kept.visit_next(&mut add) {}
        assert_eq!(bodies, (0..20).map(|n| pod(n, 1_000)).collect::<Vec<_>>());
        drop(kept);
        assert_eq!(reader.usage(), super::StoreUsage::default());
    }
    let gone = ObjectKey { namespace: "a".into(), name: "x000".into() };
    assert_eq!(reader.get(&gone), None);
}

#[test]
fn a_purge_sets_the_meter_to_zero() {
    let (catalog, mut writer, _reader) = open_store();
    fill(&mut writer, 20, 1_000);
    writer.apply(Delta::Purge);
    assert_eq!(catalog.meter(&informer_key("pods")).bytes(), 0);
}

#[test]
fn an_object_that_a_template_would_change_is_stored_whole() {
    let (_catalog, mut writer, reader) = open_store();
    let message = message_of_kind("v1", "Pod").unwrap();
    writer.apply(Delta::Encoding(ObjectEncoding::Protobuf(message)));
    let pod = |end: &[u8]| {
        let (mut entry, mut metadata, mut pod) = (Vec::new(), Vec::new(), Vec::new());
        write_bytes(1, &[b'm'; 100], &mut entry);
        entry.extend_from_slice(end);
        write_bytes(17, &entry, &mut metadata);
        write_bytes(1, &metadata, &mut pod);
        pod
    };
    // Two encodings of an empty field 2. The API server writes only the first.
    for (end, with_template) in [(&[0x12, 0x00][..], 7), (&[0x12, 0x80, 0x00], 0)] {
        let body = pod(end);
        for n in 0..10 {
            let item = DecodedObject {
                namespace: "a".into(),
                name: format!("x{n}").into(),
                uid: uid(1),
                version: None,
                body: &body,
            };
            writer.apply(Delta::Upsert(item));
        }
        assert_eq!(templates(&reader), with_template);
        assert!(all(&reader).iter().all(|object| object.bytes == body));
    }
}
