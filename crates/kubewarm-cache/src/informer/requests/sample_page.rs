//! Fetches objects that an informer would list, without starting the informer. Forecasts of a
//! profile's cost use these objects as a sample.

use super::{
    access_check::AccessCheckResult, list_watch_client::ListWatchClient, request,
    request_builder::ListPaging,
};
use kubewarm_api::model::{
    DecodedObject, FaultReason, InformerKey, InformerSpec, ManagedFieldsPolicy, ObjectEncoding,
    Projection, RequestFault,
};
use kubewarm_client::is_builtin_group;
use kubewarm_wire::upstream::{DecodeError, ListMetadata, ObjectDecoder, SplitItem};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Maximum size of one page, in bytes. The first page of a forecast has 20 objects, which fit even
/// if each has 1.5 MiB, etcd's default limit.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// Time limit of one page. An informer's list can take longer, but a forecast must end sooner.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The part of each object to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleProjection {
    /// Requests the part of each object that the informer would fetch: the full object or only
    /// metadata.
    AsDeclared,
    /// Requests only the metadata of each object, which is enough to count the objects.
    Metadata,
}

/// The page of a list to fetch.
#[derive(Clone, Copy, Debug)]
pub struct SampleRequest<'a> {
    /// The part of each object to fetch.
    pub projection: SampleProjection,
    /// Maximum number of objects in the page.
    pub limit: u32,
    /// Continue token of the previous page; empty for the first page.
    pub token: &'a str,
    /// Whether the page can be in protobuf. For a custom resource and for
    /// [`SampleProjection::Metadata`], the page is always in JSON.
    pub can_use_protobuf: bool,
}

/// One fetched page: the number of its objects, the next continue token, and the request's
/// durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplePage {
    /// Number of objects in the page.
    pub objects: u64,
    /// Number of objects that follow this page (`remainingItemCount`). `None` if the API server
    /// does not report it, for example for a list with a selector.
    pub remaining: Option<u64>,
    /// Continue token of the next page; empty after the last page.
    pub token: String,
    /// Time from the request to the headers of the response.
    pub headers: Duration,
    /// Time from the request until the last object is processed.
    pub took: Duration,
}

/// Why a page cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplePageError {
    /// The page is in protobuf, and an object or its kind cannot be read in protobuf. The caller
    /// must request the page again in JSON, as the informer would. `visit` has possibly received
    /// other objects of the page before this error.
    #[error("the list cannot be read in protobuf")]
    NeedsJson,
    /// The request failed, or its response cannot be used in any encoding.
    #[error(transparent)]
    Fault(#[from] RequestFault),
}

impl From<SamplePageError> for RequestFault {
    fn from(error: SamplePageError) -> Self {
        match error {
            SamplePageError::NeedsJson => Self::new(FaultReason::Malformed, error.to_string()),
            SamplePageError::Fault(fault) => fault,
        }
    }
}

/// Fetches one page with the identity of `client`, and passes each object with its encoding to
/// `visit`.
///
/// The result counts undecodable objects, but `visit` does not receive them. This function never
/// fetches the payload of Secrets, even if the informer would fetch it: a forecast needs no
/// confidential data, and its memory is then a lower bound.
///
/// # Errors
///
/// [`SamplePageError::NeedsJson`], only if the page could be in protobuf. Otherwise the fault of
/// the response; [`FaultReason::TooLarge`] for a page above 64 MiB; [`FaultReason::TimedOut`] after
/// 30 s; [`FaultReason::Malformed`] for an incomplete or invalid list.
///
/// # Cost
///
/// One request.
pub async fn fetch_sample_page(
    client: &Arc<kube::Client>,
    key: &InformerKey,
    SampleRequest { projection, limit, token, can_use_protobuf }: SampleRequest<'_>,
    mut visit: impl FnMut(ObjectEncoding, &DecodedObject<'_>) + Send,
) -> Result<SamplePage, SamplePageError> {
    let key = &shallow(key, projection);
    let mut list_watch = ListWatchClient::new(client, key)?;
    let can_use_protobuf = can_use_protobuf
        && projection == SampleProjection::AsDeclared
        && is_builtin_group(key.resource.group());
    list_watch.accept_protobuf(can_use_protobuf);
    let part = ListPaging::Page { limit, token };
    let started = Instant::now();
    let chunks = list_watch.open(PAGE_TIMEOUT, |endpoint| endpoint.list(part)).await?;
    let headers = started.elapsed();
    let mut decoder = ObjectDecoder::new(key);
    let (mut objects, mut bytes, mut is_known) = (0, 0_usize, true);
    let meta = request::items(chunks, started + PAGE_TIMEOUT, |encoding, item| {
        objects += 1;
        bytes = bytes.saturating_add(item.bytes().len());
        if bytes > MAX_PAGE_BYTES {
            let text = format!("the first {limit} objects exceed {} MiB", MAX_PAGE_BYTES >> 20);
            return Err(RequestFault::new(FaultReason::TooLarge, text));
        }
        let Some(encoding) = encoding else {
            is_known = false;
            return Ok(());
        };
        if let SplitItem::Whole(object) = item {
            decoder.encoding = encoding;
            match decoder.decode(object) {
                Ok(item) if is_known => visit(encoding, &item),
                Err(DecodeError::NeedsJson(_)) => is_known = false,
                Ok(_) | Err(DecodeError::Undecodable(_)) => {}
            }
        }
        Ok(())
    });
    let ListMetadata { token, remaining_item_count, .. } = meta.await?;
    if !is_known {
        // Without `can_use_protobuf`, the request accepted only JSON. So another encoding is a
        // fault of the API server, and a second request would not help.
        return Err(if can_use_protobuf {
            SamplePageError::NeedsJson
        } else {
            RequestFault::new(FaultReason::Malformed, "the list is not JSON").into()
        });
    }
    Ok(SamplePage {
        objects,
        remaining: if token.is_empty() { Some(0) } else { remaining_item_count },
        token,
        headers,
        took: started.elapsed(),
    })
}

/// Runs an access check for an informer. The check requests only metadata, even if the informer
/// would fetch full objects, because RBAC does not distinguish both.
///
/// # Cost
///
/// The cost of [`AccessCheckResult::run`].
pub async fn check_access(client: &Arc<kube::Client>, spec: &InformerSpec) -> AccessCheckResult {
    let key = shallow(&spec.key, SampleProjection::Metadata);
    AccessCheckResult::run(client, &key, spec.settings.namespace_check).await
}

/// Returns a copy of the informer key `key`. The copy requests only metadata if `projection` is
/// `Metadata` or the resource is Secrets.
fn shallow(key: &InformerKey, projection: SampleProjection) -> InformerKey {
    let mut key = key.clone();
    if projection == SampleProjection::Metadata || key.resource.group_resource().is_secrets() {
        key.projection = Projection::Metadata(ManagedFieldsPolicy::Drop);
    }
    key
}
