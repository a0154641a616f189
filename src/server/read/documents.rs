//! What the API server says of itself, passed through: its version, and OpenAPI v3 of what is kept warm.

use super::answer::{self, NOT_KEPT};
use crate::{
    model::{Fault, ProfileRef},
    wire::{DocumentResource, Failure, SchemaForm, SchemaIndex, schema_hash},
};
use actix_web::{HttpRequest, HttpResponse, http::header};
use bytes::Bytes;
use futures::future::BoxFuture;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// How long a document may be kept that is asked for by its hash: a year, as the API server says.
const KEPT: Duration = Duration::from_hours(365 * 24);
const KINDS: &str = "what its kinds look like";
const JSON: &str = SchemaForm::Json.media_type();

/// What the API server says of itself. A port: one implementation asks for it, and keeps some.
pub trait Documents: Send + Sync + 'static {
    /// Its version, in JSON.
    fn version(&self) -> BoxFuture<'static, Result<Bytes, Fault>>;

    /// Which documents of OpenAPI there are.
    fn index(&self) -> BoxFuture<'static, Result<Arc<SchemaIndex>, Fault>>;

    /// One of them, by the URL that the index says.
    fn document(&self, url: &str, form: SchemaForm) -> BoxFuture<'static, Result<Schema, Fault>>;
}

/// A document of OpenAPI as the API server sends it.
#[derive(Clone, PartialEq, Eq)]
pub struct Schema {
    /// Its `ETag`, with its quotes.
    pub etag: Option<Arc<str>>,
    /// What it says.
    pub body: Bytes,
}

/// Answers `/version`.
///
/// # Errors
///
/// 503 where the API server does not say.
pub(super) async fn version(
    documents: &dyn Documents,
    request: &HttpRequest,
) -> Result<HttpResponse, Failure> {
    let body = documents.version().await.map_err(|fault| unsaid(&fault, "its version"))?;
    let version = answer::Document {
        body,
        content_type: JSON,
        etag: None,
        varies: false,
        is_compressed: false,
        cache_control: NOT_KEPT,
    };
    Ok(answer::document(request, version))
}

/// Answers `/openapi/v3`, of these kinds.
///
/// # Errors
///
/// 503 where the API server does not say.
pub(super) async fn schemas(
    documents: &dyn Documents,
    request: &HttpRequest,
    kinds: &[DocumentResource],
) -> Result<HttpResponse, Failure> {
    let index = documents.index().await.map_err(|fault| unsaid(&fault, KINDS))?;
    Ok(answer::document(request, index.document(kinds).into()))
}

/// Answers with the document of a version, if any of these kinds is in it.
///
/// # Errors
///
/// 404 where there is none, 503 where the API server does not say.
pub(super) async fn schema(
    documents: &dyn Documents,
    request: &HttpRequest,
    kinds: &[DocumentResource],
    (group, version, form): (&str, &str, SchemaForm),
    (profile, hash): (Option<&ProfileRef>, Option<&str>),
) -> Result<HttpResponse, Failure> {
    if !kinds.iter().any(|it| *it.group == *group && *it.version == *version) {
        return Err(Failure::no_such_path());
    }
    let index = documents.index().await.map_err(|fault| unsaid(&fault, KINDS))?;
    let url = index.url(group, version).ok_or_else(Failure::no_such_path)?;
    if hash.is_some() && hash != schema_hash(url) {
        return Ok(moved(profile, url, form));
    }
    let schema = documents.document(url, form).await.map_err(|fault| unsaid(&fault, KINDS))?;
    let Schema { etag, body } = schema;
    let document = answer::Document {
        body,
        content_type: form.media_type(),
        etag: etag.as_deref().map(ToOwned::to_owned),
        varies: true,
        is_compressed: false,
        // Without its hash whoever keeps it asks again.
        cache_control: if hash.is_some() { "public, immutable" } else { NOT_KEPT },
    };
    let mut response = answer::document(request, document);
    if hash.is_some() {
        let expires = header::HttpDate::from(SystemTime::now() + KEPT).to_string();
        if let Ok(expires) = header::HeaderValue::from_str(&expires) {
            response.headers_mut().insert(header::EXPIRES, expires);
        }
    }
    Ok(response)
}

/// There is another document of that version now, at `url` of the API server.
fn moved(profile: Option<&ProfileRef>, url: &str, form: SchemaForm) -> HttpResponse {
    let below = profile.map(|it| format!("/profiles/{}/{}", it.namespace, it.name));
    HttpResponse::MovedPermanently()
        .insert_header((header::LOCATION, below.unwrap_or_default() + url))
        .insert_header((header::VARY, "Accept"))
        .insert_header((header::CACHE_CONTROL, NOT_KEPT))
        .insert_header((header::CONTENT_TYPE, form.media_type()))
        .finish()
}

fn unsaid(fault: &Fault, what: &str) -> Failure {
    tracing::debug!(%fault, "the API server does not say {what}");
    Failure::unavailable(&format!("the API server does not say {what}; try again"), 1)
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}
