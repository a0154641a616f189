//! Parses lists and watch events of the API server, from bytes to objects.

pub(super) mod cut;
pub(super) mod decoder;
pub(super) mod event_splitter;
pub(super) mod frame_splitter;
pub(super) mod json_list_splitter;
pub(super) mod line_splitter;
pub(super) mod list_splitter;
pub(super) mod metadata;
pub(super) mod partial_item;
pub(super) mod peek;
pub(super) mod protobuf_list_splitter;
pub(super) mod upstream_event;
