//! The API server for requests of callers: sent on with what they bring, and nothing of the operator's.

use super::{
    fault,
    transport::{Pipe, Piped},
};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use kubewarm_api::model::{Fault, Reason};
use std::fmt;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;

/// Where requests of callers are sent on to. It has no credentials.
///
/// Clones share connections: HTTP/1.1, none of which was ever used by another client of this process. What
/// answers with 101 takes its connection along, for good.
#[derive(Clone)]
pub struct Upstream {
    pipe: Pipe,
    server: Uri,
    runtime: Handle,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// There is no connection: nothing of the request has reached the server.
    Unconnected(Fault),
    /// It may have reached the server, and may have been carried out.
    Unanswered(Fault),
}

impl Upstream {
    pub(super) fn new(pipe: Pipe, server: &Uri, runtime: Handle) -> Self {
        Self { pipe, server: server.clone(), runtime }
    }

    /// Sends `request`, whose URI is a path, until the head of its answer. Redirects are answers.
    ///
    /// # Errors
    ///
    /// [`NotSent`].
    ///
    /// # Cost
    ///
    /// 10 s at most for a connection, and then as long as the server takes: the caller bounds it. Dropping
    /// what is returned ends the request.
    pub async fn send(&self, mut request: Request<Piped>) -> Result<Response<Incoming>, NotSent> {
        let at = self.at(request.uri()).map_err(NotSent::Unconnected)?;
        *request.uri_mut() = at;
        let sending =
            AbortOnDropHandle::new(self.runtime.spawn(self.pipe.clone().oneshot(request)));
        let broken = || Fault::new(Reason::Internal, "the request broke off");
        sending.await.map_err(|_| NotSent::Unanswered(broken()))?.map_err(|error| {
            let fault = fault::of_transport(&error);
            if error.is_connect() {
                NotSent::Unconnected(fault)
            } else {
                NotSent::Unanswered(fault)
            }
        })
    }

    /// The same path and query at the server, below the path of its URL.
    fn at(&self, path: &Uri) -> Result<Uri, Fault> {
        let below = self.server.path().trim_end_matches('/');
        let asked = path.path_and_query().map_or("/", |path| path.as_str());
        let mut parts = self.server.clone().into_parts();
        let unreadable = |_| Fault::new(Reason::Internal, "the path cannot be sent on");
        parts.path_and_query = Some(format!("{below}{asked}").parse().map_err(unreadable)?);
        Uri::from_parts(parts)
            .map_err(|_| Fault::new(Reason::Internal, "the server's URL cannot be used"))
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("server", &self.server).finish_non_exhaustive()
    }
}
