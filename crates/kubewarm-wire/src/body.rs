//! Writes response bodies from the JSON of stored objects: adds `kind`, `apiVersion` and the
//! metadata of lists. The functions copy the JSON, and never parse and serialize it again.

use super::{ObjectPart, json::find};
use kubewarm_api::model::ResourceVersion;
use std::sync::Arc;

/// The parts of a list response before and after its items. The caller writes one item at a time,
/// so the complete list is never in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEnvelope {
    /// `apiVersion` of the items, such as `apps/v1`. A list of complete objects has the same
    /// `apiVersion` as its items.
    pub api_version: Arc<str>,
    /// `kind` of the items.
    pub kind: Arc<str>,
    /// The `kind` of the list, such as `PodList`. For custom resources, `listKind` of the
    /// `CustomResourceDefinition`.
    pub list_kind: Arc<str>,
    /// Whether the items are custom resources. As in the API server, a list of custom resources has
    /// `apiVersion` and `kind` in each item, and an empty `continue` on its last page.
    pub is_custom: bool,
    /// The part of each item that the list contains.
    pub item_form: ObjectPart,
    /// `metadata.resourceVersion` of the list. Clients fail if a list has no resource version.
    pub version: ResourceVersion,
    /// The [continue token](super::encode_continue_token) for the next page. `None` only on the
    /// last page: a client treats a list without a token as complete.
    pub next: Option<String>,
    /// Number of objects on later pages (`remainingItemCount`). As at the API server, `Some` only
    /// for lists without selectors. The response omits this field for the number 0.
    pub remaining: Option<u64>,
}

/// Writes one object as the complete response to a get, with a line feed. `stored` is the object's
/// JSON without `apiVersion` and `kind`.
pub fn write_single_object(
    api_version: &str,
    kind: &str,
    stored: &[u8],
    form: ObjectPart,
    out: &mut Vec<u8>,
) {
    write_object(api_version, kind, stored, form, out);
    out.push(b'\n');
}

impl ListEnvelope {
    /// Returns `apiVersion` and `kind` of the list.
    pub(super) fn types(&self) -> (&str, &str) {
        match self.item_form {
            ObjectPart::Full => (&self.api_version, &self.list_kind),
            ObjectPart::Metadata(version) => (version.api_version(), "PartialObjectMetadataList"),
        }
    }

