//! Turns the bytes of one object into an item: names it, and cuts out what is not stored.

use super::Stage;
use crate::model::{Item, ManagedFields, Projection, ResourceVersion, Tombstone, Uid};
use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt, ops::Range};

/// Decodes the objects of one cell; keeps one scratch buffer between calls.
#[derive(Debug)]
pub(super) struct Decoder {
    projection: Projection,
    scratch: Vec<u8>,
}

/// Why an object is not stored. Never quotes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejected {
    /// What is wrong.
    pub(super) problem: String,
    /// Namespace and name, as far as they could be read.
    pub(super) name: Option<(String, String)>,
    /// Where it was met.
    pub(super) stage: Stage,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Top<'a> {
    #[serde(borrow, default)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_version: Option<Cow<'a, str>>,
    #[expect(dead_code, reason = "read to be checked; the table reads the labels of the body")]
    #[serde(default)]
    labels: Option<Strings>,
    #[serde(borrow, default)]
    managed_fields: Option<&'a RawValue>,
}

/// An object of strings, which are not kept.
struct Strings;

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StringsVisitor)
    }
}

struct StringsVisitor;

impl<'de> Visitor<'de> for StringsVisitor {
    type Value = Strings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strings, A::Error> {
        while map.next_entry::<Text, Text>()?.is_some() {}
        Ok(Strings)
    }
}

/// A string, which is not kept.
struct Text;

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, _: &str) -> Result<Text, E> {
        Ok(Text)
    }
}

impl Decoder {
    pub(super) fn new(projection: Projection) -> Self {
        Self { projection, scratch: Vec::new() }
    }

    /// Reads the metadata of `json` and copies the rest without `apiVersion`, `kind` and, unless
    /// kept, `metadata.managedFields`.
    ///
    /// Items of typed lists carry no `apiVersion` and `kind`, watch events do; without them both
    /// read the same, and whoever serves them knows both.
    ///
    /// # Errors
    ///
    /// [`Rejected`] if it is not JSON, has no name, or has labels that are no strings.
    ///
    /// # Cost
    ///
    /// About 6 µs for an object of 5 KB: every byte is looked at twice, those of the metadata three
    /// times, and copied once.
    pub(super) fn decode<'a>(
        &'a mut self,
        json: &'a [u8],
        stage: Stage,
    ) -> Result<Item<'a>, Rejected> {
        let rejected = |problem: String| Rejected { problem, name: peek_name(json), stage };
        let text = std::str::from_utf8(json).map_err(|_| rejected("it is not UTF-8".to_owned()))?;
        let top: Top<'a> = serde_json::from_str(text).map_err(|e| rejected(without_content(&e)))?;
        let meta: Meta<'a> = serde_json::from_str(top.metadata.get())
            .map_err(|e| rejected(format!("metadata: {}", without_content(&e))))?;
        if meta.name.is_empty() {
            return Err(rejected("metadata.name is empty".to_owned()));
        }

        let dropped = match self.projection.managed_fields() {
            ManagedFields::Drop => meta.managed_fields,
            ManagedFields::Keep => None,
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
            // What was not asked for is not stored, should a proxy send it all the same.
            Projection::MetadataOnly(_) => {
                let metadata = top.metadata.get();
                self.scratch.extend_from_slice(b"{\"metadata\":");
                cut(&mut self.scratch, metadata, [hole(metadata, dropped), None, None]);
                self.scratch.push(b'}');
            }
        }

        Ok(Item {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name,
            uid: Uid::parse(&meta.uid.unwrap_or_default()),
            version: meta.resource_version.and_then(|text| ResourceVersion::parse(&text)),
            body: &self.scratch,
        })
    }
}

/// Reads the name and version of a deleted object; whatever else is wrong with it does not matter.
///
/// # Errors
///
/// [`Rejected`] if not even the name can be read.
pub(super) fn tombstone(json: &[u8]) -> Result<Tombstone<'static>, Rejected> {
    let peeked = peek(json);
    match peeked.name {
        Some(name) if !name.is_empty() => Ok(Tombstone {
            namespace: peeked.namespace.unwrap_or_default().into(),
            name: name.into(),
            version: peeked.version.as_deref().and_then(ResourceVersion::parse),
        }),
        _ => Err(Rejected {
            problem: "the deletion names no object".to_owned(),
            name: None,
            stage: Stage::WatchObject,
        }),
    }
}

/// No name of Kubernetes is longer; one that is would fill logs and statuses.
const MAX_NAME: usize = 253;

/// Namespace and name of an object that may be cut off or broken further behind.
pub(super) fn peek_name(json: &[u8]) -> Option<(String, String)> {
    let peeked = peek(json);
    let name = peeked.name.filter(|name| !name.is_empty() && name.len() <= MAX_NAME)?;
    let namespace = peeked.namespace.unwrap_or_default();
    (namespace.len() <= MAX_NAME).then_some((namespace, name))
}

/// What could be read of an object before its first fault.
#[derive(Default)]
struct Peeked {
    namespace: Option<String>,
    name: Option<String>,
    version: Option<String>,
}

fn peek(json: &[u8]) -> Peeked {
    let mut peeked = Peeked::default();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    // The fault that ends the reading is expected: what was read before it has been noted.
    let _fault = Peek { into: &mut peeked, level: Level::Object }.deserialize(&mut deserializer);
    peeked
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Object,
    Metadata,
}

struct Peek<'a> {
    into: &'a mut Peeked,
    level: Level,
}

