//! Selects the informers whose stores contain everything that a request selects, and sorts them,
//! the best one first.

use super::{
    access_loss_check::AccessLossCheck,
    authorized_scope::AuthorizedScope,
    cold_cause::ColdCause,
    field_filter::FieldFilter,
    kind_info::KindInfo,
    serving_index::{ServingIndex, ServingInformer},
};
use kubewarm_api::model::{
    AccessLossPolicy, FieldPath, IndexDefinition, InformerKey, InformerScope, ProfileMode,
    ProfileRef, Projection, ReadConsistency,
};
use kubewarm_cache::informer::{InformerPhase, InformerReport};
use kubewarm_wire::{ObjectPart, ObjectRequest, ResponseForm, StatusError};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The reason in the message of a 421 if the kind belongs to an aggregated API or is unknown.
pub(super) const AGGREGATED: &str = "kubewarm treats its API group as aggregated, and an aggregated API server can \
     hide objects from some callers (--serve-aggregated-groups)";
const NOT_DECLARED: &str = "no CacheProfile at this URL keeps it warm";

#[derive(Debug)]
pub(super) struct CoveringInformers<'a> {
    request: &'a ObjectRequest,
    informers: Vec<&'a ServingInformer>,
}

#[derive(Debug)]
pub(super) struct CandidateInformer<'a> {
    pub(super) key: &'a InformerKey,
    /// The informer's objects that the request's access review covers.
    pub(super) authorized_scope: AuthorizedScope,
    /// The entries of [`ServingIndex`] for this informer, one for each profile that serves reads
    /// from this informer.
    entries: Vec<&'a ServingInformer>,
    /// The state of the informer at the time at which kubewarm chose it for this request.
    pub(super) report: InformerReport,
    /// Time since kubewarm last confirmed that the store is current; `None` if kubewarm never
    /// confirmed it.
    pub(super) age: Option<Duration>,
}

impl<'a> CoveringInformers<'a> {
    /// Finds the informers that contain the requested objects, by path, scope and selectors.
    ///
    /// # Errors
    ///
    /// - 421 if no informer contains the objects
    /// - 406 if all informers that contain the objects keep only metadata, and the request needs
    ///   complete objects
    pub(super) fn find(
        serving_index: &'a ServingIndex,
        request: &'a ObjectRequest,
        profile: Option<&ProfileRef>,
        operator_namespace: &str,
    ) -> Result<Self, StatusError> {
        let containing = serving_index.informers(&request.resource).iter().filter(|serving| {
            can_answer(serving, request, profile, operator_namespace)
                && contains(&serving.key, request)
        });
        let all: Vec<_> = containing.collect();
        if all.is_empty() {
            return Err(not_cached(request, NOT_DECLARED));
        }
        let is_enough = |serving: &&ServingInformer| match serving.key.projection {
            Projection::Full(_) => true,
            // Some tables need only metadata, so this check accepts each request for a `Table`. If
            // the table's columns need complete objects, `CoveringInformers::with_fields` later
            // returns 406.
            Projection::Metadata(_) => request.form != ResponseForm::Object(ObjectPart::Full),
        };
        let informers: Vec<_> = all.into_iter().filter(is_enough).collect();
        if informers.is_empty() {
            return Err(StatusError::only_metadata(request.resource.group_resource()));
        }
        Ok(Self { request, informers })
    }

