//! Looks at the first objects of a cell without warming it: for forecasts.

use super::{
    decode::Decoder, endpoint::Part, list_watch::ListWatch, metadata::ListMeta, split::Piece,
    trial::Trial, upstream,
};
use kubewarm_api::model::{CellKey, CellSpec, Fault, Item, ManagedFields, Projection, Reason};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Most bytes of one page: 20 objects of the size that etcd takes by default, and some.
const MAX_PAGE: usize = 64 << 20;

/// For one page. A warm-up may take longer; nobody waits so long for a forecast.
const PAGE: Duration = Duration::from_secs(30);

/// What is fetched of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// As the cell would.
    AsDeclared,
    /// Metadata only, whatever the cell would fetch: to count.
    Metadata,
}

/// What a page came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Objects in it.
    pub objects: u64,
    /// Objects behind it, where the server says so: not with selectors.
    pub remaining: Option<u64>,
    /// Where the next page begins; empty behind the last one.
    pub token: String,
    /// From the request to the headers of the answer.
    pub headers: Duration,
    /// From the request to the last object processed.
    pub took: Duration,
}

/// Fetches a page of at most `limit` objects as the identity of `client`, behind `token` if it is not
/// empty, and shows each to `see`. What does not decode counts, and is not shown.
///
/// The payload of secrets is never fetched, not even where the cell would: they are counted.
///
/// # Errors
///
/// Whatever the answer means; [`Reason::TooLarge`] above 64 MiB, [`Reason::TimedOut`] after 30 s.
pub async fn look(
    client: &Arc<kube::Client>,
    key: &CellKey,
    (depth, limit, token): (Depth, u32, &str),
    mut see: impl FnMut(&Item<'_>) + Send,
) -> Result<Looked, Fault> {
    let key = &shallow(key, depth);
    let list_watch = ListWatch::new(client, key)?;
    let part = Part::Page { limit, token };
    let started = Instant::now();
    let chunks = list_watch.open(PAGE, |endpoint| endpoint.list(part)).await?;
    let headers = started.elapsed();
    let mut decoder = Decoder::new(key);
    let (mut objects, mut bytes) = (0, 0_usize);
    let meta = upstream::items(chunks, started + PAGE, |piece| {
        objects += 1;
        bytes = bytes.saturating_add(piece.len());
        if bytes > MAX_PAGE {
            let text = format!("the first {limit} objects exceed {} MiB", MAX_PAGE >> 20);
            return Err(Fault::new(Reason::TooLarge, text));
        }
        if let Piece::Whole(json) = piece
            && let Ok(item) = decoder.decode(json)
        {
            see(&item);
        }
        Ok(())
    });
    let ListMeta { token, remaining_item_count, .. } = meta.await?;
    Ok(Looked {
        objects,
        remaining: if token.is_empty() { Some(0) } else { remaining_item_count },
        token,
        headers,
        took: started.elapsed(),
    })
}

/// Tries whether a cell may be listed and watched, without fetching the payload of anything.
///
/// # Cost
///
/// As of [`Trial::of`].
pub async fn try_cell(client: &Arc<kube::Client>, spec: &CellSpec) -> Trial {
    let key = shallow(&spec.key, Depth::Metadata);
    Trial::of(client, &key, spec.tuning.namespace_check).await
}

/// The cell, without the payload of secrets.
fn shallow(key: &CellKey, depth: Depth) -> CellKey {
    let mut key = key.clone();
    if depth == Depth::Metadata || key.resource.group_resource().is_secrets() {
        key.projection = Projection::Metadata(ManagedFields::Drop);
    }
    key
}
