//! Reads and rewrites `metadata`, the field 1 of every object and of every list.
//!
//! The field numbers are from `generated.proto` of `k8s.io/apimachinery/pkg/apis/meta/v1`.

use super::wire_format::{
    FieldReader, ProtobufError, RawField, find_field, varint, write_bytes, write_message,
    write_number,
};
use super::{envelope::enter_field, go_values::read_entry};
use std::ops::Range;

/// The number of `metadata` in every object and in every list.
pub const METADATA: u32 = 1;
const NAME: u32 = 1;
const NAMESPACE: u32 = 3;
const UID: u32 = 5;
const RESOURCE_VERSION: u32 = 6;
const LABELS: u32 = 11;
const ANNOTATIONS: u32 = 12;
const MANAGED_FIELDS: u32 = 17;

const LIST_SELF_LINK: u32 = 1;
const LIST_VERSION: u32 = 2;
const LIST_CONTINUE: u32 = 3;
const LIST_REMAINING: u32 = 4;

/// The parts of an object's metadata by which kubewarm stores the object. Absent fields are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectNames<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `metadata.resourceVersion`.
    pub version: &'a str,
}

/// The metadata of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListMeta<'a> {
    /// `resourceVersion`.
    pub version: &'a str,
    /// `continue`; empty on the last page.
    pub next: &'a str,
    /// `remainingItemCount`.
    pub remaining: Option<u64>,
}

impl<'a> ObjectNames<'a> {
    /// Reads the metadata of an object.
    ///
    /// # Errors
    ///
    /// [`ProtobufError::Malformed`] if the bytes are not a message, or if a name is not UTF-8.
    pub fn of_object(object: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut names = Self::default();
        let mut fields = FieldReader::new(metadata(object)?);
        while let Some(field) = fields.next_field()? {
            if !names.take(field.number, fields.value(&field)) {
                return Err(ProtobufError::Malformed);
            }
        }
        Ok(names)
    }

    /// Reads the names of an object whose end is missing. Names behind the missing part are empty.
    pub fn of_start(object: &'a [u8]) -> Self {
        let mut names = Self::default();
        let mut fields = FieldReader::new(enter_field(object, METADATA).unwrap_or_default());
        while let Ok(Some(field)) = fields.next_field() {
            names.take(field.number, fields.value(&field));
        }
        names
    }

    /// Stores `value` if the field is one of the names. Returns `false` if this name is not UTF-8.
    fn take(&mut self, number: u32, value: &'a [u8]) -> bool {
        let part = match number {
            NAME => &mut self.name,
            NAMESPACE => &mut self.namespace,
            UID => &mut self.uid,
            RESOURCE_VERSION => &mut self.version,
            _ => return true,
        };
        text(value).map(|value| *part = value).is_ok()
    }
}

impl<'a> ListMeta<'a> {
    /// Reads the field `metadata` of a list.
    ///
    /// # Errors
    ///
    /// [`ProtobufError::Malformed`] if the bytes are not such a message.
    pub fn parse(metadata: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut meta = Self::default();
        let mut fields = FieldReader::new(metadata);
        while let Some(field) = fields.next_field()? {
            let value = fields.value(&field);
            match field.number {
                LIST_VERSION => meta.version = text(value)?,
                LIST_CONTINUE => meta.next = text(value)?,
                LIST_REMAINING => meta.remaining = Some(varint(value)?),
                _ => {}
            }
        }
        Ok(meta)
    }

    /// Appends the message with the API server's fields in the API server's order, so that the
    /// bytes are equal.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_bytes(LIST_SELF_LINK, b"", out);
        write_bytes(LIST_VERSION, self.version.as_bytes(), out);
        write_bytes(LIST_CONTINUE, self.next.as_bytes(), out);
        if let Some(remaining) = self.remaining {
            write_number(LIST_REMAINING, remaining, out);
        }
    }
}

/// Returns the metadata of an object or a list; empty if there is none.
pub(super) fn metadata(object: &[u8]) -> Result<&[u8], ProtobufError> {
    Ok(find_field(object, METADATA)?.unwrap_or_default())
}

/// Returns the field `metadata` of an object with its tag and its length. Every object of the API
/// server begins with its metadata. For any other object, the result is empty.
pub fn metadata_field(object: &[u8]) -> &[u8] {
    match FieldReader::new(object).next_field() {
        Ok(Some(RawField { number: METADATA, end, .. })) => object.get(..end).unwrap_or_default(),
        _ => &[],
    }
}

