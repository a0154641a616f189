//! Splits a watch response into events, in the encoding in which the API server answered.

use super::{
    frame_splitter::FrameSplitter,
    line_splitter::LineSplitter,
    partial_item::{MAX_OBJECT, SplitItem},
    upstream_event::UpstreamEvent,
};
use crate::MediaType;

/// Splits the chunks of a watch response into events. Of an event above 16 MiB, keeps only the
/// first bytes: they contain the object's name, which the informer's status then reports.
pub struct EventSplitter(EventBytes);

enum EventBytes {
    Lines(LineSplitter),
    Frames(FrameSplitter),
}

/// The bytes of one event of a watch response, and the event that kubewarm has parsed from them.
pub struct SplitEvent<'a> {
    /// The bytes of the line or frame.
    pub item: SplitItem<'a>,
    /// `None` if the bytes are not an event. For an event above the size limit, this event contains
    /// only the beginning of its object.
    pub event: Option<UpstreamEvent<'a>>,
}

impl EventSplitter {
    /// Creates a splitter of a response with this media type.
    pub fn new(media_type: MediaType) -> Self {
        Self(match media_type {
            MediaType::Json => EventBytes::Lines(LineSplitter::new(MAX_OBJECT)),
            MediaType::Protobuf => EventBytes::Frames(FrameSplitter::new(MAX_OBJECT)),
        })
    }

    /// Whether only a part of an event has arrived.
    pub fn is_partial(&self) -> bool {
        match &self.0 {
            EventBytes::Lines(splitter) => splitter.is_partial(),
            EventBytes::Frames(splitter) => splitter.is_partial(),
        }
    }

    /// Consumes `chunk` up to the end of the next event. Returns the number of consumed bytes, and
    /// the event that ended, if any.
    pub fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> (usize, Option<SplitEvent<'a>>) {
        match &mut self.0 {
            EventBytes::Lines(splitter) => {
                let (consumed, item) = splitter.feed(chunk);
                let event = |item| match item {
                    SplitItem::Whole(line) => UpstreamEvent::parse(line),
                    SplitItem::Oversized(head) => UpstreamEvent::of_head(head),
                };
                (consumed, item.map(|item| SplitEvent { item, event: event(item) }))
            }
            EventBytes::Frames(splitter) => {
                let (consumed, item) = splitter.feed(chunk);
                let event = |item| match item {
                    SplitItem::Whole(frame) => UpstreamEvent::parse_protobuf(frame),
                    SplitItem::Oversized(head) => UpstreamEvent::of_protobuf_start(head),
                };
                (consumed, item.map(|item| SplitEvent { item, event: event(item) }))
            }
        }
    }
}
