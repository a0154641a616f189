//! Splits a list response into items, in the encoding in which the API server answered.

use super::{
    json_list_splitter::JsonListSplitter,
    metadata::ListMetadata,
    partial_item::{MAX_OBJECT, SplitItem},
    protobuf_list_splitter::ProtobufListSplitter,
};
use kubewarm_api::model::{ObjectEncoding, RequestFault};
use kubewarm_wire::MediaType;

pub(crate) enum ListSplitter {
    Json(JsonListSplitter),
    Protobuf(Box<ProtobufListSplitter>),
}

impl ListSplitter {
    pub(crate) fn new(media_type: MediaType) -> Self {
        match media_type {
            MediaType::Json => Self::Json(JsonListSplitter::new(MAX_OBJECT)),
            MediaType::Protobuf => Self::Protobuf(Box::new(ProtobufListSplitter::new(MAX_OBJECT))),
        }
    }

    /// Consumes `chunk` up to the end of the next item. Also stops before the first item.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Malformed`](kubewarm_api::model::FaultReason::Malformed) for bytes that cannot be a list;
    /// [`FaultReason::TooLarge`](kubewarm_api::model::FaultReason::TooLarge) for a frame above 64 KiB.
    pub(crate) fn feed<'a>(
        &'a mut self,
        chunk: &'a [u8],
    ) -> Result<(usize, Option<SplitItem<'a>>), RequestFault> {
        match self {
            Self::Json(splitter) => splitter.feed(chunk),
            Self::Protobuf(splitter) => splitter.feed(chunk),
        }
    }

    /// Whether everything before the first item has arrived. For a list in JSON, `false` again after the last item.
    pub(crate) fn has_head(&self) -> bool {
        match self {
            Self::Json(splitter) => splitter.is_in_items(),
            Self::Protobuf(splitter) => splitter.metadata().is_some(),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Json(splitter) => splitter.is_complete(),
            Self::Protobuf(splitter) => splitter.is_complete(),
        }
    }

    /// Returns the metadata of the list, as far as it has arrived.
    pub(crate) fn metadata(&self) -> Result<ListMetadata, RequestFault> {
        match self {
            Self::Json(splitter) => ListMetadata::of(splitter),
            Self::Protobuf(splitter) => Ok(splitter.metadata().cloned().unwrap_or_default()),
        }
    }

    /// Returns the encoding of the items. `None` if they are in protobuf, and the field tables lack their kind.
    pub(crate) fn encoding(&self) -> Option<ObjectEncoding> {
        match self {
            Self::Json(_) => Some(ObjectEncoding::Json),
            Self::Protobuf(splitter) => splitter.message().map(ObjectEncoding::Protobuf),
        }
    }
}
