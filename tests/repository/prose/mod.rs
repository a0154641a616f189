//! Tests the glossary, and the parser of `make prose`.

mod text;

use self::text::{lengths, lines_with, units, words};
use std::{fs, path::Path};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_glossary_defines_at_most_12_terms() {
    let page = fs::read_to_string(root().join("docs/concepts.md")).expect("it is readable");
    let terms: Vec<_> = page.split("\n### ").skip(1).collect();
    assert!((1..=12).contains(&terms.len()), "{} terms", terms.len());
    for term in terms {
        let (name, text) = term.split_once("\n\n").expect("a term has a text");
        assert!(
            text.contains("\n\nIn client-go: "),
            "{name}: the counterpart in client-go is missing"
        );
        let definition = text.lines().next().unwrap_or_default();
        assert_eq!(lengths(definition).len(), 2, "{name}: its definition is one sentence");
    }
}

#[test]
fn phrases_are_found_across_lines_and_in_names() {
    let lines = |text: &str, phrase: &str| lines_with(&words(text), phrase);
    assert_eq!(lines("fn a_client_is_told() {}", "is told"), [1]);
    assert_eq!(lines("\n/// Not so\n    /// Many clients", "so many"), [2]);
    assert_eq!(lines("So. Many, or so (many)", "so many"), [0; 0]);
    assert_eq!(lines("something for everyone, for ever", "for ever"), [1]);
    assert_eq!(lines("the cache", "he"), [0; 0]);
}

#[test]
fn sentences_of_a_page_are_counted() {
    let page = "# One heading\n\nTwo words. `let code = \"a. b\";` and\nfour words!\n<!-- not\nthis -->\n\
                - An [item](a.md), of six\n  words\n1. Third\n\n```sh\nno. words\n```\n\n| a | b c |\n|---|---|\n";
    let counts: Vec<_> =
        units(page).into_iter().map(|(line, unit)| (line, lengths(&unit))).collect();
    let counts: Vec<_> = counts.into_iter().filter(|(_, lengths)| lengths != &[0]).collect();
    let expected: [(usize, &[usize]); 6] =
        [(1, &[2]), (3, &[2, 4, 0]), (7, &[5]), (9, &[1]), (15, &[1]), (15, &[2])];
    assert_eq!(
        counts.iter().map(|(line, counts)| (*line, &**counts)).collect::<Vec<_>>(),
        expected
    );
}
