//! Parses the metadata of the objects and lists that informers receive.

use super::json_list_splitter::JsonListSplitter;
use kubewarm_api::model::{FaultReason, ObjectIdentity, RequestFault, ResourceVersion, Uid};
use kubewarm_wire::{json::JsonCursor, protobuf::ListMeta};
use serde::{Deserialize, de::Error as _};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The metadata of an object or a list. Decoding ignores all other fields.
#[derive(Deserialize)]
pub(crate) struct PartialMetadata<T> {
    #[serde(default)]
    pub(crate) metadata: T,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectMetadata<'a> {
    /// Empty if the object has no name, such as a bookmark.
    #[serde(borrow, default)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    labels: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) managed_fields: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
pub(crate) struct KnownAnnotations<'a> {
    #[serde(borrow, default, rename = "kubectl.kubernetes.io/last-applied-configuration")]
    pub(crate) last_applied: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "k8s.io/initial-events-end")]
    pub(crate) initial_events_end: Option<Cow<'a, str>>,
}

impl<'a> ObjectMetadata<'a> {
    pub(crate) fn uid(&self) -> Uid {
        Uid::parse(self.uid.as_deref().unwrap_or_default())
    }

    pub(crate) fn version(&self) -> Option<ResourceVersion> {
        ResourceVersion::parse(self.resource_version.as_deref()?)
    }

    pub(crate) fn named(&self) -> ObjectIdentity<'_> {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        ObjectIdentity { namespace, name: &self.name, uid: self.uid(), version: self.version() }
    }

    /// Whether every label value is a string. This method only checks the labels; the store reads
    /// them later.
    pub(crate) fn has_valid_labels(&self) -> bool {
        self.labels.is_none_or(|labels| {
            let labels = labels.get().as_bytes();
            // `JsonCursor` treats any value that is not an object as an empty object, so check for
            // `{` first.
            labels.starts_with(b"{") && JsonCursor::new(labels).strings(&mut |_, _| {}).is_some()
        })
    }

    /// # Errors
    ///
    /// Fails if `annotations` is not a JSON object, or if it contains a key of [`KnownAnnotations`]
    /// twice.
    pub(crate) fn annotations(&self) -> serde_json::Result<KnownAnnotations<'a>> {
        let Some(annotations) = self.annotations else { return Ok(KnownAnnotations::default()) };
        // Reject a JSON array, because serde would assign its elements to the fields in order.
        if !annotations.get().starts_with('{') {
            return Err(serde_json::Error::custom("no object"));
        }
        serde_json::from_str(annotations.get())
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    #[serde(default)]
    pub(crate) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(crate) token: String,
    #[serde(default)]
    pub(crate) remaining_item_count: Option<u64>,
}

impl ListMetadata {
    /// Parses the metadata of a list from the frame of `splitter`: everything received except the
    /// items.
    pub(crate) fn of(splitter: &JsonListSplitter) -> Result<Self, RequestFault> {
        Self::parse(&splitter.frame())
    }

    pub(crate) fn parse(json: &[u8]) -> Result<Self, RequestFault> {
        let PartialMetadata { metadata } = serde_json::from_slice(json)
            .map_err(|_| RequestFault::new(FaultReason::Malformed, "the answer is not a list"))?;
        Ok(metadata)
    }

    /// Parses the field `metadata` of a list in protobuf. `None` if the bytes are no such message.
    pub(crate) fn of_protobuf(metadata: &[u8]) -> Option<Self> {
        let ListMeta { version, next, remaining } = ListMeta::parse(metadata).ok()?;
        Some(Self {
            resource_version: version.to_owned(),
            token: next.to_owned(),
            remaining_item_count: remaining,
        })
    }

    /// # Errors
    ///
    /// [`FaultReason::Malformed`] if the list has no version.
    pub(crate) fn version(&self) -> Result<ResourceVersion, RequestFault> {
        ResourceVersion::parse(&self.resource_version).ok_or_else(|| {
            RequestFault::new(FaultReason::Malformed, "the list has no resourceVersion")
        })
    }
}
