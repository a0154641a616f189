//! Selects and orders the informers whose stores contain everything that a request selects.

use super::{
    access_requirement::AccessRequirement,
    field_filter::FieldFilter,
    kind_info::KindInfo,
    serving_index::{ServingIndex, ServingInformer},
};
use kubewarm_api::model::{
    AccessLossPolicy, FieldPath, IndexDefinition, InformerKey, InformerScope, ProfileMode,
    ProfileRef, Projection, ReadConsistency,
};
use kubewarm_cache::informer::InformerReport;
use kubewarm_wire::{ObjectForm, ObjectRequest, ResponseForm, StatusError};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Why kubewarm does not serve kinds of aggregated APIs and unknown kinds.
pub(super) const MAY_FILTER: &str = "it is served by an aggregated API, as far as kubewarm can tell, which may \
     hide objects from some callers (--serve-aggregated-groups)";
const NOT_DECLARED: &str = "no CacheProfile that answers here keeps it warm";

#[derive(Debug)]
pub(super) struct CoveringInformers<'a> {
    asked: &'a ObjectRequest,
    informers: Vec<&'a ServingInformer>,
}

/// An informer that can answer a request now.
#[derive(Debug)]
pub(super) struct CandidateInformer<'a> {
    pub(super) key: &'a InformerKey,
    /// The profiles that serve reads from this informer.
    offers: Vec<&'a ServingInformer>,
    /// The informer's state when the request chose it.
    pub(super) report: InformerReport,
    /// Time since the store was last confirmed to be current; `None` if it never was.
    pub(super) age: Option<Duration>,
}

impl<'a> CoveringInformers<'a> {
    /// Finds the informers that contain the requested objects, by path, scope and selectors.
    ///
    /// # Errors
    ///
    /// 421 if no informer contains the objects; 406 if they hold only metadata, and the request needs more.
    pub(super) fn of(
        offers: &'a ServingIndex,
        asked: &'a ObjectRequest,
        profile: Option<&ProfileRef>,
        home: &str,
    ) -> Result<Self, StatusError> {
        let containing = offers.informers(&asked.resource).iter().filter(|offering| {
            can_answer(offering, asked, profile, home) && contains(&offering.key, asked)
        });
        let all: Vec<_> = containing.collect();
        if all.is_empty() {
            return Err(not_cached(asked, NOT_DECLARED));
        }
        let is_enough = |offering: &&ServingInformer| match offering.key.projection {
            Projection::Full(_) => true,
            // A table needs whole objects for some kinds only. `CoveringInformers::knowing` checks that later.
            Projection::Metadata(_) => asked.form != ResponseForm::Object(ObjectForm::Full),
        };
        let informers: Vec<_> = all.into_iter().filter(is_enough).collect();
        if informers.is_empty() {
            return Err(StatusError::only_metadata(asked.resource.group_resource()));
        }
        Ok(Self { asked, informers })
    }

