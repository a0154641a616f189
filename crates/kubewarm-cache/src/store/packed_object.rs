//! A `PackedObject` contains an object's name and its bytes, which are usually compressed.

use super::{allocation::taken, dictionary::CompressionDictionary, template_set::SharedTemplate};
use kubewarm_api::model::ObjectEncoding;
use kubewarm_wire::{ObjectBody, json::FieldPathSet};
use std::{fmt, sync::Arc};
use triomphe::ThinArc;

/// Maximum number of values that one object adds to the index of one field path, so that one object
/// cannot fill an index.
pub(super) const VALUES_PER_OBJECT: usize = 64;
/// The only index entry of an object with more than [`VALUES_PER_OBJECT`] values at the field path,
/// or of a malformed object. Each query by this path tests such an object itself. If another object
/// has this text as a value, queries only test it more often than necessary.
pub(super) const MANY_VALUES: &str = "\0many";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyCompression {
    /// The object is not compressed, because it is small or does not shrink.
    None,
    /// The object is compressed without a dictionary. The zstd frame lacks its 4-byte magic number.
    Zstd,
    /// The object is compressed with the dictionary that has this number within its
    /// `DictionaryGroup`, from 1 to 253. The zstd frame lacks its 4-byte magic number.
    Dictionary(u8),
    /// The object is not compressed, because it contains the payload of a Secret. A zstd context or
    /// a dictionary would keep copies of the payload.
    Secret,
}

/// One object in one allocation: a pointer to the template of its managedFields, a tag byte for its
/// [`BodyCompression`], the length of the name, the name, and the object's bytes, which are usually
/// compressed. If the object has a template, these are the bytes of the reduced body (the object
/// without the part of its managedFields that the template contains).
///
/// Clones share the allocation. The store, its event log and running list responses each keep a
/// clone.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PackedObject(ThinArc<Option<Arc<SharedTemplate>>, u8>);

/// A packed object with its encoding and the dictionary that decompresses it. A reader can
/// decompress the object after the store has dropped the object and the dictionary.
#[derive(Clone)]
pub(super) struct DetachedObject {
    pub(super) record: PackedObject,
    pub(super) dictionary: Option<Arc<CompressionDictionary>>,
    pub(super) encoding: ObjectEncoding,
}

/// The tag byte of [`BodyCompression::Secret`].
const SECRET: u8 = u8::MAX;
/// Bytes of a `ThinArc` before its slice: a reference count, the pointer to the template, and the
/// length of the slice.
const HEAD: usize = 3 * size_of::<usize>();

/// Calls `each` with the key and the value of every label of an object. Returns `false` if the
/// object is malformed protobuf.
pub(super) fn for_each_label(body: ObjectBody<'_>, each: impl FnMut(&str, &str)) -> bool {
    #[cfg(test)]
    WALKS.set(WALKS.get() + 1);
    body.for_each_label(each)
}

/// Returns the values of an object for each field path, sorted and without duplicates. Numbers and
/// booleans become text. Returns `None` if the object is malformed protobuf.
///
/// # Cost
///
/// One pass over the body for all paths, at about 1 ns a byte, and one copy of each value.
pub(super) fn field_values(
    body: ObjectBody<'_>,
    paths: &FieldPathSet,
) -> Option<Vec<Vec<Box<str>>>> {
    let mut values: Vec<Vec<Box<str>>> = vec![Vec::new(); paths.all().len()];
    let is_readable = for_each_value(body, paths, |path, value| {
        if let Some(values) = values.get_mut(path) {
            values.push(value.into());
        }
    });
    for values in &mut values {
        values.sort_unstable();
        values.dedup();
    }
    is_readable.then_some(values)
}

/// Returns the index entries of an object for each field path: its values, as [`field_values`], or
/// only [`MANY_VALUES`].
///
/// # Cost
///
/// One pass over the body for all paths, at about 1 ns a byte. Each value takes at most six
/// comparisons and one copy.
pub(super) fn indexed_values(body: ObjectBody<'_>, paths: &FieldPathSet) -> Vec<Vec<Box<str>>> {
    let mut values: Vec<Vec<Box<str>>> = vec![Vec::new(); paths.all().len()];
    let is_readable = for_each_value(body, paths, |path, value| {
        if let Some(values) = values.get_mut(path)
            && values.len() <= VALUES_PER_OBJECT
            && let Err(at) = values.binary_search_by(|other| (**other).cmp(value))
        {
            values.insert(at, value.into());
        }
    });
    for values in &mut values {
        if !is_readable || values.len() > VALUES_PER_OBJECT {
            *values = vec![MANY_VALUES.into()];
        }
    }
    values
}

