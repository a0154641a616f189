//! Forwards requests of callers (kubewarm's clients) to the API server without the operator's
//! credentials.

use super::{
    fault,
    transport::{StreamingBody, StreamingService},
};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use kubewarm_api::model::{FaultReason, RequestFault};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;

/// Forwards requests of callers (kubewarm's clients) to the API server, and adds no credentials.
///
/// All clones use one pool of HTTP/1.1 connections, which no other client of the process uses. A
/// response with status 101 removes its connection from the pool, because the connection then no
/// longer carries HTTP requests.
#[derive(Clone)]
pub struct UpstreamProxy {
    pipe: StreamingService,
    server: Uri,
    runtime: Handle,
}

/// The reason why kubewarm has no response to a forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    /// No connection was established, so the API server received no part of the request.
    Unconnected(RequestFault),
    /// The request failed on an established connection, so the API server might have executed it.
    Unanswered(RequestFault),
}

impl UpstreamProxy {
    pub(super) fn new(pipe: StreamingService, server: &Uri, runtime: Handle) -> Self {
        Self { pipe, server: server.clone(), runtime }
    }

    /// Sends `request` and returns the response when its headers arrive. The URI of `request` must
    /// be a path.
    ///
    /// The function does not follow a redirect: it returns the redirect response.
    ///
    /// # Errors
    ///
    /// [`UpstreamError`] if no response headers arrive.
    ///
    /// # Cost
    ///
    /// The TCP connect takes at most 10 s. The wait for the response has no time limit, so callers
    /// must set one. Dropping the returned future aborts the request.
    pub async fn send(
        &self,
        mut request: Request<StreamingBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let at = self.at(request.uri()).map_err(UpstreamError::Unconnected)?;
        *request.uri_mut() = at;
        let sending =
            AbortOnDropHandle::new(self.runtime.spawn(self.pipe.clone().oneshot(request)));
        let broken =
            || RequestFault::new(FaultReason::Internal, "the request ended before a response");
        sending.await.map_err(|_| UpstreamError::Unanswered(broken()))?.map_err(|error| {
            let fault = fault::of_transport(&error);
            if error.is_connect() {
                UpstreamError::Unconnected(fault)
            } else {
                UpstreamError::Unanswered(fault)
            }
        })
    }

    /// Appends path and query of `path` to the path of the server's URL.
    fn at(&self, path: &Uri) -> Result<Uri, RequestFault> {
        let below = self.server.path().trim_end_matches('/');
        let suffix = path.path_and_query().map_or("/", |path| path.as_str());
        let mut parts = self.server.clone().into_parts();
        let unreadable =
            |_| RequestFault::new(FaultReason::Internal, "the path cannot be forwarded");
        parts.path_and_query = Some(format!("{below}{suffix}").parse().map_err(unreadable)?);
        Uri::from_parts(parts).map_err(|_| {
            RequestFault::new(FaultReason::Internal, "the server's URL cannot be used")
        })
    }
}
