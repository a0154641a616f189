//! One addition to or removal from the text of a document.

use super::{
    lines::{above_comments, dash, indent, is_first_on_line, line_end, line_start, newline},
    tree::{ManifestTextError, NodeContent, TextNode},
};
use crate::{
    field_change::{FieldChange, Removal, RemovedPart},
    manifest_path::ManifestPath,
};
use granit_parser::StructureStyle::{Block, Flow};
use serde_json::Value;
use std::ops::Range;

const NO_VALUE: &str = "there is no such value; do not use aliases or merge keys";
const NESTED: &str = "write the outer list as one item on each line";

/// Adds `change` to the document.
///
/// # Errors
///
/// [`ManifestTextError`] if the document cannot be edited at this position.
pub(crate) fn add(text: &str, change: &FieldChange) -> Result<String, ManifestTextError> {
    let unsupported = |reason| unsupported(&change.at, change.set.as_deref(), reason);
    let root = TextNode::parse(text)?;
    let place = root.as_ref().and_then(|root| root.find(&change.at));
    let place = place.ok_or_else(|| unsupported(NO_VALUE))?;
    let (at, added) = match (&place.content, &change.set) {
        (NodeContent::Mapping(..), Some(key)) if change.was_null => {
            let (name, value) = place.entry(key).ok_or_else(|| unsupported(NO_VALUE))?;
            if !value.bytes.is_empty() {
                return Err(unsupported("write nothing instead of null"));
            }
            let colon = text.get(name.bytes.end..).and_then(|rest| rest.find(':'));
            let colon = colon.ok_or_else(|| unsupported(NO_VALUE))?;
            (name.bytes.end + colon + 1, format!(" {}", change.value))
        }
        (NodeContent::Mapping(Flow, entries), Some(key)) => {
            let entry = format!("{}: {}", Value::from(key.as_str()), change.value);
            new_flow_part(place, entries.first().map(|(key, _)| key), entry)
        }
        (NodeContent::Sequence(Flow, items), None) => {
            new_flow_part(place, items.first(), change.value.to_string())
        }
        (NodeContent::Mapping(Block, entries), Some(key)) => {
            let line = format!("{key}: {}", scalar(&change.value));
            new_entry(text, entries, &line).ok_or_else(|| unsupported(NO_VALUE))?
        }
        (NodeContent::Sequence(Block, items), None) => {
            new_item(text, items, &change.value).ok_or_else(|| unsupported(NESTED))?
        }
        _ => return Err(unsupported("the value has another type")),
    };
    let mut edited = text.to_owned();
    edited.insert_str(at, &added);
    Ok(edited)
}

/// Where a flow collection gets a new first part, and the text. The part stands directly before the
/// old first one, on the same line.
fn new_flow_part(place: &TextNode, first: Option<&TextNode>, part: String) -> (usize, String) {
    match first {
        Some(first) => (first.bytes.start, part + ", "),
        None => (place.bytes.start + 1, part),
    }
}

/// Where a block mapping gets a new entry, and the text.
///
/// The entry follows the first entry of one line, such as a container's name, or else becomes the
/// first entry. Then comments stay directly above the entry that they describe.
fn new_entry(text: &str, entries: &[(TextNode, TextNode)], line: &str) -> Option<(usize, String)> {
    let first = &entries.first()?.0;
    let indent = indent(text, first.bytes.start);
    let newline = newline(text, first.bytes.start);
    let is_short = |(key, value): &&(TextNode, TextNode)| {
        let source = text.get(key.bytes.start..value.bytes.end);
        value.scalar().is_some() && source.is_some_and(|source| !source.contains(['\n', '\r']))
    };
    if let Some((_, value)) = entries.iter().find(is_short) {
        let newline = super::lines::newline(text, value.bytes.end);
        return Some((line_end(text, value.bytes.end), format!("{newline}{indent}{line}")));
    }
    if indent.len() == first.bytes.start - line_start(text, first.bytes.start)
        && is_first_on_line(text, first.bytes.start)
    {
        let at = above_comments(text, line_start(text, first.bytes.start));
        return Some((at, format!("{indent}{line}{newline}")));
    }
    Some((first.bytes.start, format!("{line}{newline}{indent}")))
}