    /// Returns what the declared index `name` looks up by; `None` if no profile declares it.
    ///
    /// # Errors
    ///
    /// 400 if profiles declare different indexes of this name, because the result would depend on the informer
    /// that answers.
    pub(super) fn index(&self, name: &str) -> Result<Option<&'a FieldPath>, StatusError> {
        let mut declared = self.informers.iter().flat_map(|it| it.indexes(name));
        let first = declared.next();
        if declared.all(|it| first == Some(it)) {
            return Ok(first);
        }
        Err(StatusError::bad_request(format!(
            "field label not supported: index.kubewarm.io/{name}: CacheProfiles that answer here declare different \
             indexes of this name; read below /profiles/<namespace>/<name>, or rename one of the indexes"
        )))
    }

    /// Returns the strictest access-loss policy for a watch of this informer. `None` ends the watch: no profile
    /// serves the informer any more, or one of `indexes` has changed.
    pub(super) fn policy(
        &self,
        key: &InformerKey,
        indexes: &[IndexDefinition],
    ) -> Option<AccessLossPolicy> {
        let is_same = |index: &IndexDefinition| {
            self.index(&index.name).is_ok_and(|it| it == Some(&index.path))
        };
        let offers: Vec<_> = self.informers.iter().copied().filter(|it| it.key == *key).collect();
        let goes_on =
            !offers.is_empty() && self.declares(key, indexes) && indexes.iter().all(is_same);
        goes_on.then(|| strictest(&offers))
    }

    /// Whether each of these indexes is declared by at least one profile that serves the informer.
    fn declares(&self, key: &InformerKey, indexes: &[IndexDefinition]) -> bool {
        indexes.iter().all(|index| {
            let mut offers = self.informers.iter().filter(|it| it.key == *key);
            offers.any(|it| it.indexes(&index.name).next().is_some())
        })
    }

    /// Keeps the informers whose stores have the fields that the request selects by and shows.
    ///
    /// # Errors
    ///
    /// 421 if no informer is left; 406 if the others hold only metadata, and the table needs more.
    pub(super) fn knowing(
        mut self,
        kind: &KindInfo,
        fields: &FieldFilter,
    ) -> Result<Self, StatusError> {
        if let ResponseForm::Table(table) = self.asked.form
            && (table.object == Some(ObjectForm::Full) || !kind.printer().is_of_metadata())
        {
            self.informers.retain(|it| matches!(it.key.projection, Projection::Full(_)));
            if self.informers.is_empty() {
                return Err(StatusError::only_metadata(self.asked.resource.group_resource()));
            }
        }
        let knows = |it: &ServingInformer| {
            fields.are_held(&it.key) && self.declares(&it.key, &fields.indexes)
        };
        self.informers = self.informers.iter().copied().filter(|it| knows(it)).collect();
        if self.informers.is_empty() {
            return Err(not_cached(self.asked, NOT_DECLARED));
        }
        Ok(self)
    }

    /// The lowest staleness limit of the profiles.
    pub(super) fn max_staleness(&self) -> Duration {
        self.informers.iter().map(|it| it.declared.max_staleness).min().unwrap_or_default()
    }

    /// The strictest consistency of the profiles.
    pub(super) fn consistency(&self) -> ReadConsistency {
        self.informers.iter().map(|it| it.declared.reads.consistency).max().unwrap_or_default()
    }

    /// The shortest time that a profile lets reads wait for an informer that is not warm.
    pub(super) fn cold_read_timeout(&self) -> Duration {
        self.informers
            .iter()
            .map(|it| it.declared.reads.cold_read_timeout)
            .min()
            .unwrap_or_default()
    }

    /// Returns the informers that can answer now, the best first. Whole objects precede metadata, and informers
    /// without selectors precede those with selectors. After that the order is fresh, stale, paused.
    pub(super) fn warm(
        &self,
        standing: impl Fn(&InformerKey) -> Option<InformerReport>,
        now: Instant,
    ) -> (Vec<CandidateInformer<'a>>, bool) {
        let mut candidates: Vec<CandidateInformer<'a>> = Vec::new();
        for &offering in &self.informers {
            if let Some(known) = candidates.iter_mut().find(|it| *it.key == offering.key) {
                known.offers.push(offering);
                continue;
            }
            let Some(report) = standing(&offering.key) else { continue };
            let age = report.current_at.map(|at| now.saturating_duration_since(at));
            candidates.push(CandidateInformer {
                key: &offering.key,
                offers: vec![offering],
                report,
                age,
            });
        }
        let is_forbidden =
            !candidates.is_empty() && candidates.iter().all(|it| it.report.is_forbidden());
        candidates.retain(|it| it.can_be_read(&it.report));
        let bound = self.max_staleness();
        candidates.sort_by(|a, b| a.rank(bound).cmp(&b.rank(bound)).then_with(|| a.key.cmp(b.key)));
        (candidates, is_forbidden)
    }
}

impl CandidateInformer<'_> {
    /// Whether every profile that serves the informer permits reads while the informer is in the state of
    /// `report`.
    pub(super) fn can_be_read(&self, report: &InformerReport) -> bool {
        report.serves(strictest(&self.offers))
    }

    /// The conditions under which a read that begins now can continue.
    pub(super) fn access_terms(&self) -> AccessRequirement {
        AccessRequirement { policy: strictest(&self.offers), losses: Some(self.report.losses) }
    }

    /// The namespace whose request rate limit counts a freshness check: the namespace of the first profile.
    pub(super) fn payer(&self) -> Arc<str> {
        self.offers
            .first()
            .map_or_else(|| "".into(), |it| Arc::clone(&it.declared.profile.namespace))
    }

    /// Whether the informer has selectors. Changes of other objects then send it no event. Its version advances
    /// with the bookmarks only, about once a minute.
    pub(super) fn is_part(&self) -> bool {
        !self.key.labels.is_empty() || !self.key.fields.is_empty()
    }

    fn rank(&self, bound: Duration) -> (bool, bool, u8) {
        let is_part = self.is_part();
        let is_metadata = matches!(self.key.projection, Projection::Metadata(_));
        let freshness = if self.offers.iter().all(|it| it.declared.mode == ProfileMode::Paused) {
            2
        } else {
            u8::from(self.age.is_none_or(|age| age > bound))
        };
        (is_metadata, is_part, freshness)
    }
}

/// The failure of a request that no profile keeps warm. `why` explains it in the message.
pub(super) fn not_cached(asked: &ObjectRequest, why: &str) -> StatusError {
    let name = asked.name.as_deref().unwrap_or_default();
    StatusError::not_cached(asked.resource.group_resource(), name, why)
}

