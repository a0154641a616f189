//! The response to a get or list: one object, or a list. kubewarm encodes a list while the
//! connection sends it.

use super::{
    authorized_scope::AuthorizedScope,
    covering_informers::CandidateInformer,
    item_position::ItemPosition,
    large_objects::{LargeObjectPermits, ObjectPermit, encoded_with_permit},
    read_candidates::ReadCandidates,
    response_envelope::ResponseEnvelope,
};
use crate::callers::UserPermits;
use bytes::Bytes;
use futures::{Stream, stream};
use kubewarm_api::model::InformerKey;
use kubewarm_cache::store::{ObjectSnapshot, ScanBudget};
use kubewarm_wire::{JsonBuffer, MediaType, StatusError};
use std::{fmt, ops::ControlFlow, time::Duration};
use tokio::time::Instant;

/// The response to a get or list.
#[derive(Debug)]
pub struct ReadResponse {
    /// The response body.
    pub body: ReadBody,
    /// The encoding of `body`.
    pub media_type: MediaType,
    /// The informer that answers, and its freshness.
    pub source: ReadSource,
    /// Whether the get or list waited for a warm informer, a resource version or a freshness check.
    pub has_waited: bool,
}

/// The informer that answers a request, and the freshness of the informer's store. For a watch, the
/// freshness is from the watch's start.
#[derive(Clone, Debug)]
pub struct ReadSource {
    /// The key of the informer. Clients receive only a hash of this key, because the key contains
    /// namespaces and selectors.
    pub informer: InformerKey,
    /// `None` if the response contains the objects of an earlier resource version, because the
    /// request itself determines their age.
    pub freshness: Option<ReadFreshness>,
}

/// How fresh the objects of a response are. The age grows until kubewarm sends the response.
#[derive(Clone, Copy, Debug)]
pub struct ReadFreshness {
    /// The objects contain every change before this time. `None` if kubewarm never confirmed the
    /// store.
    current_at: Option<Instant>,
    /// The lowest `maxStalenessSeconds` of the profiles that serve the request.
    bound: Duration,
}

impl ReadFreshness {
    /// The longest time for which the objects can have been outdated at `now`. `None` if kubewarm
    /// never confirmed the store.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.current_at.map(|at| now.saturating_duration_since(at))
    }

    /// Whether the age exceeds the profiles' limit at `now`.
    pub fn is_stale(&self, now: Instant) -> bool {
        self.age(now).is_none_or(|age| age > self.bound)
    }
}

/// The maximum number of bytes that kubewarm passes to hyper at once from a response body. With 8
/// bytes of HTTP/1.1 chunk framing, these bytes fill one TLS record of 16 KiB, the largest record.
pub const PART_BYTES: usize = (16 << 10) - 8;
/// kubewarm encodes a list in pieces of this size in bytes. A connection writes one piece at once,
/// and the piece stays in the processor's cache until it is encrypted.
pub const PIECE_BYTES: usize = 4 * PART_BYTES;
/// After this number of bytes, a response needs a permit for each further piece that kubewarm
/// encodes. These permits limit the number of large responses that kubewarm encodes at once.
const LARGE_RESPONSE: usize = 1 << 20;
/// The buffer capacity in bytes that kubewarm reserves for one object of a list.
const OBJECT_BYTES: usize = 4 << 10;

/// A body in JSON or in protobuf.
#[derive(Debug)]
pub enum ReadBody {
    /// A complete body.
    Whole(Bytes),
    /// A list that kubewarm encodes in pieces of about [`PIECE_BYTES`].
    List(Box<ListEncoder>),
}

/// A list that kubewarm encodes in pieces of about [`PIECE_BYTES`]. kubewarm decompresses each
/// object only when it encodes the object.
pub struct ListEncoder {
    /// The format of the list response; `None` after kubewarm has encoded the complete list.
    envelope: Option<ResponseEnvelope>,
    snapshot: ObjectSnapshot,
    authorized_scope: AuthorizedScope,
    /// Whether the next object is the first of the list, which no comma precedes.
    next_item: ItemPosition,
    permits: LargeObjectPermits,
    /// The permit for the next object, after [`Self::reserve`]; `None` before, and if this object
    /// is not large.
    reserved: Option<ObjectPermit>,
    /// Encoded bytes at the start of the list's next piece, which [`Self::next_piece`] returns.
    left: Vec<u8>,
    scan_budget: ScanBudget,
    /// Returns whether the list can still read the informer's store. kubewarm calls this function
    /// each time before it encodes more objects, because the informer can lose access while a
    /// client reads the list.
    has_access: ListAccessCheck,
}

