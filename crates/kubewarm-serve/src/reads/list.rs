//! Answers list requests: selects objects from a store at one resource version, and splits a list into pages.

use super::{
    ListEncoder, ReadBody, ReadResponse, ReadService, covering_informers::CandidateInformer,
    read_candidates::ReadCandidates, response_envelope::ResponseEnvelope, retry::ReadAttemptError,
};
use kubewarm_api::model::{ObjectKey, ResourceVersion};
use kubewarm_cache::store::{ObjectQuery, ObjectSnapshot, StoreReader};
use kubewarm_wire::{ObjectRequest, StatusError, VersionMatch, encode_continue_token};

impl ReadService {
    pub(super) async fn list(
        &self,
        route: &ReadCandidates<'_>,
    ) -> Result<ReadResponse, ReadAttemptError> {
        let request = route.request;
        let (candidate, reader) = self.choose(route)?;
        let query = route.query(candidate);
        // A continue token needs a numeric resource version. If the store's resource version is not a number,
        // kubewarm returns the complete list. Clients treat a page without a token as the last page.
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
        let selected = pick(selected).await;
        let is_full = limit.is_some_and(|limit| selected.objects() >= limit);
        let has_more = is_full && selected.has_more();
        let last = selected.last_key().filter(|_| has_more);
        let namespace = request.namespace.as_deref();
        let next = last.and_then(|last| encode_continue_token(Some(&version), &last, namespace));
        let is_whole = request.labels.is_empty() && request.fields.is_empty();
        let behind = selected.rows().saturating_sub(selected.objects()) as u64;
        let remaining = next.as_ref().filter(|_| is_whole).map(|_| behind);
        let envelope = ResponseEnvelope::new(&route.kind, request.form, version, next, remaining);
        let (access_requirement, key) = (candidate.access_requirement(), candidate.key.clone());
        let reports = self.dependencies.reports.clone();
        let may_go_on =
            Box::new(move || access_requirement.permit(reports.get_summary(&key).as_ref()));
        let pages = Box::new(ListEncoder::new(envelope, selected, request, may_go_on));
        Ok(ReadResponse::new(ReadBody::List(pages), candidate, route.max_staleness))
    }
}

/// Selects the objects of one page, from the store's current state or from its state at an earlier resource
/// version.
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
        Some(reader.select(query, after, limit)).filter(|it| it.version() == Some(version))
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

/// Whether the store can answer a request for exactly the resource version `version`. A store of complete Secrets
/// serves only its current version.
pub(super) fn remembers(
    candidate: &CandidateInformer<'_>,
    reader: &StoreReader,
    version: &ResourceVersion,
) -> bool {
    if candidate.key.has_secrets() {
        return reader.version().as_ref() == Some(version);
    }
    reader.remembers(version)
}

/// Removes the objects that the request's selectors exclude. Yields to other tasks of the thread after each 1 MiB
/// of decompressed objects.
pub(super) async fn pick(mut selected: ObjectSnapshot) -> ObjectSnapshot {
    while selected.filter_next() {
        tokio::task::yield_now().await;
    }
    selected
}
