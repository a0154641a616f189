//! Requests a sample of each informer's objects, with the informer's identity and within limits.

use super::{
    accepted,
    cost_estimate::{InformerSurvey, ListSpeed, ProfileForecast, alike, forecast},
};
use kubewarm_api::{
    model::{
        DeclaredProfile, DecodedObject, FaultReason, Identity, InformerKey, InformerSpec,
        Projection, RequestFault, Verb,
    },
    v1alpha1::PlanCertainty,
};
use kubewarm_cache::{
    informer::{
        AccessCheck, AccessDecision, ListMethodSupport, SampleDepth, SamplePage, SampleRequest,
        check_access, fetch_sample_page,
    },
    store::{DictionaryKey, StoreSample},
};
use kubewarm_client::{ClientProvider, NamespaceBuckets, is_terminating};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// Number of objects in the first page of each informer.
const FIRST: u32 = 20;
/// Maximum number of sampled objects per kind. That is enough to train the compression dictionary
/// that all of them would share.
const OBJECTS: usize = 1_000;
/// Maximum size of the sampled objects per kind, in bytes.
const BYTES: usize = 8 << 20;
/// Page size for counting objects.
const COUNTED: u32 = 500;
/// Maximum number of pages for counting the objects of one informer, which is 20,000 objects. Only
/// lists with selectors need that; for others the API server returns the number.
const PAGES: u32 = 40;
/// Maximum number of requests for one profile. That is enough for a hundred informers.
const REQUESTS: u32 = 512;
/// Maximum number of requests of one access check.
const TRIAL: u32 = 3;
/// Maximum duration of one profile's survey.
const TIME: Duration = Duration::from_mins(3);

/// Estimates the costs of profiles.
pub struct CostSurveyor {
    clients: Arc<dyn ClientProvider>,
    strategies: ListMethodSupport,
    rest: Duration,
    buckets: NamespaceBuckets,
    /// Whether the survey checks the access of each informer's identity.
    has_access_checks: bool,
}

/// The remaining requests and the sample of one profile's survey.
pub(super) struct ProfileSurvey {
    /// The namespace whose rate limit is charged.
    payer: Arc<str>,
    requests: u32,
    until: Instant,
    sample: StoreSample,
    /// Number and bytes of the sampled objects, by kind.
    taken: BTreeMap<DictionaryKey, (usize, usize)>,
}

impl CostSurveyor {
    /// Creates a surveyor that waits for `rest` and for the rate limit of the profile's namespace
    /// before each request.
    #[must_use]
    pub fn new(
        clients: Arc<dyn ClientProvider>,
        rest: Duration,
        buckets: NamespaceBuckets,
    ) -> Self {
        Self {
            clients,
            strategies: ListMethodSupport::default(),
            rest,
            buckets,
            has_access_checks: true,
        }
    }

    /// Disables access checks, for a command whose user is not the identity that will read.
    #[must_use]
    pub fn without_access_checks(self) -> Self {
        Self { has_access_checks: false, ..self }
    }

    /// Waits before `requests` requests: `rest` for each, and the rate limit.
    async fn turn(&self, requests: u32, round: &ProfileSurvey) {
        sleep(self.rest * requests).await;
        let count = usize::try_from(requests).unwrap_or(usize::MAX);
        self.buckets.take(&round.payer, count).await;
    }