pub(super) type ListAccessCheck = Box<dyn Fn() -> bool + Send + Sync>;

/// The error that ends a list. The status code 200 is already sent, so kubewarm closes the
/// connection before the response is complete. So clients cannot mistake a part for the complete
/// list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListEncodingError {
    /// The informer lost access while kubewarm sent the list.
    #[error("access to the listed objects was lost while the list was sent")]
    AccessLost,
    /// A listed object is damaged.
    #[error(transparent)]
    Damaged(#[from] DamagedObjectError),
}

/// A stored object cannot be decompressed or is not in its encoding, because of a bug or faulty
/// memory. So the response fails instead of omitting the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored object is damaged; restart this replica of kubewarm")]
pub struct DamagedObjectError;

impl From<DamagedObjectError> for StatusError {
    fn from(error: DamagedObjectError) -> Self {
        Self::internal(&error.to_string()).specific_to_cache()
    }
}

impl ReadResponse {
    pub(super) fn new(
        body: ReadBody,
        media_type: MediaType,
        candidate: &CandidateInformer<'_>,
        route: &ReadCandidates<'_>,
    ) -> Self {
        Self { body, media_type, source: ReadSource::of(candidate, route), has_waited: false }
    }
}

impl ReadSource {
    pub(super) fn of(candidate: &CandidateInformer<'_>, route: &ReadCandidates<'_>) -> Self {
        let freshness =
            ReadFreshness { current_at: candidate.report.current_at, bound: route.max_staleness };
        Self {
            informer: candidate.key.clone(),
            freshness: (!route.request.version_match.is_earlier()).then_some(freshness),
        }
    }
}

impl ListEncoder {
    pub(super) fn new(
        envelope: ResponseEnvelope,
        snapshot: ObjectSnapshot,
        authorized_scope: AuthorizedScope,
        permits: LargeObjectPermits,
        has_access: ListAccessCheck,
    ) -> Self {
        let mut left = Vec::new();
        envelope.head(&mut left);
        Self {
            envelope: Some(envelope),
            snapshot,
            authorized_scope,
            next_item: ItemPosition::First,
            permits,
            reserved: None,
            left,
            scan_budget: ScanBudget::default(),
            has_access,
        }
    }

    /// Returns the first piece of the encoded list, and whether more pieces can follow. If the list
    /// has at most `bytes` bytes, the first piece is the complete list. Otherwise its size is
    /// rounded down to a multiple of [`PIECE_BYTES`]. A large object begins a piece of its own, for
    /// which this function can wait.
    ///
    /// # Errors
    ///
    /// [`ListEncodingError`] if the request can no longer read the informer, or if an object is
    /// damaged.
    pub async fn first_piece(&mut self, bytes: usize) -> Result<(Bytes, bool), ListEncodingError> {
        self.reserve().await;
        self.fill(bytes + 1, Vec::new()).await
    }

    /// The pieces after the first `sent` bytes. After 1 MiB in total, kubewarm encodes a piece only
    /// while it holds one of `encodings`, the user's permits to encode large responses. While
    /// kubewarm waits for a slow client or for memory, it holds none of them, so other responses
    /// can use them.
    pub fn into_pieces(
        self: Box<Self>,
        sent: usize,
        encodings: UserPermits,
    ) -> impl Stream<Item = Result<Bytes, ListEncodingError>> {
        stream::unfold((self, sent, encodings), |(mut list, sent, encodings)| async move {
            list.reserve().await;
            let encoding = if sent < LARGE_RESPONSE { None } else { encodings.acquire(1).await };
            let piece = list.next_piece().await?;
            drop(encoding);
            let sent = sent + piece.as_ref().map_or(0, Bytes::len);
            Some((piece, (list, sent, encodings)))
        })
    }

    /// If the next object is large, waits for the permit for it.
    async fn reserve(&mut self) {
        self.reserved = self.permits.acquire(self.snapshot.next_length()).await;
    }

