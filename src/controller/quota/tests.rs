use super::*;
use crate::controller::{profile_memory::PART_BYTES, profile_parser::profile_informers};
use kubewarm_api::model::{ObjectKey, ReplacePolicy, ResourceVersion, Uid, WatchedNamespaces};
use kubewarm_cache::store::{StoreCatalog, StoreReader};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The limits of an operator whose namespaces may use `namespace_bytes` of memory for stores.
fn quota(namespace_bytes: Option<u64>) -> ProfileQuota {
    let limits = OperatorLimits { namespace_bytes, ..OperatorLimits::default() };
    ProfileQuota::new("home".into(), limits)
}

struct QuotaFixture {
    sink: ProfileStoreWriter,
    store: StoreReader,
    quota: ProfileQuota,
}

impl QuotaFixture {
    fn new() -> Self {
        let key = profile_informers(&WatchedNamespaces::Everywhere).unwrap().remove(0).key;
        Self::of(&quota(None), &StoreCatalog::new(), &key)
    }

    fn within(namespace_bytes: u64) -> Self {
        let key = profile_informers(&WatchedNamespaces::Everywhere).unwrap().remove(0).key;
        Self::of(&quota(Some(namespace_bytes)), &StoreCatalog::new(), &key)
    }

    fn of(quota: &ProfileQuota, catalog: &StoreCatalog, key: &InformerKey) -> Self {
        let sink = quota.guard(catalog.open(key, &BTreeSet::new()), key);
        Self { sink, store: catalog.reader(key).unwrap(), quota: quota.clone() }
    }

    fn put(&mut self, namespace: &str, at: usize, bytes: usize) -> DeltaOutcome {
        let body = json!({"metadata": {"generation": 1}, "spec": "x".repeat(bytes)}).to_string();
        self.sink.apply(Delta::Upsert(DecodedObject {
            namespace: namespace.into(),
            name: format!("p{at:03}").into(),
            uid: Uid::parse("u"),
            version: ResourceVersion::parse("5"),
            body: body.as_bytes(),
        }))
    }

    fn remove(&mut self, namespace: &str, at: usize) -> DeltaOutcome {
        self.sink.apply(Delta::Remove(Tombstone {
            namespace: namespace.into(),
            name: format!("p{at:03}").into(),
            version: ResourceVersion::parse("10"),
        }))
    }

    /// Writes a complete list of profiles with small specs to the sink.
    fn list(&mut self, namespace: &str, profiles: impl Iterator<Item = usize>) -> DeltaOutcome {
        self.sink.apply(Delta::ListStarted(ReplacePolicy::Changed));
        for at in profiles {
            self.put(namespace, at, 1);
        }
        self.sink.apply(Delta::ListDone(ResourceVersion::from(9)))
    }

    /// Returns the stored form of a profile that the API server sends as `body`.
    fn store_body(&mut self, body: &str) -> String {
        let (namespace, name) = ("a", "p");
        self.sink.apply(Delta::Upsert(DecodedObject {
            namespace: namespace.into(),
            name: name.into(),
            uid: Uid::parse("u"),
            version: ResourceVersion::parse("5"),
            body: body.as_bytes(),
        }));
        let key = ObjectKey { namespace: namespace.into(), name: name.into() };
        let object = self.store.get(&key).unwrap();
        String::from_utf8_lossy(&object.bytes).into_owned()
    }

    fn left_out(&self) -> Vec<String> {
        let rows = self.store.versions(None, 20_000);
        let objects: Vec<_> = rows.iter().filter_map(|(key, _)| self.store.get(key)).collect();
        let left_out_name = |object: &kubewarm_cache::store::StoredObject| {
            let body: Value = serde_json::from_slice(&object.bytes).unwrap();
            let is_left_out = body["leftOut"] == true;
            assert_eq!(body.get("spec").is_none(), is_left_out);
            assert_eq!(
                object.version.is_none(),
                is_left_out,
                "without a version, the next list stores the profile again"
            );
            assert_eq!(body["metadata"]["generation"], 1);
            is_left_out.then(|| format!("{}/{}", object.key.namespace, object.key.name))
        };
        objects.iter().filter_map(left_out_name).collect()
    }
}

