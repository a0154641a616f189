//! OpenAPI v3: the API server's documents of what is kept warm, passed through.

use super::answer;
use crate::{
    model::Fault,
    wire::{DocumentResource, Failure, SchemaForm, SchemaIndex},
};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures::future::BoxFuture;
use std::{fmt, sync::Arc};

/// Has the API server's documents. A port: one implementation asks for them, and keeps some.
pub trait Schemas: Send + Sync + 'static {
    /// Which documents there are.
    fn index(&self) -> BoxFuture<'static, Result<Arc<SchemaIndex>, Fault>>;

    /// One of them, by the URL that the index says.
    fn document(&self, url: &str, form: SchemaForm) -> BoxFuture<'static, Result<Schema, Fault>>;
}

/// A document as the API server sends it.
#[derive(Clone, PartialEq, Eq)]
pub struct Schema {
    /// Its `ETag`, with its quotes.
    pub etag: Option<Arc<str>>,
    /// What it says.
    pub body: Bytes,
}

/// Answers `/openapi/v3`, of these kinds.
///
/// # Errors
///
/// 503 where the API server does not say.
pub(super) async fn index(
    schemas: &dyn Schemas,
    request: &HttpRequest,
    kinds: &[DocumentResource],
) -> Result<HttpResponse, Failure> {
    let index = schemas.index().await.map_err(|fault| unknown(&fault))?;
    Ok(answer::document(request, index.document(kinds)))
}

/// Answers with the document of a version, if any of these kinds is in it.
///
/// # Errors
///
/// 404 where there is none, 503 where the API server does not say.
pub(super) async fn document(
    schemas: &dyn Schemas,
    request: &HttpRequest,
    kinds: &[DocumentResource],
    (group, version, form): (&str, &str, SchemaForm),
) -> Result<HttpResponse, Failure> {
    if !kinds.iter().any(|it| *it.group == *group && *it.version == *version) {
        return Err(Failure::no_such_path());
    }
    let index = schemas.index().await.map_err(|fault| unknown(&fault))?;
    let url = index.url(group, version).ok_or_else(Failure::no_such_path)?;
    let schema = schemas.document(url, form).await.map_err(|fault| unknown(&fault))?;
    Ok(answer::schema(request, schema, form))
}

fn unknown(fault: &Fault) -> Failure {
    tracing::debug!(%fault, "the API server does not say what its kinds look like");
    Failure::unavailable("the API server does not say what its kinds look like; try again", 1)
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}
