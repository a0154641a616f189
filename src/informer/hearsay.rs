//! A watch that keeps nothing: it only says in which namespaces something of a kind has changed.

use super::{
    EventKind,
    endpoint::Endpoint,
    event::{Bookmark, Event},
    lines::LineSplitter,
    peek::tombstone,
    split::{MAX_OBJECT, Piece},
    upstream,
};
use crate::{
    cluster::fault,
    model::{CellKey, Fault, Reason, ResourceVersion},
};
use futures::StreamExt as _;
use serde::Deserialize;
use std::{convert::Infallible, time::Duration};

/// For an answer to begin, and for the whole of a small one.
const WITHIN: Duration = Duration::from_secs(30);
/// Of the list of one object.
const MAX_ANSWER: usize = 4 << 20;
/// `timeoutSeconds`; the connection is reopened where it ended.
const LASTING: Duration = Duration::from_mins(5);
/// Between two watches.
const REST: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

/// Calls `tell` for each change of what `key` selects, with its namespace, or `None` for objects that
/// live in none. Runs until it fails, and says why.
///
/// # Cost
///
/// One list of one object, and one open watch; of `key` the metadata should be enough.
pub async fn hearsay(
    client: &kube::Client,
    key: &CellKey,
    tell: impl Fn(Option<&str>) + Send,
) -> Fault {
    match follow(client, key, tell).await {
        Ok(never) => match never {},
        Err(fault) => fault,
    }
}

async fn follow(
    client: &kube::Client,
    key: &CellKey,
    tell: impl Fn(Option<&str>) + Send,
) -> Result<Infallible, Fault> {
    let guarded =
        |error: super::endpoint::Guarded| Fault::new(Reason::Forbidden, error.to_string());
    let endpoint = Endpoint::new(key).map_err(guarded)?;
    let body = upstream::read(client, endpoint.newest(), WITHIN, MAX_ANSWER).await?;
    let mut version = serde_json::from_slice(&body)
        .ok()
        .and_then(|list: List| ResourceVersion::parse(&list.metadata.resource_version))
        .ok_or_else(|| Fault::new(Reason::Malformed, "the list has no resourceVersion"))?;
    loop {
        let request = endpoint.watch(&version, LASTING);
        let mut chunks = upstream::open(client, request, WITHIN).await?;
        let mut lines = LineSplitter::new(MAX_OBJECT, endpoint.sensitivity());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                let (consumed, piece) = lines.feed(rest);
                if let Some(piece) = piece
                    && let Some(newer) = heard(&piece, &tell)?
                {
                    version = newer;
                }
                rest = rest.get(consumed..).unwrap_or_default();
            }
        }
        // A server that ends each watch at once is not asked in a circle.
        tokio::time::sleep(REST).await;
    }
}

/// Passes one line on, and says how far it brings the watch.
fn heard(
    piece: &Piece<'_>,
    tell: &impl Fn(Option<&str>),
) -> Result<Option<ResourceVersion>, Fault> {
    let event = match piece {
        Piece::Whole(line) => Event::parse(line).ok(),
        Piece::Oversized(head) => Event::of_head(head),
    };
    let Some(event) = event else { return Ok(None) };
    match event.kind {
        EventKind::Error => Err(fault::of_event(event.object)),
        EventKind::Bookmark => Ok(Bookmark::parse(event.object)
            .and_then(|bookmark| ResourceVersion::parse(&bookmark.version))),
        EventKind::Added | EventKind::Modified | EventKind::Deleted => {
            let object = tombstone(event.object).ok();
            let namespace = object.as_ref().map(|object| &*object.namespace);
            tell(namespace.filter(|name| !name.is_empty()));
            Ok(object.and_then(|object| object.version))
        }
    }
}