#[test]
fn fields_that_the_controller_does_not_read_are_dropped() {
    let large = "x".repeat(64 << 10);
    let text = format!(
        r#"{{"metadata":{{"annotations":{{"a":"{large}"}},"creationTimestamp":"2026-01-01T00:00:00Z",
        "generation":3,"labels":{{"a":"{large}"}},"name":"p","uid":"u"}},
        "spec":{{"targets":[],"n":1.50}},"status":{{"objects":1}},"more":"{large}","leftOut":true}}"#
    );
    assert_eq!(
        QuotaFixture::new().store_body(&text),
        r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":3},"spec":{"targets":[],"n":1.50},"status":{"objects":1},"leftOut":false}"#
    );
}

#[test]
fn missing_fields_stay_missing_and_unreadable_profiles_are_stored() {
    for (text, stored) in [
        (r#"{"metadata":{"name":"p"}}"#, r#"{"metadata":{},"leftOut":false}"#),
        (
            r#"{"spec":{},"metadata":{"generation":1}}"#,
            r#"{"metadata":{"generation":1},"spec":{},"leftOut":false}"#,
        ),
        (r#"{"metadata":{"generation":"x"}}"#, r#"{"metadata":{"generation":"x"}}"#),
    ] {
        assert_eq!(QuotaFixture::new().store_body(text), stored);
    }
}

#[test]
fn a_status_above_512_kib_is_not_stored() {
    let is_held = |length| {
        let text = format!(r#"{{"metadata":{{}},"status":"{}"}}"#, "x".repeat(length));
        QuotaFixture::new().store_body(&text).len() > length
    };
    assert!(is_held(MAX_STATUS - 2));
    assert!(!is_held(MAX_STATUS - 1));
}

#[test]
fn the_101st_profile_of_a_namespace_is_left_out() {
    let mut scene = QuotaFixture::new();
    scene.list("a", 0..101);
    assert_eq!(scene.left_out(), ["a/p100"]);
    // The admitted profile `a/p007` changes, and other namespaces get profiles. The store still
    // omits the spec of only one profile.
    scene.put("a", 7, 50);
    for namespace in ["b", "home"] {
        scene.put(namespace, 200, 1);
    }
    assert_eq!(scene.left_out(), ["a/p100"]);
    for at in 0..200 {
        scene.put("home", at, 1 << 16);
    }
    assert_eq!(scene.left_out(), ["a/p100"], "profiles of the operator namespace do not count");
}

#[test]
fn profiles_beyond_half_of_the_memory_for_stores_are_left_out() {
    // Each of the 1,000 bytes of a spec, quotes included, counts as four bytes of memory. The
    // profile counts 16 KiB in addition.
    let part = PART_BYTES + 4_000;
    let mut scene = QuotaFixture::within(2 * 4 * part);
    for at in 0..4 {
        scene.put("a", at, 998);
    }
    scene.put("a", 4, 1);
    assert_eq!(scene.left_out(), ["a/p004"]);
    scene.put("b", 4, 1);
    scene.put("home", 4, 9 << 20);
    assert_eq!(scene.left_out(), ["a/p004"], "other namespaces have their own memory");
    // A profile that grows beyond the limit is stored without its spec. Another profile can then
    // use the memory of the earlier spec.
    scene.put("a", 3, 999);
    assert_eq!(scene.left_out(), ["a/p003", "a/p004"]);
    scene.put("a", 4, 1);
    assert_eq!(scene.left_out(), ["a/p003"]);
}

#[test]
fn profiles_of_all_namespaces_share_half_of_the_memory_for_stores() {
    let limits = OperatorLimits { bytes: Some(2 * 3 * PART_BYTES), ..OperatorLimits::default() };
    let key = profile_informers(&WatchedNamespaces::Everywhere).unwrap().remove(0).key;
    let quota = ProfileQuota::new("home".into(), limits);
    let mut scene = QuotaFixture::of(&quota, &StoreCatalog::new(), &key);
    for namespace in ["a", "b", "c", "home"] {
        scene.put(namespace, 0, 1);
    }
    assert_eq!(scene.left_out(), ["c/p000"]);
}

#[test]
fn a_left_out_profile_is_admitted_by_a_relist_after_others_are_deleted() {
    let mut scene = QuotaFixture::new();
    scene.remove("a", 0);
    scene.list("a", 0..102);
    assert!(!scene.quota.take_freed());
    // The new spec has the same size as the old spec, so the update frees no memory.
    scene.put("a", 7, 1);
    assert!(!scene.quota.take_freed());
    assert_eq!(scene.remove("a", 7), DeltaOutcome::Removed);
    assert!(scene.quota.take_freed());
    assert!(!scene.quota.take_freed(), "once");
    scene.list("a", (0..102).filter(|at| *at != 7));
    assert_eq!(scene.left_out(), ["a/p101"]);
    // The removal of a spec in another namespace causes a relist too: the limit for all namespaces
    // can be the reason why the spec was omitted.
    scene.put("b", 0, 1);
    scene.remove("b", 0);
    assert!(scene.quota.take_freed());
}

#[test]
fn deleted_profiles_free_their_specs_at_the_end_of_a_relist() {
    let mut scene = QuotaFixture::new();
    scene.list("a", 100..200);
    let gone = scene.list("a", (0..3).chain(150..200));
    assert_eq!(gone, DeltaOutcome::Swept { removed: 50 });
    assert_eq!(scene.left_out(), ["a/p000", "a/p001", "a/p002"]);
    assert!(scene.quota.take_freed(), "the end of the list shows that profiles were deleted");
    scene.list("a", (0..3).chain(150..200));
    assert_eq!(scene.left_out(), [""; 0]);
    assert!(!scene.quota.take_freed());
}

#[test]
fn left_out_profiles_are_limited_and_admitted_by_a_later_relist() {
    let mut scene = QuotaFixture::new();
    scene.list("a", 0..300);
    assert_eq!((scene.store.objects(), scene.left_out().len()), (200, 100));
    assert_eq!(scene.remove("a", 299), DeltaOutcome::Outdated);
    assert_eq!(scene.put("a", 299, 1), DeltaOutcome::Outdated);
    assert_eq!(
        scene.store.version(),
        Some(ResourceVersion::from(10)),
        "the version of the last event"
    );
    scene.list("a", 250..300);
    assert!(scene.quota.take_freed());
    scene.list("a", 250..300);
    assert_eq!((scene.store.objects(), scene.left_out().len()), (50, 0));
}

#[test]
fn separately_listed_namespaces_share_the_process_limit() {
    let names: Vec<Arc<str>> = (0..102).map(|n| format!("n{n:03}").into()).collect();
    let informers =
        profile_informers(&WatchedNamespaces::Namespaces(names.iter().cloned().collect())).unwrap();
    let (catalog, quota) = (StoreCatalog::new(), quota(None));
    let scene = |informer: kubewarm_api::model::InformerSpec| {
        QuotaFixture::of(&quota, &catalog, &informer.key)
    };
    let mut scenes: Vec<_> = informers.into_iter().map(scene).collect();
    for (scene, name) in scenes.iter_mut().zip(&names) {
        scene.list(name, 0..100);
    }
    let left_out: Vec<_> = scenes.iter().map(|scene| scene.left_out().len()).collect();
    assert_eq!(
        left_out.iter().sum::<usize>(),
        200,
        "10,000 profiles in all namespaces are stored with specs"
    );
    assert_eq!(left_out[100..], [100, 100], "the last profiles are left out");
    scenes[50].remove("n050", 3);
    assert!(quota.take_freed());
    scenes[101].list("n101", 0..100);
    assert_eq!(scenes[101].left_out().len(), 99);
    // A purge removes all specs of namespace `n007`, so that the omitted specs of `n101` fit.
    scenes[7].sink.apply(Delta::Purge);
    assert!(quota.take_freed());
    scenes[101].list("n101", 0..100);
    assert_eq!(scenes[101].left_out(), [""; 0]);
}

#[test]
fn a_last_valid_spec_counts_like_other_specs() {
    let mut scene = QuotaFixture::within(8 << 20);
    scene.put("a", 0, ((3 << 20) - (16 << 10)) / 4 - 2);
    let kept = scene.quota.keep("a", 1 << 20);
    assert!(kept.is_some() && scene.quota.keep("a", 1).is_none());
    scene.put("a", 1, 1);
    assert_eq!(scene.left_out(), ["a/p001"]);
    drop(kept);
    scene.quota.note_freed();
    assert!(scene.quota.take_freed());
    let kept = scene.quota.keep("a", 1 << 20);
    scene.sink.apply(Delta::Purge);
    assert!(scene.quota.keep("a", (3 << 20) + 1).is_none(), "the last valid spec still counts");
    drop(kept);
    assert!(scene.quota.keep("a", 4 << 20).is_some());
    assert!(scene.quota.keep("home", 1 << 30).is_some());
}
