//! Tests which objects a query selects, and in which order it returns them.

mod bodies;
mod exact;

use super::*;
use crate::store::{
    StoreCatalog,
    fixtures::{body, informer_key, remove, upsert, version},
    packed_object::VALUES_PER_OBJECT,
};
use kubewarm_api::model::{
    Delta, DeltaSink as _, FieldPath, LabelRequirement, LabelSelector, LabelSelectorOperator,
    NumericLabelRequirement,
};
use std::{cmp::Ordering, collections::BTreeSet};

fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey { namespace: namespace.into(), name: name.into() }
}

/// Names for the values of `BodyPredicate::Field::is_equality`.
const IS: bool = true;
const IS_NOT: bool = false;

fn phase(is_equality: bool, value: &str) -> BodyPredicate {
    let path = FieldPath::parse("phase").unwrap();
    BodyPredicate::Field { path, absent: "".into(), is_equality, value: value.into() }
}

fn of(tests: impl IntoIterator<Item = BodyPredicate>) -> ObjectQuery {
    ObjectQuery { tests: tests.into_iter().collect(), ..ObjectQuery::default() }
}

fn compared(order: Ordering, bound: i64) -> BodyPredicate {
    BodyPredicate::Label(NumericLabelRequirement::new("n", order, bound).unwrap())
}

fn label(key: &str, operator: LabelSelectorOperator, values: &[&str]) -> LabelSelector {
    let values = values.iter().copied();
    LabelSelector::new([LabelRequirement::new(key, operator, values).unwrap()])
}

fn all(mut selected: ObjectSnapshot) -> ObjectSnapshot {
    while selected.filter_next() {}
    selected
}

