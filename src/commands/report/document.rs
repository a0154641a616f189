//! Writes the data of a report as a JSON or YAML document.

use super::{
    super::CommandError, CommandExitCode, CommandReport, ReportFormat, ReportRow, ReportSection,
    RowMark,
};
use kubewarm_api::model::{escape, is_unsafe};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Writes `value` as a JSON or YAML document.
///
/// Escapes control characters in the syntax of the format. Also escapes invisible characters such
/// as direction marks: in JSON by JSON's syntax, in YAML as text (`\u{202e}`).
pub(super) fn document(value: &Value, format: ReportFormat) -> Result<String, CommandError> {
    if format == ReportFormat::Yaml {
        let mut value = value.clone();
        show_marks(&mut value);
        return serde_saphyr::to_string(&value)
            .map_err(|error| CommandError::caused("cannot write the output as YAML", error));
    }
    Ok(escape_json(&format!("{value:#}")) + "\n")
}

pub(super) fn sections_as_data(report: &CommandReport) -> Value {
    let sections: Vec<_> = report.sections.iter().map(section).collect();
    json!({ "sections": sections, "verdict": report.verdict.word() })
}

fn section(section: &ReportSection) -> Value {
    let mut fields = row(&section.head);
    if let Some(title) = fields.remove("text") {
        fields.insert("title".to_owned(), title);
    }
    let rows = section.rows.iter().map(row).map(Value::Object);
    fields.insert("rows".to_owned(), rows.collect());
    Value::Object(fields)
}

fn row(row: &ReportRow) -> Map<String, Value> {
    let facts: Map<_, _> = row
        .facts
        .iter()
        .filter(|fact| !fact.key.is_empty())
        .map(|fact| (fact.key.to_owned(), json!(fact.value)))
        .collect();
    let details: Vec<_> = row.details.iter().map(self::row).map(Value::Object).collect();
    let text = row.text();
    let fields = [
        ("result", row.mark.word().map(|word| json!(word))),
        ("text", (!text.is_empty()).then(|| json!(text))),
        ("facts", (!facts.is_empty()).then(|| json!(facts))),
        ("details", (!details.is_empty()).then(|| json!(details))),
        ("next", (!row.next.is_empty()).then(|| json!(row.next))),
    ];
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

impl RowMark {
    const fn word(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Branch => None,
            Self::Good => Some("ok"),
            Self::Note => Some("note"),
            Self::Unseen => Some("notChecked"),
            Self::Bad => Some("failed"),
            Self::Gains => Some("gained"),
            Self::Loses => Some("lost"),
            Self::Keeps => Some("kept"),
        }
    }
}

impl CommandExitCode {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Bad => "notOk",
            Self::Failed => "failed",
            Self::TimedOut => "timedOut",
        }
    }
}

/// Escapes the control and invisible characters in a JSON text, except the line feeds between its
/// tokens.
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

/// Escapes the invisible characters that the YAML writer does not escape, such as direction marks.
/// Also escapes control characters in keys of objects.
fn show_marks(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(|c: char| is_unsafe(c) && !c.is_control()) => {
            let lines: Vec<_> = text.split('\n').map(escape).collect();
            *text = lines.join("\n");
        }
        Value::Array(items) => items.iter_mut().for_each(show_marks),
        Value::Object(fields) => {
            let shown = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                show_marks(&mut value);
                (escape(&key).into_owned(), value)
            });
            fields.extend(shown);
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
