use super::*;
use crate::reads::fixtures::{self, informer, kind, parse_request, report, serving_index};
use kubewarm_wire::{MetaVersion, TableForm};

/// The HTTP status code with which kubewarm rejects a request; 0 if an informer can answer the
/// request.
fn refused(serving_index: &ServingIndex, path: &str, query: &str) -> u16 {
    let (request, profile) = parse_request(path, query);
    CoveringInformers::find(serving_index, &request, profile.as_ref(), "home")
        .map_or_else(|failure| failure.code(), |_| 0)
}

#[test]
fn an_informer_answers_only_requests_that_it_wholly_contains() {
    let all = serving_index("home", &[informer("all", "", "")]);
    let unselected = serving_index("home", &[informer("a", "", "")]);
    let web = serving_index("home", &[informer("a", "app in (web)", "")]);
    let pending = serving_index("home", &[informer("a", "", "status.phase=Pending")]);
    let (in_a, object) = ("/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/x");
    for (serving_index, path, query, expected) in [
        (&all, "/api/v1/pods", "", 0),
        (&all, in_a, "", 0),
        (&all, object, "", 0),
        (&all, "/api/v1/pods", "labelSelector=app", 0),
        // A request for one object of a namespaced kind must have a namespace in its path.
        (&all, "/api/v1/pods/x", "", 421),
        (&all, "/api/v1/nodes", "", 421),
        (&all, "/apis/apps/v1/pods", "", 421),
        (&unselected, in_a, "", 0),
        (&unselected, "/api/v1/pods", "", 421),
        (&unselected, "/api/v1/pods", "fieldSelector=metadata.namespace%3Da", 421),
        (&unselected, "/api/v1/namespaces/b/pods", "", 421),
        (&web, in_a, "labelSelector=app%3Dweb", 0),
        (&web, in_a, "labelSelector=app%3Dweb,tier", 0),
        (&web, in_a, "", 421),
        (&web, in_a, "labelSelector=app%3Dapi", 421),
        (&web, in_a, "labelSelector=app", 421),
        (&web, object, "", 421),
        (&pending, in_a, "fieldSelector=status.phase%3DPending", 0),
        (&pending, in_a, "fieldSelector=status.phase!%3DPending", 421),
        (&pending, in_a, "", 421),
    ] {
        assert_eq!(refused(serving_index, path, query), expected, "{path}?{query}");
    }
}

#[test]
fn profiles_of_the_namespace_and_of_the_operator_namespace_answer_plain_paths() {
    let tenant = serving_index(
        "a",
        &[informer("a", "", ""), informer("b", "", ""), informer("all", "", "")],
    );
    let operator_namespace = serving_index("home", &[informer("b", "", "")]);
    for (serving_index, path, expected) in [
        (&tenant, "/api/v1/namespaces/a/pods", 0),
        (&tenant, "/api/v1/namespaces/b/pods", 421),
        (&tenant, "/api/v1/pods", 421),
        (&tenant, "/profiles/a/p/api/v1/namespaces/b/pods", 0),
        (&tenant, "/profiles/a/p/api/v1/pods", 0),
        (&tenant, "/profiles/a/q/api/v1/namespaces/a/pods", 421),
        (&tenant, "/profiles/b/p/api/v1/namespaces/a/pods", 421),
        (&operator_namespace, "/api/v1/namespaces/b/pods", 0),
        (&operator_namespace, "/profiles/a/p/api/v1/namespaces/b/pods", 421),
    ] {
        assert_eq!(refused(serving_index, path, ""), expected, "{path}");
    }
}