/// Where a block sequence gets a new first item, and the text. Returns `None` if the first item of
/// the sequence is not on a line of its own.
fn new_item(text: &str, items: &[TextNode], value: &Value) -> Option<(usize, String)> {
    let dash = dash(text, items.first()?.bytes.start)?;
    if !is_first_on_line(text, dash) {
        return None;
    }
    let start = line_start(text, dash);
    let indent = text.get(start..dash)?;
    let line = format!("{indent}- {value}{}", newline(text, dash));
    Some((above_comments(text, start), line))
}

/// Removes a part of the document.
///
/// # Errors
///
/// [`ManifestTextError`] if the document cannot be edited at this position.
pub(crate) fn remove(text: &str, removal: &Removal) -> Result<String, ManifestTextError> {
    let key = match &removal.what {
        RemovedPart::Key(key) | RemovedPart::Value(key) => Some(key.as_str()),
        RemovedPart::Item(_) => None,
    };
    let missing = || unsupported(&removal.at, key, NO_VALUE);
    let root = TextNode::parse(text)?;
    let place = root.as_ref().and_then(|root| root.find(&removal.at)).ok_or_else(missing)?;
    let bytes = match (&place.content, &removal.what) {
        (NodeContent::Mapping(style, entries), RemovedPart::Key(key)) => {
            let position = entries.iter().position(|(name, _)| name.scalar() == Some(key));
            let position = position.ok_or_else(missing)?;
            let parts: Vec<_> =
                entries.iter().map(|(key, value)| key.bytes.start..value.bytes.end).collect();
            match style {
                Flow => flow_part(&parts, position),
                Block => block_part(text, &parts, position),
            }
        }
        (NodeContent::Mapping(..), RemovedPart::Value(key)) => {
            let (name, value) = place.entry(key).ok_or_else(missing)?;
            let colon = text.get(name.bytes.end..).and_then(|rest| rest.find(':'));
            // The position of a value that is already empty is before the colon.
            let start = colon.map(|colon| name.bytes.end + colon + 1);
            start.map(|start| start..value.bytes.end.max(start))
        }
        (NodeContent::Sequence(style, items), RemovedPart::Item(position)) => {
            let starts = items.iter().map(|item| match style {
                Flow => Some(item.bytes.clone()),
                Block => Some(dash(text, item.bytes.start)?..item.bytes.end),
            });
            let parts: Vec<_> = starts.collect::<Option<_>>().ok_or_else(missing)?;
            match style {
                Flow => flow_part(&parts, *position),
                Block => block_part(text, &parts, *position),
            }
        }
        _ => None,
    };
    let mut edited = text.to_owned();
    edited.replace_range(bytes.ok_or_else(missing)?, "");
    Ok(edited)
}

/// The bytes of a part of a flow collection, with one of the commas around it.
fn flow_part(parts: &[Range<usize>], position: usize) -> Option<Range<usize>> {
    let part = parts.get(position)?;
    if let Some(next) = parts.get(position + 1) {
        return Some(part.start..next.start);
    }
    let before = position.checked_sub(1).and_then(|before| parts.get(before));
    Some(before.map_or(part.start, |before| before.end)..part.end)
}

/// The bytes of a part of a block collection: whole lines, if the part begins a line.
fn block_part(text: &str, parts: &[Range<usize>], position: usize) -> Option<Range<usize>> {
    let part = parts.get(position)?;
    if !is_first_on_line(text, part.start) {
        return Some(part.start..parts.get(position + 1)?.start);
    }
    let start = line_start(text, part.start);
    let end = line_end(text, part.end);
    let rest = text.get(end..)?;
    let newline = ["\r\n", "\n"].into_iter().find(|newline| rest.starts_with(newline));
    match newline {
        Some(newline) => Some(start..end + newline.len()),
        // The last line has no line end, so the line end before it goes.
        None => Some(text.get(..start)?.trim_end_matches(['\r', '\n']).len()..end),
    }
}

/// A value in block style. Text with double quotes, such as JSON, is easier to read in single ones.
fn scalar(value: &Value) -> String {
    let is_readable = |text: &&str| text.contains('"') && !text.contains(char::is_control);
    match value.as_str().filter(is_readable) {
        Some(text) => format!("'{}'", text.replace('\'', "''")),
        None => value.to_string(),
    }
}

fn unsupported(at: &ManifestPath, key: Option<&str>, reason: &'static str) -> ManifestTextError {
    let field = key.map_or_else(|| at.clone(), |key| at.key(key)).to_string();
    ManifestTextError::Unsupported { field, reason }
}
