//! Fetches the first objects of an informer without starting it. Forecasts use it.

use super::{
    access_check::AccessCheck, decoder::ObjectDecoder, endpoint::ListPart,
    list_splitter::SplitItem, list_watch::ListWatch, metadata::ListMetadata, request,
};
use kubewarm_api::model::{
    DecodedObject, FaultReason, InformerKey, InformerSpec, ManagedFieldsPolicy, Projection,
    RequestFault,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Maximum size of one page, in bytes. It exceeds 20 objects of etcd's default maximum size.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// Time limit of one page. A warm-up can take longer, but a forecast must return sooner.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The part of each object to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleDepth {
    /// The part that the informer would fetch.
    AsDeclared,
    /// Only metadata. Enough to count objects.
    Metadata,
}

/// The page to fetch.
#[derive(Clone, Copy, Debug)]
pub struct SampleRequest<'a> {
    /// The part of each object.
    pub depth: SampleDepth,
    /// Maximum number of objects in the page.
    pub limit: u32,
    /// Continue token of the previous page; empty for the first page.
    pub token: &'a str,
}

/// The result of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplePage {
    /// Number of objects in the page.
    pub objects: u64,
    /// Number of objects after the page. `None` if the API server does not report it, as for lists
    /// with a selector.
    pub remaining: Option<u64>,
    /// Continue token of the next page; empty after the last page.
    pub token: String,
    /// Time from the request to the headers of the response.
    pub headers: Duration,
    /// Time from the request until the last object is processed.
    pub took: Duration,
}

/// Fetches one page with the identity of `client`, and passes each object to `visit`.
///
/// An undecodable object is counted but not passed on. The payload of Secrets is never fetched,
/// even if the informer would fetch it.
///
/// # Errors
///
/// The fault of the response; [`FaultReason::TooLarge`] above 64 MiB; [`FaultReason::TimedOut`] after 30 s.
pub async fn fetch_sample_page(
    client: &Arc<kube::Client>,
    key: &InformerKey,
    page: SampleRequest<'_>,
    mut visit: impl FnMut(&DecodedObject<'_>) + Send,
) -> Result<SamplePage, RequestFault> {
    let SampleRequest { depth, limit, token } = page;
    let key = &shallow(key, depth);
    let list_watch = ListWatch::new(client, key)?;
    let part = ListPart::Page { limit, token };
    let started = Instant::now();
    let chunks = list_watch.open(PAGE_TIMEOUT, |endpoint| endpoint.list(part)).await?;
    let headers = started.elapsed();
    let mut decoder = ObjectDecoder::new(key);
    let (mut objects, mut bytes) = (0, 0_usize);
    let meta = request::items(chunks, started + PAGE_TIMEOUT, |item| {
        objects += 1;
        bytes = bytes.saturating_add(item.len());
        if bytes > MAX_PAGE_BYTES {
            let text = format!("the first {limit} objects exceed {} MiB", MAX_PAGE_BYTES >> 20);
            return Err(RequestFault::new(FaultReason::TooLarge, text));
        }
        if let SplitItem::Whole(json) = item
            && let Ok(item) = decoder.decode(json)
        {
            visit(&item);
        }
        Ok(())
    });
    let ListMetadata { token, remaining_item_count, .. } = meta.await?;
    Ok(SamplePage {
        objects,
        remaining: if token.is_empty() { Some(0) } else { remaining_item_count },
        token,
        headers,
        took: started.elapsed(),
    })
}

/// Runs an access check for an informer with metadata only, so no payload is fetched.
///
/// # Cost
///
/// The cost of [`AccessCheck::run`].
pub async fn check_access(client: &Arc<kube::Client>, spec: &InformerSpec) -> AccessCheck {
    let key = shallow(&spec.key, SampleDepth::Metadata);
    AccessCheck::run(client, &key, spec.tuning.namespace_check).await
}

/// The informer's key, without the payload of Secrets.
fn shallow(key: &InformerKey, depth: SampleDepth) -> InformerKey {
    let mut key = key.clone();
    if depth == SampleDepth::Metadata || key.resource.group_resource().is_secrets() {
        key.projection = Projection::Metadata(ManagedFieldsPolicy::Drop);
    }
    key
}
