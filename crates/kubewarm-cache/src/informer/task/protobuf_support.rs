//! Decides for each resource whether informers read it in protobuf.
//!
//! Protobuf has no field names, so kubewarm needs field tables to read it. Before the first list of
//! a resource, one object is read in both encodings and compared. If an object cannot be read in
//! protobuf, the resource is read in JSON until the API server's version changes. Either the API
//! server is newer than the tables and sends an unknown field, or a client has stored a text that
//! is not UTF-8.

use super::{
    list::{ListError, ListRun},
    session::InformerSession,
};
use crate::informer::requests::{
    list_watch_client::ListWatchClient,
    request::{self, UpstreamBody},
    request_builder::{InformerRequestBuilder, ListPaging},
};
use kubewarm_api::model::{Delta, Identity, ObjectEncoding, RequestFault, Resource};
use kubewarm_client::{ExpiringCache, ServerVersion, is_builtin_group};
use kubewarm_wire::upstream::{
    DecodeError, ListSplitter, ObjectDecoder, RejectedObject, SplitItem,
};
use kubewarm_wire::{JsonBuffer, MediaType, ObjectBody};
use std::{mem, sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

/// Maximum number of remembered encodings: one for each identity, resource and API server version.
/// If kubewarm forgets an encoding, the next list costs one more comparison.
const MAX_REMEMBERED: u64 = 1_000;
/// How long kubewarm remembers an encoding. A year is longer than an API server keeps its version,
/// so in practice only another version causes a new comparison.
const REMEMBERED_FOR: Duration = Duration::from_hours(24 * 365);
/// The page of a list that the comparison reads: only the first object of the resource.
const ONE: ListPaging<'static> = ListPaging::Page { limit: 1, token: "" };

/// The encoding of each resource, by the version of the API server. One tenant's objects do not
/// change the encoding for other tenants. So each identity compares for itself, and an unreadable
/// object counts only for profiles in the same namespace.
#[derive(Debug)]
pub(crate) struct ProtobufSupport {
    compared: ExpiringCache<EncodingKey, MediaTypeChoice, ComparisonError>,
    unreadable: ExpiringCache<DeclaredKey, MediaTypeChoice>,
}

/// The key of an encoding, and the namespace of the profiles that declare the informer.
type DeclaredKey = (EncodingKey, Option<Arc<str>>);

type EncodingKey = (Identity, Resource, Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum MediaTypeChoice {
    Protobuf,
    /// The text contains the reason if kubewarm could not read an object in protobuf, or read it
    /// differently than in JSON. `None` in all other cases, for example if the API server sends no
    /// protobuf.
    Json(Option<Box<str>>),
}

/// Why two encodings of an object could not be compared.
#[derive(Clone, Debug)]
enum ComparisonError {
    /// The list has no object that can be stored.
    NoObject,
    /// The object cannot be read in protobuf, for the reason in the text.
    Unreadable(Box<str>),
    Failed,
}

impl From<RequestFault> for ComparisonError {
    /// Drops the fault, because the list that follows the comparison reports its own fault.
    fn from(_: RequestFault) -> Self {
        Self::Failed
    }
}

impl Default for ProtobufSupport {
    fn default() -> Self {
        Self {
            compared: ExpiringCache::new(MAX_REMEMBERED, REMEMBERED_FOR),
            unreadable: ExpiringCache::new(MAX_REMEMBERED, REMEMBERED_FOR),
        }
    }
}

impl ProtobufSupport {
    /// Returns the choice for `key`. Compares the encodings if they have not been compared with
    /// this version of the API server. Concurrent callers share one comparison.
    async fn choose(
        &self,
        list_watch: &ListWatchClient,
        key: DeclaredKey,
        within: Duration,
    ) -> MediaTypeChoice {
        if let Some(known) = self.unreadable.get(&key) {
            return known.value;
        }
        let list_watch = list_watch.clone();
        let compare = async move {
            timeout(within, compare(list_watch)).await.unwrap_or(Err(ComparisonError::Failed))
        };
        let compared = &self.compared;
        match compared.get_or_fetch(&Handle::current(), key.0.clone(), None, || compare).await {
            Ok(entry) => entry.value,
            Err(ComparisonError::Unreadable(problem)) => self.record_unreadable(key, &problem),
            Err(ComparisonError::NoObject) => MediaTypeChoice::Protobuf,
            Err(ComparisonError::Failed) => MediaTypeChoice::Json(None),
        }
    }

    fn record_unreadable(&self, key: DeclaredKey, problem: &str) -> MediaTypeChoice {
        let choice = MediaTypeChoice::Json(Some(problem.into()));
        self.unreadable.insert(key, choice.clone(), Instant::now());
        choice
    }
}

impl InformerSession {
    /// Sets whether the next list accepts protobuf. Custom resources stay in JSON, because kubewarm
    /// has field tables only for built-in kinds.
    pub(crate) async fn choose_media_type(&mut self, version: Option<&ServerVersion>) {
        if !is_builtin_group(self.informer.key.resource.group()) {
            return;
        }
        self.server_version = version.and_then(ServerVersion::git_version).unwrap_or_default();
        let shared = Arc::clone(&self.shared);
        let within = shared.timing.list_headers;
        let choice = shared.protobuf.choose(&self.list_watch, self.declared_key(), within).await;
        self.apply_choice(choice);
    }

    fn declared_key(&self) -> DeclaredKey {
        let key = &self.informer.key;
        let scope = (key.identity.clone(), key.resource.clone(), Arc::clone(&self.server_version));
        (scope, key.declared_in.clone())
    }

    fn apply_choice(&mut self, choice: MediaTypeChoice) {
        self.list_watch.accept_protobuf(choice == MediaTypeChoice::Protobuf);
        let fallback = match choice {
            MediaTypeChoice::Protobuf => None,
            MediaTypeChoice::Json(problem) => problem,
        };
        let is_new = fallback.is_some();
        let previous = mem::replace(&mut self.informer.status().report.json_fallback, fallback);
        if is_new && previous.is_none() {
            self.metrics.protobuf_fallbacks.inc();
        }
    }

    /// Records that `object` cannot be read in protobuf, so that later lists of the resource are in
    /// JSON. Only the log contains the object's name, because each profile that shares the informer
    /// shows the recorded problem.
    pub(crate) fn fall_back_to_json(&mut self, object: &RejectedObject) {
        tracing::warn!(
            informer = %self.informer.key, object = ?object.name, problem = object.problem,
            version = %self.server_version, "not readable in protobuf; reading this resource as JSON"
        );
        let choice = self.shared.protobuf.record_unreadable(self.declared_key(), &object.problem);
        self.apply_choice(choice);
    }

    /// Whether the informer reads the resource as JSON because it could not read protobuf, and the
    /// API server has another version now. The informer then relists, to compare the encodings
    /// again.
    pub(crate) async fn can_leave_fallback(&self) -> bool {
        if !self.informer.status().must_read_json() {
            return false;
        }
        let version = self.shared.list_methods.server_version().await;
        let version = version.as_ref().and_then(ServerVersion::git_version);
        version.is_some_and(|version| version != self.server_version)
    }
}

impl ListRun<'_> {
    /// Prepares decoder and store for objects in this encoding. A store with objects in another
    /// encoding drops them, because all objects of a store have one encoding. `None` means that the
    /// list's kind is not in the field tables, so the method returns an error and the informer
    /// lists again in JSON.
    pub(crate) fn use_encoding(
        &mut self,
        encoding: Option<ObjectEncoding>,
    ) -> Result<(), ListError> {
        let encoding = encoding.ok_or_else(|| {
            let problem = "the field tables lack the kind of the list".to_owned();
            ListError::NeedsJson(RejectedObject { name: None, problem })
        })?;
        if self.session.decoder.encoding != encoding {
            self.session.decoder.encoding = encoding;
            if self.session.version().is_some() {
                self.purge();
            }
            self.session.informer.apply(Delta::Encoding(encoding));
        }
        Ok(())
    }
}

/// Reads one object in protobuf, and the same object at the same resource version in JSON.
///
/// [`ProtobufSupport`] remembers only `Ok`. After an error, the next list compares again, because
/// an object can exist by then or the requests can succeed. A difference is `Ok`, and lasts until
/// the API server's version changes.
async fn compare(mut list_watch: ListWatchClient) -> Result<MediaTypeChoice, ComparisonError> {
    list_watch.accept_protobuf(true);
    let within = Duration::MAX;
    let mut decoder = ObjectDecoder::of_whole_objects();
    let body = list_watch.open(within, |endpoint| endpoint.list(ONE)).await?;
    if body.media_type == MediaType::Json {
        return Ok(MediaTypeChoice::Json(None));
    }
    let first = first_item(body).await?;
    let Some(encoding) = first.items.encoding() else {
        return Ok(MediaTypeChoice::Json(None));
    };
    let (Some(object), Ok(version)) = (first.item, first.items.metadata()?.version()) else {
        return Err(ComparisonError::NoObject);
    };
    let body = list_watch
        .open(within, |endpoint: &InformerRequestBuilder| endpoint.first_in_json(&version));
    let Some(json) = first_item(body.await?).await?.item else {
        return Err(ComparisonError::NoObject);
    };
    decoder.encoding = encoding;
    let written = match decoder.decode(&object) {
        Ok(item) => {
            let body = ObjectBody { encoding, bytes: item.body };
            body.to_json(&mut JsonBuffer::default()).map(<[u8]>::to_vec)
        }
        Err(DecodeError::NeedsJson(object)) => {
            return Err(ComparisonError::Unreadable(object.problem.into()));
        }
        // Only a decoder of JSON returns `Undecodable`, and this object is in protobuf.
        Err(DecodeError::Undecodable(_)) => None,
    };
    decoder.encoding = ObjectEncoding::Json;
    let expected = decoder.decode(&json).map(|item| item.body.to_vec()).ok();
    Ok(match (written, expected) {
        (Some(written), Some(expected)) if written == expected => MediaTypeChoice::Protobuf,
        (None, None) => return Err(ComparisonError::NoObject),
        _ => MediaTypeChoice::Json(Some("an object differs between protobuf and JSON".into())),
    })
}

/// A list of at most one object.
struct FirstItem {
    items: ListSplitter,
    item: Option<Vec<u8>>,
}

async fn first_item(body: UpstreamBody) -> Result<FirstItem, RequestFault> {
    let mut item = None;
    let items = request::read_items(body, |_, next| {
        if let SplitItem::Whole(object) = next {
            item.get_or_insert_with(|| object.to_vec());
        }
        Ok(())
    })
    .await?;
    Ok(FirstItem { items, item })
}
