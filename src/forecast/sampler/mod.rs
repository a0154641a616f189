//! Samples the objects that each informer of a profile would list. The requests use the informer's
//! identity. Constants limit their number, rate and total time.

#[cfg(test)]
mod tests;

use super::{
    accepted,
    cost_forecast::{InformerSample, ListSpeed, ProfileForecast, dictionary_key, forecast},
};
use kubewarm_api::{
    model::{
        DecodedObject, FaultReason, Identity, InformerKey, InformerSpec, ObjectEncoding,
        Projection, RequestFault, ResolvedProfile, Resource, Verb,
    },
    v1alpha1::PlanCertainty,
};
use kubewarm_cache::{
    informer::{
        AccessCheckResult, AccessDecision, InformerTiming, ListMethodSupport, SamplePage,
        SamplePageError, SampleProjection, SampleRequest, check_access, fetch_sample_page,
    },
    store::{DictionaryKey, ObjectSample},
};
use kubewarm_client::{ClientProvider, NamespaceBuckets, is_terminating};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// Number of objects that kubewarm requests in the first page of an informer's sample. The first
/// page is small, because kubewarm does not know the objects' sizes yet.
const FIRST: u32 = 20;
/// Maximum number of sampled objects per kind. This number is enough to train the compression
/// dictionary that all objects of a kind share.
const OBJECTS: usize = 1_000;
/// Maximum total size of the sampled objects of one kind, in bytes, which bounds the sampler's
/// memory.
const BYTES: usize = 8 << 20;
/// Page size of the lists that only count objects. These lists request only metadata.
const COUNTED: u32 = 500;
/// Maximum number of pages that count the objects of one informer. 40 pages have 20,000 objects.
/// kubewarm counts pages only for lists with selectors. Without selectors, the first page contains
/// the number of remaining objects.
const PAGES: u32 = 40;
/// Maximum number of requests to the API server for one profile's sample, which bounds the load by
/// one profile. It is enough for 100 informers.
const REQUESTS: u32 = 512;
const ACCESS_CHECK_REQUESTS: u32 = 3;
/// Time limit for sampling the objects of one profile, after which other profiles can start.
const TIME: Duration = Duration::from_mins(3);

pub struct ForecastSampler {
    clients: Arc<dyn ClientProvider>,
    strategies: ListMethodSupport,
    request_pause: Duration,
    buckets: NamespaceBuckets,
    /// Whether kubewarm runs an access check (a list and a watch) for each informer, to find
    /// missing permissions. A sample list alone does not check `watch`.
    has_access_checks: bool,
}

/// The sampled objects of one profile, and the requests and the time that the profile's sample may
/// still use.
pub(super) struct ProfileSample {
    /// The profile's namespace. The requests for samples count against the rate limit of this
    /// namespace.
    payer: Arc<str>,
    requests: u32,
    until: Instant,
    objects: ObjectSample,
    /// Number and total size in bytes of the sampled objects, by kind.
    sampled: BTreeMap<DictionaryKey, (usize, usize)>,
    /// Resources of built-in groups that kubewarm requests in JSON, because the field tables lack
    /// the kind or a field.
    json_resources: BTreeSet<Resource>,
}

impl ForecastSampler {
    /// Creates a sampler that waits for `request_pause` and for the rate limit of the profile's
    /// namespace before each request.
    pub fn new(
        clients: Arc<dyn ClientProvider>,
        request_pause: Duration,
        buckets: NamespaceBuckets,
    ) -> Self {
        let operator = clients.client_for(&Identity::Operator);
        Self {
            clients,
            strategies: ListMethodSupport::new(&operator, &InformerTiming::default()),
            request_pause,
            buckets,
            has_access_checks: true,
        }
    }

    /// Disables access checks, for a command that sends requests with its user's identity instead
    /// of the informers' identities.
    pub fn without_access_checks(self) -> Self {
        Self { has_access_checks: false, ..self }
    }

    /// Subtracts `requests` from the profile's remaining requests. Then waits `request_pause` for
    /// each request, and for the rate limit of the profile's namespace.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Throttled`] if fewer than `requests` requests remain or the time limit for
    /// the profile's sample has passed.
    async fn start_requests(
        &self,
        requests: u32,
        sample: &mut ProfileSample,
    ) -> Result<(), RequestFault> {
        if !sample.take_requests(requests) {
            return Err(requests_exhausted());
        }
        sleep(self.request_pause * requests).await;
        let count = usize::try_from(requests).unwrap_or(usize::MAX);
        self.buckets.take(&sample.payer, count).await;
        Ok(())
    }

