//! Tests how often a query scans an object's JSON, and how many bytes one `filter_next` call scans.

use super::*;
use crate::store::packed_object::WALKS;

#[test]
fn a_body_is_scanned_at_most_twice_and_not_at_all_with_cached_values() {
    let fields: Vec<_> = (0..64).map(|n| format!(r#""x{n:02}":{n}"#)).collect();
    let text = body(r#"{"app":"web","n":"5"}"#, &format!(r#","spec":{{{}}}"#, fields.join(",")));
    let field = |n: u32, is_equality, value: &str| {
        let path = FieldPath::parse(&format!("spec.x{n:02}")).unwrap();
        BodyPredicate::Field { path, absent: "".into(), is_equality, value: value.into() }
    };
    let labels = label("app", LabelSelectorOperator::Exists, &[]);
    let with = |tests: Vec<BodyPredicate>| ObjectQuery { labels: labels.clone(), ..of(tests) };
    let selects = |query: &ObjectQuery, fields: &mut BodyFieldCache| {
        let before = WALKS.get();
        let selects = query.selects(kubewarm_wire::ObjectBody::json(text.as_bytes()), fields);
        (selects, WALKS.get() - before)
    };
    let of_one_field = with(vec![field(63, IS, "63")]);
    assert_eq!(selects(&of_one_field, &mut BodyFieldCache::default()), (true, 2));
    let of_one_path = with((0..64).map(|n| field(63, IS_NOT, &format!("no{n}"))).collect());
    assert_eq!(selects(&of_one_path, &mut BodyFieldCache::default()), (true, 2));
    let of_many = (0..64).map(|n| field(n, IS, &n.to_string()));
    let of_many = with(of_many.chain((0..64).map(|n| compared(Ordering::Less, 6 + n))).collect());
    let mut fields = BodyFieldCache::default();
    assert_eq!(selects(&of_many, &mut fields), (true, 2));
    assert!((64 * 16..32 << 10).contains(&fields.bytes()), "{fields:?}");
    for (query, expected) in [
        (&of_many, true),
        (&of_one_path, true),
        (&with(vec![field(7, IS_NOT, "7")]), false),
        (&with(vec![compared(Ordering::Less, 5)]), false),
    ] {
        assert_eq!(selects(query, &mut fields), (expected, 0), "{query:?}");
    }
}

#[test]
fn each_step_scans_a_limited_number_of_bytes_and_no_body_is_skipped() {
    let catalog = StoreCatalog::new();
    let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
    // One `filter_next` call scans at most a `ScanBudget` of 1 MiB, which four objects of 256 KiB
    // use up.
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
    let steps = |namespace: &str, value: &str, limit: Option<usize>| {
        let namespace = Some(namespace.into());
        let query = ObjectQuery { namespace, ..of([phase(IS, value)]) };
        let mut selected = reader.select(&query, None, limit);
        let mut steps = 1;
        while selected.filter_next() {
            steps += 1;
        }
        (steps, names(selected))
    };
    let up: Vec<_> = (0..20).filter(|n| n % 2 == 1).map(|n| format!("a/x{n:02}")).collect();
    assert_eq!(steps("a", "up", None), (5, up.clone()));
    // With a limit of 3, the selection scans no object after the third match.
    assert_eq!(steps("a", "up", Some(3)), (2, up[..3].to_vec()));
    let (of_small, bodies) = steps("b", "", None);
    assert_eq!((of_small, bodies.len()), (3, 300), "each step tests 128 small bodies");
}
