//! Applies random deltas to a store and to a plain map, then compares their objects.

use super::{
    StoreCatalog, StoreReader, StoreWriter, StoredObject,
    fixtures::{
        all, body, informer_key, is_indexed, labelled, remove, uid, upsert, version, with_field,
    },
};
use kubewarm_api::model::{
    Delta, DeltaOutcome, DeltaSink, FieldPath, InformerKey, LabelRequirement, LabelSelector,
    LabelSelectorOperator, ObjectKey, ReplacePolicy,
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// An object in the map: UID, resource version, labels and number of the object's node. The
/// resource version is 0 if the object has none. The labels map the number of a key to the number
/// of a value.
type ModelObject = (u8, u64, BTreeMap<u8, u8>, u8);

#[derive(Clone, Debug)]
pub(super) enum HistoryStep {
    Upsert {
        key: (u8, u8),
        uid: u8,
        version: u64,
        labels: BTreeMap<u8, u8>,
        node: u8,
    },
    Remove {
        key: (u8, u8),
        version: u64,
    },
    ListStarted(bool),
    ListDone,
    Purge,
    Declare(bool),
    /// Moves the arrival time of the next deltas forward by this number of milliseconds.
    Arrived(u8),
}

#[derive(Debug, Default)]
struct StoreModel {
    rows: BTreeMap<(u8, u8), ModelObject>,
    list: Option<(bool, BTreeSet<(u8, u8)>)>,
}

impl StoreModel {
    fn apply(&mut self, step: &HistoryStep) -> Option<DeltaOutcome> {
        let outcome = match step {
            HistoryStep::Upsert { key, uid, version, labels, node } => {
                let everything = self.list.as_ref().is_some_and(|(everything, _)| *everything);
                if let Some((_, seen)) = &mut self.list {
                    seen.insert(*key);
                }
                let new = (*uid, *version, labels.clone(), *node);
                let outcome = match self.rows.get(key) {
                    None => DeltaOutcome::Added,
                    Some(old)
                        if self.list.is_none() && old.1 > 0 && *version > 0 && *version < old.1 =>
                    {
                        DeltaOutcome::Outdated
                    }
                    Some(old) if old.0 != *uid => DeltaOutcome::Replaced,
                    Some(old) if *version > 0 && *version == old.1 && !everything => {
                        DeltaOutcome::Unchanged
                    }
                    Some(old) if *old == new => DeltaOutcome::Unchanged,
                    Some(_) => DeltaOutcome::Modified,
                };
                if !matches!(outcome, DeltaOutcome::Outdated | DeltaOutcome::Unchanged) {
                    self.rows.insert(*key, new);
                }
                outcome
            }
            HistoryStep::Remove { key, version } => match self.rows.get(key) {
                Some(old) if old.1 == 0 || *version == 0 || *version >= old.1 => {
                    self.rows.remove(key);
                    DeltaOutcome::Removed
                }
                Some(_) | None => DeltaOutcome::Outdated,
            },
            HistoryStep::Arrived(_) => DeltaOutcome::Noted,
            HistoryStep::ListStarted(everything) => {
                self.list = Some((*everything, BTreeSet::new()));
                DeltaOutcome::Noted
            }
            HistoryStep::ListDone => {
                let before = self.rows.len();
                if let Some((_, seen)) = self.list.take() {
                    self.rows.retain(|key, _| seen.contains(key));
                }
                DeltaOutcome::Swept { removed: (before - self.rows.len()) as u64 }
            }
            HistoryStep::Purge => {
                self.rows.clear();
                if let Some((_, seen)) = &mut self.list {
                    seen.clear();
                }
                DeltaOutcome::Noted
            }
            HistoryStep::Declare(_) => return None,
        };
        Some(outcome)
    }
}

pub(super) fn steps() -> impl Strategy<Value = Vec<HistoryStep>> {
    let key = || (0..4_u8, 0..40_u8);
    let labels = proptest::collection::btree_map(0..3_u8, 0..4_u8, 0..4);
    let step = prop_oneof![
        60 => (key(), 0..3_u8, 0..30_u64, labels, 0..5_u8).prop_map(
            |(key, uid, version, labels, node)| HistoryStep::Upsert { key, uid, version, labels, node }
        ),
        10 => (key(), 0..30_u64).prop_map(|(key, version)| HistoryStep::Remove { key, version }),
        2 => any::<bool>().prop_map(HistoryStep::ListStarted),
        2 => Just(HistoryStep::ListDone),
        1 => Just(HistoryStep::Purge),
        1 => any::<bool>().prop_map(HistoryStep::Declare),
        12 => (0..5_u8).prop_map(HistoryStep::Arrived),
    ];
    proptest::collection::vec(step, 0..400)
}

fn json(object: &ModelObject) -> String {
    let (uid, version, labels, node) = object;
    let labels: Vec<_> =
        labels.iter().map(|(key, value)| format!(r#""k{key}":"v{value}""#)).collect();
    let version = if *version == 0 { String::new() } else { version.to_string() };
    let fields = format!(
        r#"[{{"manager":"kubelet","time":"2026-01-01T00:00:{version:0>2}Z","fieldsV1":{{"f:spec":{{"k:{{\"node\":\"{node}\"}}":{{}}}}}}}}]"#
    );
    body(
        &format!(r#"{{{}}},"managedFields":{fields}"#, labels.join(",")),
        &format!(
            r#","uid":"{uid}","resourceVersion":"{version}","spec":{{"nodeName":"node-{node}","text":"some text that is in every object of this kind"}}"#
        ),
    )
}

/// The store of one informer, to which a test applies steps.
pub(super) struct StoreHistory {
    key: InformerKey,
    writer: StoreWriter,
    began: Instant,
    /// Arrival time of the next deltas, in milliseconds since `began`.
    now: u64,
    /// Milliseconds for each millisecond of a step.
    milliseconds: u64,
}

impl StoreHistory {
    pub(super) fn start(catalog: &StoreCatalog, key: InformerKey, milliseconds: u64) -> Self {
        let writer = catalog.open(&key, &BTreeSet::new());
        Self { key, writer, began: Instant::now(), now: 0, milliseconds }
    }

    pub(super) fn perform(
        &mut self,
        catalog: &StoreCatalog,
        step: &HistoryStep,
    ) -> Option<DeltaOutcome> {
        let writer = &mut self.writer;
        let name = |key: &(u8, u8)| format!("n{}/x{:02}", key.0, key.1);
        let text = |version: &u64| if *version == 0 { String::new() } else { version.to_string() };
        Some(match step {
            HistoryStep::Upsert { key, uid, version, labels, node } => {
                let body = json(&(*uid, *version, labels.clone(), *node));
                writer.apply(upsert(&name(key), *uid, &text(version), &body))
            }
            HistoryStep::Remove { key, version } => {
                writer.apply(remove(&name(key), &text(version)))
            }
            HistoryStep::ListStarted(everything) => {
                let reread =
                    if *everything { ReplacePolicy::Everything } else { ReplacePolicy::Changed };
                writer.apply(Delta::ListStarted(reread))
            }
            HistoryStep::Arrived(later) => {
                self.now += u64::from(*later) * self.milliseconds;
                writer.apply(Delta::Arrived(self.began + Duration::from_millis(self.now)))
            }
            HistoryStep::ListDone => writer.apply(Delta::ListDone(version("30"))),
            HistoryStep::Purge => writer.apply(Delta::Purge),
            HistoryStep::Declare(on) => {
                let paths = on.then(node_path);
                catalog.set_indexes(&self.key, &paths.into_iter().collect());
                return None;
            }
        })
    }
}

pub(super) fn node_path() -> FieldPath {
    FieldPath::parse("spec.nodeName").unwrap()
}

fn keys_of(objects: &[StoredObject]) -> Vec<(u8, u8)> {
    let number = |text: &str| text.get(1..).unwrap().parse().unwrap();
    objects.iter().map(|object| (number(&object.key.namespace), number(&object.key.name))).collect()
}

fn compare(reader: &StoreReader, model: &StoreModel, indexed: bool) -> Result<(), TestCaseError> {
    let mut keys: Vec<ObjectKey> = Vec::new();
    loop {
        let page = reader.versions(keys.last(), 7);
        if page.is_empty() {
            break;
        }
        keys.extend(page.into_iter().map(|(key, _)| key));
    }
    let all = all(reader);
    prop_assert!(all.iter().map(|object| &object.key).eq(&keys));
    prop_assert_eq!(keys_of(&all), model.rows.keys().copied().collect::<Vec<_>>());
    for (object, plain) in all.iter().zip(model.rows.values()) {
        prop_assert_eq!(&object.bytes, &json(plain));
        prop_assert_eq!(&object.uid, &uid(plain.0));
        prop_assert_eq!(
            object.version.as_ref().map_or(0, |version| version.as_u64().unwrap()),
            plain.1
        );
        prop_assert_eq!(&reader.get(&object.key), &Some(object.clone()));
    }
    for (key, operator, values) in [
        ("k0", LabelSelectorOperator::In, vec!["v0", "v2"]),
        ("k1", LabelSelectorOperator::NotIn, vec!["v1"]),
        ("k2", LabelSelectorOperator::Exists, vec![]),
        ("k0", LabelSelectorOperator::DoesNotExist, vec![]),
    ] {
        let term = LabelRequirement::new(key, operator, values).unwrap();
        let k2 = LabelRequirement::new("k2", LabelSelectorOperator::NotIn, ["v3"]).unwrap();
        let meets = |plain: &ModelObject, term: &LabelRequirement| {
            let number: u8 = term.key().get(1..).unwrap().parse().unwrap();
            let value = plain.2.get(&number).map(|value| format!("v{value}"));
            term.matches(value.as_deref())
        };
        let expected =
            model.rows.iter().filter(|(_, object)| meets(object, &term) && meets(object, &k2));
        let expected: Vec<_> = expected.map(|(key, _)| *key).collect();
        let selector = LabelSelector::new([term, k2]);
        prop_assert_eq!(keys_of(&labelled(reader, selector.clone())), expected, "{}", selector);
    }
    for node in 0..5 {
        let objects = with_field(reader, &node_path(), &format!("node-{node}"));
        let expected = model.rows.iter().filter(|(_, plain)| plain.3 == node);
        let expected: Vec<_> = expected.map(|(key, _)| *key).collect();
        prop_assert_eq!(keys_of(&objects), expected);
    }
    prop_assert_eq!(is_indexed(reader, &node_path()), indexed);
    let has_empty_index = indexed && model.rows.is_empty();
    prop_assert_eq!(!reader.paths_without_values().is_empty(), has_empty_index);
    prop_assert_eq!(reader.usage().objects, model.rows.len() as u64);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_store_matches_a_model_under_random_deltas(steps in steps()) {
        let catalog = StoreCatalog::new();
        let mut history = StoreHistory::start(&catalog, informer_key("configmaps"), 1);
        let reader = history.writer.reader();
        let (mut model, mut indexed) = (StoreModel::default(), false);
        for (at, step) in steps.iter().enumerate() {
            let outcome = match history.perform(&catalog, step) {
                // The model does not compare events with the version of the whole store.
                Some(DeltaOutcome::Replayed) => Some(DeltaOutcome::Outdated),
                outcome => outcome,
            };
            prop_assert_eq!(outcome, model.apply(step), "{:?}", step);
            if let HistoryStep::Declare(on) = step {
                indexed = *on;
            }
            if at % 50 == 49 || at + 1 == steps.len() {
                catalog.wait_until_settled();
                compare(&reader, &model, indexed)?;
            }
        }
        history.writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        history.writer.apply(Delta::ListDone(version("31")));
        prop_assert_eq!(reader.usage().bytes, 0);
    }
}
