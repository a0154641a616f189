//! The requests of one informer (client-go's `ListerWatcher`): the large ones that its task reads by
//! itself, and two small ones that answer whatever else is asked.

use super::{
    EventKind,
    endpoint::Endpoint,
    event::{Bookmark, Event},
    lines::LineSplitter,
    metadata::ListMeta,
    peek::tombstone,
    split::{MAX_OBJECT, Piece},
    upstream::{self, Chunks},
};
use futures::StreamExt as _;
use http::Request;
use kubewarm_api::model::{CellKey, Fault, Reason, ResourceVersion};
use kubewarm_client::fault;
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// The metadata of one object and the frame of its list are smaller, and so is an object of the largest
/// size that etcd takes by default.
const MAX_PEEK: usize = 8 << 20;

/// The path, the selectors and the representation of one informer, and the client of its identity.
#[derive(Clone)]
pub(super) struct ListWatch {
    pub(super) client: Arc<kube::Client>,
    endpoint: Endpoint,
}

/// What a short watch brings first.
#[derive(Debug)]
pub(super) enum Heard {
    /// A bookmark of this version, and nothing before it.
    Bookmark(ResourceVersion),
    /// An event of this version.
    Event(ResourceVersion),
    /// Neither: this is why.
    Nothing(&'static str),
}

impl ListWatch {
    /// # Errors
    ///
    /// As of [`Endpoint::new`].
    pub(super) fn new(client: &Arc<kube::Client>, key: &CellKey) -> Result<Self, Fault> {
        Ok(Self { client: Arc::clone(client), endpoint: Endpoint::new(key)? })
    }

    /// Sends the request that `build` makes of the endpoint, and waits for the headers of a successful answer.
    ///
    /// # Errors
    ///
    /// As of [`upstream::open`].
    pub(super) async fn open(
        &self,
        within: Duration,
        build: impl FnOnce(&Endpoint) -> Request<Vec<u8>>,
    ) -> Result<Chunks, Fault> {
        upstream::open(&self.client, build(&self.endpoint), within).await
    }

    /// Lists one object consistently: whether that is allowed, up to which version the API server has come,
    /// and how many objects remain. Where the answer is not understood, nothing of it is known.
    ///
    /// # Errors
    ///
    /// Whatever the answer means; it is a refusal if [`Reason::refuses_identity`] says so.
    ///
    /// # Cost
    ///
    /// One request for the metadata of an object.
    pub(super) async fn peek(&self, within: Duration) -> Result<ListMeta, Fault> {
        let mut chunks = self.open(within, Endpoint::one).await?;
        let mut body = Vec::new();
        let reading = async {
            // The server is sending: that is allowed, however much it is.
            while body.len() <= MAX_PEEK {
                let Some(chunk) = chunks.next().await else { break };
                body.extend_from_slice(&chunk?);
            }
            Ok(ListMeta::parse(&body).unwrap_or_default())
        };
        timeout(within, reading).await.unwrap_or_else(|_elapsed| {
            Err(Fault::new(Reason::TimedOut, "the answer did not end in time"))
        })
    }

    /// Opens a short watch of what comes after `from`, and reads what comes first within twice its time.
    ///
    /// # Errors
    ///
    /// Whatever the answer means, that of a broken connection, and what an `ERROR` event says.
    pub(super) async fn probe(
        &self,
        from: &ResourceVersion,
        lasting: Duration,
        within: Duration,
    ) -> Result<Heard, Fault> {
        let until = Instant::now() + lasting * 2;
        let mut chunks = self.open(within, |endpoint| endpoint.watch(from, lasting)).await?;
        let mut lines = LineSplitter::new(MAX_OBJECT);
        while let Ok(Some(chunk)) = timeout_at(until, chunks.next()).await {
            let chunk = chunk?;
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                let (consumed, piece) = lines.feed(rest);
                if let Some(piece) = piece {
                    return heard_in(&piece);
                }
                rest = rest.get(consumed..).unwrap_or_default();
            }
        }
        Ok(Heard::Nothing("a second watch was silent too"))
    }
}

/// What one line says.
fn heard_in(piece: &Piece<'_>) -> Result<Heard, Fault> {
    let event = match piece {
        Piece::Whole(line) => Event::parse(line),
        Piece::Oversized(head) => Event::of_head(head),
    };
    let unclear = Heard::Nothing("a second watch brought what cannot be read");
    let Some(event) = event else { return Ok(unclear) };
    let heard = match event.kind {
        EventKind::Error => return Err(fault::of_event(event.object)),
        EventKind::Bookmark => {
            Bookmark::parse(event.object).map(|bookmark| Heard::Bookmark(bookmark.version))
        }
        EventKind::Added | EventKind::Modified | EventKind::Deleted => {
            tombstone(event.object).and_then(|object| object.version).map(Heard::Event)
        }
    };
    // Something happened that cannot be told from a change.
    Ok(heard.unwrap_or(unclear))
}

impl fmt::Debug for ListWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client holds credentials.
        f.debug_struct("ListWatch").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