/// Returns the byte range of the first field `managedFields` in an object, and of all that directly
/// follow it. The API server writes these fields together, so the range usually contains all of
/// them.
///
/// Returns `None` if there are none, or if the object does not begin with its metadata.
pub(crate) fn managed_fields(object: &[u8]) -> Option<Range<usize>> {
    let metadata = metadata_field(object);
    let RawField { start: offset, end, .. } = FieldReader::new(metadata).next_field().ok()??;
    let mut fields = FieldReader::new(metadata.get(offset..end)?);
    let mut range: Option<Range<usize>> = None;
    while let Some(field) = fields.next_field().ok()? {
        let (is_managed, end) = (field.number == MANAGED_FIELDS, offset + field.end);
        match &mut range {
            Some(range) if is_managed => range.end = end,
            Some(_) => break,
            None if is_managed => range = Some(offset + field.tag..end),
            None => {}
        }
    }
    range
}

/// Calls `each` with the key and the value of every label.
///
/// # Errors
///
/// [`ProtobufError::Malformed`] if the labels are not a map of UTF-8 texts.
pub fn for_each_label(object: &[u8], each: impl FnMut(&str, &str)) -> Result<(), ProtobufError> {
    for_each_entry(object, LABELS, each)
}

/// Calls `each` with the key and the value of every annotation.
///
/// # Errors
///
/// [`ProtobufError::Malformed`] if the annotations are not a map of UTF-8 texts.
pub fn for_each_annotation(
    object: &[u8],
    each: impl FnMut(&str, &str),
) -> Result<(), ProtobufError> {
    for_each_entry(object, ANNOTATIONS, each)
}

fn for_each_entry(
    object: &[u8],
    number: u32,
    mut each: impl FnMut(&str, &str),
) -> Result<(), ProtobufError> {
    let mut fields = FieldReader::new(metadata(object)?);
    while let Some(field) = fields.next_field()? {
        if field.number == number {
            let (key, value) = read_entry(fields.value(&field))?;
            each(text(key)?, text(value)?);
        }
    }
    Ok(())
}

/// Whether the labels of two objects consist of the same bytes. Equal labels in a different order
/// do not count as the same.
pub fn has_same_labels(a: &[u8], b: &[u8]) -> bool {
    matches!((raw_labels(a), raw_labels(b)), (Ok(a), Ok(b)) if a == b)
}

fn raw_labels(object: &[u8]) -> Result<Vec<&[u8]>, ProtobufError> {
    let mut fields = FieldReader::new(metadata(object)?);
    let mut labels = Vec::new();
    while let Some(field) = fields.next_field()? {
        if field.number == LABELS {
            labels.push(fields.value(&field));
        }
    }
    Ok(labels)
}

/// The parts of an object that kubewarm does not store.
#[derive(Clone, Copy, Debug)]
pub struct Omissions<'a> {
    /// Whether `metadata.managedFields` is left out.
    pub is_without_managed_fields: bool,
    /// An annotation that is left out.
    pub annotation: Option<&'a str>,
    /// Whether everything except `metadata` is left out.
    pub is_metadata_only: bool,
}

/// Appends an object without some of its parts. All other bytes stay unchanged, except the length
/// of the metadata.
///
/// # Errors
///
/// [`ProtobufError::Malformed`] if the bytes are not a message.
pub fn write_without(
    object: &[u8],
    without: Omissions<'_>,
    out: &mut Vec<u8>,
) -> Result<(), ProtobufError> {
    let object = if without.is_metadata_only { metadata_field(object) } else { object };
    copy_fields(object, out, |number, value, _| {
        Ok(match (number, without.annotation) {
            (MANAGED_FIELDS, _) => without.is_without_managed_fields,
            (ANNOTATIONS, Some(key)) => read_entry(value)?.0 == key.as_bytes(),
            _ => false,
        })
    })
}

