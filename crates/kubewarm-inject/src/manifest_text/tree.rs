//! The values of a YAML document with their positions in the text.

use super::lines::{dash, line_start, next_line};
use crate::manifest_path::{ManifestPath, PathStep};
use granit_parser::{Event, Parser, Span, StructureStyle};
use std::{borrow::Cow, ops::Range};

/// Text that is no YAML, or that cannot be edited without changing something else.
#[derive(Debug, thiserror::Error)]
pub enum ManifestTextError {
    /// The text is no YAML.
    #[error("not YAML: {0}")]
    Syntax(#[from] granit_parser::ScanError),
    /// The text cannot be edited in place.
    #[error("cannot edit {field} here: {reason}")]
    Unsupported {
        /// Path of the field.
        field: String,
        /// Why, and what to write instead.
        reason: &'static str,
    },
}

/// A value and its bytes. A collection in block style ends with its last value.
#[derive(Debug)]
pub(super) struct TextNode {
    pub(super) bytes: Range<usize>,
    pub(super) content: NodeContent,
}

#[derive(Debug)]
pub(super) enum NodeContent {
    /// The text after processing of escapes.
    Scalar(String),
    /// Keys and values.
    Mapping(StructureStyle, Vec<(TextNode, TextNode)>),
    Sequence(StructureStyle, Vec<TextNode>),
    /// An alias of another value.
    Alias,
}

/// Splits a stream of YAML documents. The texts together are the whole stream. A text contains the
/// `---` before its document.
pub(crate) fn documents(stream: &str) -> Result<Vec<&str>, ManifestTextError> {
    let mut starts = Vec::new();
    for event in Parser::new_from_str(stream) {
        let (event, span) = event?;
        if matches!(event, Event::DocumentStart(..)) {
            starts.push(offset(span.start));
        }
    }
    // Comments before the first document belong to it. A stream of comments is one document.
    match starts.first_mut() {
        Some(first) => *first = 0,
        None if stream.is_empty() => {}
        None => starts.push(0),
    }
    let ends = starts.iter().skip(1).copied().chain([stream.len()]);
    Ok(starts.iter().zip(ends).filter_map(|(&start, end)| stream.get(start..end)).collect())
}

/// The value of the key `kind` of a document.
pub(crate) fn kind(text: &str) -> Result<Option<String>, ManifestTextError> {
    let root = TextNode::parse(text)?;
    let kind = root.as_ref().and_then(|root| root.entry("kind")?.1.scalar());
    Ok(kind.map(str::to_owned))
}

/// The bytes of an object's text, which is YAML by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectText {
    pub(crate) bytes: Range<usize>,
    /// The path of the object in this text.
    pub(crate) path: ManifestPath,
}

/// The texts of the document's `items`. `None` if there are none, or if the document has aliases.
/// An item in block style begins with its dash, so its text is a sequence of one item.
pub(crate) fn items(text: &str) -> Result<Option<Vec<ObjectText>>, ManifestTextError> {
    let root = TextNode::parse(text)?.filter(|root| !root.has_alias());
    let Some((_, list)) = root.as_ref().and_then(|root| root.entry("items")) else {
        return Ok(None);
    };
    let NodeContent::Sequence(style, items) = &list.content else { return Ok(None) };
    if *style == StructureStyle::Flow {
        let of_item = |item: &TextNode| ObjectText {
            bytes: item.bytes.clone(),
            path: ManifestPath::default(),
        };
        return Ok(Some(items.iter().map(of_item).collect()));
    }
    let starts = items.iter().map(|item| Some(line_start(text, dash(text, item.bytes.start)?)));
    let Some(starts) = starts.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let end = items.last().map(|last| next_line(text, last.bytes.end));
    let ends = starts.iter().skip(1).copied().chain(end);
    let path = ManifestPath::default().position(0);
    let of_item = |(&start, end)| ObjectText { bytes: start..end, path: path.clone() };
    Ok(Some(starts.iter().zip(ends).map(of_item).collect()))
}

fn offset(marker: granit_parser::Marker) -> usize {
    marker.byte_offset().unwrap_or_default()
}

