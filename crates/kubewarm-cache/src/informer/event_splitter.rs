//! Splits a watch response into events, in the encoding in which the API server answered.

use super::{
    frame_splitter::FrameSplitter,
    line_splitter::LineSplitter,
    partial_item::{MAX_OBJECT, SplitItem},
    upstream_event::UpstreamEvent,
};
use kubewarm_wire::MediaType;

pub(super) enum EventSplitter {
    Lines(LineSplitter),
    Frames(FrameSplitter),
}

impl EventSplitter {
    pub(super) fn new(media_type: MediaType) -> Self {
        match media_type {
            MediaType::Json => Self::Lines(LineSplitter::new(MAX_OBJECT)),
            MediaType::Protobuf => Self::Frames(FrameSplitter::new(MAX_OBJECT)),
        }
    }

    /// Whether only a part of an event has arrived.
    pub(super) fn is_partial(&self) -> bool {
        match self {
            Self::Lines(splitter) => splitter.is_partial(),
            Self::Frames(splitter) => splitter.is_partial(),
        }
    }

    /// Consumes `chunk` up to the end of the next event. Returns the number of consumed bytes, and the event that
    /// ended, if any.
    pub(super) fn feed<'a>(&mut self, chunk: &'a [u8]) -> (usize, Option<SplitItem<'a>>) {
        match self {
            Self::Lines(splitter) => splitter.feed(chunk),
            Self::Frames(splitter) => splitter.feed(chunk),
        }
    }

    /// Parses an event, or the start of an event above the size limit. `None` if the bytes are not an event.
    pub(super) fn parse<'a>(&self, item: &'a SplitItem<'_>) -> Option<UpstreamEvent<'a>> {
        match (self, item) {
            (Self::Lines(_), SplitItem::Whole(line)) => UpstreamEvent::parse(line),
            (Self::Lines(_), SplitItem::Oversized(head)) => UpstreamEvent::of_head(head),
            (Self::Frames(_), SplitItem::Whole(frame)) => UpstreamEvent::parse_protobuf(frame),
            (Self::Frames(_), SplitItem::Oversized(head)) => UpstreamEvent::of_protobuf_start(head),
        }
    }
}
