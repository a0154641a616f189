//! Tests that no two types have the same name, so that a search or a stack trace leads to one
//! definition.

#![expect(clippy::expect_used, reason = "a test may panic")]

use super::files::files;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// Names that several types have, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("Failure", "the error type of a test program; no other program can use it"),
    ("Outcome", "the return type of tests in a test program; no other program can use it"),
];

/// Names that no type may have, because a reader would take it for the type of the standard library
/// or of Kubernetes.
const TAKEN: &[&str] = &[
    "Context", "Error", "Event", "Object", "Option", "Ordering", "Path", "Request", "Response",
    "Result", "Status", "String",
];

const ROOTS: &[&str] = &["src", "crates", "tests", "benches"];

/// A type that a file defines.
#[derive(Debug, PartialEq, Eq)]
struct Definition<'a> {
    name: &'a str,
    line: usize,
}

/// The structs, enums, unions, traits and aliases of a file, without associated types.
fn definitions(text: &str) -> Vec<Definition<'_>> {
    let mut definitions = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let indented = line.starts_with(' ');
        let code = line.trim_start();
        let item = code.strip_prefix("pub").map_or(code, |rest| match rest.split_once(") ") {
            Some((visibility, rest)) if visibility.starts_with('(') => rest,
            _ => rest,
        });
        let mut words =
            item.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let mut word = words.next().filter(|_| !code.starts_with("//"));
        if word == Some("unsafe") {
            word = words.next();
        }
        let is_type = match word {
            Some("struct" | "enum" | "union" | "trait") => true,
            Some("type") => !indented,
            _ => false,
        };
        let name = words.next().filter(|name| name.starts_with(char::is_uppercase));
        // strum's derive macro also defines a type, whose name is in `name(…)` of an attribute.
        let discriminants = code.strip_prefix("name(").and_then(|rest| rest.strip_suffix("),"));
        if let Some(name) = name.filter(|_| is_type).or(discriminants) {
            definitions.push(Definition { name, line: at + 1 });
        }
    }
    definitions
}

fn is_read(path: &Path) -> bool {
    let is_rust = path.is_dir() || path.extension() == Some(OsStr::new("rs"));
    is_rust && !path.ends_with("target")
}

/// The definitions of all crates by name, each as `file:line`.
fn by_name() -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut places = BTreeMap::<String, Vec<String>>::new();
    let paths: Vec<PathBuf> =
        ROOTS.iter().flat_map(|folder| files(&root.join(folder), is_read)).collect();
    for path in paths {
        let text = fs::read_to_string(&path).expect("the file is text");
        let path = path.strip_prefix(root).expect("found below the root").display().to_string();
        for Definition { name, line } in definitions(&text) {
            places.entry(name.to_owned()).or_default().push(format!("{path}:{line}"));
        }
    }
    places
}

#[test]
fn each_type_name_is_used_once() {
    let places = by_name();
    assert!(places.len() > 900, "only {} types were found", places.len());
    let is_allowed = |name: &str| ALLOWED.iter().any(|(allowed, _)| *allowed == name);
    let used_twice: Vec<_> = places
        .iter()
        .filter(|(name, places)| places.len() > 1 && !is_allowed(name))
        .map(|(name, places)| format!("{name}: {}; give each a name of its own", places.join(", ")))
        .collect();
    assert!(used_twice.is_empty(), "{}", used_twice.join("\n"));
    let unneeded: Vec<_> = ALLOWED
        .iter()
        .filter(|(name, _)| places.get(*name).is_none_or(|places| places.len() < 2))
        .collect();
    assert!(unneeded.is_empty(), "these names are unique: {unneeded:?}");
}

#[test]
fn no_type_outside_of_tests_has_a_name_of_the_standard_library() {
    let places = by_name();
    let is_test = |place: &String| place.starts_with("tests/");
    let of_programs =
        |name: &&&str| places.get(**name).is_some_and(|places| !places.iter().all(is_test));
    let taken: Vec<_> = TAKEN.iter().filter(of_programs).collect();
    assert!(taken.is_empty(), "{taken:#?}");
}

#[test]
fn definitions_are_found_in_every_form() {
    let text = "pub(in crate::a) struct One<T>(T);\nenum Two {\n    Three,\n}\n// struct Four;\n/// trait Five\n\
                pub unsafe trait Six {\n    type Seven;\n}\ntype Eight = u8;\nfn f() {\n    struct Nine;\n}\n\
                #[cfg(test)]\nmod tests {\n    struct Ten;\n}\npub union Eleven {}\n    name(Twelve),\n\
                const TEXT: &str = \"struct Thirteen\";\nlet type_ = Fourteen;\n";
    let names: Vec<_> = definitions(text).into_iter().map(|definition| definition.name).collect();
    assert_eq!(names, ["One", "Two", "Six", "Eight", "Nine", "Ten", "Eleven", "Twelve"]);
}