    /// Writes the text before the first item.
    pub fn write_head(&self, out: &mut Vec<u8>) {
        let (api_version, kind) = self.types();
        write_types(api_version, kind, out);
        let is_written = self.is_custom && self.item_form == ObjectPart::Full;
        let next = self.next.as_deref().or_else(|| is_written.then_some(""));
        write_metadata(&self.version, next, self.remaining, out);
        out.extend_from_slice(br#","items":"#);
    }

    /// Writes a comma and an item that is not the first item of the list.
    pub fn write_next_item(&self, stored: &[u8], out: &mut Vec<u8>) {
        out.push(b',');
        self.write_item(stored, out);
    }

    /// Writes the opening bracket of the list and the first item.
    pub fn write_first_item(&self, stored: &[u8], out: &mut Vec<u8>) {
        out.push(b'[');
        self.write_item(stored, out);
    }

    fn write_item(&self, stored: &[u8], out: &mut Vec<u8>) {
        match (self.item_form, self.is_custom) {
            (ObjectPart::Full, false) => out.extend_from_slice(stored),
            (ObjectPart::Full, true) | (ObjectPart::Metadata(_), _) => {
                write_object(&self.api_version, &self.kind, stored, self.item_form, out);
            }
        }
    }

    /// Writes the end of the list response. `is_empty` is `true` if the caller has written no item.
    pub fn write_tail(&self, is_empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(match (is_empty, self.item_form) {
            (false, _) => b"]}\n".as_slice(),
            (true, ObjectPart::Full) => b"[]}\n",
            // For an empty `PartialObjectMetadataList`, the API server writes `items` as `null`.
            (true, ObjectPart::Metadata(_)) => b"null}\n",
        });
    }
}

pub(super) fn write_metadata(
    version: &ResourceVersion,
    next: Option<&str>,
    remaining: Option<u64>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(br#","metadata":{"resourceVersion":"#);
    write_string(&version.to_string(), out);
    if let Some(next) = next {
        out.extend_from_slice(br#","continue":"#);
        write_string(next, out);
    }
    if let Some(remaining) = remaining.filter(|remaining| *remaining > 0) {
        out.extend_from_slice(br#","remainingItemCount":"#);
        out.extend_from_slice(remaining.to_string().as_bytes());
    }
    out.push(b'}');
}

/// Writes an object with `kind` and `apiVersion`, without a line feed. `stored` is the object's
/// JSON without `kind` and `apiVersion`.
pub fn write_object(
    api_version: &str,
    kind: &str,
    stored: &[u8],
    form: ObjectPart,
    out: &mut Vec<u8>,
) {
    match form {
        ObjectPart::Full => {
            write_types(api_version, kind, out);
            let inside = stored.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
            match inside {
                Some(rest @ [first, ..]) if *first != b'}' => {
                    out.push(b',');
                    out.extend_from_slice(rest);
                }
                // `stored` is the empty object `{}`. (It always is an object, unless kubewarm has a
                // bug.)
                _ => out.push(b'}'),
            }
        }
        ObjectPart::Metadata(version) => {
            write_types(version.api_version(), "PartialObjectMetadata", out);
            out.extend_from_slice(br#","metadata":"#);
            let metadata = find(stored, &["metadata"]).and_then(|at| stored.get(at));
            out.extend_from_slice(metadata.unwrap_or(b"{}"));
            out.push(b'}');
        }
    }
}

/// Writes `{"kind":…,"apiVersion":…` without the closing brace.
pub(super) fn write_types(api_version: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"kind":"#);
    write_string(kind, out);
    out.extend_from_slice(br#","apiVersion":"#);
    write_string(api_version, out);
}

pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    // Serializing a string into memory cannot fail.
    let _written = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetaVersion;
    use proptest::prelude::*;

    const POD: &str =
        r#"{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"n":1.0},"status":{}}"#;

    fn one(stored: &str, part: ObjectPart) -> String {
        let mut out = Vec::new();
        write_single_object("v1", "Pod", stored.as_bytes(), part, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn frame(part: ObjectPart, is_custom: bool) -> ListEnvelope {
        ListEnvelope {
            api_version: "v1".into(),
            kind: "Pod".into(),
            list_kind: "PodList".into(),
            is_custom,
            item_form: part,
            version: 1007.into(),
            next: None,
            remaining: None,
        }
    }

    fn list(frame: &ListEnvelope, stored: &[&str]) -> String {
        let mut out = Vec::new();
        frame.write_head(&mut out);
        for (number, stored) in stored.iter().enumerate() {
            match number {
                0 => frame.write_first_item(stored.as_bytes(), &mut out),
                _ => frame.write_next_item(stored.as_bytes(), &mut out),
            }
        }
        frame.write_tail(stored.is_empty(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_object_is_its_stored_json_with_kind_and_api_version() {
        assert_eq!(
            one(POD, ObjectPart::Full),
            "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\",\"labels\":\
             {\"x\":\"y\"}},\"spec\":{\"n\":1.0},\"status\":{}}\n"
        );
        assert_eq!(one("{}", ObjectPart::Full), "{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}\n");
        assert_eq!(one("{ }", ObjectPart::Full), "{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}\n");
        assert_eq!(one("", ObjectPart::Full), "{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}\n");
    }

    #[test]
    fn a_metadata_response_contains_only_metadata() {
        assert_eq!(
            one(POD, ObjectPart::Metadata(MetaVersion::V1)),
            "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":\
             {\"name\":\"a\",\"labels\":{\"x\":\"y\"}}}\n"
        );
        assert!(one("{}", ObjectPart::Metadata(MetaVersion::V1)).contains(r#""metadata":{}"#));
    }

    #[test]
    fn only_items_of_custom_resources_have_kind_and_api_version() {
        assert_eq!(
            list(&frame(ObjectPart::Full, false), &["{\"metadata\":{}}", POD]),
            format!(
                "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\
                 \"1007\"}},\"items\":[{{\"metadata\":{{}}}},{POD}]}}\n"
            )
        );
        assert_eq!(
            list(&frame(ObjectPart::Full, true), &["{\"metadata\":{}}"]),
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1007\",\
             \"continue\":\"\"},\"items\":[{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{}}]}\n"
        );
        for is_custom in [false, true] {
            assert_eq!(
                list(&frame(ObjectPart::Metadata(MetaVersion::V1), is_custom), &[POD]),
                "{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\
                 \"metadata\":{\"resourceVersion\":\"1007\"},\"items\":[{\"kind\":\
                 \"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"name\":\
                 \"a\",\"labels\":{\"x\":\"y\"}}}]}\n"
            );
        }
    }

    #[test]
    fn an_empty_list_has_items_and_a_version() {
        assert_eq!(
            list(&frame(ObjectPart::Full, false), &[]),
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1007\"},\
             \"items\":[]}\n"
        );
        let custom = list(&frame(ObjectPart::Full, true), &[]);
        assert!(
            custom.contains(r#""metadata":{"resourceVersion":"1007","continue":""},"items":[]}"#)
        );
        let metadata = list(&frame(ObjectPart::Metadata(MetaVersion::V1), false), &[]);
        assert!(metadata.ends_with("\"items\":null}\n"), "{metadata}");
    }

    #[test]
    fn a_page_has_a_token_and_the_number_of_remaining_objects() {
        let next = Some("dG9rZW4".to_owned());
        let page = ListEnvelope { next, remaining: Some(12), ..frame(ObjectPart::Full, false) };
        assert!(list(&page, &[]).contains(
            r#""metadata":{"resourceVersion":"1007","continue":"dG9rZW4","remainingItemCount":12}"#
        ));
        let last = ListEnvelope { remaining: Some(0), ..frame(ObjectPart::Full, false) };
        assert!(!list(&last, &[]).contains("remainingItemCount"));
    }

    proptest! {
        #[test]
        fn names_that_need_escapes_result_in_valid_json(kind in ".{0,20}", version in ".{1,20}") {
            let mut out = Vec::new();
            write_single_object(&version, &kind, POD.as_bytes(), ObjectPart::Full, &mut out);
            let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(read["kind"].as_str(), Some(&*kind));
            prop_assert_eq!(read["apiVersion"].as_str(), Some(&*version));
            prop_assert_eq!(&read["spec"]["n"], &serde_json::json!(1.0));
        }
    }
}
