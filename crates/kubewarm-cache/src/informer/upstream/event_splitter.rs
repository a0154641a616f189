//! Splits a watch response into events, in the encoding in which the API server answered.

use super::{
    frame_splitter::FrameSplitter,
    line_splitter::LineSplitter,
    partial_item::{MAX_OBJECT, SplitItem},
    upstream_event::UpstreamEvent,
};
use kubewarm_wire::MediaType;

pub(crate) enum EventSplitter {
    Lines(LineSplitter),
    Frames(FrameSplitter),
}

/// An event's bytes, and the event itself.
pub(crate) struct SplitEvent<'a> {
    pub(crate) item: SplitItem<'a>,
    /// `None` if the bytes are not an event. Of an event above the size limit, the event's first fields.
    pub(crate) event: Option<UpstreamEvent<'a>>,
}

impl EventSplitter {
    pub(crate) fn new(media_type: MediaType) -> Self {
        match media_type {
            MediaType::Json => Self::Lines(LineSplitter::new(MAX_OBJECT)),
            MediaType::Protobuf => Self::Frames(FrameSplitter::new(MAX_OBJECT)),
        }
    }

    /// Whether only a part of an event has arrived.
    pub(crate) fn is_partial(&self) -> bool {
        match self {
            Self::Lines(splitter) => splitter.is_partial(),
            Self::Frames(splitter) => splitter.is_partial(),
        }
    }

    /// Consumes `chunk` up to the end of the next event. Returns the number of consumed bytes, and the event that
    /// ended, if any.
    pub(crate) fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> (usize, Option<SplitEvent<'a>>) {
        match self {
            Self::Lines(splitter) => {
                let (consumed, item) = splitter.feed(chunk);
                let event = |item| match item {
                    SplitItem::Whole(line) => UpstreamEvent::parse(line),
                    SplitItem::Oversized(head) => UpstreamEvent::of_head(head),
                };
                (consumed, item.map(|item| SplitEvent { item, event: event(item) }))
            }
            Self::Frames(splitter) => {
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