impl<'de> DeserializeSeed<'de> for Peek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Peek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match (self.level, &*key) {
                (Level::Object, "metadata") => {
                    map.next_value_seed(Peek { into: self.into, level: Level::Metadata })?;
                }
                (Level::Metadata, "name") => self.into.name = Some(map.next_value()?),
                (Level::Metadata, "namespace") => self.into.namespace = Some(map.next_value()?),
                (Level::Metadata, "resourceVersion") => self.into.version = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Appends `json` without the members in `holes`.
fn cut(into: &mut Vec<u8>, json: &str, mut holes: [Option<Hole>; 3]) {
    holes.sort_by_key(|hole| hole.as_ref().map_or(usize::MAX, |hole| hole.range.start));
    let json = json.as_bytes();
    let mut from = 0;
    for hole in holes.into_iter().flatten() {
        into.extend_from_slice(json.get(from..hole.range.start).unwrap_or_default());
        from = hole.range.end;
        if hole.is_last {
            let kept = into.trim_ascii_end();
            let kept = kept.strip_suffix(b",").unwrap_or(kept).len();
            into.truncate(kept);
        }
    }
    into.extend_from_slice(json.get(from..).unwrap_or_default());
}

/// A member to leave out: its key, colon, value and the comma behind it.
struct Hole {
    range: Range<usize>,
    /// No comma is behind it, so the one before what is left must go.
    is_last: bool,
}

/// The place of the member with this value in `json`.
///
/// `value` must be a slice of `json`; the syntax around it has been checked by whoever parsed it.
fn member(json: &str, value: &str) -> Option<Hole> {
    let bytes = json.as_bytes();
    let start = (value.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let end = start.checked_add(value.len()).filter(|&end| end <= bytes.len())?;
    let trimmed = |end: usize| bytes.get(..end).map(|head| head.trim_ascii_end().len());

    let colon = trimmed(start)?.checked_sub(1)?;
    let key_end = trimmed(colon)?.checked_sub(1)?;
    let key_start = memchr::memrchr(b'"', bytes.get(..key_end)?)?;
    let rest = bytes.get(end..)?;
    let after = rest.trim_ascii_start();
    Some(if after.first() == Some(&b',') {
        Hole { range: key_start..end + (rest.len() - after.len()) + 1, is_last: false }
    } else {
        Hole { range: key_start..end, is_last: true }
    })
}

/// `serde_json`'s message without the value that it may quote.
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

    fn decode(json: &str, managed_fields: ManagedFields) -> Result<(String, String), Rejected> {
        let mut decoder = Decoder::new(Projection::Full(managed_fields));
        let item = decoder.decode(json.as_bytes(), Stage::ListItem)?;
        Ok((
            format!("{}/{}", item.namespace, item.name),
            String::from_utf8_lossy(item.body).into_owned(),
        ))
    }

    #[test]
    fn only_what_is_not_stored_is_cut_out() {
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
            let (name, got) = decode(json, ManagedFields::Drop).unwrap();
            assert_eq!(
                (name.as_str(), got.replace(" ,", ",")),
                ("/a", body.replace(" ,", ",")),
                "{json}"
            );
            serde_json::from_str::<serde_json::Value>(&got).unwrap();
        }
        let kept = decode(cases[0].0, ManagedFields::Keep).unwrap().1;
        assert!(kept.contains("managedFields"));
    }

    #[test]
    fn a_cell_of_metadata_keeps_nothing_else() {
        let json =
            br#"{"kind":"Secret","metadata":{"name":"a","managedFields":[]},"data":{"k":"v"}}"#;
        let mut decoder = Decoder::new(Projection::MetadataOnly(ManagedFields::Drop));
        let item = decoder.decode(json, Stage::ListItem).unwrap();
        assert_eq!(item.body, br#"{"metadata":{"name":"a"}}"#);
    }

    #[test]
    fn a_name_that_is_no_name_is_not_told() {
        let json = format!(r#"{{"metadata":{{"name":"{}"}},"x":tru}}"#, "a".repeat(254));
        assert_eq!(decode(&json, ManagedFields::Drop).unwrap_err().name, None);
    }

    #[test]
    fn what_cannot_be_stored_is_named_but_not_quoted() {
        let name = Some(("ns".to_owned(), "a".to_owned()));
        for json in [
            r#"{"metadata":{"name":"a","namespace":"ns","labels":{"x":1}}}"#,
            r#"{"metadata":{"name":"a","namespace":"ns","labels":{"x":"y","z":null}}}"#,
            r#"{"metadata":{"name":"a","namespace":"ns","labels":[]}}"#,
            r#"{"metadata":{"name":"a","namespace":"ns"},"data":{"k":"c2VjcmV0""#,
            r#"{"metadata":{"name":"a","namespace":"ns"},"data":tru}"#,
            r#"{"metadata":{"name":"a","namespace":"ns","uid":7}}"#,
        ] {
            let rejected = decode(json, ManagedFields::Drop).unwrap_err();
            assert_eq!(rejected.name, name, "{json}");
            assert!(!rejected.problem.contains("c2VjcmV0"), "{}", rejected.problem);
        }
        for json in ["{}", "[]", "", r#"{"metadata":{}}"#, r#"{"metadata":{"name":""}}"#] {
            assert_eq!(decode(json, ManagedFields::Drop).unwrap_err().name, None, "{json}");
        }
    }

    #[test]
    fn a_deletion_needs_no_more_than_a_name() {
        let json =
            br#"{"kind":"X","metadata":{"name":"a","resourceVersion":"9","labels":7},"spec":tru"#;
        let stone = tombstone(json).unwrap();
        assert_eq!((stone.name.as_ref(), stone.version), ("a", ResourceVersion::parse("9")));
        assert!(tombstone(b"{\"metadata\":").is_err());
    }
}