    /// Returns the namespaces that a namespace selector matches, except namespaces whose deletion
    /// has started.
    ///
    /// # Errors
    ///
    /// Returns the [`RequestFault`] of a page, [`FaultReason::TooLarge`] for more than 20,000
    /// names, or [`FaultReason::Throttled`] if no requests remain.
    pub(super) async fn names(
        &self,
        selector: &InformerKey,
        sample: &mut ProfileSample,
    ) -> Result<Vec<Arc<str>>, RequestFault> {
        let client = self.clients.client_for(&selector.identity);
        let mut names = Vec::new();
        let mut token = String::new();
        for _ in 0..PAGES {
            self.start_requests(1, sample).await?;
            let page = SampleRequest {
                projection: SampleProjection::Metadata,
                limit: COUNTED,
                token: &token,
                can_use_protobuf: false,
            };
            let name = |_, item: &DecodedObject<'_>| {
                if !is_terminating(item.body) {
                    names.push(Arc::from(&*item.name));
                }
            };
            token = fetch_sample_page(&client, selector, page, name).await?.token;
            if token.is_empty() {
                return Ok(names);
            }
        }
        Err(RequestFault::new(FaultReason::TooLarge, "the selector matches too many namespaces"))
    }

    /// Samples the objects of every informer of `profile`. The caveats of the forecast name
    /// informers whose cost is unknown.
    ///
    /// # Cost
    ///
    /// Sends three to five requests per informer, and up to 40 more for an informer with selectors.
    /// Sends one more request for a resource of a built-in group that is unreadable in protobuf.
    /// Sends at most 512 requests in total, the last one within 3 minutes. Until the function
    /// returns, up to 1,000 compressed objects of each kind are in memory.
    pub async fn forecast(&self, profile: &ResolvedProfile) -> ProfileForecast {
        self.forecast_from(profile, ProfileSample::of(profile)).await
    }

    pub(super) async fn forecast_from(
        &self,
        profile: &ResolvedProfile,
        mut sample: ProfileSample,
    ) -> ProfileForecast {
        let mut samples = BTreeMap::new();
        let selectors = accepted(profile).filter_map(|target| target.namespaces.as_ref());
        let informers = accepted(profile).flat_map(|target| &*target.informers);
        for spec in selectors.chain(informers) {
            if !samples.contains_key(&spec.key) {
                samples.insert(spec.key.clone(), self.informer(spec, &mut sample).await);
            }
        }
        // Measuring the sampled objects trains compression dictionaries, which takes long. A
        // blocking-pool thread does it, so that no async thread is blocked.
        let objects = sample.objects;
        let weights = tokio::task::spawn_blocking(move || objects.measure()).await;
        forecast(profile, &samples, &weights.unwrap_or_default())
    }

    async fn informer(&self, spec: &InformerSpec, sample: &mut ProfileSample) -> InformerSample {
        let method = self.strategies.choose_first(spec).await;
        let mut result = InformerSample {
            objects: 0,
            certainty: PlanCertainty::Estimate,
            method,
            speed: None,
            refused: BTreeSet::new(),
            problem: None,
        };
        if let Err(fault) = self.list(spec, sample, &mut result).await {
            result.note_lower_bound(fault.to_string());
        }
        let is_whole = matches!(spec.key.projection, Projection::Full(_));
        if is_whole && spec.key.resource.group_resource().is_secrets() {
            let text = "the payload of secrets is not sampled, so memory is a lower bound";
            result.note_lower_bound(text.to_owned());
        }
        if self.has_access_checks
            && self.start_requests(ACCESS_CHECK_REQUESTS, sample).await.is_ok()
        {
            let client = self.clients.client_for(&spec.key.identity);
            let AccessCheckResult { list, watch, .. } = check_access(&client, spec).await;
            for (verb, answer) in [(Verb::List, list), (Verb::Watch, watch)] {
                if let AccessDecision::Refused(_) = answer {
                    result.refused.insert(verb);
                    // The forecast reports missing permissions in a field of their own. So the
                    // caveats need not repeat the 403 of the sample list.
                    result.problem = None;
                }
            }
        }
        result
    }

    /// Counts the informer's objects, and adds the first objects to the sample.
    async fn list(
        &self,
        spec: &InformerSpec,
        sample: &mut ProfileSample,
        result: &mut InformerSample,
    ) -> Result<(), RequestFault> {
        let missing = sample.missing_samples(&spec.key);
        let (projection, limit) = match missing {
            0 => (SampleProjection::Metadata, 1),
            _ => (SampleProjection::AsDeclared, FIRST),
        };
        let mut page = self.page(spec, projection, limit, "", sample).await?;
        result.note_page(&page, projection);
        if missing > 0 && !page.token.is_empty() {
            let missing = sample.missing_samples(&spec.key).min(COUNTED);
            if missing > 0 {
                let token = std::mem::take(&mut page.token);
                page =
                    self.page(spec, SampleProjection::AsDeclared, missing, &token, sample).await?;
                result.note_page(&page, SampleProjection::AsDeclared);
            }
        }
        for _ in 0..PAGES {
            if let Some(remaining) = page.remaining {
                result.objects = result.objects.saturating_add(remaining);
                return Ok(());
            }
            let token = std::mem::take(&mut page.token);
            page = self.page(spec, SampleProjection::Metadata, COUNTED, &token, sample).await?;
            result.note_page(&page, SampleProjection::Metadata);
        }
        result.note_lower_bound(format!("more than {} objects with a selector", result.objects));
        Ok(())
    }

    async fn page(
        &self,
        spec: &InformerSpec,
        projection: SampleProjection,
        limit: u32,
        token: &str,
        sample: &mut ProfileSample,
    ) -> Result<SamplePage, RequestFault> {
        let client = self.clients.client_for(&spec.key.identity);
        loop {
            self.start_requests(1, sample).await?;
            let can_use_protobuf = !sample.json_resources.contains(&spec.key.resource);
            let page = SampleRequest { projection, limit, token, can_use_protobuf };
            let keep = |encoding: ObjectEncoding, item: &DecodedObject<'_>| {
                if projection == SampleProjection::AsDeclared {
                    sample.add_sample(spec, encoding, item);
                }
            };
            match fetch_sample_page(&client, &spec.key, page, keep).await {
                Err(SamplePageError::NeedsJson) => {}
                Err(SamplePageError::Fault(fault)) => return Err(fault),
                Ok(page) => return Ok(page),
            }
            // The informers would list the whole resource in JSON, so a sample in protobuf does not
            // predict its cost.
            sample.sampled.retain(|(resource, _), _| *resource != spec.key.resource);
            sample.objects.remove(&spec.key.resource);
            sample.json_resources.insert(spec.key.resource.clone());
        }
    }
}

