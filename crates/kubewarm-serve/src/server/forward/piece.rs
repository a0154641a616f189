//! Bodies on their way: a request's, of which there is a most, and an answer's.

use actix_http::body::{BodySize, MessageBody};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

/// Whether a body has turned out to be larger than it may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Overflow(Arc<AtomicBool>);

/// A request's body, which fails beyond its most.
pub(super) struct Limited {
    body: Incoming,
    left: u64,
    overflow: Overflow,
}

/// An answer's body, the beginning of which has been looked at.
pub(super) struct Passed {
    pub(super) first: Bytes,
    pub(super) body: Incoming,
    /// Of what is left of it, where the API server says so.
    pub(super) size: Option<u64>,
}

impl Overflow {
    pub(super) fn has_happened(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Limited {
    pub(super) fn new(body: Incoming, most: u64, overflow: Overflow) -> Self {
        Self { body, left: most, overflow }
    }
}

impl Body for Limited {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some(frame) = next.transpose().map_err(io::Error::other)? else {
            return Poll::Ready(None);
        };
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(left) = self.left.checked_sub(length) else {
            self.overflow.0.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err(io::Error::other("the body is too large"))));
        };
        self.left = left;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl MessageBody for Passed {
    type Error = hyper::Error;

    fn size(&self) -> BodySize {
        self.size.map_or(BodySize::Stream, BodySize::Sized)
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.size = self.size.map(|size| size.saturating_sub(first.len() as u64));
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            let next = ready!(Pin::new(&mut self.body).poll_frame(context));
            let Some(frame) = next.transpose()? else { return Poll::Ready(None) };
            // Trailers, of which Kubernetes has none, end here.
            if let Ok(data) = frame.into_data() {
                self.size = self.size.map(|size| size.saturating_sub(data.len() as u64));
                return Poll::Ready(Some(Ok(data)));
            }
        }
    }
}