fn strictest(offers: &[&ServingInformer]) -> AccessLossPolicy {
    let all_serve_on =
        offers.iter().all(|it| it.declared.on_access_lost == AccessLossPolicy::ServeStale);
    if all_serve_on { AccessLossPolicy::ServeStale } else { AccessLossPolicy::Reject }
}

/// Whether the profile answers on the request's path. Below `/profiles/<namespace>/<name>` only that profile
/// answers. On other paths the profiles of the requested namespace and of the operator namespace answer.
fn can_answer(
    offering: &ServingInformer,
    asked: &ObjectRequest,
    profile: Option<&ProfileRef>,
    home: &str,
) -> bool {
    let of = &offering.declared.profile;
    match profile {
        Some(named) => of == named,
        None => {
            *of.namespace == *home
                || asked.namespace.as_ref().is_some_and(|asked| *asked == of.namespace)
        }
    }
}

/// Whether the informer contains every object that the request selects.
fn contains(key: &InformerKey, asked: &ObjectRequest) -> bool {
    let is_list = asked.name.is_none();
    let is_there = match (&key.extent, &asked.namespace) {
        (InformerScope::Namespace(own), Some(asked)) => own == asked,
        (InformerScope::AllNamespaces, None) => is_list,
        (InformerScope::AllNamespaces, Some(_)) | (InformerScope::Cluster, None) => true,
        (InformerScope::Namespace(_), None) | (InformerScope::Cluster, Some(_)) => false,
    };
    let has_label = |needed| asked.labels.requirements().any(|has| has == needed);
    let has_field = |needed| asked.fields.requirements().any(|has| has == needed);
    // A get has no selectors, so an informer with selectors never answers a get. An object that its store lacks
    // can still exist.
    is_there && key.labels.requirements().all(has_label) && key.fields.requirements().all(has_field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::fixtures::{self, asked, informer, kind, offers, report};
    use kubewarm_wire::{MetaVersion, TableForm};

    /// The status code that rejects a request; 0 if the request is accepted.
    fn refused(offers: &ServingIndex, path: &str, query: &str) -> u16 {
        let (asked, profile) = asked(path, query);
        CoveringInformers::of(offers, &asked, profile.as_ref(), "home")
            .map_or_else(|it| it.code(), |_| 0)
    }

    #[test]
    fn an_informer_answers_only_requests_that_it_wholly_contains() {
        let all = offers("home", &[informer("all", "", "")]);
        let one = offers("home", &[informer("a", "", "")]);
        let web = offers("home", &[informer("a", "app in (web)", "")]);
        let pending = offers("home", &[informer("a", "", "status.phase=Pending")]);
        let (own, object) = ("/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/x");
        for (offers, path, query, expected) in [
            (&all, "/api/v1/pods", "", 0),
            (&all, own, "", 0),
            (&all, object, "", 0),
            (&all, "/api/v1/pods", "labelSelector=app", 0),
            // A namespaced kind has no object without a namespace.
            (&all, "/api/v1/pods/x", "", 421),
            (&all, "/api/v1/nodes", "", 421),
            (&all, "/apis/apps/v1/pods", "", 421),
            (&one, own, "", 0),
            (&one, "/api/v1/pods", "", 421),
            (&one, "/api/v1/pods", "fieldSelector=metadata.namespace%3Da", 421),
            (&one, "/api/v1/namespaces/b/pods", "", 421),
            (&web, own, "labelSelector=app%3Dweb", 0),
            (&web, own, "labelSelector=app%3Dweb,tier", 0),
            (&web, own, "", 421),
            (&web, own, "labelSelector=app%3Dapi", 421),
            (&web, own, "labelSelector=app", 421),
            (&web, object, "", 421),
            (&pending, own, "fieldSelector=status.phase%3DPending", 0),
            (&pending, own, "fieldSelector=status.phase!%3DPending", 421),
            (&pending, own, "", 421),
        ] {
            assert_eq!(refused(offers, path, query), expected, "{path}?{query}");
        }
    }

    #[test]
    fn profiles_of_the_namespace_and_of_the_operator_namespace_answer_plain_paths() {
        let tenant =
            offers("a", &[informer("a", "", ""), informer("b", "", ""), informer("all", "", "")]);
        let home = offers("home", &[informer("b", "", "")]);
        for (offers, path, expected) in [
            (&tenant, "/api/v1/namespaces/a/pods", 0),
            (&tenant, "/api/v1/namespaces/b/pods", 421),
            (&tenant, "/api/v1/pods", 421),
            (&tenant, "/profiles/a/p/api/v1/namespaces/b/pods", 0),
            (&tenant, "/profiles/a/p/api/v1/pods", 0),
            (&tenant, "/profiles/a/q/api/v1/namespaces/a/pods", 421),
            (&tenant, "/profiles/b/p/api/v1/namespaces/a/pods", 421),
            (&home, "/api/v1/namespaces/b/pods", 0),
            (&home, "/profiles/a/p/api/v1/namespaces/b/pods", 421),
        ] {
            assert_eq!(refused(offers, path, ""), expected, "{path}");
        }
    }

    #[test]
    fn metadata_informers_answer_only_metadata_requests() {
        let mut metadata = informer("a", "", "");
        metadata.projection = Projection::Metadata(kubewarm_api::model::ManagedFieldsPolicy::Drop);
        let offers = offers("home", &[metadata]);
        let path = "/api/v1/namespaces/a/pods";
        assert_eq!(refused(&offers, path, ""), 406);
        let (mut asked, _) = asked(path, "fieldSelector=status.phase%3DPending");
        asked.form = ResponseForm::Object(ObjectForm::Metadata(MetaVersion::V1));
        let coverage = CoveringInformers::of(&offers, &asked, None, "home").unwrap();
        // Metadata does not contain the phase.
        let fields = FieldFilter::of(&asked, &kind(""), |name| coverage.index(name)).unwrap();
        assert_eq!(coverage.knowing(&kind(""), &fields).unwrap_err().code(), 421);
        let code = |kind: &KindInfo, part: ObjectForm| {
            let (mut asked, _) = fixtures::asked(path, "");
            asked.form =
                ResponseForm::Table(TableForm { version: MetaVersion::V1, object: Some(part) });
            let coverage = CoveringInformers::of(&offers, &asked, None, "home").unwrap();
            coverage
                .knowing(kind, &FieldFilter::default())
                .map_or_else(|failure| failure.code(), |_| 200)
        };
        let mut accounts = kind("");
        accounts.document.resource = fixtures::core("serviceaccounts");
        let metadata = ObjectForm::Metadata(MetaVersion::V1);
        assert_eq!(code(&kind(""), metadata), 406, "a table of pods needs more than metadata");
        assert_eq!(code(&accounts, metadata), 200);
        assert_eq!(code(&accounts, ObjectForm::Full), 406);
    }

    #[test]
    fn the_best_of_several_informers_answers_by_the_strictest_staleness_limit() {
        let now = Instant::now();
        let selected = informer("a", "app in (web)", "");
        let (own, all) = (informer("a", "", ""), informer("all", "", ""));
        let mut offers = offers("home", &[selected.clone(), own.clone(), all.clone()]);
        offers.set_staleness(&all, Duration::from_secs(30));
        // The strictest consistency and wait belong to the middle informer, and they are not the defaults.
        for (informer, consistency, seconds) in [
            (&selected, ReadConsistency::Bounded, 9),
            (&own, ReadConsistency::Strict, 2),
            (&all, ReadConsistency::Eventual, 3),
        ] {
            offers.set_terms(informer, consistency, seconds);
        }
        let (asked, _) = asked("/api/v1/namespaces/a/pods", "labelSelector=app%3Dweb");
        let coverage = CoveringInformers::of(&offers, &asked, None, "home").unwrap();
        assert_eq!(coverage.max_staleness(), Duration::from_secs(30));
        assert_eq!(coverage.consistency(), ReadConsistency::Strict);
        assert_eq!(coverage.cold_read_timeout(), Duration::from_secs(2));
        let order = |ages: [u64; 3]| -> Vec<InformerKey> {
            let keys = [&selected, &own, &all];
            let standing = |key: &InformerKey| {
                let at = keys.iter().position(|it| *it == key)?;
                Some(report(now - Duration::from_secs(ages[at])))
            };
            coverage.warm(standing, now).0.into_iter().map(|it| it.key.clone()).collect()
        };
        // Age decides only between informers that both lack selectors.
        assert_eq!(order([0, 60, 10]), [all.clone(), own.clone(), selected.clone()]);
        assert_eq!(order([0, 10, 60]), [own, all, selected]);
    }

    #[test]
    fn the_strictest_profile_decides_about_reads_after_access_loss() {
        let now = Instant::now();
        let mut offers = offers("home", &[informer("a", "", "")]);
        let (asked, _) = asked("/api/v1/namespaces/a/pods", "");
        let mut lost = report(now);
        lost.lost = Some(kubewarm_cache::informer::AccessLoss {
            at: now,
            time: jiff::Timestamp::UNIX_EPOCH,
        });
        let answers = |offers: &ServingIndex| {
            let coverage = CoveringInformers::of(offers, &asked, None, "home").unwrap();
            coverage.warm(|_| Some(lost.clone()), now).0.len()
        };
        assert_eq!(answers(&offers), 0);
        offers.set_policy("home", AccessLossPolicy::ServeStale);
        assert_eq!(answers(&offers), 1);
        offers.add("a", &informer("a", "", ""));
        assert_eq!(answers(&offers), 0, "the second profile does not permit stale reads");
    }
}