/// Returns the key and the body of each object. Each `visit_next` call visits at most seven
/// objects.
fn shown(mut selected: ObjectSnapshot) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut goes_on = true;
    while goes_on {
        let most = all.len() + 7;
        goes_on = selected.visit_next(|object| {
            let name = format!("{}/{}", object.namespace, object.name.escape_ascii());
            all.push((name, object.body.bytes.to_vec()));
            if all.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }
    all
}

fn names(selected: ObjectSnapshot) -> Vec<String> {
    shown(selected).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_query_selects_exactly_the_matching_objects() {
    let path = FieldPath::parse("phase").unwrap();
    for declared in [BTreeSet::from([path]), BTreeSet::new()] {
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&informer_key("pods"), &declared);
        let mut objects = Vec::new();
        for n in 0..600_u32 {
            // The namespace `a` is a prefix of `aa` and `a-a`, so that a comparison of prefixes
            // would return wrong objects.
            let namespace = ["a", "aa", "a-a"][n as usize % 3];
            let app = (n % 5 > 0).then(|| format!(r#""app":"v{}","n":"{n}""#, n % 5));
            let phase = ["", r#","phase":"up""#, r#","phase":"down""#][n as usize % 7 % 3];
            let name = format!("{namespace}/x{:03}", n * 7 % 600);
            let text = body(&format!("{{{}}}", app.unwrap_or_default()), phase);
            objects.push((key(&name), n, text.clone()));
            writer.apply(upsert(&name, 1, "5", &text));
        }
        objects.sort_by(|left, right| left.0.cmp(&right.0));
        let reader = catalog.reader(&informer_key("pods")).unwrap();
        let selectors = [
            LabelSelector::default(),
            label("app", LabelSelectorOperator::In, &["v1", "v2"]),
            label("app", LabelSelectorOperator::NotIn, &["v1"]),
            label("app", LabelSelectorOperator::DoesNotExist, &[]),
            label("app", LabelSelectorOperator::In, &["none"]),
        ];
        let tests = [
            vec![],
            vec![phase(IS, "up")],
            vec![phase(IS_NOT, "up")],
            vec![phase(IS, "")],
            vec![compared(Ordering::Greater, 300)],
            vec![compared(Ordering::Less, 300), phase(IS, "down")],
        ];
        let afters = [
            None,
            Some(key("a/x100")),
            Some(key("aa/x999")),
            Some(key("a-a/x100")),
            Some(key("c/x")),
        ];
        for (labels, tests) in
            selectors.iter().flat_map(|labels| tests.iter().map(move |t| (labels, t)))
        {
            for namespace in [None, Some("a"), Some("aa"), Some("a-a"), Some("ab")] {
                for after in &afters {
                    let query = ObjectQuery {
                        namespace: namespace.map(Into::into),
                        name: None,
                        labels: labels.clone(),
                        tests: tests.iter().cloned().collect(),
                    };
                    let selected = reader.select(&query, after.as_ref(), None);
                    let names = names(all(selected));
                    let expected = objects.iter().filter(|(key, n, text)| {
                        let app = (n % 5 > 0).then(|| format!("v{}", n % 5));
                        let number = (n % 5 > 0).then_some(*n);
                        let is_label = labels
                            .requirements()
                            .all(|requirement| requirement.matches(app.as_deref()));
                        let is_test = tests.iter().all(|test| match test {
                            BodyPredicate::Field { is_equality, value, .. } => {
                                let phase = ["up", "down"].into_iter().find(|phase| {
                                    text.ends_with(&format!(r#""phase":"{phase}"}}"#))
                                });
                                (phase.unwrap_or_default() == &**value) == *is_equality
                            }
                            BodyPredicate::Label(comparison) => {
                                comparison.matches(number.map(|n| n.to_string()).as_deref())
                            }
                        });
                        namespace.is_none_or(|namespace| *key.namespace == *namespace)
                            && after.as_ref().is_none_or(|after| key > after)
                            && is_label
                            && is_test
                    });
                    let expected =
                        expected.map(|(key, ..)| format!("{}/{}", key.namespace, key.name));
                    assert_eq!(names, expected.collect::<Vec<_>>(), "{query:?} {after:?}");
                }
            }
        }
    }
}

#[test]
fn a_field_test_matches_any_of_several_values_with_and_without_an_index() {
    let path = FieldPath::parse("ports[*].name").unwrap();
    for declared in [BTreeSet::from([path.clone()]), BTreeSet::new()] {
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&informer_key("services"), &declared);
        // This object has 65 values, more than an index contains of one object.
        let many = (0..=VALUES_PER_OBJECT).map(|n| format!("p{n}")).collect::<Vec<_>>();
        for (name, ports) in [
            ("a/both", vec!["web".to_owned(), "admin".to_owned()]),
            ("a/many", many),
            ("a/none", vec![]),
            ("a/one", vec!["web".to_owned()]),
        ] {
            let ports: Vec<_> =
                ports.iter().map(|port| format!(r#"{{"name":"{port}"}}"#)).collect();
            let ports = format!(r#","ports":[{}]"#, ports.join(","));
            writer.apply(upsert(name, 1, "5", &body("{}", &ports)));
        }
        let reader = catalog.reader(&informer_key("services")).unwrap();
        for (is_equality, value, expected) in [
            (IS, "web", &["a/both", "a/one"] as &[_]),
            (IS_NOT, "web", &["a/many", "a/none"]),
            (IS, "admin", &["a/both"]),
            (IS_NOT, "admin", &["a/many", "a/none", "a/one"]),
            (IS, "", &["a/none"]),
            (IS_NOT, "", &["a/both", "a/many", "a/one"]),
            (IS, "p63", &["a/many"]),
            (IS, "p64", &["a/many"]),
            (IS_NOT, "p64", &["a/both", "a/none", "a/one"]),
            (IS, "p65", &[]),
            (IS_NOT, "p65", &["a/both", "a/many", "a/none", "a/one"]),
        ] {
            let (path, value) = (path.clone(), value.into());
            let test = BodyPredicate::Field { path, absent: "".into(), is_equality, value };
            let query = of([test]);
            assert_eq!(names_of(&reader, &query, None), expected, "{query:?}");
        }
    }
}

#[test]
fn lists_and_pages_are_in_the_order_of_etcd_keys() {
    let catalog = StoreCatalog::new();
    let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
    let names = [
        "team-a/b",
        "team-a/x",
        "team/a",
        "team/b",
        "team/b-a",
        "team/b.a",
        "team/b0",
        "team0-a/a",
        "team0/a",
    ];
    for (number, _) in names.iter().enumerate() {
        let name = names[number * 5 % names.len()];
        writer.apply(upsert(name, 1, "5", &body("{}", "")));
    }
    let reader = catalog.reader(&informer_key("pods")).unwrap();
    let query = ObjectQuery::default();
    assert_eq!(names_of(&reader, &query, None), names);
    for (at, name) in names.iter().enumerate() {
        let after = key(name);
        assert_eq!(names_of(&reader, &query, Some(&after)), names[at + 1..], "after {name}");
    }
    for (namespace, expected) in [("team", &names[2..7]), ("team-a", &names[..2]), ("tea", &[])] {
        let query = ObjectQuery { namespace: Some(namespace.into()), ..ObjectQuery::default() };
        assert_eq!(names_of(&reader, &query, None), expected, "{namespace}");
    }
    assert_eq!(reader.versions(None, 100).len(), names.len());
    let mut keys: Vec<_> = names.iter().rev().map(|name| key(name)).collect();
    keys.sort();
    assert_eq!(keys, names.map(key));
}

fn names_of(reader: &StoreReader, query: &ObjectQuery, after: Option<&ObjectKey>) -> Vec<String> {
    names(all(reader.select(query, after, None)))
}

#[test]
fn a_name_is_found_in_one_namespace_and_in_all() {
    let catalog = StoreCatalog::new();
    let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
    for name in ["a/x", "a/y", "b/x"] {
        writer.apply(upsert(name, 1, "5", &body(r#"{"app":"web"}"#, "")));
    }
    let reader = catalog.reader(&informer_key("pods")).unwrap();
    let select = |namespace: Option<&str>, labels: LabelSelector, after: Option<&str>| {
        let (namespace, name) = (namespace.map(Into::into), Some("x".into()));
        let query = ObjectQuery { namespace, name, labels, ..ObjectQuery::default() };
        let after = after.map(key);
        let selected = reader.select(&query, after.as_ref(), None);
        names(all(selected))
    };
    let any = LabelSelector::default;
    assert_eq!(select(None, any(), None), ["a/x", "b/x"]);
    assert_eq!(select(Some("b"), any(), None), ["b/x"]);
    assert_eq!(
        select(Some("b"), label("app", LabelSelectorOperator::DoesNotExist, &[]), None),
        [""; 0]
    );
    assert_eq!(select(Some("a"), any(), Some("a/x")), [""; 0]);
    assert_eq!(select(Some("c"), any(), None), [""; 0]);
}

#[test]
fn a_page_reports_whether_more_objects_follow() {
    let catalog = StoreCatalog::new();
    let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
    for n in 0..300 {
        let labels = if n < 200 { r#"{"app":"web"}"# } else { "{}" };
        writer.apply(upsert(&format!("a/x{n:03}"), 1, "5", &body(labels, "")));
    }
    let reader = catalog.reader(&informer_key("pods")).unwrap();
    let page = |query: &ObjectQuery, after: Option<&ObjectKey>, limit: usize| {
        let selected = all(reader.select(query, after, Some(limit)));
        (selected.objects(), selected.has_more(), selected.rows())
    };
    let (everything, last) = (ObjectQuery::default(), key("a/x299"));
    assert_eq!(page(&everything, None, 100), (100, true, 300));
    assert_eq!(page(&everything, Some(&key("a/x199")), 100), (100, false, 100));
    assert_eq!(page(&everything, Some(&last), 100), (0, false, 0));
    // `has_more` is true if another object follows in key order, even if the query does not select
    // that object. The API server sets its continue token in the same way.
    let labels = label("app", LabelSelectorOperator::Exists, &[]);
    let web = ObjectQuery { labels, ..ObjectQuery::default() };
    assert_eq!((page(&web, None, 200).0, page(&web, None, 200).1), (200, true));
    let tested = of([phase(IS, "")]);
    assert_eq!(page(&tested, None, 10), (10, true, 300));
}

#[test]
fn a_selection_is_unchanged_by_later_writes() {
    let catalog = StoreCatalog::new();
    let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
    for n in 0..300 {
        writer.apply(upsert(&format!("a/x{n:03}"), 1, "5", &body("{}", r#","n":1"#)));
    }
    writer.apply(Delta::ListDone(version("5")));
    let reader = catalog.reader(&informer_key("pods")).unwrap();
    let query = ObjectQuery::default();
    let selected = reader.select(&query, None, Some(usize::MAX));
    for n in 100..300 {
        writer.apply(upsert(&format!("a/x{n:03}"), 1, "6", &body("{}", r#","n":2"#)));
    }
    writer.apply(remove("a/x050", "7"));
    assert_eq!((selected.rows(), selected.version()), (300, Some(&version("5"))));
    let objects = shown(all(selected));
    assert_eq!(objects.len(), 300);
    assert!(objects.iter().all(|(_, body)| body.ends_with(br#""n":1}"#)));
}
