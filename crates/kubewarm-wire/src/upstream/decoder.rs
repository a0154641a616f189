//! Decodes an object: reads its metadata, and removes the parts that the store does not keep.

use super::{
    cut::{cut, member},
    metadata::ObjectMetadata,
    peek::{peek_name, peek_protobuf_name},
};
use crate::protobuf::{self, ObjectNames, Omissions, ProtobufError, check_message};
use kubewarm_api::model::{
    DecodedObject, InformerKey, ManagedFieldsPolicy, MessageId, ObjectEncoding, Projection,
    ResourceVersion, Uid,
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Decodes the objects of one informer. Reuses one buffer for all calls.
pub struct ObjectDecoder {
    projection: Projection,
    /// Whether the informer keeps only the metadata of Secrets. If so, the decoder also removes the
    /// annotation in which `kubectl apply` repeats a Secret's payload.
    is_payload_hidden: bool,
    /// The encoding of the objects that [`ObjectDecoder::decode`] receives.
    pub encoding: ObjectEncoding,
    scratch: Vec<u8>,
    /// The text of the last JSON object that was not UTF-8. A field, because the decoded object
    /// borrows its text.
    text: String,
}

/// An object that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedObject {
    /// `namespace/name`, or the name of a cluster-scoped object; `None` if the name cannot be read.
    pub name: Option<String>,
    /// The decode error, without any content of the object.
    pub problem: String,
}

/// Why an object cannot be stored.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// kubewarm cannot read the object, but it can store the other objects of the response.
    Undecodable(RejectedObject),
    /// kubewarm cannot read the object in protobuf: the API server is newer than the field tables,
    /// or a text is not UTF-8. So kubewarm must list the resource again as JSON, in which the API
    /// server replaces such bytes.
    NeedsJson(RejectedObject),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialObject<'a> {
    #[serde(borrow, default)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl RejectedObject {
    /// Describes an object whose bytes can be cut off, but only after the metadata with the name.
    pub fn new(encoding: ObjectEncoding, object: &[u8], problem: String) -> Self {
        let name = match encoding {
            ObjectEncoding::Json => peek_name(object),
            ObjectEncoding::Protobuf(_) => peek_protobuf_name(object),
        };
        Self { name, problem }
    }
}

impl From<RejectedObject> for DecodeError {
    fn from(object: RejectedObject) -> Self {
        Self::Undecodable(object)
    }
}

impl ObjectDecoder {
    /// Creates a decoder of objects in JSON for this informer.
    pub fn new(key: &InformerKey) -> Self {
        let is_secrets = key.resource.group_resource().is_secrets();
        Self {
            projection: key.projection,
            is_payload_hidden: is_secrets && matches!(key.projection, Projection::Metadata(_)),
            encoding: ObjectEncoding::Json,
            scratch: Vec::new(),
            text: String::new(),
        }
    }

    /// Creates a decoder that removes only `apiVersion` and `kind`, and no part that a profile can
    /// drop.
    pub fn of_whole_objects() -> Self {
        Self {
            projection: Projection::Full(ManagedFieldsPolicy::Keep),
            is_payload_hidden: false,
            encoding: ObjectEncoding::Json,
            scratch: Vec::new(),
            text: String::new(),
        }
    }

    /// Creates a decoder for watch events, whose objects must have the same encoding as the objects
    /// in the store.
    pub fn of_store(key: &InformerKey, encoding: ObjectEncoding) -> Self {
        Self { encoding, ..Self::new(key) }
    }

    /// Reads an object's metadata, and copies the object without `apiVersion` and `kind`.
    ///
    /// The copy omits `metadata.managedFields` unless the profile keeps them. From a Secret's
    /// metadata, the copy also omits the annotation in which `kubectl apply` repeats the payload.
    ///
    /// The copy omits `apiVersion` and `kind`, because watch events contain them but typed lists do
    /// not. kubewarm adds both fields to its responses again.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Undecodable`] if the object is not JSON, or if its metadata cannot be read:
    /// it has no name, or a label that is not a string. Other values can have any depth and any
    /// text. [`DecodeError::NeedsJson`].
    ///
    /// # Cost
    ///
    /// About 6 µs for an object of 5 KB of JSON. The decoder reads every byte twice and copies it
    /// once; it reads metadata three times. For protobuf, it reads only the tags of fields and
    /// embedded JSON.
    pub fn decode<'a>(&'a mut self, object: &'a [u8]) -> Result<DecodedObject<'a>, DecodeError> {
        match self.encoding {
            ObjectEncoding::Json => Ok(self.decode_json(object)?),
            ObjectEncoding::Protobuf(message) => self.decode_protobuf(message, object),
        }
    }

