//! Serves this replica's stores to other replicas of the same release, so that a starting replica
//! needs no lists of the API server.

use super::{
    api::credentials,
    body::{IncomingRequest, OutgoingResponse, ResponseBody},
    rejection::refused_by,
    response::{NOT_KEPT, headers, response, watch_content_type},
    unwritten_response::ResponsePermit,
};
use crate::{
    ServeError,
    callers::{CallerGate, CallerRejection, ListenerLimits, ReviewClient},
    reads::{DamagedObjectError, PIECE_BYTES},
};
use bytes::Bytes;
use futures::stream;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use kubewarm_api::model::{FaultReason, ObjectEncoding, RequestFault};
use kubewarm_cache::{
    informer::{InformerHandles, PeerStore},
    store::{ScanBudget, StoreChange},
};
use kubewarm_client::{AuthenticationResult, BearerCredentials, CallerInfo};
use kubewarm_wire::{
    BookmarkKind, EventType, MediaType, ObjectBody, PEER_SUMMARY_HEADER, StatusError,
    write_peer_bookmark, write_peer_event,
};
use std::{ops::ControlFlow, path::PathBuf, sync::Arc};
use tokio::{runtime::Handle, sync::OnceCell};
use zeroize::Zeroizing;

/// The name that each ServiceAccount's user name begins with.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Serves stores to callers that are replicas of the same release. A replica proves this with a
/// token of the ServiceAccount of this process, for the audience
/// [`PEER_AUDIENCE`](kubewarm_wire::PEER_AUDIENCE). No RBAC rule gives another user this access.
pub struct PeerStores {
    /// Authenticates peers and limits their requests. Clients have another gate.
    callers: CallerGate,
    reviews: Arc<dyn ReviewClient>,
    /// The file with a token of this process for its peers. A TokenReview of the token shows the
    /// name and the UID that peers have, too.
    token_file: PathBuf,
    own: OnceCell<Arc<CallerInfo>>,
    stores: InformerHandles,
}

/// The rest of a store that a peer is copying.
struct PeerFeed {
    store: PeerStore,
    encoding: ObjectEncoding,
    part: FeedPart,
    scan_budget: ScanBudget,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FeedPart {
    Objects,
    Changes,
    /// The last bookmark is sent.
    Done,
}

impl PeerStores {
    /// `reviews` must send TokenReviews for the audience of peers. `runtime` sends them.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the kernel returns no random numbers.
    pub fn new(
        reviews: Arc<dyn ReviewClient>,
        token_file: PathBuf,
        stores: InformerHandles,
        runtime: Handle,
    ) -> Result<Self, ServeError> {
        let limits = ListenerLimits::for_peers();
        let callers =
            CallerGate::new(Arc::clone(&reviews), &limits, runtime, Box::new(|_, _, _| ()))?;
        Ok(Self { callers, reviews, token_file, own: OnceCell::new(), stores })
    }

    /// Answers the request of a peer.
    ///
    /// # Errors
    ///
    /// - 401 or 403 if the caller is not a replica of the same release
    /// - 404 if this replica has no such store, or none that can be copied
    /// - 429 if too many peers copy stores
    /// - 503 if the API server does not review the token
    pub(super) async fn answer(
        &self,
        request: &IncomingRequest,
    ) -> Result<OutgoingResponse, StatusError> {
        if request.head.method != Method::GET {
            return Err(StatusError::no_such_path());
        }
        let (credentials, peer) = (credentials(request)?, request.connection.peer);
        let admitted = async {
            // The caller comes first, because the limits on callers protect only what follows.
            let (caller, permit) = self.callers.admit_token(&credentials, peer).await?;
            let own = self.own.get_or_try_init(|| self.review_own_token()).await?;
            if !is_peer(own, &caller.user) {
                let user = caller.user.name.clone();
                return Err(CallerRejection::Forbidden { user, reason: None });
            }
            Ok((caller, permit))
        };
        let (caller, permit) = admitted.await.map_err(|refused| {
            let forbidden = |_: &str, _: Option<&str>| {
                StatusError::refused("only replicas of this release may copy stores")
            };
            refused_by(refused, &self.callers, forbidden)
        })?;
        request.connection.accept(|| self.callers.acquire_connection(caller.limit_key));
        let store = self.stores.transfer(request.head.uri.path());
        let feed = PeerFeed::new(store.ok_or_else(StatusError::no_such_path)?);
        let media_type = match feed.encoding {
            ObjectEncoding::Json => MediaType::Json,
            ObjectEncoding::Protobuf(_) => MediaType::Protobuf,
        };
        let mut headers = headers(watch_content_type(media_type), NOT_KEPT);
        if let Ok(summary) = HeaderValue::try_from(feed.store.summary.header()) {
            headers.insert(HeaderName::from_static(PEER_SUMMARY_HEADER), summary);
        }
        let body = ResponseBody::streamed(stream::try_unfold(feed, PeerFeed::next));
        let unwritten = self.callers.unwritten_byte_permits(caller.limit_key);
        body.keep(ResponsePermit::timely(permit, unwritten));
        Ok(response(StatusCode::OK, headers, body))
    }

