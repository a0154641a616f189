//! Splits a list response into items, in the encoding in which the API server answered.

use super::{
    json_list_splitter::JsonListSplitter,
    metadata::ListMetadata,
    partial_item::{MAX_OBJECT, SplitItem},
    protobuf_list_splitter::ProtobufListSplitter,
};
use crate::MediaType;
use kubewarm_api::model::{ObjectEncoding, RequestFault};

/// Splits the chunks of a list response into items. Of an item above 16 MiB, keeps only the first
/// bytes, which contain the object's name.
pub struct ListSplitter(ListBytes);

enum ListBytes {
    Json(JsonListSplitter),
    Protobuf(Box<ProtobufListSplitter>),
}

impl ListSplitter {
    /// Creates a splitter of a response with this media type.
    pub fn new(media_type: MediaType) -> Self {
        Self(match media_type {
            MediaType::Json => ListBytes::Json(JsonListSplitter::new(MAX_OBJECT)),
            MediaType::Protobuf => {
                ListBytes::Protobuf(Box::new(ProtobufListSplitter::new(MAX_OBJECT)))
            }
        })
    }

    /// Consumes `chunk` up to the end of the next item. Also stops before the first item, so that
    /// the caller can first read the list's metadata.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Malformed`](kubewarm_api::model::FaultReason::Malformed) for bytes that
    /// cannot be a list; [`FaultReason::TooLarge`](kubewarm_api::model::FaultReason::TooLarge) for
    /// a frame (the list's bytes outside of its items) above 64 KiB.
    pub fn feed<'a>(
        &'a mut self,
        chunk: &'a [u8],
    ) -> Result<(usize, Option<SplitItem<'a>>), RequestFault> {
        match &mut self.0 {
            ListBytes::Json(splitter) => splitter.feed(chunk),
            ListBytes::Protobuf(splitter) => splitter.feed(chunk),
        }
    }

    /// Whether everything before the first item has arrived, so that the caller can read the list's
    /// metadata. For a list in JSON, `false` again after the last item.
    pub fn has_head(&self) -> bool {
        match &self.0 {
            ListBytes::Json(splitter) => splitter.is_in_items(),
            ListBytes::Protobuf(splitter) => splitter.metadata().is_some(),
        }
    }

    /// Whether the list has ended.
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            ListBytes::Json(splitter) => splitter.is_complete(),
            ListBytes::Protobuf(splitter) => splitter.is_complete(),
        }
    }

    /// Returns the metadata of the list as far as it has arrived. In JSON, metadata can also follow
    /// the items.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Malformed`](kubewarm_api::model::FaultReason::Malformed) if the JSON is not a
    /// list.
    pub fn metadata(&self) -> Result<ListMetadata, RequestFault> {
        match &self.0 {
            ListBytes::Json(splitter) => ListMetadata::of(splitter),
            ListBytes::Protobuf(splitter) => Ok(splitter.metadata().cloned().unwrap_or_default()),
        }
    }

    /// Returns the encoding of the items. Returns `None` if they are in protobuf and the field
    /// tables lack their kind: kubewarm must then list them as JSON.
    pub fn encoding(&self) -> Option<ObjectEncoding> {
        match &self.0 {
            ListBytes::Json(_) => Some(ObjectEncoding::Json),
            ListBytes::Protobuf(splitter) => splitter.message().map(ObjectEncoding::Protobuf),
        }
    }
}