#[test]
fn metadata_informers_answer_only_metadata_requests() {
    let mut metadata = informer("a", "", "");
    metadata.projection = Projection::Metadata(kubewarm_api::model::ManagedFieldsPolicy::Drop);
    let serving_index = serving_index("home", &[metadata]);
    let path = "/api/v1/namespaces/a/pods";
    assert_eq!(refused(&serving_index, path, ""), 406);
    let (mut request, _) = parse_request(path, "fieldSelector=status.phase%3DPending");
    request.form = ResponseForm::Object(ObjectPart::Metadata(MetaVersion::V1));
    let covering = CoveringInformers::find(&serving_index, &request, None, "home").unwrap();
    // The informer's store keeps only metadata, which does not contain the field `status.phase`.
    let fields = FieldFilter::resolve(&request, &kind(""), |name| covering.index(name)).unwrap();
    assert_eq!(covering.with_fields(&kind(""), &fields).unwrap_err().code(), 421);
    let code = |kind: &KindInfo, part: ObjectPart| {
        let (mut request, _) = fixtures::parse_request(path, "");
        request.form =
            ResponseForm::Table(TableForm { version: MetaVersion::V1, object: Some(part) });
        let covering = CoveringInformers::find(&serving_index, &request, None, "home").unwrap();
        covering
            .with_fields(kind, &FieldFilter::default())
            .map_or_else(|failure| failure.code(), |_| 200)
    };
    let mut accounts = kind("");
    accounts.document.resource = fixtures::core("serviceaccounts");
    let metadata = ObjectPart::Metadata(MetaVersion::V1);
    assert_eq!(code(&kind(""), metadata), 406, "a table of pods needs more than metadata");
    assert_eq!(code(&accounts, metadata), 200);
    assert_eq!(code(&accounts, ObjectPart::Full), 406);
}

#[test]
fn the_best_of_several_informers_answers_by_the_strictest_staleness_limit() {
    let now = Instant::now();
    let selected = informer("a", "app in (web)", "");
    let (in_a, all) = (informer("a", "", ""), informer("all", "", ""));
    let mut serving_index = serving_index("home", &[selected.clone(), in_a.clone(), all.clone()]);
    serving_index.set_staleness(&all, Duration::from_secs(30));
    // `in_a` has the strictest consistency and the shortest wait. Both values differ from the
    // defaults.
    for (informer, consistency, seconds) in [
        (&selected, ReadConsistency::Bounded, 9),
        (&in_a, ReadConsistency::Strict, 2),
        (&all, ReadConsistency::Eventual, 3),
    ] {
        serving_index.set_terms(informer, consistency, seconds);
    }
    let (request, _) = parse_request("/api/v1/namespaces/a/pods", "labelSelector=app%3Dweb");
    let covering = CoveringInformers::find(&serving_index, &request, None, "home").unwrap();
    assert_eq!(covering.max_staleness(), Duration::from_secs(30));
    assert_eq!(covering.consistency(), ReadConsistency::Strict);
    assert_eq!(covering.cold_read_timeout(), Duration::from_secs(2));
    let order = |ages: [u64; 3]| -> Vec<InformerKey> {
        let keys = [&selected, &in_a, &all];
        let get_report = |key: &InformerKey| {
            let at = keys.iter().position(|other| *other == key)?;
            Some(report(now - Duration::from_secs(ages[at])))
        };
        covering
            .rank_warm(get_report, now)
            .0
            .into_iter()
            .map(|candidate| candidate.key.clone())
            .collect()
    };
    // `selected` comes last because it has selectors, whatever the ages are. Between `in_a` and
    // `all`, the age of the store decides.
    assert_eq!(order([0, 60, 10]), [all.clone(), in_a.clone(), selected.clone()]);
    assert_eq!(order([0, 10, 60]), [in_a, all, selected]);
}

#[test]
fn the_strictest_profile_decides_about_reads_after_access_loss() {
    let now = Instant::now();
    let mut serving_index = serving_index("home", &[informer("a", "", "")]);
    let (request, _) = parse_request("/api/v1/namespaces/a/pods", "");
    let mut lost = report(now);
    lost.lost_at = Some(jiff::Timestamp::UNIX_EPOCH);
    let answers = |serving_index: &ServingIndex| {
        let covering = CoveringInformers::find(serving_index, &request, None, "home").unwrap();
        covering.rank_warm(|_| Some(lost.clone()), now).0.len()
    };
    assert_eq!(answers(&serving_index), 0);
    serving_index.set_policy("home", AccessLossPolicy::ServeStale);
    assert_eq!(answers(&serving_index), 1);
    serving_index.add("a", &informer("a", "", ""));
    assert_eq!(answers(&serving_index), 0, "the second profile does not permit stale reads");
}
