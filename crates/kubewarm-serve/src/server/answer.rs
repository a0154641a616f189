//! From an answer to the bytes of HTTP: headers, and bodies that are written while they are sent.

use super::{
    body::{Response, ResponseBody},
    gzip,
};
use crate::{
    callers::UserPermits,
    reads::{self, Body, Cut, Source},
};
use aws_lc_rs::hmac;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{
        ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
        RETRY_AFTER, VARY, WARNING, X_CONTENT_TYPE_OPTIONS,
    },
};
use kubewarm_api::model::CellKey;
use kubewarm_wire::{Failure, Sent, is_known};
use std::time::Duration;

/// What is no longer is written at once, and told its length; the rest of a longer list is written while it is sent.
/// From here on the API server compresses.
const LONG: usize = 128 << 10;
/// From here on the pieces of an answer are written in turns, a few at once.
const LARGE: usize = 1 << 20;
pub(super) const JSON: &str = "application/json";
pub(super) const NOT_KEPT: &str = "no-cache, private";

/// Names a cell, for as long as this process lives, so that nobody learns from the name what it is.
pub(super) fn opaque(key: &hmac::Key, cell: &CellKey) -> String {
    // Its text is for people; what it names differs where keys differ.
    tagged(key, &format!("{cell:?}"))
}

/// The same for whatever `text` says.
pub(super) fn tagged(key: &hmac::Key, text: &str) -> String {
    let tag = hmac::sign(key, text.as_bytes());
    let first = tag.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(first))
}

/// Sends objects to whoever `asked` with these headers; a large answer in the user's `turns`.
pub(super) async fn objects(
    asked: &HeaderMap,
    answer: reads::Answer,
    key: &hmac::Key,
    turns: UserPermits,
) -> Response {
    let mut headers = headers(JSON, NOT_KEPT);
    tell_source(&mut headers, &answer.source, key);
    let of = &answer.source.cell.resource;
    let (begun, rest) = match answer.body {
        Body::Whole(body) => (body, None),
        Body::Pages(mut pages) => match pages.begin(LONG).await {
            Ok((begun, goes_on)) => (begun, goes_on.then_some(pages)),
            Err(Cut) => return failure(&Failure::not_warm(of.group_resource(), 1)),
        },
    };
    let content = match rest {
        None => whole(asked, &mut headers, begun.into()),
        Some(rest) => {
            let rest = stream::unfold(rest, |mut rest| async move {
                let piece = rest.next().await?;
                Some((piece.map(Bytes::from), rest))
            });
            let rest = in_turns(rest, begun.len(), turns);
            let pieces = stream::iter([Ok(begun.into())]).chain(rest);
            if takes_gzip(asked) {
                compressed(&mut headers, pieces)
            } else {
                ResponseBody::streamed(pieces)
            }
        }
    };
    response(StatusCode::OK, headers, content)
}

/// The rest of an answer, behind so many bytes. From [`LARGE`] on each piece is written in a turn, which ends when the
/// piece is there: whoever takes an answer slowly keeps no turn.
fn in_turns<S>(rest: S, begun: usize, turns: UserPermits) -> impl Stream<Item = Result<Bytes, Cut>>
where
    S: Stream<Item = Result<Bytes, Cut>> + 'static,
{
    let rest = Box::pin(rest);
    stream::unfold((rest, begun, turns), |(mut rest, bytes, turns)| async move {
        let turn = if bytes < LARGE { None } else { turns.acquire(1).await };
        let piece = rest.next().await?;
        drop(turn);
        let bytes = bytes + piece.as_ref().map_or(0, Bytes::len);
        Some((piece, (rest, bytes, turns)))
    })
}

/// Says from where an answer is, and how old.
pub(super) fn tell_source(headers: &mut HeaderMap, source: &Source, key: &hmac::Key) {
    const CELL: HeaderName = HeaderName::from_static("kubewarm-cell");
    const FRESHNESS: HeaderName = HeaderName::from_static("kubewarm-freshness-milliseconds");
    set(headers, CELL, opaque(key, &source.cell));
    if let Some(age) = source.age {
        set(headers, FRESHNESS, age.as_millis().to_string());
    }
    if source.is_late {
        set(headers, WARNING, late(source.age));
    }
}

/// What every answer says of its body.
pub(super) fn headers(content_type: &'static str, cache_control: &'static str) -> HeaderMap {
    let content_type = (CONTENT_TYPE, HeaderValue::from_static(content_type));
    let cache_control = (CACHE_CONTROL, HeaderValue::from_static(cache_control));
    HeaderMap::from_iter([content_type, cache_control])
}

