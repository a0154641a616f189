//! Converts the results of gets, lists and watches into HTTP responses. Encodes a large list while
//! the connection sends it.

use super::{
    body::{OutgoingResponse, ResponseBody},
    gzip,
};
use crate::{
    callers::UserPermits,
    reads::{self, ListEncodingError, PIECE_BYTES, ReadBody, ReadSource},
};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{
        ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG,
        IF_NONE_MATCH, RETRY_AFTER, USER_AGENT, VARY, WARNING, X_CONTENT_TYPE_OPTIONS,
    },
    request::Parts,
};
use kubewarm_wire::{
    DiscoveryResponse, JSON, JsonIndenter, MediaType, PROTOBUF, StatusError, is_known,
};
use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    time::Duration,
};
use tokio::time::Instant;

/// Up to this size in bytes, kubewarm sends a body at once, uncompressed and with `Content-Length`.
/// The API server compresses bodies above the same size.
const LONG: usize = 128 << 10;
pub(super) const NOT_KEPT: &str = "no-cache, private";

/// A keyed hash of `value`, as 16 hexadecimal digits. Clients receive the hash of an informer's
/// key, which hides the informer's namespace and selectors. The hash is different after a restart
/// of kubewarm.
///
/// An author of profiles can construct two informers of one namespace with equal hashes, because a
/// set of selectors enters this hash as a number that no secret key protects. Clients then cannot
/// distinguish these two informers.
pub(super) fn keyed_tag(tag_key: &RandomState, value: impl Hash) -> String {
    format!("{:016x}", tag_key.hash_one(value))
}

/// The response to a get or list, and the age of the objects that its header shows. For a large
/// response, kubewarm encodes a piece only while it holds one of the user's `permits`.
///
/// # Errors
///
/// If kubewarm cannot encode the first piece of a list, because the informer lost access or an
/// object is damaged.
pub(super) async fn objects(
    request: &Parts,
    answer: reads::ReadResponse,
    tag_key: &RandomState,
    permits: UserPermits,
) -> Result<(OutgoingResponse, Option<Duration>), StatusError> {
    let mut headers = headers(content_type(answer.media_type), NOT_KEPT);
    let resource = &answer.source.informer.resource;
    let (first_piece, rest) = match answer.body {
        ReadBody::Whole(body) => (body, None),
        ReadBody::List(mut pages) => match pages.first_piece(LONG).await {
            Ok((first_piece, goes_on)) => (first_piece, goes_on.then_some(pages)),
            Err(ListEncodingError::AccessLost) => {
                return Err(StatusError::not_warm(resource.group_resource(), 1));
            }
            Err(ListEncodingError::Damaged(damaged)) => return Err(damaged.into()),
        },
    };
    // The encoding of the first piece can have taken a while, because kubewarm yields to other
    // tasks. So kubewarm computes the age only now.
    let age = set_source_headers(&mut headers, &answer.source, tag_key);
    let mut indenter =
        (answer.media_type == MediaType::Json && is_pretty(request)).then(JsonIndenter::default);
    let (first, left) = match &mut indenter {
        None => (first_piece.clone(), Bytes::new()),
        Some(indenter) => {
            let (first, used) = indenter.indent(&first_piece, LONG + 1);
            (first.into(), first_piece.slice(used..))
        }
    };
    if rest.is_none() && left.is_empty() {
        let content = whole(&request.headers, &mut headers, first);
        return Ok((response(StatusCode::OK, headers, content), age));
    }
    let rest = match rest {
        Some(pages) => pages.into_pieces(first_piece.len(), permits).boxed_local(),
        None => stream::empty().boxed_local(),
    };
    let pieces = match indenter {
        None => rest,
        Some(indenter) => indented(indenter, stream::iter([Ok(left)]).chain(rest)).boxed_local(),
    };
    let pieces = stream::iter([Ok(first)]).chain(pieces);
    let content = if is_gzip_accepted(&request.headers) {
        compressed(&mut headers, pieces)
    } else {
        ResponseBody::streamed(pieces)
    };
    Ok((response(StatusCode::OK, headers, content), age))
}

/// Whether the client gets indented JSON.
pub(super) fn is_pretty(request: &Parts) -> bool {
    let text = |name: HeaderName| request.headers.get(name).and_then(|value| value.to_str().ok());
    kubewarm_wire::is_pretty(request.uri.query(), text(ACCEPT), text(USER_AGENT))
}

