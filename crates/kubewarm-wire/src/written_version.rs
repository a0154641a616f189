//! Reads an object's `resourceVersion` from the API server's response to a write.

use super::json::find;
use kubewarm_api::model::ResourceVersion;

/// The first four bytes of each object in Kubernetes' protobuf encoding.
const MAGIC: &[u8] = b"k8s\0";
/// Number of the protobuf field in `runtime.Unknown` that contains the object.
const RAW: u64 = 2;
/// Number of the protobuf field in each object that contains its metadata.
const METADATA: u64 = 1;
/// Number of the protobuf field in `ObjectMeta` that contains the `resourceVersion`. A `Status` has a `ListMeta`,
/// which has no field with this number.
const RESOURCE_VERSION: u64 = 6;

/// Returns whether a response of this media type can contain an object: JSON, or Kubernetes' protobuf.
#[must_use]
pub fn has_object(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    matches!(media_type, "application/json" | "application/vnd.kubernetes.protobuf")
}

/// Returns `metadata.resourceVersion` of the object in the response `body`; `None` if the field is absent, as in a
/// `Status`.
#[must_use]
pub fn version_of(body: &[u8]) -> Option<ResourceVersion> {
    let text = if let Some(message) = body.strip_prefix(MAGIC) {
        field(field(field(message, RAW)?, METADATA)?, RESOURCE_VERSION)?
    } else {
        let version = body.get(find(body, &["metadata", "resourceVersion"])?)?;
        version.strip_prefix(b"\"")?.strip_suffix(b"\"")?
    };
    ResourceVersion::parse(str::from_utf8(text).ok()?)
}

fn field(mut message: &[u8], wanted: u64) -> Option<&[u8]> {
    loop {
        let key = varint(&mut message)?;
        let length = match key & 7 {
            0 => {
                varint(&mut message)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, rest) = message.split_at_checked(length)?;
        if key >> 3 == wanted && key & 7 == 2 {
            return Some(value);
        }
        message = rest;
    }
}

/// Consumes a protobuf varint at the start of `message` and returns its value. A varint has at most ten bytes of
/// seven bits each, lowest bits first.
fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for at in 0..10 {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f).checked_shl(at * 7)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(body: &[u8]) -> Option<String> {
        version_of(body).map(|version| version.to_string())
    }

    fn bytes(number: u64, value: &[u8]) -> Vec<u8> {
        let length = value.len();
        let mut field = vec![u8::try_from(number << 3 | 2).unwrap()];
        if length >= 128 {
            field.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        }
        field.push(u8::try_from(if length >= 128 { length >> 7 } else { length }).unwrap());
        field.extend(value);
        field
    }

    #[test]
    fn the_version_is_found_in_json_and_in_protobuf() {
        for (body, expected) in [
            (
                r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"12"},"spec":{}}"#,
                Some("12"),
            ),
            (
                r#"{"spec":{"resourceVersion":"1"},"metadata":{"annotations":{"resourceVersion":"2"}}}"#,
                None,
            ),
            (r#"{"kind":"Status","metadata":{},"code":200}"#, None),
            (r#"{"metadata":{"resourceVersion":""}}"#, None),
            (r#"{"metadata":{"resourceVersion":7}}"#, None),
            ("[]", None),
        ] {
            assert_eq!(version(body.as_bytes()).as_deref(), expected, "{body}");
        }
        let labels = bytes(11, &[b'x'; 200]);
        let metadata =
            [bytes(1, b"a"), bytes(2, b"99"), vec![0x38, 0x96, 1], labels, bytes(6, b"12")]
                .concat();
        let whole = |metadata: &[u8]| {
            let raw = bytes(1, metadata);
            [MAGIC, &bytes(1, b"\x0a\x02v1\x12\x03Pod"), &bytes(2, &raw)].concat()
        };
        assert_eq!(version(&whole(&metadata)).as_deref(), Some("12"));
        // A `ListMeta`, the metadata of a `Status`, has its `resourceVersion` in field 2, not in field 6.
        assert_eq!(version(&whole(&bytes(2, b"99"))), None);
        assert_eq!(version(b"{}"), None);
        assert_eq!(version(MAGIC), None);
    }

    #[test]
    fn only_json_and_protobuf_can_contain_an_object() {
        assert!(has_object("application/json; charset=utf-8"));
        assert!(has_object("application/vnd.kubernetes.protobuf"));
        assert!(!has_object("text/html") && !has_object(""));
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let body = [MAGIC, &bytes].concat();
            let _ = version_of(&body);
            let _ = version_of(&bytes);
            let _ = field(&bytes, 6);
        }
    }
}