/// Copies an object. For each field of its metadata, calls `replace` with the field's number and
/// value. If `replace` returns `true`, the copy omits the field; `replace` can append other fields
/// instead.
fn copy_fields(
    object: &[u8],
    out: &mut Vec<u8>,
    mut replace: impl FnMut(u32, &[u8], &mut Vec<u8>) -> Result<bool, ProtobufError>,
) -> Result<(), ProtobufError> {
    let mut fields = FieldReader::new(object);
    while let Some(field) = fields.next_field()? {
        if field.number != METADATA {
            out.extend_from_slice(object.get(field.tag..field.end).unwrap_or_default());
            continue;
        }
        let metadata = fields.value(&field);
        let mut changed = Vec::with_capacity(metadata.len());
        let mut parts = FieldReader::new(metadata);
        while let Some(part) = parts.next_field()? {
            if !replace(part.number, parts.value(&part), &mut changed)? {
                changed.extend_from_slice(metadata.get(part.tag..part.end).unwrap_or_default());
            }
        }
        write_bytes(METADATA, &changed, out);
    }
    Ok(())
}

/// Returns the object with another `metadata.resourceVersion`.
///
/// # Errors
///
/// [`ProtobufError::Malformed`] if the bytes are not a message.
pub fn with_version(object: &[u8], version: &str) -> Result<Vec<u8>, ProtobufError> {
    let mut out = Vec::with_capacity(object.len() + 16);
    copy_fields(object, &mut out, |number, _, out| {
        let is_version = number == RESOURCE_VERSION;
        if is_version {
            write_bytes(RESOURCE_VERSION, version.as_bytes(), out);
        }
        Ok(is_version)
    })?;
    Ok(out)
}

/// Returns an object that contains only a resource version and annotations.
pub(super) fn bookmark(version: &str, annotations: &[(&str, &str)]) -> Vec<u8> {
    let write_entry = |(key, value): &(&str, &str), out: &mut Vec<u8>| {
        write_bytes(1, key.as_bytes(), out);
        write_bytes(2, value.as_bytes(), out);
    };
    let write_metadata = |out: &mut Vec<u8>| {
        write_bytes(RESOURCE_VERSION, version.as_bytes(), out);
        for entry in annotations {
            write_message(ANNOTATIONS, |out| write_entry(entry, out), out);
        }
    };
    let mut object = Vec::new();
    write_message(METADATA, write_metadata, &mut object);
    object
}

fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::FieldPathSet;
    use crate::protobuf::{JsonEncoder, check_message, field_values, message_of_kind};
    use kubewarm_api::model::FieldPath;
    use proptest::prelude::*;

    /// A pod with labels, annotations and managed fields.
    fn pod() -> Vec<u8> {
        let entry = |number, key: &str, value: &str, out: &mut Vec<u8>| {
            let write = |out: &mut Vec<u8>| {
                write_bytes(1, key.as_bytes(), out);
                write_bytes(2, value.as_bytes(), out);
            };
            write_message(number, write, out);
        };
        let metadata = |out: &mut Vec<u8>| {
            write_bytes(NAME, b"web-1", out);
            write_bytes(NAMESPACE, b"shop", out);
            write_bytes(UID, b"u", out);
            write_bytes(RESOURCE_VERSION, b"7", out);
            entry(LABELS, "app", "web", out);
            entry(LABELS, "tier", "", out);
            entry(ANNOTATIONS, "a", "1", out);
            entry(ANNOTATIONS, "b", "2", out);
            write_message(MANAGED_FIELDS, |out| write_bytes(1, b"kubectl", out), out);
        };
        let spec = |out: &mut Vec<u8>| {
            write_message(2, |out| write_bytes(1, b"c1", out), out);
            write_message(2, |out| write_bytes(1, b"c2", out), out);
            write_bytes(10, b"n1", out);
        };
        let mut pod = Vec::new();
        write_message(METADATA, metadata, &mut pod);
        write_message(2, spec, &mut pod);
        pod
    }

    fn json(object: &[u8]) -> serde_json::Value {
        let message = message_of_kind("v1", "Pod").unwrap();
        check_message(message, object).unwrap();
        let mut json = Vec::new();
        JsonEncoder::default().write_object(message, object, &mut json).unwrap();
        serde_json::from_slice(&json).unwrap()
    }

    #[test]
    fn names_and_labels_are_read_from_the_metadata() {
        let pod = pod();
        let names = ObjectNames { name: "web-1", namespace: "shop", uid: "u", version: "7" };
        assert_eq!(ObjectNames::of_object(&pod), Ok(names));
        let mut labels = Vec::new();
        for_each_label(&pod, |key, value| labels.push(format!("{key}={value}"))).unwrap();
        assert_eq!(labels, ["app=web", "tier="]);
        let mut seen = Vec::new();
        for_each_annotation(&pod, |key, _| seen.push(key.to_owned())).unwrap();
        assert_eq!(seen, ["a", "b"]);
        assert!(has_same_labels(&pod, &with_version(&pod, "8").unwrap()));
        // The bytes end within the object, but the name stands before this end.
        assert_eq!(ObjectNames::of_start(&pod[..20]).name, "web-1");
    }

    #[test]
    fn parts_of_the_metadata_are_left_out_and_the_rest_is_unchanged() {
        let (pod, mut out) = (pod(), Vec::new());
        let all = Omissions {
            is_without_managed_fields: false,
            annotation: None,
            is_metadata_only: false,
        };
        write_without(&pod, all, &mut out).unwrap();
        assert_eq!(out, pod);
        let mut expected = json(&pod);
        let mut left = |without: Omissions<'_>| {
            out.clear();
            write_without(&pod, without, &mut out).unwrap();
            json(&out)
        };
        let metadata = expected["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields").unwrap();
        assert_eq!(left(Omissions { is_without_managed_fields: true, ..all }), expected);
        expected["metadata"]["annotations"].as_object_mut().unwrap().remove("a").unwrap();
        let few = Omissions { is_without_managed_fields: true, annotation: Some("a"), ..all };
        assert_eq!(left(few), expected);
        let only = left(Omissions { is_metadata_only: true, ..few });
        assert_eq!(only["metadata"], expected["metadata"]);
        assert!(only["spec"]["containers"].is_null());
        let mut spec = Vec::new();
        write_bytes(2, find_field(&pod, 2).unwrap().unwrap(), &mut spec);
        assert_eq!([metadata_field(&pod), &spec].concat(), pod);
        assert!(metadata_field(&spec).is_empty());
    }

    #[test]
    fn a_deleted_object_has_the_version_of_its_deletion() {
        let mut expected = json(&pod());
        expected["metadata"]["resourceVersion"] = "123".into();
        assert_eq!(json(&with_version(&pod(), "123").unwrap()), expected);
    }

    #[test]
    fn field_paths_find_the_values_of_the_json() {
        let paths: FieldPathSet = [
            "metadata.name",
            "metadata.labels.app",
            "spec.containers[*].name",
            "spec.containers.name",
            "spec.nodeName",
            "spec.hostNetwork",
            "status.phase",
            "spec",
        ]
        .map(|path| FieldPath::parse(path).unwrap())
        .into_iter()
        .collect();
        let mut seen = vec![Vec::new(); paths.all().len()];
        let message = message_of_kind("v1", "Pod").unwrap();
        let mut each = |path: usize, value: &str| seen[path].push(value.to_owned());
        field_values(message, &pod(), &paths, &mut each).unwrap();
        let none: [&str; 0] = [];
        assert_eq!(seen[..3], [vec!["web-1"], vec!["web"], vec!["c1", "c2"]]);
        assert_eq!((&seen[3][..], &seen[4][..]), (&[][..], &["n1".to_owned()][..]));
        assert!(seen[5..].iter().all(|values| values == &none));
    }

    proptest! {
        #[test]
        fn damaged_objects_cause_errors_and_no_panic(
            position in 0..200_usize, byte: u8, length in 0..300_usize, bytes: Vec<u8>,
        ) {
            let mut damaged = pod();
            let at = position % damaged.len();
            damaged[at] = byte;
            damaged.truncate(length);
            let message = message_of_kind("v1", "Pod").unwrap();
            for object in [&damaged, &bytes] {
                let checked = check_message(message, object);
                let mut out = Vec::new();
                let written = JsonEncoder::default().write_object(message, object, &mut out);
                prop_assert!(checked.is_err() || written.is_ok());
                let all = Omissions { is_without_managed_fields: true, annotation: Some("a"), is_metadata_only: true };
                let _ = write_without(object, all, &mut out);
                let _ = (with_version(object, "8"), ObjectNames::of_object(object));
                let _ = ObjectNames::of_start(object);
                let _ = (for_each_label(object, |_, _| {}), has_same_labels(object, &pod()));
            }
        }
    }
}
