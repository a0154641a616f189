//! From an answer to the bytes of HTTP: headers, and bodies that are written while they are sent.

use super::{gzip, schemas::Schema};
use crate::{
    model::CellKey,
    reads::{Answer, Body, Cut},
    wire::{Failure, SchemaForm, Sent, is_known},
};
use actix_web::{
    HttpRequest, HttpResponse, HttpResponseBuilder,
    http::{
        StatusCode, Version,
        header::{self, HeaderValue},
    },
};
use bytes::Bytes;
use futures::stream;
use ring::hmac;
use std::{error::Error, fmt::Write as _, iter::once, time::Duration};

/// Objects of which all is written at once: what is short is told its length.
const AT_ONCE: usize = 128;
const JSON: &str = "application/json";
pub(super) const NOT_KEPT: &str = "no-cache, private";

/// Names a cell, for as long as this process lives, so that nobody learns from the name what it is.
pub(super) fn opaque(key: &hmac::Key, cell: &CellKey) -> String {
    // Its text is for people; what it names differs where keys differ.
    tagged(key, &format!("{cell:?}"))
}

/// The same for whatever `text` says.
pub(super) fn tagged(key: &hmac::Key, text: &str) -> String {
    let tag = hmac::sign(key, text.as_bytes());
    tag.as_ref().iter().take(8).fold(String::new(), |mut name, byte| {
        let _written = write!(name, "{byte:02x}");
        name
    })
}

/// Sends objects. `held` is let go of when the last of them is sent, or nobody listens any more.
pub(super) fn objects<T: 'static>(
    request: &HttpRequest,
    answer: Answer,
    key: &hmac::Key,
    held: T,
) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    let cell = opaque(key, &answer.cell);
    response
        .insert_header((header::CONTENT_TYPE, JSON))
        .insert_header((header::CACHE_CONTROL, NOT_KEPT))
        .insert_header(("Kubewarm-Cell", cell));
    if let Some(age) = answer.age {
        response.insert_header(("Kubewarm-Freshness-Milliseconds", age.as_millis().to_string()));
    }
    if answer.is_late {
        response.insert_header((header::WARNING, late(answer.age)));
    }
    let mut pages = match answer.body {
        Body::Whole(body) => return whole(request, response, body),
        Body::Pages(pages) => pages,
    };
    let lost = || failure(&Failure::not_warm(answer.cell.resource.group_resource(), 1));
    if takes_gzip(request) {
        let mut begun = Vec::new();
        // Whether it is to be compressed is not known before there is enough of it.
        while begun.len() <= gzip::LONG {
            match pages.next() {
                Some(Ok(piece)) => begun.extend_from_slice(&piece),
                Some(Err(Cut)) => return lost(),
                None => return response.body(begun),
            }
        }
        let pieces = once(Ok(begun)).chain(pages).inspect(move |_| {
            let _held = &held;
        });
        return compressed(request, response, pieces);
    }
    if pages.objects() <= AT_ONCE {
        return pages.whole().map_or_else(|Cut| lost(), |body| response.body(body));
    }
    let pieces = pages.map(move |piece| {
        let _held = &held;
        piece.map(Bytes::from)
    });
    streamed(request, response, stream::iter(pieces))
}

/// Sends what is there.
fn whole(request: &HttpRequest, mut response: HttpResponseBuilder, body: Vec<u8>) -> HttpResponse {
    if body.len() > gzip::LONG && takes_gzip(request) {
        return compressed(request, response, once(Ok(body)));
    }
    response.body(body)
}

/// Sends pieces as gzip.
fn compressed(
    request: &HttpRequest,
    mut response: HttpResponseBuilder,
    pieces: impl Iterator<Item = Result<Vec<u8>, Cut>> + 'static,
) -> HttpResponse {
    response
        .insert_header((header::CONTENT_ENCODING, "gzip"))
        .append_header((header::VARY, "Accept-Encoding"));
    streamed(request, response, gzip::compressed(pieces))
}

fn takes_gzip(request: &HttpRequest) -> bool {
    let header = request.headers().get(header::ACCEPT_ENCODING);
    gzip::is_taken(header.map(HeaderValue::as_bytes))
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

/// Sends pieces as they come.
pub(super) fn streamed<E: Into<Box<dyn Error>> + 'static>(
    request: &HttpRequest,
    mut response: HttpResponseBuilder,
    pieces: impl stream::Stream<Item = Result<Bytes, E>> + 'static,
) -> HttpResponse {
    if request.version() < Version::HTTP_11 {
        // It knows no chunks: the end of the connection ends the body.
        response.force_close();
        let mut response = response.streaming(pieces);
        response.head_mut().no_chunking(true);
        return response;
    }
    response.streaming(pieces)
}

/// Sends a document, or that the client has it.
pub(super) fn document(request: &HttpRequest, sent: Sent) -> HttpResponse {
    let known = request.headers().get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    let is_known = known.is_some_and(|known| is_known(known, &sent.etag));
    let mut response =
        HttpResponse::build(if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK });
    response
        .insert_header((header::ETAG, sent.etag))
        .insert_header((header::VARY, "Accept"))
        .insert_header((header::CACHE_CONTROL, "public"));
    if is_known {
        return response.finish();
    }
    response.insert_header((header::CONTENT_TYPE, sent.content_type));
    whole(request, response, sent.body)
}

/// Sends a document of OpenAPI v3, or that the client has it. Whoever keeps it asks again.
pub(super) fn schema(
    request: &HttpRequest,
    Schema { etag, body }: Schema,
    form: SchemaForm,
) -> HttpResponse {
    let known = request.headers().get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    let is_known = known.zip(etag.as_deref()).is_some_and(|(known, etag)| is_known(known, etag));
    let mut response =
        HttpResponse::build(if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK });
    response
        .insert_header((header::VARY, "Accept"))
        .insert_header((header::CACHE_CONTROL, NOT_KEPT));
    if let Some(etag) = etag {
        response.insert_header((header::ETAG, &*etag));
    }
    if is_known {
        return response.finish();
    }
    response.insert_header((header::CONTENT_TYPE, form.media_type())).body(body)
}

/// Sends JSON that was not made here.
pub(super) fn json(body: Bytes) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, JSON))
        .insert_header((header::CACHE_CONTROL, NOT_KEPT))
        .body(body)
}

/// Sends a `Status` of failure.
pub(super) fn failure(failure: &Failure) -> HttpResponse {
    let code = StatusCode::from_u16(failure.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(code);
    response
        .insert_header((header::CONTENT_TYPE, JSON))
        .insert_header((header::CACHE_CONTROL, NOT_KEPT));
    if let Some(seconds) = failure.retry_after() {
        response.insert_header((header::RETRY_AFTER, seconds.to_string()));
    }
    if code == StatusCode::FORBIDDEN {
        let nosniff = HeaderValue::from_static("nosniff");
        response.insert_header((header::X_CONTENT_TYPE_OPTIONS, nosniff));
    }
    response.body(failure.body())
}