impl TextNode {
    /// Parses the first document of `text`. Returns `None` if there is none.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, ManifestTextError> {
        let mut events = Vec::new();
        for event in Parser::new_from_str(text) {
            let (event, span) = event?;
            let is_node = !matches!(
                event,
                Event::Comment(..)
                    | Event::StreamStart
                    | Event::StreamEnd
                    | Event::DocumentStart(..)
                    | Event::DocumentEnd
            );
            if is_node {
                events.push((event, span));
            }
        }
        Ok(match next(&mut events.into_iter()) {
            Some(NextNode::Value(root)) => Some(root),
            Some(NextNode::End(_)) | None => None,
        })
    }

    /// The value at `path`.
    pub(super) fn find(&self, path: &ManifestPath) -> Option<&Self> {
        path.steps().iter().try_fold(self, |node, step| match step {
            PathStep::Key(key) => node.entry(key).map(|(_, value)| value),
            PathStep::Named(name) => node.items()?.iter().find(|item| {
                item.entry("name").is_some_and(|(_, value)| value.scalar() == Some(name))
            }),
            PathStep::Position(position) => node.items()?.get(*position),
        })
    }

    pub(super) fn entry(&self, key: &str) -> Option<&(Self, Self)> {
        let NodeContent::Mapping(_, entries) = &self.content else { return None };
        entries.iter().find(|(name, _)| name.scalar() == Some(key))
    }

    fn items(&self) -> Option<&[Self]> {
        let NodeContent::Sequence(_, items) = &self.content else { return None };
        Some(items)
    }

    fn has_alias(&self) -> bool {
        match &self.content {
            NodeContent::Alias => true,
            NodeContent::Scalar(_) => false,
            NodeContent::Sequence(_, items) => items.iter().any(Self::has_alias),
            NodeContent::Mapping(_, entries) => {
                entries.iter().any(|(key, value)| key.has_alias() || value.has_alias())
            }
        }
    }

    pub(super) fn scalar(&self) -> Option<&str> {
        let NodeContent::Scalar(text) = &self.content else { return None };
        Some(text)
    }
}

/// A value, or the end of the collection around it.
enum NextNode {
    Value(TextNode),
    /// The offset after the closing bracket of a collection in flow style.
    End(usize),
}

/// The next value of the events. `None` if the events end inside a collection.
fn next<'a>(events: &mut impl Iterator<Item = (Event<'a>, Span)>) -> Option<NextNode> {
    let (event, span) = events.next()?;
    let (start, mut end) = (offset(span.start), offset(span.end));
    let content = match event {
        Event::Scalar(text, ..) => NodeContent::Scalar(Cow::into_owned(text)),
        Event::SequenceStart(style, ..) => {
            let mut items: Vec<TextNode> = Vec::new();
            end = loop {
                match next(events)? {
                    NextNode::Value(item) => items.push(item),
                    NextNode::End(closed) if style == StructureStyle::Flow => break closed,
                    NextNode::End(_) => break items.last().map_or(end, |last| last.bytes.end),
                }
            };
            NodeContent::Sequence(style, items)
        }
        Event::MappingStart(style, ..) => {
            let mut entries: Vec<(TextNode, TextNode)> = Vec::new();
            end = loop {
                match (next(events)?, style) {
                    (NextNode::Value(key), _) => {
                        let NextNode::Value(value) = next(events)? else { return None };
                        entries.push((key, value));
                    }
                    (NextNode::End(closed), StructureStyle::Flow) => break closed,
                    (NextNode::End(_), StructureStyle::Block) => {
                        break entries.last().map_or(end, |(_, last)| last.bytes.end);
                    }
                }
            };
            NodeContent::Mapping(style, entries)
        }
        Event::SequenceEnd | Event::MappingEnd => return Some(NextNode::End(end)),
        // `TextNode::parse` passes no other events.
        Event::Alias(..)
        | Event::UnresolvedAlias(..)
        | Event::Anchor(..)
        | Event::Comment(..)
        | Event::StreamStart
        | Event::StreamEnd
        | Event::DocumentStart(..)
        | Event::DocumentEnd
        | _ => NodeContent::Alias,
    };
    Some(NextNode::Value(TextNode { bytes: start..end, content }))
}