    /// Finds out which user the tokens of this process identify.
    async fn review_own_token(&self) -> Result<Arc<CallerInfo>, CallerRejection> {
        let failed = |message: String| RequestFault::new(FaultReason::Internal, message);
        let token = tokio::fs::read_to_string(&self.token_file).await.map_err(|error| {
            failed(format!("--peer-token-file {}: {error}", self.token_file.display()))
        })?;
        let token = Zeroizing::new(token.trim().to_owned());
        let reviewed = self.reviews.authenticate(Arc::new(BearerCredentials { token })).await?;
        if let AuthenticationResult::Known(own) = reviewed
            && own.name.starts_with(SERVICE_ACCOUNT)
            && !own.uid.is_empty()
        {
            return Ok(own);
        }
        let message =
            "--peer-token-file has no token of a ServiceAccount for the audience kubewarm-peer";
        tracing::warn!(file = %self.token_file.display(), "{message}");
        Err(failed(message.to_owned()).into())
    }
}

/// Whether `user` is the ServiceAccount of this process. A ServiceAccount that was deleted and
/// created again has another UID.
fn is_peer(own: &CallerInfo, user: &CallerInfo) -> bool {
    (&user.name, &user.uid) == (&own.name, &own.uid)
}

impl PeerFeed {
    fn new(store: PeerStore) -> Self {
        let encoding = store.transfer.objects.encoding();
        Self { store, encoding, part: FeedPart::Objects, scan_budget: ScanBudget::default() }
    }

    /// Returns the next piece of the response; `None` after the last bookmark.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, DamagedObjectError> {
        self.scan_budget.yield_if_over().await;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        match self.part {
            FeedPart::Objects => self.write_objects(&mut piece)?,
            FeedPart::Changes => self.write_changes(&mut piece)?,
            FeedPart::Done => return Ok(None),
        }
        Ok(Some((piece.into(), self)))
    }

    fn write_objects(&mut self, out: &mut Vec<u8>) -> Result<(), DamagedObjectError> {
        let Self { store, scan_budget, .. } = self;
        let objects = &mut store.transfer.objects;
        let has_more = objects.visit_next(|seen| {
            write_peer_event(EventType::Added, seen.body, out);
            scan_budget.charge(seen.body.bytes.len());
            let has_room = out.len() < PIECE_BYTES && !scan_budget.is_over();
            if has_room { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if objects.is_damaged() {
            return Err(DamagedObjectError);
        }
        if !has_more {
            let start = &store.transfer.start;
            write_peer_bookmark(self.encoding, start, BookmarkKind::InitialEnd, out);
            self.part = FeedPart::Changes;
        }
        Ok(())
    }

    fn write_changes(&mut self, out: &mut Vec<u8>) -> Result<(), DamagedObjectError> {
        while out.len() < PIECE_BYTES && !self.scan_budget.is_over() {
            let Some(change) = self.store.transfer.changes.pop_front() else {
                let end = &self.store.transfer.end;
                write_peer_bookmark(self.encoding, end, BookmarkKind::Progress, out);
                self.part = FeedPart::Done;
                return Ok(());
            };
            self.write_change(&change, out)?;
            self.scan_budget.charge(change.object_length());
        }
        Ok(())
    }

    /// Writes the event of one change. A change that replaced an object by a new one with the same
    /// name is one event, too: the reader's store sees the new UID.
    fn write_change(
        &self,
        change: &StoreChange,
        out: &mut Vec<u8>,
    ) -> Result<(), DamagedObjectError> {
        let (encoding, transfer) = (change.encoding(), &self.store.transfer);
        if change.exists() {
            let bytes = transfer.bytes_after(change).ok_or(DamagedObjectError)?;
            let body = ObjectBody { encoding, bytes: &bytes };
            write_peer_event(EventType::Modified, body, out);
        } else {
            let bytes = transfer.bytes_before(change).ok_or(DamagedObjectError)?;
            let body = ObjectBody { encoding, bytes: &bytes };
            let bytes = body.with_end_version(change.version());
            write_peer_event(EventType::Deleted, ObjectBody { encoding, bytes: &bytes }, out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_the_name_and_the_uid_of_this_service_account() {
        let account = |name: &str, uid: &str| CallerInfo {
            name: format!("{SERVICE_ACCOUNT}{name}"),
            uid: uid.to_owned(),
            ..CallerInfo::default()
        };
        let own = account("ops:kubewarm", "1");
        assert!(is_peer(&own, &CallerInfo { groups: vec!["g".to_owned()], ..own.clone() }));
        for other in [
            account("ops:kubewarm", "2"),
            account("ops:kubewarm", ""),
            account("shop:kubewarm", "1"),
        ] {
            assert!(!is_peer(&own, &other), "{other:?}");
        }
    }
}
