//! Decides which server answers a request: kubewarm from its stores, or the API server.

use super::{api::credentials, body::IncomingRequest, forward::RequestForwarder};
use crate::callers::is_impersonation_header;
use http::header::ACCEPT;
use kubewarm_wire::{JSON, PROTOBUF, RequestInfo, RequestTarget, StatusError};

/// A parsed request, or why kubewarm does not understand the request.
pub(super) type ParsedRequest = Result<RequestInfo, StatusError>;

/// Which server answers a request.
pub(super) enum Route<'a> {
    Cache(ParsedRequest),
    Forward(&'a RequestForwarder),
    /// The API server answers what the stores cannot.
    CacheThenForward(&'a RequestForwarder, ParsedRequest),
}

impl<'a> Route<'a> {
    /// Decides about `request`. `forward` is `None` without `--forward`. Call this once for each
    /// request: the client's certificate can become invalid during the request, and a second
    /// decision could then differ.
    ///
    /// # Errors
    ///
    /// If only the API server can answer, but the request has a valid client certificate. kubewarm
    /// cannot forward such a request, because kubewarm does not have the private key of the
    /// certificate.
    pub(super) fn of(
        forward: Option<&'a RequestForwarder>,
        request: &IncomingRequest,
    ) -> Result<Self, StatusError> {
        let Some(forward) = forward else { return Ok(Self::Cache(parse(request))) };
        match (must_be_forwarded(request), has_client_certificate(request)) {
            (true, true) => Err(StatusError::cannot_forward()),
            (true, false) => Ok(Self::Forward(forward)),
            (false, true) => Ok(Self::Cache(parse(request))),
            (false, false) => Ok(match parse(request) {
                // The API server answers discovery, so that a client such as kubectl finds all
                // kinds of the cluster. kubewarm's own documents contain only the kinds of
                // profiles.
                Ok(RequestInfo { target: RequestTarget::Document(..), .. })
                    if credentials(request).is_ok() =>
                {
                    Self::Forward(forward)
                }
                parsed => Self::CacheThenForward(forward, parsed),
            }),
        }
    }
}

/// Parses a request that the stores might answer. The API server can accept a request that kubewarm
/// does not understand, so the error is specific to kubewarm, and `--forward` forwards the request.
fn parse(request: &IncomingRequest) -> ParsedRequest {
    let head = &request.head;
    let accept = head.headers.get(ACCEPT).map(|accept| accept.to_str()).transpose();
    accept
        .map_err(|_| StatusError::not_acceptable(&[JSON, PROTOBUF]))
        .and_then(|accept| {
            RequestInfo::parse(head.method.as_str(), head.uri.path(), head.uri.query(), accept)
        })
        .map_err(StatusError::specific_to_cache)
}

/// Whether only the API server can answer `request`. This applies to each request that is not a
/// GET, and to a request that switches protocols. It also applies to impersonation, because only
/// the API server can decide whether the caller may read as the other user.
fn must_be_forwarded(request: &IncomingRequest) -> bool {
    let mut names = request.head.headers.keys().map(http::HeaderName::as_str);
    request.head.method != http::Method::GET
        || request.upgrade.is_some()
        || names.any(is_impersonation_header)
}

/// Whether a client certificate authenticates the caller.
fn has_client_certificate(request: &IncomingRequest) -> bool {
    request.connection.chain.as_ref().is_some_and(|chain| chain.authenticate().is_some())
}
