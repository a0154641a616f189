//! Answers list requests: selects objects from a store at one resource version, and splits a list
//! into pages.

use super::{
    ListEncoder, ReadBody, ReadResponse, ReadService, authorized_scope::AuthorizedScope,
    covering_informers::CandidateInformer, large_objects::LargeObjectPermits,
    read_candidates::ReadCandidates, response_envelope::ResponseEnvelope, retry::ReadAttemptError,
};
use crate::callers::UserPermits;
use kubewarm_api::model::{InformerScope, ObjectKey, ResourceVersion};
use kubewarm_cache::store::{ObjectQuery, ObjectSnapshot, ScanBudget, StoreReader};
use kubewarm_wire::{
    MediaType, ObjectPart, ObjectRequest, ResponseForm, ResponseFormat, StatusError, VersionMatch,
    encode_continue_token,
    protobuf::{item_length, metadata_field},
};
use std::ops::ControlFlow;

impl ReadService {
    pub(super) async fn list(
        &self,
        route: &ReadCandidates<'_>,
        permits: &UserPermits,
    ) -> Result<ReadResponse, ReadAttemptError> {
        let request = route.request;
        let (candidate, reader) = self.choose(route)?;
        let query = route.query(candidate);
        // A continue token needs a numeric resource version. If the store's resource version is not
        // a number, kubewarm ignores `limit` and returns the complete list: clients would treat a
        // page without a token as the last page.
        let is_number = reader.version().is_some_and(|version| version.as_u64().is_some());
        let limit = request.limit.filter(|_| is_number);
        let limit = limit.map(|limit| usize::try_from(limit.get()).unwrap_or(usize::MAX));
        let after = match &request.version_match {
            VersionMatch::Continue { after, .. } => Some(after),
            VersionMatch::Latest
            | VersionMatch::Any
            | VersionMatch::NotOlderThan(_)
            | VersionMatch::Exact(_) => None,
        };
        let selected = select_page(request, candidate, &reader, &query, after, limit)?;
        let version = self.confirm(route, candidate, selected.version())?;
        self.check_complete(route, candidate)?;
        self.record_seen(route, &version);
        let selected = pick(selected).await;
        let is_full = limit.is_some_and(|limit| selected.objects() >= limit);
        // As at the API server, the list of one name has no further page. A token would reveal to
        // the caller that objects with other names exist.
        let is_of_name = query.name.is_some()
            && (query.namespace.is_some() || candidate.key.scope == InformerScope::Cluster);
        let has_more = is_full && !is_of_name && selected.has_more();
        let last = selected.last_key().filter(|_| has_more);
        let namespace = request.namespace.as_deref();
        let next = last.and_then(|last| encode_continue_token(Some(&version), &last, namespace));
        let is_whole = request.labels.is_empty() && request.fields.is_empty();
        let behind = selected.rows().saturating_sub(selected.objects()) as u64;
        let remaining = next.as_ref().filter(|_| is_whole).map(|_| behind);
        let format = request.format(selected.encoding())?;
        let length = match format {
            ResponseFormat {
                media_type: MediaType::Protobuf,
                form: ResponseForm::Object(part),
            } => items_length(&selected, &candidate.authorized_scope, part).await,
            _ => 0,
        };
        let envelope = ResponseEnvelope::new(
            &route.kind,
            format,
            version,
            next,
            remaining,
            length,
            &self.dependencies.metrics,
        );
        let (access_requirement, key) = (candidate.access_requirement(), candidate.key.clone());
        let reports = self.dependencies.reports.clone();
        let may_go_on =
            Box::new(move || access_requirement.permit(reports.get_summary(&key).as_ref()));
        let (scope, media_type) = (candidate.authorized_scope.clone(), format.media_type);
        let permits = LargeObjectPermits::new(permits, selected.encoding(), media_type);
        let pages = Box::new(ListEncoder::new(envelope, selected, scope, permits, may_go_on));
        Ok(ReadResponse::new(ReadBody::List(pages), media_type, candidate, route))
    }
}

/// Selects the objects of one page, from the store's current state or from its state at an earlier
/// resource version.
fn select_page(
    request: &ObjectRequest,
    candidate: &CandidateInformer<'_>,
    reader: &StoreReader,
    query: &ObjectQuery,
    after: Option<&ObjectKey>,
    limit: Option<usize>,
) -> Result<ObjectSnapshot, StatusError> {
    let version = match &request.version_match {
        VersionMatch::Exact(version) | VersionMatch::Continue { version: Some(version), .. } => {
            version
        }
        VersionMatch::Latest
        | VersionMatch::Any
        | VersionMatch::NotOlderThan(_)
        | VersionMatch::Continue { version: None, .. } => {
            return Ok(reader.select(query, after, limit));
        }
    };
    let known = if candidate.key.has_secrets() {
        Some(reader.select(query, after, limit))
            .filter(|selection| selection.version() == Some(version))
    } else {
        reader.select_at(version, query, after, limit)
    };
    known.ok_or_else(|| match after {
        None => StatusError::expired(),
        Some(after) => StatusError::expired_continue(encode_continue_token(
            None,
            after,
            request.namespace.as_deref(),
        )),
    })
}

/// Whether the store can answer a request for exactly the resource version `version`. A store of
/// complete Secrets serves only its current version, so that clients cannot read earlier contents
/// of Secrets.
pub(super) fn remembers(
    candidate: &CandidateInformer<'_>,
    reader: &StoreReader,
    version: &ResourceVersion,
) -> bool {
    if candidate.key.has_secrets() {
        return reader.consistent_version().as_ref() == Some(version);
    }
    reader.remembers(version)
}

/// Removes the objects that the request's selectors exclude. Yields to other tasks of the thread
/// after each 1 MiB of decompressed objects, so that a large list does not delay other requests.
pub(super) async fn pick(mut selected: ObjectSnapshot) -> ObjectSnapshot {
    while selected.filter_next() {
        tokio::task::yield_now().await;
    }
    selected
}

/// Returns the total length of all items of a list in protobuf, because the encoded list contains
/// this length before its first item. Yields to other tasks of the thread after each 1 MiB of
/// objects.
///
/// # Cost
///
/// About 50 ns for each complete object. Only for lists of metadata, each object is decompressed
/// once more.
async fn items_length(
    selected: &ObjectSnapshot,
    authorized_scope: &AuthorizedScope,
    form: ObjectPart,
) -> usize {
    let (mut length, mut next) = (0, 0);
    let mut scan_budget = ScanBudget::default();
    while next < selected.objects() {
        let mut take = |namespace: &str, name: &[u8], item: usize, scanned: usize| {
            if authorized_scope.has(namespace, name) {
                length += item;
            }
            scan_budget.charge(scanned);
            if scan_budget.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        next = match form {
            // kubewarm does not decompress objects for their lengths, but charges the budget as if
            // it did, because the additional yields cost little.
            ObjectPart::Full => selected.visit_lengths_from(next, |namespace, name, bytes| {
                take(namespace, name, item_length(bytes), bytes)
            }),
            ObjectPart::Metadata(_) => selected.visit_from(next, |seen| {
                let item = item_length(metadata_field(seen.body.bytes).len());
                take(seen.namespace, seen.name, item, seen.body.bytes.len())
            }),
        };
        scan_budget.yield_if_over().await;
    }
    length
}
