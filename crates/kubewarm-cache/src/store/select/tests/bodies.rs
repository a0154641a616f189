//! How often bodies are looked into, and how many at a time.

use super::*;
use crate::store::record::{Encoding, WALKS};

#[test]
fn whatever_is_asked_of_a_body_it_is_walked_twice_and_for_who_comes_next_not_at_all() {
    let fields: Vec<_> = (0..64).map(|n| format!(r#""x{n:02}":{n}"#)).collect();
    let text = body(r#"{"app":"web","n":"5"}"#, &format!(r#","spec":{{{}}}"#, fields.join(",")));
    let field = |n: u32, is_equality, value: &str| {
        let path = FieldPath::parse(&format!(".spec.x{n:02}")).unwrap();
        Test::Field { path, absent: "".into(), is_equality, value: value.into() }
    };
    let labels = label("app", Operator::Exists, &[]);
    let with = |tests: Vec<Test>| Wanted { labels: labels.clone(), ..of(tests) };
    let selects = |wanted: &Wanted, said: &mut Said| {
        let before = WALKS.get();
        let selects = wanted.selects(Encoding::Json, text.as_bytes(), said);
        (selects, WALKS.get() - before)
    };
    let of_one_field = with(vec![field(63, IS, "63")]);
    assert_eq!(selects(&of_one_field, &mut Said::default()), (true, 2));
    let of_one_path = with((0..64).map(|n| field(63, IS_NOT, &format!("no{n}"))).collect());
    assert_eq!(selects(&of_one_path, &mut Said::default()), (true, 2));
    let of_many = (0..64).map(|n| field(n, IS, &n.to_string()));
    let of_many = with(of_many.chain((0..64).map(|n| compared(Ordering::Less, 6 + n))).collect());
    let mut said = Said::default();
    assert_eq!(selects(&of_many, &mut said), (true, 2));
    assert!((64 * 16..32 << 10).contains(&said.bytes()), "{said:?}");
    for (wanted, expected) in [
        (&of_many, true),
        (&of_one_path, true),
        (&with(vec![field(7, IS_NOT, "7")]), false),
        (&with(vec![compared(Ordering::Less, 5)]), false),
    ] {
        assert_eq!(selects(wanted, &mut said), (expected, 0), "{wanted:?}");
    }
}

#[test]
fn bodies_are_looked_into_for_a_turn_at_a_time_and_none_is_left_out() {
    let catalog = Catalog::new();
    let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
    // Four of them are a turn.
    let large = "x".repeat(256 << 10);
    for n in 0..20 {
        let phase = ["down", "up"][n % 2];
        let rest = format!(r#","phase":"{phase}","text":"{large}""#);
        writer.apply(upsert(&format!("a/x{n:02}"), 1, "5", &body("{}", &rest)));
    }
    for n in 0..300 {
        writer.apply(upsert(&format!("b/x{n:03}"), 1, "5", &body("{}", "")));
    }
    let reader = catalog.reader(&informer_key("pods")).unwrap();
    let goes = |namespace: &str, value: &str, limit: Option<usize>| {
        let namespace = Some(namespace.into());
        let wanted = Wanted { namespace, ..of([phase(IS, value)]) };
        let mut selected = reader.select(&wanted, None, limit);
        let mut goes = 1;
        while selected.step() {
            goes += 1;
        }
        (goes, names(selected))
    };
    let up: Vec<_> = (0..20).filter(|n| n % 2 == 1).map(|n| format!("a/x{n:02}")).collect();
    assert_eq!(goes("a", "up", None), (5, up.clone()));
    // What comes behind the last that is wanted is not looked into.
    assert_eq!(goes("a", "up", Some(3)), (2, up[..3].to_vec()));
    let (of_small, found) = goes("b", "", None);
    assert_eq!((of_small, found.len()), (3, 300), "a piece at a time");
}