    fn decode_protobuf<'a>(
        &'a mut self,
        message: MessageId,
        object: &'a [u8],
    ) -> Result<DecodedObject<'a>, DecodeError> {
        let needs_json = |problem: String| {
            let encoding = ObjectEncoding::Protobuf(message);
            DecodeError::NeedsJson(RejectedObject::new(encoding, object, problem))
        };
        let failed = |error: ProtobufError| match error {
            ProtobufError::UnknownField { .. } => needs_json(error.to_string()),
            ProtobufError::Malformed => {
                needs_json("an object is not valid protobuf or not UTF-8".to_owned())
            }
        };
        let without = Omissions {
            is_without_managed_fields: self.projection.managed_fields()
                == ManagedFieldsPolicy::Drop,
            annotation: self.is_payload_hidden.then_some(LAST_APPLIED),
            is_metadata_only: matches!(self.projection, Projection::Metadata(_)),
        };
        self.scratch.clear();
        protobuf::write_without(object, without, &mut self.scratch).map_err(failed)?;
        // The decoder checks and reads the copy, because only the copy is stored. A check of
        // `object` would also parse the JSON in `managedFields`, which takes most of the time.
        let copy = self.scratch.as_slice();
        check_message(message, copy).map_err(failed)?;
        let ObjectNames { name, namespace, uid, version } =
            ObjectNames::of_object(copy).map_err(failed)?;
        if name.is_empty() {
            return Err(needs_json("an object has no name".to_owned()));
        }
        protobuf::for_each_label(copy, |_, _| {}).map_err(failed)?;
        Ok(DecodedObject {
            uid: Uid::parse(uid),
            version: ResourceVersion::parse(version),
            namespace: namespace.into(),
            name: name.into(),
            body: copy,
        })
    }

    fn decode_json<'a>(&'a mut self, json: &'a [u8]) -> Result<DecodedObject<'a>, RejectedObject> {
        let rejected = |problem: String| RejectedObject::new(ObjectEncoding::Json, json, problem);
        let text = if let Ok(text) = std::str::from_utf8(json) {
            text
        } else {
            // The API server copies some embedded JSON without checking that it is UTF-8. Clients
            // in Go read each invalid byte as U+FFFD, so kubewarm stores U+FFFD.
            self.text = utf8_as_in_go(json);
            &self.text
        };
        let top: PartialObject<'a> =
            serde_json::from_str(text).map_err(|e| rejected(without_content(&e)))?;
        let meta: ObjectMetadata<'a> = serde_json::from_str(top.metadata.get())
            .map_err(|e| rejected(format!("metadata: {}", without_content(&e))))?;
        if meta.name.is_empty() {
            return Err(rejected("metadata.name is empty".to_owned()));
        }
        if !meta.has_valid_labels() {
            return Err(rejected("metadata.labels is no object of strings".to_owned()));
        }

        let dropped = match self.projection.managed_fields() {
            ManagedFieldsPolicy::Drop => meta.managed_fields,
            ManagedFieldsPolicy::Keep => None,
        };
        let repeated = if self.is_payload_hidden {
            let annotations = meta.annotations();
            annotations
                .map_err(|e| rejected(format!("metadata.annotations: {}", without_content(&e))))?
                .last_applied
        } else {
            None
        };
        let of_top = [top.api_version, top.kind];
        let hole = |text: &str, value: Option<&RawValue>| {
            value.and_then(|value| member(text, value.get()))
        };
        self.scratch.clear();
        match self.projection {
            Projection::Full(_) => {
                let [api_version, kind] = of_top.map(|value| hole(text, value));
                cut(&mut self.scratch, text, [api_version, kind, hole(text, dropped)]);
            }
            // A response can contain more than the requested metadata, for example from a proxy
            // that ignores the `Accept` header. Store only the metadata.
            Projection::Metadata(_) => {
                let metadata = top.metadata.get();
                self.scratch.extend_from_slice(b"{\"metadata\":");
                let holes = [hole(metadata, dropped), hole(metadata, repeated), None];
                cut(&mut self.scratch, metadata, holes);
                self.scratch.extend_from_slice(b"}");
            }
        }

        Ok(DecodedObject {
            uid: meta.uid(),
            version: meta.version(),
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name,
            body: &self.scratch,
        })
    }
}

