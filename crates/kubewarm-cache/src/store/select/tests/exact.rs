//! Tests that a selection at a previous resource version returns the objects as they were.

use super::*;
use kubewarm_api::model::ReplacePolicy;
use std::collections::BTreeMap;

/// The objects at one resource version, by key. Each value contains the number in the object's
/// label `app`, and the object's body.
type Moment = BTreeMap<ObjectKey, (u8, String)>;

#[test]
fn a_selection_at_an_earlier_version_has_the_objects_of_that_version() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        writer.apply(Delta::ListDone(version("5")));
        let reader = catalog.reader(&informer_key("pods")).unwrap();
        let (mut now, mut moments) = (Moment::new(), vec![(5, Moment::new())]);
        for at in 6..120_u64 {
            let name = format!("{}/x{}", random.choice(["a", "a-a", "b"]).unwrap(), random.u8(..9));
            match random.u8(..4) {
                0 => {
                    writer.apply(remove(&name, &at.to_string()));
                    now.remove(&key(&name));
                }
                // A bookmark raises the store's version without changing an object.
                1 => {
                    writer.apply(Delta::Progress(version(&at.to_string())));
                }
                _ => {
                    let (uid, app) = (random.u8(1..3), random.u8(..3));
                    let labels = format!(r#"{{"app":"v{app}"}}"#);
                    let text = body(&labels, &format!(r#","at":{at}"#));
                    writer.apply(upsert(&name, uid, &at.to_string(), &text));
                    now.insert(key(&name), (app, text));
                }
            }
            moments.push((at, now.clone()));
        }
        for (at, moment) in moments {
            let at = version(&at.to_string());
            if !reader.remembers(&at) {
                assert!(reader.version().unwrap().is_older_than(&at));
                continue;
            }
            let app = random.bool().then(|| random.u8(..3));
            let namespace = random.choice([None, Some("a"), Some("b")]).unwrap();
            let after = random.bool().then(|| key(&format!("a/x{}", random.u8(..9))));
            let limit = random.bool().then(|| random.usize(1..9));
            let labels = app.map_or_else(LabelSelector::default, |app| {
                label("app", LabelSelectorOperator::In, &[&format!("v{app}")])
            });
            let query = ObjectQuery {
                namespace: namespace.map(Into::into),
                labels,
                ..ObjectQuery::default()
            };
            let behind = |key: &ObjectKey| {
                namespace.is_none_or(|namespace| *namespace == *key.namespace)
                    && after.as_ref().is_none_or(|after| key > after)
            };
            let there: Vec<_> = moment.iter().filter(|(key, _)| behind(key)).collect();
            let mut expected: Vec<_> = there
                .iter()
                .filter(|(_, (label, _))| app.is_none_or(|app| app == *label))
                .map(|(key, (_, text))| {
                    (format!("{}/{}", key.namespace, key.name), text.clone().into_bytes())
                })
                .collect();
            expected.truncate(limit.unwrap_or(usize::MAX));
            let selected = reader.select_at(&at, &query, after.as_ref(), limit).unwrap();
            assert_eq!(selected.version(), Some(&at));
            assert_eq!(selected.rows(), there.len(), "seed {seed}, {at}");
            let selected = all(selected);
            if let Some(last) = selected.last_key().filter(|_| limit.is_some()) {
                let is_last = there.last().is_some_and(|(key, _)| **key == last);
                assert_eq!(selected.has_more(), !is_last, "seed {seed}, {at}");
            }
            assert_eq!(shown(selected), expected, "seed {seed}, {at}");
        }
        assert!(!reader.remembers(&version("4")), "the version is older than the first list");
        assert!(!reader.remembers(&version("999")), "the store has not reached the version");
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        assert!(reader.remembers(&version("50")), "the list has found no change");
        writer.apply(upsert("a/new", 1, "200", "{}"));
        assert!(!reader.remembers(&version("50")), "the list has found a change");
    }
}