    /// Returns the next piece of the encoded list; `None` after the end of the list. Not cancel
    /// safe: if the caller drops the call, the objects that it has already encoded are lost.
    ///
    /// # Cost
    ///
    /// About 2 µs per object, more for large objects. The call yields to other tasks after each 1
    /// MiB of decompressed objects, even if the response contains only their metadata.
    async fn next_piece(&mut self) -> Option<Result<Bytes, ListEncodingError>> {
        self.envelope.as_ref()?;
        let most = self.snapshot.objects().saturating_mul(OBJECT_BYTES);
        let out = Vec::with_capacity(most.min(PIECE_BYTES) + OBJECT_BYTES);
        let written = self.fill(PIECE_BYTES, out).await;
        if written.is_err() {
            self.envelope = None;
        }
        Some(written.map(|(piece, _)| piece))
    }

    /// Encodes objects until `out` has at least `bytes` bytes, or the next object is large. Returns
    /// `out`, and whether objects are left to encode. Bytes after a multiple of [`PIECE_BYTES`]
    /// stay in `left`, so that the parts of a response fill their TLS records.
    async fn fill(
        &mut self,
        bytes: usize,
        mut out: Vec<u8>,
    ) -> Result<(Bytes, bool), ListEncodingError> {
        out.append(&mut self.left);
        loop {
            self.scan_budget.yield_if_over().await;
            let has_more = self.write(bytes, &mut out)?;
            // The next large object needs a permit of its own, for which only `reserve` waits.
            let is_next_small = self.snapshot.next_length() <= self.permits.small_length();
            if has_more && out.len() < bytes && is_next_small {
                continue;
            }
            if has_more && out.len() > PIECE_BYTES {
                self.left = out.split_off(out.len() - out.len() % PIECE_BYTES);
            }
            return Ok((encoded_with_permit(out, self.reserved.take()), has_more));
        }
    }

    /// Like [`ListEncoder::fill`], but also stops after 1 MiB of decompressed objects, the limit of
    /// `scan_budget`.
    fn write(&mut self, bytes: usize, out: &mut Vec<u8>) -> Result<bool, ListEncodingError> {
        if !(self.has_access)() {
            return Err(ListEncodingError::AccessLost);
        }
        let Self {
            envelope: unfinished,
            snapshot,
            authorized_scope,
            next_item,
            permits,
            scan_budget,
            ..
        } = self;
        let Some(envelope) = &*unfinished else { return Ok(false) };
        // The list does not keep this buffer, which has the size of its largest object.
        let mut buffer = JsonBuffer::default();
        let mut written = Ok(());
        let has_more = snapshot.visit_next_up_to(permits.small_length(), |seen| {
            if authorized_scope.has(seen.namespace, seen.name) {
                written = envelope.write(seen.body, *next_item, &mut buffer, out);
                *next_item = ItemPosition::Next;
            } else {
                // The store's query already selects only this scope, so an object outside it is the
                // result of a bug. The caller may not see the object.
                tracing::error!("an object outside the authorized scope was selected; left out");
            }
            scan_budget.charge(seen.body.bytes.len());
            let has_more = written.is_ok() && out.len() < bytes && !scan_budget.is_over();
            if has_more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        written?;
        if snapshot.is_damaged() {
            return Err(DamagedObjectError.into());
        }
        if !has_more {
            envelope.tail(*next_item == ItemPosition::First, out);
            *unfinished = None;
        }
        Ok(has_more)
    }
}

impl fmt::Debug for ListEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListEncoder").field("chosen", &self.snapshot).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        callers::fixtures::user_permits,
        reads::fixtures::{authorized_scope, informer, parse_request},
    };
    use futures::{FutureExt as _, StreamExt as _};
    use kubewarm_api::model::{
        DecodedObject, Delta, DeltaSink as _, ObjectEncoding, ResourceVersion, Uid,
    };
    use kubewarm_cache::store::{ObjectQuery, StoreCatalog};
    use kubewarm_wire::{ListEnvelope, MetaVersion, ObjectPart};
    use std::{
        collections::BTreeSet,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    /// Enough permits for one object of 256 KiB.
    const PERMITS: usize = 300;

    /// The response to a list request, from a store whose query selected every object of `objects`.
    /// Only `AuthorizedScope` removes objects from this list.
    async fn answered(objects: &[(&str, &str)], path: &str, query: &str) -> serde_json::Value {
        let mut pages = pages(objects, path, query, Box::new(|| true));
        let mut body = Vec::new();
        while let Some(piece) = pages.next_piece().await {
            body.extend(piece.unwrap());
        }
        serde_json::from_slice(&body).unwrap()
    }

    fn pages(
        objects: &[(&str, &str)],
        path: &str,
        query: &str,
        has_access: ListAccessCheck,
    ) -> ListEncoder {
        let form = ObjectPart::Full;
        pages_of("", form, objects, path, query, has_access)
    }

    fn pages_of(
        text: &str,
        item_form: ObjectPart,
        objects: &[(&str, &str)],
        path: &str,
        query: &str,
        has_access: ListAccessCheck,
    ) -> ListEncoder {
        let (catalog, key) = (StoreCatalog::new(), informer("all", "", ""));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        let version = ResourceVersion::from(9);
        for (namespace, name) in objects {
            let body = format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"}},"text":"{text}"}}"#
            );
            writer.apply(Delta::Upsert(DecodedObject {
                namespace: (*namespace).into(),
                name: (*name).into(),
                uid: Uid::parse(name),
                version: Some(version.clone()),
                body: body.as_bytes(),
            }));
        }
        let all = ObjectQuery::default();
        let selected = catalog.reader(&key).unwrap().select(&all, None, None);
        let envelope = ListEnvelope {
            api_version: "v1".into(),
            kind: "Pod".into(),
            list_kind: "PodList".into(),
            is_custom: false,
            item_form,
            version,
            next: None,
            remaining: None,
        };
        let [jane] = user_permits(4 * PERMITS, ["jane"]);
        ListEncoder::new(
            ResponseEnvelope::List(envelope),
            selected,
            authorized_scope(&parse_request(path, query).0),
            LargeObjectPermits::new(&jane, ObjectEncoding::Json, MediaType::Json),
            has_access,
        )
    }

