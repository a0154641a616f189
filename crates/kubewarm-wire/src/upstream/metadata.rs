//! Parses the metadata of the objects and lists that informers receive.

use super::json_list_splitter::JsonListSplitter;
use crate::{json::JsonCursor, protobuf::ListMeta};
use kubewarm_api::model::{FaultReason, ObjectIdentity, RequestFault, ResourceVersion, Uid};
use serde::{Deserialize, de::Error as _};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A part of an object or a list: only its metadata. Decoding ignores all other fields.
#[derive(Deserialize)]
pub struct PartialMetadata<T> {
    /// The metadata. If the bytes contain none, this is the default value of `T`.
    #[serde(default)]
    pub metadata: T,
}

/// The metadata of an object, without a copy of its strings.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMetadata<'a> {
    /// Empty if the object has no name, such as a bookmark.
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    #[serde(borrow, default)]
    /// `None` for a cluster-scoped object.
    pub namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    labels: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) managed_fields: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
pub(super) struct KnownAnnotations<'a> {
    #[serde(borrow, default, rename = "kubectl.kubernetes.io/last-applied-configuration")]
    pub(super) last_applied: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "k8s.io/initial-events-end")]
    pub(super) initial_events_end: Option<Cow<'a, str>>,
}

impl<'a> ObjectMetadata<'a> {
    pub(super) fn uid(&self) -> Uid {
        Uid::parse(self.uid.as_deref().unwrap_or_default())
    }

    pub(super) fn version(&self) -> Option<ResourceVersion> {
        ResourceVersion::parse(self.resource_version.as_deref()?)
    }

    /// Returns the object's namespace, name, UID and version.
    pub fn named(&self) -> ObjectIdentity<'_> {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        ObjectIdentity { namespace, name: &self.name, uid: self.uid(), version: self.version() }
    }

    /// Whether every label value is a string, so that the store can index the labels. This method
    /// only checks the labels, and keeps none.
    pub(super) fn has_valid_labels(&self) -> bool {
        self.labels.is_none_or(|labels| {
            let labels = labels.get().as_bytes();
            // `JsonCursor` treats any value that is not an object as an empty object, so check for
            // `{` first.
            labels.starts_with(b"{") && JsonCursor::new(labels).strings(&mut |_, _| {}).is_some()
        })
    }

    /// Returns the values of the annotations that kubewarm uses.
    ///
    /// # Errors
    ///
    /// Fails if `annotations` is not a JSON object, or if it contains a key of [`KnownAnnotations`]
    /// twice.
    pub(super) fn annotations(&self) -> serde_json::Result<KnownAnnotations<'a>> {
        let Some(annotations) = self.annotations else { return Ok(KnownAnnotations::default()) };
        // Reject a JSON array, because serde would assign its elements to the fields in order.
        if !annotations.get().starts_with('{') {
            return Err(serde_json::Error::custom("no object"));
        }
        serde_json::from_str(annotations.get())
    }
}

/// The metadata of a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMetadata {
    #[serde(default)]
    /// Empty if the version has not arrived yet: in a list of custom resources, the API server
    /// sends the version after the items.
    pub resource_version: String,
    #[serde(default, rename = "continue")]
    /// The continue token; empty in the last page.
    pub token: String,
    #[serde(default)]
    /// How many objects later pages have. `None` if the API server does not send the number, as for
    /// lists with selectors.
    pub remaining_item_count: Option<u64>,
}

impl ListMetadata {
    /// Parses the metadata of a list from the frame of `splitter`: everything received except the
    /// items.
    pub(super) fn of(splitter: &JsonListSplitter) -> Result<Self, RequestFault> {
        Self::parse(&splitter.frame())
    }

    /// Parses the metadata of a complete list in JSON. The list must be short, because the function
    /// reads all of it.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Malformed`] if `json` is not a list.
    pub fn parse(json: &[u8]) -> Result<Self, RequestFault> {
        let PartialMetadata { metadata } = serde_json::from_slice(json)
            .map_err(|_| RequestFault::new(FaultReason::Malformed, "the answer is not a list"))?;
        Ok(metadata)
    }

    /// Parses the field `metadata` of a list in protobuf. `None` if the bytes are no such message.
    pub(super) fn of_protobuf(metadata: &[u8]) -> Option<Self> {
        let ListMeta { version, next, remaining } = ListMeta::parse(metadata).ok()?;
        Some(Self {
            resource_version: version.to_owned(),
            token: next.to_owned(),
            remaining_item_count: remaining,
        })
    }

    /// Returns the resource version of the list.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Malformed`] if the list has no version.
    pub fn version(&self) -> Result<ResourceVersion, RequestFault> {
        ResourceVersion::parse(&self.resource_version).ok_or_else(|| {
            RequestFault::new(FaultReason::Malformed, "the list has no resourceVersion")
        })
    }
}
