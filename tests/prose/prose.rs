//! Warns of words and sentences that are hard to read, or that had another meaning in this
//! repository. `make prose` runs it. It fails no build: whether a word fits is for the author and
//! the reviewer to decide.

#![expect(clippy::expect_used, reason = "a program for contributors may panic")]
#![expect(clippy::print_stdout, reason = "the warnings are its result")]

#[path = "../repository/files.rs"]
mod files;
#[path = "../repository/prose/text.rs"]
mod text;

use self::{
    files::files,
    text::{lengths, lines_with, units, words},
};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// A word or phrase as [`lines_with`] takes it, and the replacement.
type Banned = (&'static str, &'static str);

/// Paths with text of other projects, or with the words of this check.
const NOT_READ: &[&str] = &[
    ".git",
    "target",
    "LICENSE",
    "Cargo.lock",
    "proptest-regressions",
    "crates/kubewarm-wire/src/tables/columns.json",
    "tests/repository/prose",
    "tests/prose",
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

/// Further words to warn of outside of code. In code, these words have other meanings: Kubernetes'
/// Tables have cells, and the standard library has `OnceCell`.
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
    files(root(), is_read).into_iter().map(|path| {
        let text = fs::read_to_string(&path).expect("the file is text");
        (path.strip_prefix(root()).expect("found below the root").to_owned(), text)
    })
}

/// Prints a warning for each phrase that has a better replacement.
fn warn_of_phrases(path: &Path, text: &str) -> usize {
    let words = words(text);
    let more = if WITH_ALL_WORDS.contains(&extension(path)) { OUTSIDE_CODE } else { &[] };
    let mut warnings = 0;
    for (phrase, instead) in EVERYWHERE.iter().chain(more) {
        for line in lines_with(&words, phrase) {
            println!("{}:{line}: {phrase:?}; better: {instead}", path.display());
            warnings += 1;
        }
    }
    warnings
}

/// Prints a warning for each long sentence of a document.
fn warn_of_sentences(path: &Path, text: &str) -> usize {
    let mut warnings = 0;
    for (line, unit) in units(text) {
        for length in lengths(&unit).into_iter().filter(|length| *length > MOST_WORDS) {
            println!("{}:{line}: a sentence of {length} words", path.display());
            warnings += 1;
        }
    }
    warnings
}

fn main() {
    let mut warnings = 0;
    for (path, text) in texts() {
        warnings += warn_of_phrases(&path, &text);
        if extension(&path) == "md" {
            warnings += warn_of_sentences(&path, &text);
        }
    }
    println!("{warnings} warnings");
}