    /// Returns the namespaces that a selector matches, except those that are being deleted.
    ///
    /// # Errors
    ///
    /// Returns the [`RequestFault`] of a page, [`FaultReason::TooLarge`] for more than 20,000 names, or
    /// [`FaultReason::Throttled`] if no requests remain.
    pub(super) async fn names(
        &self,
        selector: &InformerKey,
        round: &mut ProfileSurvey,
    ) -> Result<Vec<Arc<str>>, RequestFault> {
        let client = self.clients.client_for(&selector.identity);
        let mut names = Vec::new();
        let mut token = String::new();
        for _ in 0..PAGES {
            if !round.take(1) {
                return Err(enough());
            }
            self.turn(1, round).await;
            let page =
                SampleRequest { depth: SampleDepth::Metadata, limit: COUNTED, token: &token };
            let name = |item: &DecodedObject<'_>| {
                if !is_terminating(item.body) {
                    names.push(Arc::from(&*item.name));
                }
            };
            token = fetch_sample_page(&client, selector, page, name).await?.token;
            if token.is_empty() {
                return Ok(names);
            }
        }
        Err(RequestFault::new(FaultReason::TooLarge, "the selector finds too many namespaces"))
    }

    /// Samples every informer of `profile`. The forecast lists everything that could not be
    /// determined.
    ///
    /// # Cost
    ///
    /// Three to five requests per informer, and up to 40 more with selectors. In total at most 512
    /// requests, the last one sent within 3 minutes. Up to 1,000 compressed objects of each kind
    /// are in memory meanwhile.
    pub async fn survey(&self, profile: &DeclaredProfile) -> ProfileForecast {
        self.survey_in(profile, ProfileSurvey::of(profile)).await
    }

    /// The same, with the remaining requests of `round`.
    pub(super) async fn survey_in(
        &self,
        profile: &DeclaredProfile,
        mut round: ProfileSurvey,
    ) -> ProfileForecast {
        let mut found = BTreeMap::new();
        let selectors = accepted(profile).filter_map(|target| target.namespaces.as_ref());
        let informers = accepted(profile).flat_map(|target| &*target.informers);
        for spec in selectors.chain(informers) {
            if !found.contains_key(&spec.key) {
                found.insert(spec.key.clone(), self.informer(spec, &mut round).await);
            }
        }
        // Training a dictionary blocks the thread.
        let sample = round.sample;
        let weights = tokio::task::spawn_blocking(move || sample.measure()).await;
        forecast(profile, &found, &weights.unwrap_or_default())
    }

    async fn informer(&self, spec: &InformerSpec, round: &mut ProfileSurvey) -> InformerSurvey {
        let operator = self.clients.client_for(&Identity::Operator);
        let way = self.strategies.choose_first(&operator, spec).await;
        let mut found = InformerSurvey {
            objects: 0,
            certainty: PlanCertainty::Estimate,
            way,
            speed: None,
            refused: BTreeSet::new(),
            trouble: None,
        };
        if let Err(fault) = self.list(spec, round, &mut found).await {
            found.at_least(fault.to_string());
        }
        let is_whole = matches!(spec.key.projection, Projection::Full(_));
        if is_whole && spec.key.resource.group_resource().is_secrets() {
            let text = "the payload of secrets is not looked at, memory is more than is said";
            found.at_least(text.to_owned());
        }
        if self.has_access_checks && round.take(TRIAL) {
            self.turn(TRIAL, round).await;
            let client = self.clients.client_for(&spec.key.identity);
            let AccessCheck { list, watch, .. } = check_access(&client, spec).await;
            for (verb, answer) in [(Verb::List, list), (Verb::Watch, watch)] {
                if let AccessDecision::Refused(_) = answer {
                    found.refused.insert(verb);
                    // The missing permission is reported separately, and the error of the list adds
                    // nothing.
                    found.trouble = None;
                }
            }
        }
        found
    }

    /// Counts the objects, and adds some of them to the sample.
    async fn list(
        &self,
        spec: &InformerSpec,
        round: &mut ProfileSurvey,
        found: &mut InformerSurvey,
    ) -> Result<(), RequestFault> {
        let room = round.room(&spec.key);
        let first = match room {
            0 => (SampleDepth::Metadata, 1),
            _ => (SampleDepth::AsDeclared, FIRST),
        };
        let mut page = self.page(spec, first, "", round).await?;
        found.note_page(&page, first.0);
        if room > 0 && !page.token.is_empty() {
            let room = round.room(&spec.key).min(COUNTED);
            if room > 0 {
                let token = std::mem::take(&mut page.token);
                page = self.page(spec, (SampleDepth::AsDeclared, room), &token, round).await?;
                found.note_page(&page, SampleDepth::AsDeclared);
            }
        }
        for _ in 0..PAGES {
            if let Some(remaining) = page.remaining {
                found.objects = found.objects.saturating_add(remaining);
                return Ok(());
            }
            let token = std::mem::take(&mut page.token);
            page = self.page(spec, (SampleDepth::Metadata, COUNTED), &token, round).await?;
            found.note_page(&page, SampleDepth::Metadata);
        }
        found.at_least(format!("more than {} objects with a selector", found.objects));
        Ok(())
    }

    async fn page(
        &self,
        spec: &InformerSpec,
        (depth, limit): (SampleDepth, u32),
        token: &str,
        round: &mut ProfileSurvey,
    ) -> Result<SamplePage, RequestFault> {
        if !round.take(1) {
            return Err(enough());
        }
        self.turn(1, round).await;
        let client = self.clients.client_for(&spec.key.identity);
        let keep = |item: &DecodedObject<'_>| {
            if depth == SampleDepth::AsDeclared {
                round.keep(spec, item);
            }
        };
        let page = SampleRequest { depth, limit, token };
        fetch_sample_page(&client, &spec.key, page, keep).await
    }
}

fn enough() -> RequestFault {
    let minutes = TIME.as_secs() / 60;
    let text = format!(
        "not all was looked at: {REQUESTS} requests or {minutes} minutes are enough for one profile"
    );
    RequestFault::new(FaultReason::Throttled, text)
}

impl ProfileSurvey {
    pub(super) fn of(profile: &DeclaredProfile) -> Self {
        Self {
            payer: Arc::clone(&profile.profile.namespace),
            requests: REQUESTS,
            until: Instant::now() + TIME,
            sample: StoreSample::default(),
            taken: BTreeMap::new(),
        }
    }