    /// Returns the field path of the index `name`; `None` if no profile that serves the request
    /// declares this index.
    ///
    /// # Errors
    ///
    /// 400 if profiles declare different field paths under this name, because the response would
    /// depend on the informer that kubewarm chooses.
    pub(super) fn index(&self, name: &str) -> Result<Option<&'a FieldPath>, StatusError> {
        let mut declared = self.informers.iter().flat_map(|informer| informer.indexes(name));
        let first = declared.next();
        if declared.all(|path| first == Some(path)) {
            return Ok(first);
        }
        Err(StatusError::bad_request(format!(
            "field label not supported: index.kubewarm.io/{name}: CacheProfiles that answer here declare different \
             indexes of this name; read below /profiles/<namespace>/<name>, or rename one of the indexes"
        )))
    }

    /// Returns the strictest `onAccessLost` policy of the profiles that serve a watch from this
    /// informer. Returns `None` if the watch must end: no profile serves reads from the informer
    /// any more, or a profile has changed one of `indexes`, the field indexes that the watch uses.
    pub(super) fn policy(
        &self,
        key: &InformerKey,
        indexes: &[IndexDefinition],
    ) -> Option<AccessLossPolicy> {
        let is_same = |index: &IndexDefinition| {
            self.index(&index.name).is_ok_and(|path| path == Some(&index.path))
        };
        let entries: Vec<_> =
            self.informers.iter().copied().filter(|informer| informer.key == *key).collect();
        let has_more =
            !entries.is_empty() && self.declares(key, indexes) && indexes.iter().all(is_same);
        has_more.then(|| strictest(&entries))
    }

    /// Whether profiles that serve reads from the informer declare each field index of `indexes`.
    /// Without such a profile, clients may not use the index with this informer, although its store
    /// could answer by scanning all objects.
    fn declares(&self, key: &InformerKey, indexes: &[IndexDefinition]) -> bool {
        indexes.iter().all(|index| {
            let mut entries = self.informers.iter().filter(|informer| informer.key == *key);
            entries.any(|informer| informer.indexes(&index.name).next().is_some())
        })
    }

    /// Keeps the informers whose stores contain all fields that the field selector and the table
    /// need.
    ///
    /// # Errors
    ///
    /// - 406 if the table needs complete objects and all informers keep only metadata
    /// - 421 if no informer is left for a different reason
    pub(super) fn with_fields(
        mut self,
        kind: &KindInfo,
        fields: &FieldFilter,
    ) -> Result<Self, StatusError> {
        if let ResponseForm::Table(table) = self.request.form
            && (table.object == Some(ObjectPart::Full) || !kind.printer().is_of_metadata())
        {
            self.informers
                .retain(|informer| matches!(informer.key.projection, Projection::Full(_)));
            if self.informers.is_empty() {
                return Err(StatusError::only_metadata(self.request.resource.group_resource()));
            }
        }
        let has_fields = |informer: &ServingInformer| {
            fields.is_answerable_from(&informer.key)
                && self.declares(&informer.key, &fields.indexes)
        };
        self.informers =
            self.informers.iter().copied().filter(|informer| has_fields(informer)).collect();
        if self.informers.is_empty() {
            return Err(not_cached(self.request, NOT_DECLARED));
        }
        Ok(self)
    }

    /// The lowest `maxStalenessSeconds` of all profiles that serve reads from these informers.
    pub(super) fn max_staleness(&self) -> Duration {
        self.informers
            .iter()
            .map(|informer| informer.resolved.max_staleness)
            .min()
            .unwrap_or_default()
    }

    /// Whether two or more informers can answer, warm or not. Only then can a later read get an
    /// older answer from another informer.
    pub(super) fn has_several_informers(&self) -> bool {
        let mut keys = self.informers.iter().map(|informer| &informer.key);
        let first = keys.next();
        keys.any(|key| Some(key) != first)
    }

    /// The strictest read consistency of all profiles that serve reads from these informers.
    pub(super) fn consistency(&self) -> ReadConsistency {
        self.informers
            .iter()
            .map(|informer| informer.resolved.reads.consistency)
            .max()
            .unwrap_or_default()
    }

    /// How long a read waits for a warm informer: the lowest limit that a profile with one of these
    /// informers sets.
    pub(super) fn cold_read_timeout(&self) -> Duration {
        self.informers
            .iter()
            .map(|informer| informer.resolved.reads.cold_read_timeout)
            .min()
            .unwrap_or_default()
    }

    /// Returns the informers that can answer now, the best one first. Sorts the informers by three
    /// criteria, the most important one first:
    ///
    /// 1. informers of complete objects, then informers of metadata
    /// 2. informers without selectors, then informers with selectors
    /// 3. informers with fresh stores, then with stale stores, then informers of paused profiles
    ///
    /// The second value is the reason for the error if the first value is empty.
    pub(super) fn rank_warm(
        &self,
        get_report: impl Fn(&InformerKey) -> Option<InformerReport>,
        now: Instant,
    ) -> (Vec<CandidateInformer<'a>>, ColdCause) {
        let mut candidates: Vec<CandidateInformer<'a>> = Vec::new();
        for &serving in &self.informers {
            if let Some(known) =
                candidates.iter_mut().find(|candidate| *candidate.key == serving.key)
            {
                known.entries.push(serving);
                continue;
            }
            let Some(report) = get_report(&serving.key) else { continue };
            let authorized_scope =
                AuthorizedScope::of(&self.request.access_attributes(), &serving.key.scope);
            // [`Self::find`] keeps only informers with an authorized scope, so this is never
            // `None`.
            let Some(authorized_scope) = authorized_scope else { continue };
            let age = report.current_at.map(|at| now.saturating_duration_since(at));
            candidates.push(CandidateInformer {
                key: &serving.key,
                authorized_scope,
                entries: vec![serving],
                report,
                age,
            });
        }
        let causes = candidates.iter().map(CandidateInformer::cold_cause);
        let cause = causes.reduce(ColdCause::combine).unwrap_or(ColdCause::NotWarm);
        candidates.retain(|candidate| candidate.can_be_read(&candidate.report));
        let bound = self.max_staleness();
        candidates.sort_by(|a, b| a.rank(bound).cmp(&b.rank(bound)).then_with(|| a.key.cmp(b.key)));
        (candidates, cause)
    }
}