fn requests_exhausted() -> RequestFault {
    let minutes = TIME.as_secs() / 60;
    let text = format!(
        "the sample is incomplete: one profile gets at most {REQUESTS} requests and {minutes} minutes"
    );
    RequestFault::new(FaultReason::Throttled, text)
}

impl ProfileSample {
    pub(super) fn of(profile: &ResolvedProfile) -> Self {
        Self {
            payer: Arc::clone(&profile.profile.namespace),
            requests: REQUESTS,
            until: Instant::now() + TIME,
            objects: ObjectSample::default(),
            sampled: BTreeMap::new(),
            json_resources: BTreeSet::new(),
        }
    }

    fn take_requests(&mut self, count: u32) -> bool {
        let left = self.requests.checked_sub(count).filter(|_| Instant::now() < self.until);
        self.requests = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns how many more objects of the informer's kind kubewarm must sample to reach the
    /// maximum number (`OBJECTS`) or size (`BYTES`) of sampled objects.
    fn missing_samples(&self, key: &InformerKey) -> u32 {
        let (objects, bytes) = self.sampled.get(&dictionary_key(key)).copied().unwrap_or_default();
        let by_size = BYTES.saturating_sub(bytes) / bytes.checked_div(objects).unwrap_or(1).max(1);
        u32::try_from(OBJECTS.saturating_sub(objects).min(by_size)).unwrap_or(0)
    }

    fn add_sample(
        &mut self,
        spec: &InformerSpec,
        encoding: ObjectEncoding,
        item: &DecodedObject<'_>,
    ) {
        let (objects, bytes) = self.sampled.entry(dictionary_key(&spec.key)).or_default();
        if *bytes < BYTES {
            *objects += 1;
            *bytes += item.body.len();
            self.objects.add(spec, encoding, item);
        }
    }
}

impl InformerSample {
    fn note_page(&mut self, page: &SamplePage, projection: SampleProjection) {
        self.objects = self.objects.saturating_add(page.objects);
        let latency = self.speed.map_or(page.headers, |speed| speed.latency.min(page.headers));
        let known = self.speed.unwrap_or_default();
        let largest = match projection {
            SampleProjection::AsDeclared if page.objects >= known.objects => {
                ListSpeed { objects: page.objects, took: page.took, headers: page.headers, ..known }
            }
            SampleProjection::AsDeclared | SampleProjection::Metadata => known,
        };
        self.speed = Some(ListSpeed { latency, ..largest });
    }

    fn note_lower_bound(&mut self, problem: String) {
        self.certainty = PlanCertainty::LowerBound;
        self.problem = Some(problem);
    }
}