    #[tokio::test]
    async fn a_list_ends_with_an_error_when_access_is_lost() {
        // 3,000 objects need more than one piece.
        let names: Vec<_> = (0..3_000).map(|n| format!("x{n:04}")).collect();
        let objects: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
        let is_open = Arc::new(AtomicBool::new(true));
        let request = Arc::clone(&is_open);
        let has_access = Box::new(move || request.load(Ordering::Relaxed));
        let mut pages = pages(&objects, "/api/v1/pods", "", has_access);
        let first = pages.next_piece().await.unwrap().unwrap();
        assert!(!first.is_empty());
        is_open.store(false, Ordering::Relaxed);
        assert_eq!(pages.next_piece().await, Some(Err(ListEncodingError::AccessLost)));
        // The informer has lost and regained its access. The list must not continue, because the
        // store can have been emptied meanwhile.
        is_open.store(true, Ordering::Relaxed);
        assert_eq!(pages.next_piece().await, None);
    }

    #[tokio::test]
    async fn a_list_contains_only_objects_of_the_requested_namespace_and_name() {
        let objects = [("a", "x"), ("a", "y"), ("b", "x")];
        for (path, query, expected) in [
            ("/api/v1/pods", "", &["a/x", "a/y", "b/x"] as &[&str]),
            ("/api/v1/namespaces/a/pods", "", &["a/x", "a/y"]),
            ("/api/v1/namespaces/c/pods", "", &[]),
            ("/api/v1/namespaces/a/pods", "fieldSelector=metadata.name%3Dy", &["a/y"]),
            ("/api/v1/pods", "fieldSelector=metadata.name%3Dx", &["a/x", "b/x"]),
        ] {
            let list = answered(&objects, path, query).await;
            let field_of = |item: &serde_json::Value, field: &str| {
                item["metadata"][field].as_str().unwrap().to_owned()
            };
            let items = list["items"].as_array().unwrap().iter();
            let names = items
                .map(|item| format!("{}/{}", field_of(item, "namespace"), field_of(item, "name")));
            assert_eq!(names.collect::<Vec<_>>(), expected, "{path}?{query}");
        }
    }

    #[tokio::test]
    async fn a_list_of_any_length_is_one_json_document() {
        for count in [0, 1, 127, 128, 129, 3_000] {
            let names: Vec<_> = (0..count).map(|n| format!("x{n:04}")).collect();
            let objects: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
            let list = answered(&objects, "/api/v1/pods", "").await;
            assert_eq!(list["items"].as_array().unwrap().len(), count);
            assert_eq!(list["metadata"]["resourceVersion"], "9");
        }
    }

