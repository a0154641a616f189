//! Splits hostile lists and watches in both encodings, and decodes their items.

use kubewarm_api::model::ObjectEncoding;
use kubewarm_wire::{
    JsonBuffer, MediaType, ObjectBody, ObjectPart,
    protobuf::{Unknown, message_of_kind},
    upstream::{EventSplitter, ListSplitter, ObjectDecoder, SplitItem},
    write_event_message,
};

const MEDIA_TYPES: [MediaType; 2] = [MediaType::Json, MediaType::Protobuf];

/// The items of a response, and whether a splitter rejected the response.
type SplitResult = (Vec<Vec<u8>>, bool);

/// Splits `bytes` as a list and as a watch, once whole and once in `parts`, and returns the number
/// of items. Panics if both results differ, because chunks can end at any byte.
fn split<'a>(bytes: &'a [u8], parts: &(impl Iterator<Item = &'a [u8]> + Clone)) -> usize {
    let mut items = 0;
    for media_type in MEDIA_TYPES {
        let list = split_list(media_type, [bytes].into_iter());
        assert_eq!(list, split_list(media_type, parts.clone()), "list");
        let watch = split_watch(media_type, [bytes].into_iter());
        assert_eq!(watch, split_watch(media_type, parts.clone()), "watch");
        items += list.0.len() + watch.0.len();
    }
    items
}

/// Splits `bytes` whole and in two parts.
pub(crate) fn split_at(bytes: &[u8], at: usize) -> usize {
    let parts = bytes.split_at(at);
    split(bytes, &[parts.0, parts.1].into_iter())
}

/// Splits `bytes` whole and with each byte as a part.
pub(crate) fn split_at_every_byte(bytes: &[u8]) -> usize {
    split(bytes, &bytes.chunks(1))
}

/// A list in JSON and the events of a watch in both encodings, which contain an object of the
/// corpus.
pub(crate) fn responses_with(object: &[u8]) -> Vec<Vec<u8>> {
    let Ok(Unknown { api_version, kind, raw }) = Unknown::parse(object) else { return Vec::new() };
    let Some(message) = message_of_kind(api_version, kind) else { return Vec::new() };
    let body = ObjectBody { encoding: ObjectEncoding::Protobuf(message), bytes: raw };
    let mut buffer = JsonBuffer::default();
    let json = body.to_json(&mut buffer).map(<[u8]>::to_vec).unwrap_or_default();
    let wrap = |head: &str, times: usize, between: &str, tail: &str| {
        let items = vec![json.clone(); times].join(between.as_bytes());
        [head.as_bytes(), &items, tail.as_bytes()].concat()
    };
    let mut frame = Vec::new();
    write_event_message("ADDED", api_version, kind, raw, ObjectPart::Full, &mut frame);
    vec![
        wrap(r#"{"kind":"List","metadata":{"resourceVersion":"7"},"items":["#, 2, ",", "]}"),
        wrap(r#"{"type":"ADDED","object":"#, 1, "", "}\n"),
        wrap(r#"{ "object": "#, 1, "", ", \"type\": \"BOOKMARK\"}\n"),
        frame.repeat(2),
    ]
}

fn split_list<'a>(media_type: MediaType, chunks: impl Iterator<Item = &'a [u8]>) -> SplitResult {
    let mut splitter = ListSplitter::new(media_type);
    let mut items = Vec::new();
    for chunk in chunks {
        let mut rest = chunk;
        while !rest.is_empty() {
            let encoding = splitter.encoding();
            let Ok((consumed, item)) = splitter.feed(rest) else { return (items, true) };
            if let Some(item) = item {
                decode(encoding, item);
                items.push(item.bytes().to_vec());
            }
            rest = &rest[consumed..];
        }
    }
    let _ = (splitter.metadata(), splitter.has_head());
    (items, !splitter.is_complete())
}

fn split_watch<'a>(media_type: MediaType, chunks: impl Iterator<Item = &'a [u8]>) -> SplitResult {
    let mut splitter = EventSplitter::new(media_type);
    let mut items = Vec::new();
    for chunk in chunks {
        let mut rest = chunk;
        while !rest.is_empty() {
            let (consumed, split) = splitter.feed(rest);
            if let Some(split) = split {
                items.push(split.item.bytes().to_vec());
                if let Some(event) = split.event {
                    decode(event.encoding, SplitItem::Whole(event.object));
                    let _ = (event.tombstone(), event.bookmark());
                }
            }
            rest = &rest[consumed..];
        }
    }
    (items, splitter.is_partial())
}

fn decode(encoding: Option<ObjectEncoding>, item: SplitItem<'_>) {
    let (Some(encoding), SplitItem::Whole(object)) = (encoding, item) else { return };
    let mut decoder = ObjectDecoder::of_whole_objects();
    decoder.encoding = encoding;
    let _ = decoder.decode(object);
}
