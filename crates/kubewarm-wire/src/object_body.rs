//! The bytes of a stored object, in JSON or in protobuf. The code above the store reads objects
//! only through this module.

use crate::{
    json::{FieldPathSet, JsonCursor, find},
    protobuf::{self, JsonEncoder, ObjectNames},
    with_end_version, written_version,
};
use kubewarm_api::model::{ObjectEncoding, ResourceVersion};
use std::{borrow::Cow, ops::Range};

/// The bytes of a stored object, without `kind` and `apiVersion`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ObjectBody<'a> {
    /// The encoding of `bytes`.
    pub encoding: ObjectEncoding,
    /// The object.
    pub bytes: &'a [u8],
}

/// Buffers with which one object after the other is converted to JSON.
#[derive(Debug, Default)]
pub struct JsonBuffer {
    encoder: JsonEncoder,
    json: Vec<u8>,
}

impl<'a> ObjectBody<'a> {
    /// Creates the body of an object in JSON.
    pub const fn json(bytes: &'a [u8]) -> Self {
        Self { encoding: ObjectEncoding::Json, bytes }
    }

    /// Returns the object's JSON, as the API server writes it. Returns `None` if the bytes are not
    /// an object, which cannot occur for a stored object, because the informer's decoder checks
    /// each object.
    ///
    /// # Cost
    ///
    /// Nothing for JSON. For protobuf, the cost of [`JsonEncoder::write_object`].
    pub fn to_json<'b>(self, buffer: &'b mut JsonBuffer) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        let ObjectEncoding::Protobuf(message) = self.encoding else { return Some(self.bytes) };
        buffer.json.clear();
        buffer.encoder.write_object(message, self.bytes, &mut buffer.json).ok()?;
        Some(&buffer.json)
    }

    /// Whether the labels of two objects consist of the same bytes, so that a store need not update
    /// its label index. The comparison is cheap, but returns `false` for equal labels in a
    /// different order.
    pub fn has_same_labels(self, other: Self) -> bool {
        match (self.encoding, other.encoding) {
            (ObjectEncoding::Json, ObjectEncoding::Json) => {
                raw_labels(self.bytes) == raw_labels(other.bytes)
            }
            (ObjectEncoding::Protobuf(_), ObjectEncoding::Protobuf(_)) => {
                protobuf::has_same_labels(self.bytes, other.bytes)
            }
            _ => false,
        }
    }

    /// Calls `each` with the key and the value of every label. Stops at the first label whose value
    /// is not a text. Returns `false` for malformed protobuf, so that the caller does not treat the
    /// object as an object without labels.
    pub fn for_each_label(self, mut each: impl FnMut(&str, &str)) -> bool {
        match self.encoding {
            ObjectEncoding::Json => {
                // An invalid label needs no handling here, because the informer's decoder rejects
                // the object.
                let _ = labels(self.bytes).and_then(|at| at.strings(&mut each));
                true
            }
            ObjectEncoding::Protobuf(_) => protobuf::for_each_label(self.bytes, each).is_ok(),
        }
    }

    /// Calls `each` for every scalar that a field path finds, with the path's index in `paths` and
    /// the scalar's text, as [`JsonCursor::values`] does. Returns `false` for malformed protobuf,
    /// after `each` has received the values before the error.
    pub fn for_each_value(self, paths: &FieldPathSet, each: &mut impl FnMut(usize, &str)) -> bool {
        match self.encoding {
            ObjectEncoding::Json => {
                let _ = JsonCursor::new(self.bytes).values(paths, each);
                true
            }
            ObjectEncoding::Protobuf(message) => {
                protobuf::field_values(message, self.bytes, paths, each).is_ok()
            }
        }
    }

    /// Returns the byte range of `metadata.managedFields`; `None` if the object has none. In
    /// protobuf, each entry is a field of its own, so the range covers the first entry and all that
    /// directly follow it.
    pub(crate) fn managed_fields(self) -> Option<Range<usize>> {
        match self.encoding {
            ObjectEncoding::Json => find(self.bytes, &["metadata", "managedFields"]),
            ObjectEncoding::Protobuf(_) => protobuf::managed_fields(self.bytes),
        }
    }

    /// Returns `metadata.resourceVersion`, or `None` if the object has no version.
    pub fn version(self) -> Option<ResourceVersion> {
        match self.encoding {
            ObjectEncoding::Json => written_version::version_of(self.bytes),
            ObjectEncoding::Protobuf(_) => {
                ResourceVersion::parse(ObjectNames::of_object(self.bytes).ok()?.version)
            }
        }
    }

    /// Returns the last state of a deleted object for its `DELETED` event: the object with the
    /// resource version of its deletion. Returns the object unchanged if it has no resource
    /// version.
    pub fn with_end_version(self, version: &ResourceVersion) -> Cow<'a, [u8]> {
        match self.encoding {
            ObjectEncoding::Json => with_end_version(self.bytes, version),
            ObjectEncoding::Protobuf(_) => {
                let changed = protobuf::with_version(self.bytes, &version.to_string());
                changed.map_or(Cow::Borrowed(self.bytes), Cow::Owned)
            }
        }
    }
}

fn labels(json: &[u8]) -> Option<JsonCursor<'_>> {
    let mut at = JsonCursor::new(json);
    (at.seek("metadata")? && at.seek("labels")?).then_some(at)
}

fn raw_labels(json: &[u8]) -> Option<&[u8]> {
    find(json, &["metadata", "labels"]).and_then(|at| json.get(at))
}