impl CandidateInformer<'_> {
    /// Whether every profile that serves reads from the informer permits reads while the informer
    /// is in the state `report`.
    pub(super) fn can_be_read(&self, report: &InformerReport) -> bool {
        report.serves(strictest(&self.entries))
    }

    pub(super) fn access_requirement(&self) -> AccessLossCheck {
        AccessLossCheck { policy: strictest(&self.entries), losses: Some(self.report.losses) }
    }

    /// The namespace of the first profile that serves reads from this informer. If the read needs a
    /// freshness check, the check counts against the limit on kubewarm's requests for this
    /// namespace.
    pub(super) fn payer(&self) -> Arc<str> {
        self.entries
            .first()
            .map_or_else(|| "".into(), |informer| Arc::clone(&informer.resolved.profile.namespace))
    }

    /// Whether the informer has selectors, so that its store contains only a part of the objects.
    /// Such an informer receives no events of other objects. Without matching events, its resource
    /// version advances only with bookmarks, about once a minute.
    pub(super) fn is_part(&self) -> bool {
        !self.key.labels.is_empty() || !self.key.fields.is_empty()
    }

    fn rank(&self, bound: Duration) -> (bool, bool, u8) {
        let is_part = self.is_part();
        let is_metadata = matches!(self.key.projection, Projection::Metadata(_));
        let freshness =
            if self.is_paused() { 2 } else { u8::from(self.age.is_none_or(|age| age > bound)) };
        (is_metadata, is_part, freshness)
    }

    /// Whether every profile that serves reads from the informer is paused.
    fn is_paused(&self) -> bool {
        self.entries.iter().all(|entry| entry.resolved.mode == ProfileMode::Paused)
    }

    /// Whether the informer does nothing until someone resumes a profile.
    pub(super) fn is_stopped(&self) -> bool {
        // The profiles' mode alone is not enough, because an active profile that does not serve
        // this request can share the informer. The informer's phase alone is not enough either,
        // because a new informer is paused for a moment.
        self.is_paused() && self.report.phase == InformerPhase::Paused
    }

    /// Why the informer is not readable.
    fn cold_cause(&self) -> ColdCause {
        if self.is_stopped() && self.report.synced_at.is_none() {
            ColdCause::Paused
        } else {
            ColdCause::of(&self.report)
        }
    }
}

/// The error 421 for a request whose objects no profile keeps warm. `why` completes the error
/// message.
pub(super) fn not_cached(request: &ObjectRequest, why: &str) -> StatusError {
    let name = request.name.as_deref().unwrap_or_default();
    StatusError::not_cached(request.resource.group_resource(), name, why)
}

fn strictest(entries: &[&ServingInformer]) -> AccessLossPolicy {
    let all_serve_on =
        entries.iter().all(|entry| entry.resolved.on_access_lost == AccessLossPolicy::ServeStale);
    if all_serve_on { AccessLossPolicy::ServeStale } else { AccessLossPolicy::Reject }
}

/// Whether the profile answers requests to this path. Below `/profiles/<namespace>/<name>` only the
/// named profile answers. On all other paths, the profiles of the requested namespace and of the
/// operator namespace answer.
fn can_answer(
    serving: &ServingInformer,
    request: &ObjectRequest,
    profile: Option<&ProfileRef>,
    operator_namespace: &str,
) -> bool {
    let owner = &serving.resolved.profile;
    match profile {
        Some(requested) => owner == requested,
        None => {
            // A cluster-scoped object such as a Namespace belongs to no namespace, even if its
            // access review has one. So only profiles of the operator namespace answer.
            *owner.namespace == *operator_namespace
                || (serving.key.scope != InformerScope::Cluster
                    && request
                        .namespace
                        .as_ref()
                        .is_some_and(|namespace| *namespace == owner.namespace))
        }
    }
}

/// Whether the informer's scope and selectors include every object that the request selects.
fn contains(key: &InformerKey, request: &ObjectRequest) -> bool {
    let is_there = AuthorizedScope::of(&request.access_attributes(), &key.scope).is_some();
    let has_label = |needed| request.labels.requirements().any(|has| has == needed);
    let has_field = |needed| request.fields.requirements().any(|has| has == needed);
    // A get has no selectors, so only informers without selectors answer a get. In the store of an
    // informer with selectors, an object that exists can be absent.
    is_there && key.labels.requirements().all(has_label) && key.fields.requirements().all(has_field)
}

#[cfg(test)]
mod tests;