    /// Takes `count` of the remaining requests. Returns false if too few remain or the time is
    /// over.
    fn take(&mut self, count: u32) -> bool {
        let left = self.requests.checked_sub(count).filter(|_| Instant::now() < self.until);
        self.requests = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns how many more objects of the informer's kind the sample needs.
    fn room(&self, key: &InformerKey) -> u32 {
        let (objects, bytes) = self.taken.get(&alike(key)).copied().unwrap_or_default();
        let by_size = BYTES.saturating_sub(bytes) / bytes.checked_div(objects).unwrap_or(1).max(1);
        u32::try_from(OBJECTS.saturating_sub(objects).min(by_size)).unwrap_or(0)
    }

    fn keep(&mut self, spec: &InformerSpec, item: &DecodedObject<'_>) {
        let (objects, bytes) = self.taken.entry(alike(&spec.key)).or_default();
        if *bytes < BYTES {
            *objects += 1;
            *bytes += item.body.len();
            self.sample.add(spec, item);
        }
    }
}

impl InformerSurvey {
    fn note_page(&mut self, page: &SamplePage, depth: SampleDepth) {
        self.objects = self.objects.saturating_add(page.objects);
        let latency = self.speed.map_or(page.headers, |speed| speed.latency.min(page.headers));
        let known = self.speed.unwrap_or_default();
        let (objects, took) = match depth {
            SampleDepth::AsDeclared if page.objects >= known.objects => (page.objects, page.took),
            SampleDepth::AsDeclared | SampleDepth::Metadata => (known.objects, known.took),
        };
        self.speed = Some(ListSpeed { objects, took, latency });
    }

    fn at_least(&mut self, trouble: String) {
        self.certainty = PlanCertainty::LowerBound;
        self.trouble = Some(trouble);
    }
}

impl std::fmt::Debug for CostSurveyor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The clients contain credentials.
        f.debug_struct("CostSurveyor").field("rest", &self.rest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::fixtures::{declared, spec, target};
    use http::{Request, Response};
    use kube::client::Body;
    use kubewarm_api::model::InformerScope;
    use std::{convert::Infallible, sync::atomic::AtomicU32, sync::atomic::Ordering};
    use tower::service_fn;

    /// An API server with these items, which counts its requests.
    struct Holding(&'static str, Arc<AtomicU32>);

    impl ClientProvider for Holding {
        fn client_for(&self, _: &Identity) -> Arc<kube::Client> {
            let (items, requests) = (self.0, Arc::clone(&self.1));
            let service = service_fn(move |_: Request<Body>| {
                requests.fetch_add(1, Ordering::Relaxed);
                let frame = r#""kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"7"}"#;
                let list = format!(r#"{{{frame},"items":[{items}]}}"#);
                std::future::ready(Ok::<_, Infallible>(Response::new(Body::from(
                    list.into_bytes(),
                ))))
            });
            Arc::new(kube::Client::new(service, "default"))
        }
    }

    async fn survey(informers: usize, rest: Duration) -> (ProfileForecast, u32) {
        let requests = Arc::new(AtomicU32::new(0));
        let clients = Arc::new(Holding("", Arc::clone(&requests)));
        let surveyor = CostSurveyor::new(clients, rest, NamespaceBuckets::default());
        let informers = (0..informers).map(|at| spec("pods", &format!("n{at}"))).collect();
        let forecast = surveyor.survey(&order(informers)).await;
        (forecast, requests.load(Ordering::Relaxed))
    }

    fn order(informers: Vec<InformerSpec>) -> DeclaredProfile {
        declared("a", "p", vec![target("pods", informers)])
    }

    #[tokio::test]
    async fn a_selector_ignores_namespaces_that_are_being_deleted() {
        let items = r#"{"metadata":{"name":"a"}},
            {"metadata":{"name":"b","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let clients = Arc::new(Holding(items, Arc::default()));
        let surveyor = CostSurveyor::new(clients, Duration::ZERO, NamespaceBuckets::default());
        let key = InformerKey { extent: InformerScope::Cluster, ..spec("namespaces", "").key };
        let mut round = ProfileSurvey::of(&order(Vec::new()));
        let names = surveyor.names(&key, &mut round).await.unwrap();
        assert_eq!(names, ["a".into()]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_survey_takes_three_requests_per_informer() {
        let (forecast, requests) = survey(10, Duration::ZERO).await;
        // One more request reads the version of the API server.
        assert_eq!((requests, forecast.total.certainty), (31, PlanCertainty::Estimate));
    }

    #[tokio::test(start_paused = true)]
    async fn a_survey_stops_at_512_requests_and_reports_it() {
        let (forecast, requests) = survey(600, Duration::ZERO).await;
        assert!(requests <= REQUESTS + 1, "{requests}");
        assert_eq!(
            (forecast.total.informers, forecast.total.certainty),
            (600, PlanCertainty::LowerBound)
        );
        assert!(forecast.caveats[0].contains("512 requests"), "{:?}", forecast.caveats);
        let began = Instant::now();
        let (_, requests) = survey(600, Duration::from_secs(1)).await;
        assert!(began.elapsed() <= TIME + Duration::from_secs(4) && requests < 200, "{requests}");
    }
}