/// `value` is text of this program: it has no control characters, which no header may have.
fn set(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

pub(super) fn response(code: StatusCode, headers: HeaderMap, content: ResponseBody) -> Response {
    let mut response = Response::new(content);
    (*response.status_mut(), *response.headers_mut()) = (code, headers);
    response
}

/// Sends JSON that nobody keeps.
pub(super) fn json(asked: &HeaderMap, body: Bytes) -> Response {
    let mut headers = headers(JSON, NOT_KEPT);
    let content = whole(asked, &mut headers, body);
    response(StatusCode::OK, headers, content)
}

/// Sends what is there.
fn whole(asked: &HeaderMap, headers: &mut HeaderMap, body: Bytes) -> ResponseBody {
    if body.len() > LONG && takes_gzip(asked) {
        return compressed(headers, stream::iter([Ok(body)]));
    }
    body.into()
}

/// Sends pieces as gzip.
fn compressed(
    headers: &mut HeaderMap,
    pieces: impl Stream<Item = Result<Bytes, Cut>> + 'static,
) -> ResponseBody {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    ResponseBody::streamed(gzip::compressed(pieces))
}

fn takes_gzip(asked: &HeaderMap) -> bool {
    gzip::is_taken(asked.get(ACCEPT_ENCODING).map(HeaderValue::as_bytes))
}

/// What a client shows to people.
fn late(age: Option<Duration>) -> String {
    match age {
        Some(age) => format!(
            "299 - \"from the cache of kubewarm, last known to be current {} s ago\"",
            age.as_secs()
        ),
        None => "299 - \"from the cache of kubewarm, not known to be current\"".to_owned(),
    }
}

/// Sends a document to whoever `asked` with these headers, or that the client has it.
pub(super) fn document(asked: &HeaderMap, document: Sent) -> Response {
    let Sent { content_type, etag, body } = document;
    let known = asked.get(IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    let is_known = known.is_some_and(|known| is_known(known, &etag));
    let mut headers = headers(content_type, "public");
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    set(&mut headers, ETAG, etag);
    if is_known {
        headers.remove(CONTENT_TYPE);
        return response(StatusCode::NOT_MODIFIED, headers, Bytes::new().into());
    }
    let content = whole(asked, &mut headers, body.into());
    response(StatusCode::OK, headers, content)
}

/// Sends a `Status` of failure.
pub(super) fn failure(failure: &Failure) -> Response {
    let code = StatusCode::from_u16(failure.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut headers = headers(JSON, NOT_KEPT);
    if let Some(seconds) = failure.retry_after() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if code == StatusCode::FORBIDDEN {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    response(code, headers, failure.body().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::sample::user_permits;
    use futures::{StreamExt, future::join_all};
    use kubewarm_api::model::{
        Extent, GroupResource, Identity, ManagedFields, Projection, Resource, SecretData,
    };
    use std::{cell::Cell, collections::BTreeSet, rc::Rc};
    use tokio::time::sleep;

    /// Pieces of half of what is large, each of which takes a while; `now` is how many are written, `most` at most.
    fn pieces(
        count: usize,
        now: &Rc<Cell<usize>>,
        most: &Rc<Cell<usize>>,
    ) -> impl Stream<Item = Result<Bytes, Cut>> + use<> {
        let (now, most) = (Rc::clone(now), Rc::clone(most));
        stream::iter(0..count).then(move |_| {
            let (now, most) = (Rc::clone(&now), Rc::clone(&most));
            async move {
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                sleep(Duration::from_millis(1)).await;
                now.set(now.get() - 1);
                Ok(Bytes::from(vec![b'x'; LARGE / 2]))
            }
        })
    }

    fn cell(resource: &str, namespace: &str) -> CellKey {
        CellKey::all(
            Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
            Extent::Namespace(namespace.into()),
            Projection::Full(ManagedFields::Drop),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_are_written_a_few_at_once_and_none_keeps_a_turn_that_nobody_takes() {
        let (now, most) = (Rc::default(), Rc::default());
        let [jane, john] = user_permits(4, ["jane", "john"]);
        // Not taken beyond what is large.
        let mut slow = Box::pin(in_turns(pieces(9, &now, &most), LARGE, jane.clone()));
        assert!(slow.next().await.is_some());
        let all = [(&jane, 40), (&john, 5)].map(|(user, count)| {
            let written = (0..count).map(|_| in_turns(pieces(4, &now, &most), LARGE, user.clone()));
            join_all(written.map(StreamExt::collect::<Vec<_>>))
        });
        let written = join_all(all).await;
        assert!(written.iter().flatten().all(|pieces| pieces.len() == 4));
        assert_eq!(most.get(), 2, "one of each user");
        let small = (0..9).map(|_| in_turns(pieces(2, &now, &most), 0, jane.clone()));
        join_all(small.map(StreamExt::collect::<Vec<_>>)).await;
        assert_eq!(most.get(), 9, "who is not large does not wait");
    }

    #[test]
    fn the_name_of_a_cell_is_of_this_process_alone_and_says_nothing_of_it() {
        let [key, other] = [[1; 32], [2; 32]].map(|key| hmac::Key::new(hmac::HMAC_SHA256, &key));
        // A namespace that might be part of a name: all of its letters are digits of one.
        let whole = cell("secrets", "decade");
        assert_eq!(opaque(&key, &whole), opaque(&key, &cell("secrets", "decade")));
        assert_ne!(opaque(&key, &whole), opaque(&other, &whole), "nobody else can compute it");
        let owner = Identity::ServiceAccount { namespace: "decade".into(), name: "facade".into() };
        let metadata = Projection::Metadata(ManagedFields::Drop);
        let cells = [
            cell("pods", "decade"),
            cell("secrets", "facade"),
            CellKey { extent: Extent::AllNamespaces, ..whole.clone() },
            CellKey { projection: metadata, ..whole.clone() },
            CellKey { secret_data: SecretData::Allow, ..whole.clone() },
            CellKey { identity: owner, ..whole.clone() },
            CellKey { declared_in: Some("facade".into()), ..whole.clone() },
            whole,
        ];
        let names: BTreeSet<_> = cells.iter().map(|cell| opaque(&key, cell)).collect();
        assert_eq!(names.len(), cells.len(), "{names:?}");
        for (name, cell) in cells.iter().map(|cell| (opaque(&key, cell), format!("{cell:?}"))) {
            assert_eq!(name.len(), 16, "{name}");
            assert!(name.bytes().all(|digit| b"0123456789abcdef".contains(&digit)), "{name}");
            let mut words = cell.split(|letter: char| !letter.is_alphanumeric());
            assert!(!words.any(|word| word.len() > 2 && name.contains(word)), "{name}: {cell}");
        }
    }
}