fn for_each_value(
    body: ObjectBody<'_>,
    paths: &FieldPathSet,
    mut each: impl FnMut(usize, &str),
) -> bool {
    if paths.is_empty() {
        return true;
    }
    #[cfg(test)]
    WALKS.set(WALKS.get() + 1);
    body.for_each_value(paths, &mut each)
}

impl BodyCompression {
    const fn tag(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Zstd => 1,
            Self::Dictionary(generation) => generation.saturating_add(1),
            Self::Secret => SECRET,
        }
    }
}

impl PackedObject {
    /// Combines an object's name with its body `packed`. `packing` states how the caller has
    /// compressed the body. With a template, the body is the reduced body (the object without the
    /// part of its managedFields that the template contains).
    pub(super) fn new(
        name: &str,
        packing: BodyCompression,
        template: Option<Arc<SharedTemplate>>,
        packed: &[u8],
    ) -> Self {
        let mut length = name.len();
        let digits = (usize::BITS - length.leading_zeros()).div_ceil(7).max(1) as usize;
        let mut bytes = Vec::with_capacity(1 + digits + name.len() + packed.len());
        bytes.push(packing.tag());
        loop {
            let low = u8::try_from(length & 0x7f).unwrap_or(0x7f);
            length >>= 7;
            bytes.push(if length == 0 { low } else { low | 0x80 });
            if length == 0 {
                break;
            }
        }
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(packed);
        Self(ThinArc::from_header_and_slice(template, &bytes))
    }

    #[cfg(test)]
    pub(super) fn plain(name: &str, body: &[u8]) -> Self {
        Self::new(name, BodyCompression::None, None, body)
    }

    pub(super) fn packing(&self) -> BodyCompression {
        match self.held().first() {
            None | Some(0) => BodyCompression::None,
            Some(1) => BodyCompression::Zstd,
            Some(&SECRET) => BodyCompression::Secret,
            Some(tag) => BodyCompression::Dictionary(tag - 1),
        }
    }

    /// Returns the template of the object's managedFields. `None` if the object is stored whole.
    pub(super) fn template(&self) -> Option<&Arc<SharedTemplate>> {
        self.0.header.header.as_ref()
    }

    /// Returns the name of the object, as UTF-8.
    pub(super) fn name(&self) -> &[u8] {
        self.parts().0
    }

    pub(super) fn packed(&self) -> &[u8] {
        self.parts().1
    }

    /// Returns the size of the allocation, in bytes. All clones share the allocation. The
    /// template's memory does not count.
    pub(super) fn bytes(&self) -> usize {
        taken(HEAD + self.held().len())
    }

    fn held(&self) -> &[u8] {
        &self.0.slice
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        let bytes = self.held();
        let (mut length, mut at) = (0_usize, 1);
        while let Some(&digit) = bytes.get(at) {
            length |= usize::from(digit & 0x7f) << (7 * (at - 1)).min(63);
            at += 1;
            if digit & 0x80 == 0 {
                break;
            }
        }
        bytes.get(at..).and_then(|rest| rest.split_at_checked(length)).unwrap_or_default()
    }
}

impl fmt::Debug for DetachedObject {
    /// Does not print the object's JSON, because the object can be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.record.fmt(f)
    }
}

impl fmt::Debug for PackedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes", self.packing(), self.held().len())
    }
}