/// The annotation in which `kubectl apply` stores the last applied manifest, with the payload of a
/// Secret.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Replaces each byte that is not UTF-8 by U+FFFD, as Go does. Do not use
/// `String::from_utf8_lossy`, which replaces several bytes by one U+FFFD.
fn utf8_as_in_go(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Describes a `serde_json` error without the error's own message, because that message can quote
/// secret values.
fn without_content(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Data => "a field of the wrong type or a missing one",
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => "it is not JSON",
    };
    format!("{what} (line {}, column {})", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{
        FieldSelector, GroupResource, Identity, InformerScope, LabelSelector, Resource,
        SecretDataPolicy,
    };
    use proptest::prelude::*;

    fn key(resource: &str, projection: Projection) -> InformerKey {
        InformerKey {
            resource: Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
            scope: InformerScope::AllNamespaces,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            projection,
            secret_data: SecretDataPolicy::Allow,
            identity: Identity::Operator,
            declared_in: None,
        }
    }

    fn decode(
        json: &str,
        managed_fields: ManagedFieldsPolicy,
    ) -> Result<(String, String), RejectedObject> {
        let mut decoder = ObjectDecoder::new(&key("pods", Projection::Full(managed_fields)));
        let item = decoder.decode_json(json.as_bytes())?;
        Ok((
            format!("{}/{}", item.namespace, item.name),
            String::from_utf8_lossy(item.body).into_owned(),
        ))
    }

    #[test]
    fn only_the_parts_that_are_not_stored_are_removed() {
        let cases = [
            (
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"x":"]}"}],"uid":"u"},"n":1.50}"#,
                r#"{"metadata":{"name":"a","uid":"u"},"n":1.50}"#,
            ),
            (
                r#"{"metadata":{"managedFields":[],"name":"a"},"spec":{"kind":"Pod"},"apiVersion":"v1","kind":"Pod"}"#,
                r#"{"metadata":{"name":"a"},"spec":{"kind":"Pod"}}"#,
            ),
            (
                r#"{"metadata":{"name":"a","labels":null},"spec":{}}"#,
                r#"{"metadata":{"name":"a","labels":null},"spec":{}}"#,
            ),
            (
                r#"{ "apiVersion" : "v1" , "metadata" : { "name" : "a" , "managedFields" : [ ] } }"#,
                r#"{  "metadata" : { "name" : "a"  } }"#,
            ),
            (
                r#"{"apiVersion":"v1","z":12345678901234567890123,"metadata":{"name":"a"},"kind":"P","a":{"managedFields":[1]}}"#,
                r#"{"z":12345678901234567890123,"metadata":{"name":"a"},"a":{"managedFields":[1]}}"#,
            ),
        ];
        for (json, body) in cases {
            let (name, got) = decode(json, ManagedFieldsPolicy::Drop).unwrap();
            assert_eq!(
                (name.as_str(), got.replace(" ,", ",")),
                ("/a", body.replace(" ,", ",")),
                "{json}"
            );
            serde_json::from_str::<serde_json::Value>(&got).unwrap();
        }
        let kept = decode(cases[0].0, ManagedFieldsPolicy::Keep).unwrap().1;
        assert!(kept.contains("managedFields"));
    }

    #[test]
    fn a_metadata_informer_stores_only_metadata() {
        let json =
            br#"{"kind":"Secret","metadata":{"name":"a","managedFields":[]},"data":{"k":"v"}}"#;
        let mut decoder =
            ObjectDecoder::new(&key("pods", Projection::Metadata(ManagedFieldsPolicy::Drop)));
        let item = decoder.decode(json).unwrap();
        assert_eq!(item.body, br#"{"metadata":{"name":"a"}}"#);
    }

    const REPEATED: &str = "kubectl.kubernetes.io/last-applied-configuration";

    fn metadata_of_a_secret(json: &str) -> Result<String, RejectedObject> {
        let secrets = key("secrets", Projection::Metadata(ManagedFieldsPolicy::Drop));
        let mut decoder = ObjectDecoder::new(&secrets);
        let item = decoder.decode_json(json.as_bytes())?;
        Ok(String::from_utf8_lossy(item.body).into_owned())
    }

    #[test]
    fn the_annotation_with_the_payload_of_a_secret_is_not_stored() {
        let json = |annotations: &str| {
            format!(
                r#"{{"metadata":{{"name":"a","annotations":{annotations},"managedFields":[]}}}}"#
            )
        };
        for (annotations, kept) in [
            (format!(r#"{{"{REPEATED}":"{{\"data\":{{}}}}\n"}}"#), "{}"),
            (format!(r#"{{"a":"1","{REPEATED}":"x"}}"#), r#"{"a":"1"}"#),
            (format!(r#"{{"{REPEATED}":"x","b":"2"}}"#), r#"{"b":"2"}"#),
            (r#"{"a":"1"}"#.to_owned(), r#"{"a":"1"}"#),
            ("null".to_owned(), "null"),
        ] {
            let body = metadata_of_a_secret(&json(&annotations)).unwrap();
            assert_eq!(body, format!(r#"{{"metadata":{{"name":"a","annotations":{kept}}}}}"#));
        }
        // If the annotations have a duplicate key or are an array, the decoder cannot find the
        // annotation that repeats the Secret's payload. It rejects the object, because it must not
        // store the payload.
        for annotations in [format!(r#"{{"{REPEATED}":"x","{REPEATED}":"y"}}"#), "[1]".to_owned()] {
            let rejected = metadata_of_a_secret(&json(&annotations)).unwrap_err();
            assert_eq!(rejected.name.as_deref(), Some("a"));
        }
        // For resources other than Secrets, the decoder keeps the annotation in which `kubectl
        // apply` stores the last applied manifest.
        let pods = json(&format!(r#"{{"{REPEATED}":"x"}}"#));
        assert!(decode(&pods, ManagedFieldsPolicy::Drop).unwrap().1.contains(REPEATED));
    }

    /// Returns a protobuf field of the type bytes. `number` is below 32, so that the tag has at
    /// most two bytes.
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let tag = number << 3 | 2;
        let mut field = vec![tag];
        if tag >= 0x80 {
            field.push(1);
        }
        field.push(u8::try_from(value.len()).unwrap());
        [field, value.to_vec()].concat()
    }

    #[test]
    fn exactly_what_is_stored_of_a_protobuf_object_is_checked() {
        let decode = |projection, object: &[u8]| {
            let message = protobuf::message_of_kind("v1", "ConfigMap").unwrap();
            let informer_key = key("configmaps", projection);
            let mut decoder =
                ObjectDecoder::of_store(&informer_key, ObjectEncoding::Protobuf(message));
            decoder.decode(object).map(|decoded| (decoded.name.into_owned(), decoded.body.to_vec()))
        };
        let full = Projection::Full;
        let metadata = Projection::Metadata(ManagedFieldsPolicy::Drop);
        let name = field(1, b"a");
        let managed = |entry: &[u8]| field(1, &[&name[..], &field(17, entry)].concat());
        let (bad_json, unknown) = (managed(&field(7, &field(1, b"}{"))), managed(&field(30, b"")));
        let stored = Ok(("a".to_owned(), field(1, &name)));
        for object in [&bad_json, &unknown] {
            assert_eq!(decode(full(ManagedFieldsPolicy::Drop), object), stored);
        }
        let kept = full(ManagedFieldsPolicy::Keep);
        for object in [&bad_json, &unknown] {
            assert!(matches!(decode(kept, object), Err(DecodeError::NeedsJson(_))));
        }

        let twice = [field(1, &name), field(1, &field(1, b"b"))].concat();
        let behind = [field(2, b""), field(1, &name)].concat();
        for (projection, object) in [
            (full(ManagedFieldsPolicy::Drop), &twice),
            (full(ManagedFieldsPolicy::Drop), &behind),
            (metadata, &behind),
        ] {
            assert!(matches!(decode(projection, object), Err(DecodeError::NeedsJson(_))));
        }
        assert_eq!(decode(metadata, &twice), stored, "the second metadata is not stored");
    }

    proptest! {
        #[test]
        fn other_annotations_of_a_secret_are_unchanged(
            others in prop::collection::vec(("[a-z]{1,8}", ".{0,20}"), 0..6),
            repeated in ".{0,40}",
            at in 0..7_usize,
            gap in "[ \n\t]{0,3}",
        ) {
            let quoted = |text: &str| serde_json::to_string(text).unwrap();
            let members = |all: &[(String, String)]| -> Vec<String> {
                let member = |(key, value): &(String, String)| {
                    format!("{gap}{}{gap}:{gap}{}", quoted(key), quoted(value))
                };
                all.iter().map(member).collect()
            };
            let json = |members: &[String]| {
                let annotations = members.join(&format!("{gap},"));
                format!(r#"{{"metadata":{{"name":"a",{gap}"annotations":{{{annotations}{gap}}}{gap},"x":1.50}}}}"#)
            };
            let plain = members(&others);
            let mut with = others;
            let at = at.min(with.len());
            with.insert(at, (REPEATED.to_owned(), repeated));
            let body = metadata_of_a_secret(&json(&members(&with))).unwrap();
            prop_assert!(!body.contains(REPEATED));
            // The decoded Secret equals the Secret without the annotation `REPEATED`, except for
            // white space.
            let packed = |text: &str| text.replace([' ', '\n', '\t'], "");
            prop_assert_eq!(packed(&body), packed(&json(&plain)));
            for member in &plain {
                prop_assert!(body.contains(member.trim()), "{} is not in {}", member, body);
            }
            prop_assert_eq!(metadata_of_a_secret(&json(&plain)).unwrap(), json(&plain));
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced_as_in_go() {
        let mut decoder = ObjectDecoder::of_whole_objects();
        let item =
            decoder.decode(b"{\"metadata\":{\"name\":\"a\"},\"s\":\"x\xff\xe2\x80y\"}").unwrap();
        let expected = "{\"metadata\":{\"name\":\"a\"},\"s\":\"x\u{fffd}\u{fffd}\u{fffd}y\"}";
        assert_eq!((&*item.name, str::from_utf8(item.body)), ("a", Ok(expected)));
    }

    #[test]
    fn an_invalid_name_is_not_reported() {
        let json = format!(r#"{{"metadata":{{"name":"{}"}},"x":tru}}"#, "a".repeat(254));
        assert_eq!(decode(&json, ManagedFieldsPolicy::Drop).unwrap_err().name, None);
    }

    #[test]
    fn an_undecodable_object_is_reported_by_name_without_its_content() {
        for json in [
            r#"{"metadata":{"name":"a","namespace":"ns","labels":{"x":1}}}"#,
            r#"{"metadata":{"name":"a","namespace":"ns","labels":{"x":"y","z":null}}}"#,
            r#"{"metadata":{"name":"a","namespace":"ns","labels":[]}}"#,
            r#"{"metadata":{"name":"a","namespace":"ns"},"data":{"k":"c2VjcmV0""#,
            r#"{"metadata":{"name":"a","namespace":"ns"},"data":tru}"#,
            r#"{"metadata":{"name":"a","namespace":"ns","uid":7}}"#,
        ] {
            let rejected = decode(json, ManagedFieldsPolicy::Drop).unwrap_err();
            assert_eq!(rejected.name.as_deref(), Some("ns/a"), "{json}");
            assert!(!rejected.problem.contains("c2VjcmV0"), "{}", rejected.problem);
        }
        for json in ["{}", "[]", "", r#"{"metadata":{}}"#, r#"{"metadata":{"name":""}}"#] {
            assert_eq!(decode(json, ManagedFieldsPolicy::Drop).unwrap_err().name, None, "{json}");
        }
    }
}
