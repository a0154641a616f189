//! Words and sentences that this repository does not contain: they are hard to read, or had another meaning here.

#![expect(clippy::expect_used, reason = "a test may panic")]

mod text;

use self::text::{lengths, lines_with, units, words};
use super::files::files;
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// A word or phrase as [`lines_with`] takes it, and the replacement.
type Banned = (&'static str, &'static str);

/// Files and folders that the check reads. It reads the whole repository once all text is rewritten.
const DONE: &[&str] = &["."];

/// Paths with text of other projects, or with the words of this check.
const NOT_READ: &[&str] = &[
    ".git",
    "target",
    "LICENSE",
    "Cargo.lock",
    "proptest-regressions",
    "crates/kubewarm-wire/src/tables/columns.json",
    "tests/repository/prose",
];

const EXTENSIONS: &[&str] =
    &["go", "golden", "json", "md", "rs", "sh", "toml", "tpl", "txt", "yaml"];

const EVERYWHERE: &[Banned] = &[
    ("anew", "again"),
    ("whoever", "anyone who, a user who, a client that"),
    ("whom", "the noun, or: for which"),
    ("for ever", "always, without end"),
    ("but for", "except"),
    ("beside", "next to, in addition to"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("mending", "fixing"),
    ("let go", "release, drop"),
    ("lets go", "releases, drops"),
    ("letting go", "releasing, dropping"),
    ("so many", "the number, at most N"),
    ("of which", "two sentences"),
    ("those of", "the noun"),
    ("is told", "receives, is returned"),
    ("are told", "receive, are returned"),
    ("was told", "received, was returned"),
    ("were told", "received, were returned"),
    ("be told", "receive, be returned"),
    ("been told", "received, been returned"),
    ("nobody", "no one, no client, no profile"),
    ("somebody", "a user, a client, someone else"),
    ("fence", "block"),
    ("fences", "blocks"),
    ("fenced", "blocked"),
    ("fencing", "blocking"),
    ("canary", "rollback check"),
    ("census", "consistency check"),
    ("hearsay", "review"),
    ("trial", "access check"),
    ("trials", "access checks"),
    ("newcomer", "unauthenticated connection"),
    ("newcomers", "unauthenticated connections"),
    ("stranger", "unauthenticated client"),
    ("strangers", "unauthenticated clients"),
    ("lately", "recently"),
    ("the very", "the same"),
    ("he", "the user, the tenant"),
    ("his", "the user's, the tenant's"),
    ("him", "the user, the tenant"),
    ("himself", "the user, the tenant"),
];

/// In code these words have other meanings: Kubernetes' Tables have cells, and the standard library has `OnceCell`.
const OUTSIDE_CODE: &[Banned] = &[
    ("cell", "informer; of a Table: column or value"),
    ("cells", "informers; of a Table: columns or values"),
    ("proof", "freshness check"),
    ("proofs", "freshness checks"),
];

const WITH_ALL_WORDS: &[&str] = &["json", "md", "tpl", "txt", "yaml"];

const MOST_WORDS: usize = 30;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(OsStr::to_str).unwrap_or_default()
}

fn is_read(path: &Path) -> bool {
    let inside = path.strip_prefix(root()).unwrap_or(path);
    let is_text = path.is_dir()
        || EXTENSIONS.contains(&extension(path))
        || ["Makefile", "Containerfile", ".ci/run"].iter().any(|name| path.ends_with(name));
    is_text && !NOT_READ.iter().any(|not_read| inside == Path::new(not_read))
}

/// The files to check, as paths in the repository, each with its text.
fn texts() -> impl Iterator<Item = (PathBuf, String)> {
    let paths = DONE.iter().flat_map(|done| files(&root().join(done), is_read));
    paths.map(|path| {
        let text = fs::read_to_string(&path).expect("the file is text");
        (path.strip_prefix(root()).expect("found below the root").to_owned(), text)
    })
}

#[test]
fn banned_words_occur_nowhere() {
    let mut found = Vec::new();
    for (path, text) in texts() {
        let words = words(&text);
        let more = if WITH_ALL_WORDS.contains(&extension(&path)) { OUTSIDE_CODE } else { &[] };
        for (phrase, instead) in EVERYWHERE.iter().chain(more) {
            for line in lines_with(&words, phrase) {
                let path = path.display();
                found.push(format!("{path}:{line}: {phrase:?}; write instead: {instead}"));
            }
        }
    }
    assert!(found.is_empty(), "{} hits\n{}", found.len(), found.join("\n"));
}

#[test]
fn sentences_of_documents_have_at_most_30_words() {
    let mut found = Vec::new();
    for (path, text) in texts().filter(|(path, _)| extension(path) == "md") {
        for (line, unit) in units(&text) {
            for length in lengths(&unit).into_iter().filter(|length| *length > MOST_WORDS) {
                found.push(format!("{}:{line}: a sentence of {length} words", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{} hits\n{}", found.len(), found.join("\n"));
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
    let found: Vec<_> =
        units(page).into_iter().map(|(line, unit)| (line, lengths(&unit))).collect();
    let found: Vec<_> = found.into_iter().filter(|(_, lengths)| lengths != &[0]).collect();
    let expected: [(usize, &[usize]); 6] =
        [(1, &[2]), (3, &[2, 4, 0]), (7, &[5]), (9, &[1]), (15, &[1]), (15, &[2])];
    assert_eq!(found.iter().map(|(line, it)| (*line, &**it)).collect::<Vec<_>>(), expected);
}
