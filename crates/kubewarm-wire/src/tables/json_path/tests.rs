//! Tests the paths of printer columns.

use super::*;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn paths_find_the_values_that_the_api_server_finds() {
    let object = json!({
        "metadata": {"labels": {"a.b/c": "x"}},
        "spec": {"n": 3, "list": [1, 2, 3], "none": null},
        "status": {"conditions": [
            {"type": "A", "status": "True", "n": 1},
            {"type": "B", "status": "False", "n": 5},
        ]},
    });
    for (path, expected) in [
        (".spec.n", Some(json!(3))),
        ("$.spec.n", Some(json!(3))),
        ("spec", None),
        (".spec['n']", Some(json!(3))),
        (r".metadata.labels.a\.b/c", Some(json!("x"))),
        (r".metadata.labels['a\.b/c']", Some(json!("x"))),
        (".spec.none", Some(json!(null))),
        (".spec.other", None),
        (".spec.n.x", None),
        (".spec.list[0]", Some(json!(1))),
        (".spec.list[-1]", Some(json!(3))),
        (".spec.list[-1:]", Some(json!(3))),
        (".spec.list[1:]", Some(json!(2))),
        (".spec.list[3]", None),
        (".spec.list[*]", Some(json!(1))),
        (".spec.list[2,0]", Some(json!(3))),
        (".spec.n[0]", None),
        (".spec.*", Some(json!([1, 2, 3]))),
        ("..type", Some(json!("A"))),
        (r#".status.conditions[?(@.type=="B")].status"#, Some(json!("False"))),
        (".status.conditions[?(@.type=='B')].status", Some(json!("False"))),
        (".status.conditions[?(@.type=='C')].status", None),
        (".status.conditions[?(@.n>1)].type", Some(json!("B"))),
        (".status.conditions[?(@.n<=1)].type", Some(json!("A"))),
        (".status.conditions[?(@.type!='A')].type", Some(json!("B"))),
        (".status.conditions[?(@.status)].type", Some(json!("A"))),
        (".status.conditions[?(@.type>1)].type", None),
        (".", None),
    ] {
        let budget = RowBudget::default();
        let value = JsonPath::parse(path).and_then(|path| path.first(&object, &budget).cloned());
        assert_eq!(value, expected, "{path}");
    }
    for path in [".a[", ".a[x]", ".a[?(@.b", ".a[?(@.b=~'x')]", ".a}", "....", ".a[]", "['"] {
        assert_eq!(JsonPath::parse(path), None, "{path}");
    }
    assert!(JsonPath::parse(".metadata.name").unwrap().is_of_metadata());
    assert!(!JsonPath::parse(".spec.metadata").unwrap().is_of_metadata());
}

#[test]
fn a_path_that_multiplies_values_stops_at_the_budget() {
    let list = json!({ "a": vec![vec![vec![1]; 30]; 100] });
    let same = |name: &str, count| vec![format!("'{name}'"); count].join(",");
    for (path, is_exceeded) in [
        (format!("[{}][*]", same("a", 9)), false),
        (format!("[{}][*]", same("a", 4_000)), true),
        (format!("[{}].*", same("a", 4_000)), true),
        (format!("[{}][?(@..x=='y')]", same("a", 4_000)), true),
        (format!("[{}][?(@)]", same("a", 4_000)), true),
        (
            format!(
                "[{}][{}][{}]",
                same("a", 40),
                vec!["0"; 40].join(","),
                vec!["0"; 40].join(",")
            ),
            true,
        ),
    ] {
        let budget = RowBudget::default();
        let found = JsonPath::parse(&path).unwrap().first(&list, &budget).is_some();
        assert_eq!((found, budget.is_exceeded()), (!is_exceeded, is_exceeded), "{path:.30}");
    }
}

proptest! {
    #[test]
    fn no_path_causes_a_panic(any in ".{0,40}", likely in r#"[.\[\]?()@*:,'"\\ab01=<é ]{0,40}"#) {
        let object = json!({"a": [{"b": 1, "a": ["b"]}], "b": {"a": {"a": null}}});
        for path in [any, likely] {
            if let Some(path) = JsonPath::parse(&path) {
                let _ = path.first(&object, &RowBudget::default());
            }
        }
    }
}
