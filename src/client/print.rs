//! The way out: standard output, terminal or not, and its formats.

use super::{
    Error,
    paint::Colour,
    text::{escape, is_unsafe},
};
use crate::api::{self, CacheProfile};
use crate::cli::Output;
use serde_json::{Value, json};
use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal, Write as _},
};

/// A terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terminal {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) colour: Colour,
}

/// Writes `text` to standard output at once. A reader that went away, such as `head`, is no error.
///
/// # Errors
///
/// [`Error::Write`].
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::Write(error)),
        _ => Ok(()),
    }
}

/// Writes a line for people beside the output proper. Best effort: what is told here is also in the
/// exit code.
pub(super) fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The terminal that standard output is, if it is one that can draw.
///
/// `NO_COLOR`, when not empty, turns colours off.
pub(super) fn terminal() -> Option<Terminal> {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        return None;
    }
    let (width, height) = terminal_size::terminal_size()
        .map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()));
    let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = if no_color { Colour::Off } else { Colour::On };
    Some(Terminal { width, height, colour })
}

/// What is fetched: one object, or a list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
}

/// The status of `profiles` as a document: each with what identifies it, and a `v1` List of them if
/// that was asked for.
///
/// Control characters are escaped as the format has it. Those that only mislead the eye, such as
/// direction marks, are in JSON too; YAML has them as visible text (`\u{202e}`).
pub(super) fn document(
    profiles: &[CacheProfile],
    shape: Shape,
    format: Output,
) -> Result<String, Error> {
    let mut items: Vec<Value> = profiles.iter().map(item).collect();
    let value = match (shape, items.len()) {
        (Shape::One, 1) => items.remove(0),
        _ => json!({ "apiVersion": "v1", "kind": "List", "items": items }),
    };
    formatted(value, format)
}

/// `value` as a document; of unsafe characters as [`document`] says.
pub(super) fn formatted(value: Value, format: Output) -> Result<String, Error> {
    match format {
        Output::Json => {
            let text = serde_json::to_string_pretty(&value).map_err(Error::Json)?;
            Ok(escape_json(&text) + "\n")
        }
        Output::Yaml => {
            let mut value = value;
            show_marks(&mut value);
            serde_saphyr::to_string(&value).map_err(Error::Yaml)
        }
    }
}

fn item(profile: &CacheProfile) -> Value {
    let metadata = &profile.metadata;
    json!({
        "apiVersion": format!("{}/{}", api::GROUP, api::VERSION),
        "kind": "CacheProfile",
        "metadata": {
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
            "generation": metadata.generation,
        },
        "status": profile.status,
    })
}

/// JSON whose strings hold no unsafe character as it is; the line feeds of its layout remain.
fn escape_json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        if c == '\n' || !is_unsafe(c) {
            safe.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            let written = write!(safe, "\\u{unit:04x}");
            debug_assert!(written.is_ok(), "writing to a String does not fail");
        }
    }
    safe
}

/// The YAML writer escapes control characters, but not what [`escape`] knows beyond them.
fn show_marks(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(|c: char| is_unsafe(c) && !c.is_control()) => {
            let lines: Vec<_> = text.split('\n').map(escape).collect();
            *text = lines.join("\n");
        }
        Value::Array(items) => items.iter_mut().for_each(show_marks),
        Value::Object(fields) => fields.values_mut().for_each(show_marks),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    fn hostile() -> CacheProfile {
        let mut profile = sample::stalled();
        let condition = &mut profile.status.as_mut().unwrap().conditions[0];
        condition.message = "a\u{9b}b\u{202e}c\nd".to_owned();
        profile
    }

    #[test]
    fn json_is_lossless_and_holds_no_control_characters() {
        let text = document(&[hostile()], Shape::One, Output::Json).unwrap();
        assert!(!text.contains(|c: char| c != '\n' && is_unsafe(c)), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["status"]["conditions"][0]["message"], "a\u{9b}b\u{202e}c\nd");
        assert_eq!(value["metadata"]["name"], "broken");
    }

    #[test]
    fn yaml_holds_no_control_characters() {
        let text = document(&[hostile()], Shape::One, Output::Yaml).unwrap();
        assert!(!text.contains(|c: char| c != '\n' && is_unsafe(c)), "{text}");
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(value["status"]["observedGeneration"], 2);
    }

    #[test]
    fn several_profiles_are_a_list_even_if_there_is_only_one() {
        for (profiles, count) in [(vec![], 0), (vec![sample::ready()], 1)] {
            let text = document(&profiles, Shape::List, Output::Json).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["kind"], "List");
            assert_eq!(value["items"].as_array().map(Vec::len), Some(count));
        }
    }
}