/// Indents the JSON text in `pieces`. Each resulting piece has about [`PIECE_BYTES`], because the
/// indentation can make an object many times larger.
fn indented<S>(
    indenter: JsonIndenter,
    pieces: S,
) -> impl Stream<Item = Result<Bytes, ListEncodingError>>
where
    S: Stream<Item = Result<Bytes, ListEncodingError>> + 'static,
{
    let pieces = Box::pin(pieces);
    stream::unfold((indenter, pieces, Bytes::new()), |(mut indenter, mut pieces, left)| async {
        let mut left = left;
        while left.is_empty() {
            match pieces.next().await? {
                Ok(piece) => left = piece,
                Err(lost) => return Some((Err(lost), (indenter, pieces, left))),
            }
        }
        let (piece, used) = indenter.indent(&left, PIECE_BYTES);
        Some((Ok(piece.into()), (indenter, pieces, left.slice(used..))))
    })
}

/// Sets the headers with the informer's hash and the age of its store, and a `Warning` header if
/// the store is stale. Returns the age.
pub(super) fn set_source_headers(
    headers: &mut HeaderMap,
    source: &ReadSource,
    tag_key: &RandomState,
) -> Option<Duration> {
    const INFORMER_HEADER: HeaderName = HeaderName::from_static("kubewarm-informer");
    const FRESHNESS: HeaderName = HeaderName::from_static("kubewarm-freshness-milliseconds");
    set(headers, INFORMER_HEADER, keyed_tag(tag_key, &source.informer));
    let (freshness, now) = (source.freshness?, Instant::now());
    let age = freshness.age(now);
    if let Some(age) = age {
        set(headers, FRESHNESS, age.as_millis().to_string());
    }
    if freshness.is_stale(now) {
        set(headers, WARNING, staleness_warning(age));
    }
    age
}

/// The `Content-Type` of a get or list.
const fn content_type(media_type: MediaType) -> &'static str {
    match media_type {
        MediaType::Json => JSON,
        MediaType::Protobuf => PROTOBUF,
    }
}

/// The `Content-Type` of a watch.
pub(super) const fn watch_content_type(media_type: MediaType) -> &'static str {
    match media_type {
        MediaType::Json => JSON,
        MediaType::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
    }
}

pub(super) fn headers(content_type: &'static str, cache_control: &'static str) -> HeaderMap {
    let content_type = (CONTENT_TYPE, HeaderValue::from_static(content_type));
    let cache_control = (CACHE_CONTROL, HeaderValue::from_static(cache_control));
    HeaderMap::from_iter([content_type, cache_control])
}