#[cfg(test)]
thread_local! {
    /// Number of times that this thread has scanned an object for labels or values.
    pub(super) static WALKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::FieldPath;
    use kubewarm_wire::protobuf::message_of_kind;
    use proptest::prelude::*;

    #[test]
    fn labels_are_read_only_from_the_metadata() {
        let body = br#"{"spec":{"metadata":{"labels":{"no":"no"}}},"metadata":{"name":"a","labels":{"app":"web"}}}"#;
        let mut seen = Vec::new();
        for_each_label(ObjectBody::json(body), |key, value| seen.push(format!("{key}={value}")));
        assert_eq!(seen, ["app=web"]);
        for body in ["", "{}", r#"{"metadata":{}}"#, r#"{"metadata":{"labels":null}}"#, "[]"] {
            for_each_label(ObjectBody::json(body.as_bytes()), |_, _| unreachable!());
        }
    }

    #[test]
    fn labels_are_read_in_order_unescaped_and_up_to_the_first_error() {
        let cases: [(&str, &[&str]); 6] = [
            (r#"{"app":"web", "a/b" : "","q":"\u0041"}"#, &["app=web", "a/b=", "q=A"]),
            ("{}", &[]),
            (r#"{"a":"b","c":1,"d":"e"}"#, &["a=b"]),
            (r#"{"a":null}"#, &[]),
            ("[]", &[]),
            (r#"{"a":"b""#, &["a=b"]),
        ];
        for (labels, expected) in cases {
            let body = format!(r#"{{"metadata":{{"labels":{labels}"#);
            let mut seen = Vec::new();
            let each = |key: &str, value: &str| seen.push(format!("{key}={value}"));
            for_each_label(ObjectBody::json(body.as_bytes()), each);
            assert_eq!(seen, expected, "{labels}");
        }
    }

    #[test]
    fn an_index_stores_each_value_once_within_its_bound() {
        let paths: FieldPathSet =
            ["a[*]", "b"].map(|path| FieldPath::parse(path).unwrap()).into_iter().collect();
        let list: Vec<_> = (0..200).map(|at| at % 150).collect();
        let body = serde_json::json!({ "a": list, "b": "c" }).to_string();
        let body = ObjectBody::json(body.as_bytes());
        let counts = field_values(body, &paths).unwrap().iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(counts, [150, 1]);
        assert_eq!(indexed_values(body, &paths), [[MANY_VALUES.into()], ["c".into()]]);
        let few: Vec<_> = (0..VALUES_PER_OBJECT).chain(0..9).collect();
        let few = serde_json::json!({ "a": few }).to_string();
        let few = indexed_values(ObjectBody::json(few.as_bytes()), &paths);
        assert_eq!(few.iter().map(Vec::len).collect::<Vec<_>>(), [VALUES_PER_OBJECT, 0]);
        let encoding = ObjectEncoding::Protobuf(message_of_kind("v1", "Pod").unwrap());
        let node = [FieldPath::parse("spec.nodeName").unwrap()].into_iter().collect();
        let malformed = indexed_values(ObjectBody { encoding, bytes: &[0xff] }, &node);
        assert_eq!(malformed, [[MANY_VALUES.into()]]);
        let body = ObjectBody::json(br#"{"a":["b","a","b",true,1]}"#);
        for values in [field_values(body, &paths).unwrap(), indexed_values(body, &paths)] {
            assert_eq!(values, [vec!["1".into(), "a".into(), "b".into(), "true".into()], vec![]]);
        }
    }

    #[test]
    fn allocation_sizes_are_rounded_as_in_glibc() {
        assert_eq!([0, 1, 24, 25, 40, 41, 250].map(taken), [0, 32, 32, 48, 48, 64, 272]);
    }

    proptest! {
        #[test]
        fn a_packed_object_returns_the_parts_it_was_made_of(
            name in ".{0,300}",
            tag in 0..=255_u8,
            packed: Vec<u8>,
        ) {
            let packing = match tag {
                0 => BodyCompression::None,
                1 => BodyCompression::Zstd,
                u8::MAX => BodyCompression::Secret,
                tag => BodyCompression::Dictionary(tag - 1),
            };
            let record = PackedObject::new(&name, packing, None, &packed);
            prop_assert_eq!(record.name(), name.as_bytes());
            prop_assert_eq!(record.packed(), &packed[..]);
            prop_assert_eq!(record.packing(), packing);
            let digits = if name.len() < 128 { 1 } else { 2 };
            prop_assert_eq!(record.bytes(), taken(HEAD + 1 + digits + name.len() + packed.len()));
            let copy = record.clone();
            prop_assert_eq!(record.held().as_ptr(), copy.held().as_ptr());
        }
    }
}