    #[tokio::test]
    async fn all_pieces_except_the_last_have_the_size_of_one_connection_write() {
        let names: Vec<_> = (0..6_000).map(|n| format!("x{n:04}")).collect();
        let objects: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
        let mut pages = pages(&objects, "/api/v1/pods", "", Box::new(|| true));
        let (first, has_more) = pages.first_piece(2 * PIECE_BYTES).await.unwrap();
        assert!(has_more);
        let mut pieces = vec![first];
        while let Some(piece) = pages.next_piece().await {
            pieces.push(piece.unwrap());
        }
        let list: serde_json::Value = serde_json::from_slice(&pieces.concat()).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), objects.len());
        let end = pieces.pop().unwrap();
        let lengths: Vec<_> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [2 * PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES]);
        assert!((1..=PIECE_BYTES).contains(&end.len()), "{}", end.len());
    }

    #[tokio::test]
    async fn a_large_object_waits_until_the_earlier_one_is_written() {
        let objects = [("a", "x"), ("a", "y"), ("a", "z")];
        let text = "x".repeat(256 << 10);
        let form = ObjectPart::Full;
        let mut pages = pages_of(&text, form, &objects, "/api/v1/pods", "", Box::new(|| true));
        let (first, has_more) = pages.first_piece(2 * PIECE_BYTES).await.unwrap();
        assert!(has_more && first.len() > text.len() - PIECE_BYTES);
        let mut list = first.to_vec();
        let [encodings] = user_permits(4, ["jane"]);
        let mut pieces = Box::pin(Box::new(pages).into_pieces(LARGE_RESPONSE, encodings.clone()));
        assert!(pieces.next().now_or_never().is_none(), "two large objects are unwritten");
        assert!(encodings.acquire_now(1).is_ok(), "the list encodes nothing, and holds a permit");
        drop(first);
        while let Some(piece) = pieces.next().await {
            list.extend(piece.unwrap());
        }
        let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn a_large_response_needs_a_permit_for_each_piece_that_kubewarm_encodes() {
        let names: Vec<_> = (0..3_000).map(|n| format!("x{n:04}")).collect();
        let objects: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
        let [jane, john] = user_permits(4, ["jane", "john"]);
        let list = |sent, user: &UserPermits| {
            let pages = pages(&objects, "/api/v1/pods", "", Box::new(|| true));
            Box::pin(Box::new(pages).into_pieces(sent, user.clone()))
        };
        let mut unread = list(LARGE_RESPONSE, &jane);
        let _piece = unread.next().await;
        let encoding = jane.acquire_now(1).unwrap();
        let mut waiting = list(LARGE_RESPONSE, &jane);
        assert!(waiting.next().now_or_never().is_none());
        assert!(list(0, &jane).next().now_or_never().is_some(), "small responses do not wait");
        assert!(list(LARGE_RESPONSE, &john).next().now_or_never().is_some());
        drop(encoding);
        assert!(waiting.next().await.is_some());
    }

    #[tokio::test]
    async fn a_metadata_list_of_large_objects_yields_to_other_tasks() {
        let names: Vec<_> = (0..40).map(|n| format!("x{n:02}")).collect();
        let objects: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
        let text = "x".repeat(60 << 10);
        let form = ObjectPart::Metadata(MetaVersion::V1);
        let all = || pages_of(&text, form, &objects, "/api/v1/pods", "", Box::new(|| true));
        assert!(all().next_piece().now_or_never().is_none(), "18 objects use up the scan budget");
        assert!(all().first_piece(PIECE_BYTES).now_or_never().is_none());
        let (first, has_more) = all().first_piece(PIECE_BYTES).await.unwrap();
        let list: serde_json::Value = serde_json::from_slice(&first).unwrap();
        assert_eq!((list["items"].as_array().unwrap().len(), has_more), (40, false));
        // Both objects together have less than 1 MiB, the limit of the scan budget, so the call
        // does not yield.
        let objects = [("a", "x"), ("a", "y")];
        let few =
            pages(&objects, "/api/v1/pods", "", Box::new(|| true)).next_piece().now_or_never();
        assert!(few.is_some());
    }
}
