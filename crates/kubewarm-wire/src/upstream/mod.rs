//! Parses lists and watches of the API server, from bytes to objects.
//!
//! A splitter receives the chunks of a response and returns one item at a time, so that a list
//! needs the memory of one object. The decoder reads an item's metadata and removes what kubewarm
//! does not store.

mod cut;
mod decoder;
mod event_splitter;
mod frame_splitter;
mod json_list_splitter;
mod line_splitter;
mod list_splitter;
mod metadata;
mod partial_item;
mod peek;
mod protobuf_list_splitter;
mod upstream_event;

pub use self::{
    decoder::{DecodeError, ObjectDecoder, RejectedObject},
    event_splitter::{EventSplitter, SplitEvent},
    list_splitter::ListSplitter,
    metadata::{ListMetadata, ObjectMetadata, PartialMetadata},
    partial_item::{MAX_OBJECT, SplitItem},
    upstream_event::{Bookmark, UpstreamEvent, UpstreamEventType},
};
