use super::*;
use proptest::prelude::*;

fn canonical(text: &str) -> String {
    parse(text).unwrap().to_string()
}

fn refusal(text: &str) -> String {
    let failure = parse(text).unwrap_err();
    assert_eq!(failure.code(), 400, "{text}");
    failure.message().to_owned()
}

#[test]
fn the_complete_grammar_is_parsed() {
    for (text, expected) in [
        ("", ""),
        ("  ", ""),
        ("a", "a"),
        ("!a", "!a"),
        ("a=b", "a in (b)"),
        ("a==b", "a in (b)"),
        ("a = b", "a in (b)"),
        ("a!=b", "a notin (b)"),
        ("a=", "a in ()"),
        ("a=,b", "a in (),b"),
        ("a in (y,x)", "a in (x,y)"),
        ("a notin (x)", "a notin (x)"),
        ("a in ()", "a in ()"),
        ("a in (,)", "a in ()"),
        ("a in (x,)", "a in (,x)"),
        ("a in (,,x)", "a in (,x)"),
        ("a in (x,,)", "a in (,x)"),
        ("a\tin\n(x)", "a in (x)"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("notin", "notin"),
        ("example.com/a=b,!c", "!c,example.com/a in (b)"),
        ("a>5", "a>5"),
        ("a<5,b", "b,a<5"),
        ("a>5,a>5,a<9", "a>5,a<9"),
    ] {
        let canonical = canonical(text);
        let mut parts: Vec<_> = canonical.split(',').collect();
        let mut expected_parts: Vec<_> = expected.split(',').collect();
        parts.sort_unstable();
        expected_parts.sort_unstable();
        assert_eq!(parts, expected_parts, "{text}");
    }
}

#[test]
fn errors_have_the_messages_of_the_api_server() {
    for (text, expected) in [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in x", "unable to parse requirement: found 'x' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("a in (,", "unable to parse requirement: found '', expected: ',', or identifier"),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' \
             operators, the value must be an integer",
        ),
        (
            "-a=b",
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist \
             of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
             for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "a=-b",
            "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label \
             must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
             'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ] {
        assert_eq!(refusal(text), expected, "{text}");
    }
    for text in ["/a", "UP.io/a", "a/b/c", "a/", "a=b\0,c", &"a".repeat(64), "é"] {
        let message = refusal(text);
        assert!(!message.ends_with(": "), "{text}: {message}");
    }
    assert!(refusal("a in (-x,-y,z)").contains("[values[0][a]: "));
    assert!(refusal("a<-5").contains(": values[0][a]: Invalid value: \"-5\""));
    assert!(refusal("a<-b").contains(": [values[0]: "));
}

#[test]
fn selectors_above_the_limits_are_rejected() {
    let many = |most: usize, each: &str| vec![each; most].join(",");
    assert!(parse(&format!("a in ({})", many(MOST, "v"))).is_ok());
    assert!(refusal(&format!("a in ({})", many(MOST + 1, "v"))).contains("at most 1024"));
    let refused = parse(&format!("a in ({})", many(MOST + 1, "v"))).unwrap_err();
    assert!(refused.is_specific_to_cache(), "with --forward, the API server answers");
    assert!(parse(&many(MOST, "a")).is_ok());
    assert!(refusal(&many(MOST + 1, "a")).contains("at most 1024"));
    let each = |term: fn(usize) -> String, most| (0..most).map(term).collect::<Vec<_>>().join(",");
    for term in [|n| format!("a>{n}"), |n| format!("!a{n}"), |n| format!("a in (v{n},w)")] {
        assert!(parse(&each(term, MOST_REQUIREMENTS)).is_ok());
        assert!(refusal(&each(term, MOST_REQUIREMENTS + 1)).contains("at most 64 requirements"));
    }
}

proptest! {
    #[test]
    fn no_selector_causes_a_panic(any in ".{0,60}", likely in r"(in|notin|a|b|[!=<>(), ]){0,20}") {
        let _ = parse(&any);
        let _ = parse(&likely);
    }

    #[test]
    fn a_canonical_selector_parses_to_itself(likely in r"(in|notin|a|b|1|[!=<>(), ]){0,20}") {
        if let Ok(selector) = parse(&likely) {
            prop_assert_eq!(&parse(&selector.to_string()).unwrap(), &selector);
        }
    }
}
