//! The data of a report as a JSON or YAML document.

use super::{super::Error, Format};
use kubewarm_api::model::{escape, is_unsafe};
use serde_json::Value;
use std::fmt::Write as _;

/// `value` as a document.
///
/// Control characters are escaped as the format has it. Those that only mislead the eye, such as
/// direction marks, are in JSON too; YAML has them as visible text (`\u{202e}`).
pub(super) fn document(value: &Value, format: Format) -> Result<String, Error> {
    if format == Format::Yaml {
        let mut value = value.clone();
        show_marks(&mut value);
        return serde_saphyr::to_string(&value)
            .map_err(|error| Error::caused("cannot write the output as YAML", error));
    }
    Ok(escape_json(&format!("{value:#}")) + "\n")
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
            let _infallible = write!(safe, "\\u{unit:04x}");
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