/// Sets the header `name` to `value`. Ignores a value with control characters, which cannot occur.
fn set(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

pub(super) fn response(
    code: StatusCode,
    headers: HeaderMap,
    content: ResponseBody,
) -> OutgoingResponse {
    let mut response = OutgoingResponse::new(content);
    (*response.status_mut(), *response.headers_mut()) = (code, headers);
    response
}

/// A response with the JSON document `body`, which HTTP caches must not reuse.
pub(super) fn json(request: &Parts, body: Bytes) -> OutgoingResponse {
    let mut headers = headers(JSON, NOT_KEPT);
    let content = whole(&request.headers, &mut headers, body);
    response(StatusCode::OK, headers, content)
}

/// Creates a response body with the bytes `body`. Compresses them if they are more than `LONG`
/// bytes and the client accepts gzip.
fn whole(request_headers: &HeaderMap, headers: &mut HeaderMap, body: Bytes) -> ResponseBody {
    if body.len() > LONG && is_gzip_accepted(request_headers) {
        return compressed(headers, stream::iter([Ok(body)]));
    }
    body.into()
}

/// Creates a response body that compresses `pieces` with gzip. Adds `Content-Encoding` and `Vary`
/// to `headers`.
fn compressed(
    headers: &mut HeaderMap,
    pieces: impl Stream<Item = Result<Bytes, ListEncodingError>> + 'static,
) -> ResponseBody {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    ResponseBody::streamed(gzip::compressed(pieces))
}

fn is_gzip_accepted(request_headers: &HeaderMap) -> bool {
    gzip::accepts_gzip(request_headers.get(ACCEPT_ENCODING).map(HeaderValue::as_bytes))
}

/// The value of the `Warning` header for a stale store. Clients such as kubectl print this warning.
fn staleness_warning(age: Option<Duration>) -> String {
    match age {
        Some(age) => format!(
            "299 - \"from the cache of kubewarm, last known to be current {} s ago\"",
            age.as_secs()
        ),
        None => "299 - \"from the cache of kubewarm, not known to be current\"".to_owned(),
    }
}

/// The response with a discovery document, or 304 if `If-None-Match` contains the document's
/// `ETag`. As at the API server, HTTP caches may share the document, but not the document of one
/// profile (`is_of_profile`).
pub(super) fn document(
    request: &Parts,
    document: DiscoveryResponse,
    is_of_profile: bool,
) -> OutgoingResponse {
    let DiscoveryResponse { content_type, etag, body } = document;
    let known = request.headers.get(IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    let is_known = known.is_some_and(|known| is_known(known, &etag));
    let mut headers = headers(content_type, if is_of_profile { NOT_KEPT } else { "public" });
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    set(&mut headers, ETAG, etag);
    if is_known {
        headers.remove(CONTENT_TYPE);
        return response(StatusCode::NOT_MODIFIED, headers, Bytes::new().into());
    }
    let body = if is_pretty(request) { pretty(&body) } else { body };
    let content = whole(&request.headers, &mut headers, body.into());
    response(StatusCode::OK, headers, content)
}

/// Indents a document that kubewarm itself writes. The size of such a document is bounded, so the
/// result needs no pieces.
fn pretty(json: &[u8]) -> Vec<u8> {
    JsonIndenter::default().indent(json, usize::MAX).0
}

pub(super) fn failure(
    failure: &StatusError,
    media_type: MediaType,
    is_pretty: bool,
) -> OutgoingResponse {
    let code = StatusCode::from_u16(failure.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut headers = headers(content_type(media_type), NOT_KEPT);
    if let Some(seconds) = failure.retry_after() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if code == StatusCode::FORBIDDEN {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    let body = match media_type {
        MediaType::Json if is_pretty => pretty(failure.body().as_bytes()).into(),
        MediaType::Json => failure.body().into(),
        MediaType::Protobuf => kubewarm_wire::status_message(failure).into(),
    };
    response(code, headers, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{
        GroupResource, Identity, InformerKey, InformerScope, ManagedFieldsPolicy, Projection,
        Resource, SecretDataPolicy,
    };
    use std::collections::BTreeSet;

    fn informer(resource: &str, namespace: &str) -> InformerKey {
        InformerKey::all(
            Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
            InformerScope::Namespace(namespace.into()),
            Projection::Full(ManagedFieldsPolicy::Drop),
        )
    }

    #[test]
    fn the_informer_id_is_specific_to_the_process_and_reveals_nothing() {
        let [key, other] = [RandomState::new(), RandomState::new()];
        // `decade` has only hexadecimal digits, so the digit check below would accept a hash that
        // contains this name. A further check therefore shows that the hash does not contain the
        // name.
        let whole = informer("secrets", "decade");
        assert_eq!(keyed_tag(&key, &whole), keyed_tag(&key, informer("secrets", "decade")));
        assert_ne!(
            keyed_tag(&key, &whole),
            keyed_tag(&other, &whole),
            "the name depends on the key"
        );
        let owner = Identity::ServiceAccount { namespace: "decade".into(), name: "facade".into() };
        let metadata = Projection::Metadata(ManagedFieldsPolicy::Drop);
        let informers = [
            informer("pods", "decade"),
            informer("secrets", "facade"),
            InformerKey { scope: InformerScope::AllNamespaces, ..whole.clone() },
            InformerKey { projection: metadata, ..whole.clone() },
            InformerKey { secret_data: SecretDataPolicy::Allow, ..whole.clone() },
            InformerKey { identity: owner, ..whole.clone() },
            InformerKey { declared_in: Some("facade".into()), ..whole.clone() },
            whole,
        ];
        let names: BTreeSet<_> =
            informers.iter().map(|informer| keyed_tag(&key, informer)).collect();
        assert_eq!(names.len(), informers.len(), "{names:?}");
        for (name, informer) in
            informers.iter().map(|informer| (keyed_tag(&key, informer), format!("{informer:?}")))
        {
            assert_eq!(name.len(), 16, "{name}");
            assert!(name.bytes().all(|digit| b"0123456789abcdef".contains(&digit)), "{name}");
            let mut words = informer.split(|letter: char| !letter.is_alphanumeric());
            assert!(!words.any(|word| word.len() > 2 && name.contains(word)), "{name}: {informer}");
        }
    }
}
