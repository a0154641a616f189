//! Reads an object's `resourceVersion` from the API server's response to a write.

use super::{
    JSON, PROTOBUF,
    json::find,
    protobuf::{ObjectNames, message_start},
};
use kubewarm_api::model::ResourceVersion;

/// Returns whether a response of this media type can contain an object: JSON or Kubernetes
/// protobuf. For other responses, kubewarm need not search for a version.
pub fn has_object(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    matches!(media_type, JSON | PROTOBUF)
}

/// Returns `metadata.resourceVersion` of the object in the response `body`, whose end can be
/// missing. `None` if the field is absent, as in a `Status`.
pub fn version_of(body: &[u8]) -> Option<ResourceVersion> {
    if let Some(message) = message_start(body) {
        return ResourceVersion::parse(ObjectNames::of_start(message).version);
    }
    let version = body.get(find(body, &["metadata", "resourceVersion"])?)?;
    let text = version.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    ResourceVersion::parse(str::from_utf8(text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{MAGIC, write_bytes};
    use proptest::prelude::*;

    fn version(body: &[u8]) -> Option<String> {
        version_of(body).map(|version| version.to_string())
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
        let field = |number, value: &[u8]| {
            let mut field = Vec::new();
            write_bytes(number, value, &mut field);
            field
        };
        let whole = |metadata: &[u8]| {
            let types = b"\x0a\x02v1\x12\x03Pod";
            [MAGIC, &field(1, types), &field(2, &field(1, metadata))].concat()
        };
        let labels = field(11, &[b'x'; 200]);
        let other_fields = [field(2, b"99"), vec![0x38, 0x96, 1]].concat();
        let object = whole(&[other_fields, field(6, b"12"), labels.clone()].concat());
        assert_eq!(version(&object).as_deref(), Some("12"));
        // kubewarm reads the version before the rest of the object arrives. If the bytes end within
        // the version, there is no version: a part of the number would be a wrong version.
        let behind = object.len() - labels.len();
        assert_eq!(version(&object[..behind]).as_deref(), Some("12"));
        assert_eq!(version(&object[..behind - 1]), None);
        // The metadata of a `Status` is a `ListMeta`, whose field 2 is `resourceVersion`. It is not
        // an object's version, which is field 6, so kubewarm must not read it.
        assert_eq!(version(&whole(&field(2, b"99"))), None);
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
        }
    }
}
