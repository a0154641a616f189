//! Looks up kinds in discovery, and looks up custom resources in their `CustomResourceDefinition`s
//! too.

use super::kind_info::KindInfo;
use futures::future::{BoxFuture, FutureExt as _};
use kube::{Client, CustomResourceExt as _};
use kubewarm_api::{
    model::{FaultReason, GroupResource, RequestFault, Resource},
    v1alpha1::{self, CacheProfile},
};
use kubewarm_client::{
    CacheEntry, CrdInfo, ExpiringCache, ServedResources, fetch_crd, is_builtin_group,
};
use parking_lot::Mutex;
use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};
use tokio::{runtime::Handle, sync::watch};

/// How long kubewarm uses a fetched `CustomResourceDefinition` before it fetches the definition
/// again, so that changed fields and columns take effect after about this time. For the same time,
/// kubewarm caches that a kind has no `CustomResourceDefinition`, or that the API server forbids
/// the fetch.
const TTL: Duration = Duration::from_mins(1);
/// For this time after `TTL`, reads still use an expired `CustomResourceDefinition` while kubewarm
/// fetches the definition again. After this time, reads wait for the fetch.
const MAX_STALE: Duration = Duration::from_mins(5);
/// The maximum number of cached definitions.
const MAX_CACHED: u64 = 1_024;

type CrdFetcher = Arc<
    dyn Fn(GroupResource) -> BoxFuture<'static, Result<Option<CrdInfo>, RequestFault>>
        + Send
        + Sync,
>;
type CrdCache = ExpiringCache<GroupResource, Option<Arc<CrdInfo>>>;

/// Looks up kinds, and caches their definitions.
pub struct KindResolver {
    fetch_crd_of: CrdFetcher,
    served: watch::Receiver<Option<Arc<ServedResources>>>,
    /// The API groups of `--serve-aggregated-groups`, whose kinds kubewarm serves without a
    /// `CustomResourceDefinition`.
    aggregated: BTreeSet<String>,
    /// The runtime that fetches `CustomResourceDefinition`s. Several requests can share a fetch, so
    /// it must continue when the server thread of the first request ends.
    runtime: Handle,
    /// Cached `CustomResourceDefinition`s, with the discovery snapshot from which kubewarm looked
    /// them up. When discovery has a new snapshot, an empty cache replaces this cache, because a
    /// changed definition can be the reason for the new snapshot.
    definitions: Mutex<Option<(Arc<ServedResources>, CrdCache)>>,
    /// The definition of the CacheProfile kind itself.
    own_definition: Option<Arc<CrdInfo>>,
}

impl KindResolver {
    /// Creates a resolver that looks up kinds in the latest discovery snapshot of `served`. The
    /// resolver fetches `CustomResourceDefinition`s with `client` on `runtime`. kubewarm serves
    /// kinds of the API groups `aggregated` although these kinds have no
    /// `CustomResourceDefinition`.
    pub fn new(
        client: Client,
        served: watch::Receiver<Option<Arc<ServedResources>>>,
        aggregated: &[String],
        runtime: Handle,
    ) -> Self {
        let fetch_crd_of: CrdFetcher = Arc::new(move |resource| {
            let client = client.clone();
            async move { fetch_crd(&client, &resource).await }.boxed()
        });
        Self::with_fetcher(fetch_crd_of, served, aggregated, runtime)
    }

    fn with_fetcher(
        fetch_crd_of: CrdFetcher,
        served: watch::Receiver<Option<Arc<ServedResources>>>,
        aggregated: &[String],
        runtime: Handle,
    ) -> Self {
        let aggregated = aggregated.iter().cloned().collect();
        let (definitions, own_definition) = (Mutex::default(), own_definition());
        Self { fetch_crd_of, served, aggregated, runtime, definitions, own_definition }
    }

    /// Returns the description of a kind. `None` if discovery does not list the kind, or if
    /// kubewarm must not serve the kind: an aggregated API can hide objects from some callers.
    /// kubewarm recognizes kinds of aggregated APIs because they have no
    /// `CustomResourceDefinition`.
    ///
    /// # Errors
    ///
    /// [`RequestFault`] if discovery is not complete yet, or kubewarm cannot fetch the
    /// `CustomResourceDefinition`.
    pub(super) async fn resolve(
        &self,
        resource: &Resource,
    ) -> Result<Option<KindInfo>, RequestFault> {
        let (served, definitions) = self.now()?;
        let Some(document) = served.get(resource).cloned() else { return Ok(None) };
        let definition = match resource.group() {
            group if is_builtin_group(group) => {
                return Ok(Some(KindInfo { document, definition: None }));
            }
            // kubewarm contains the `CustomResourceDefinition` of its own kind CacheProfile, so it
            // needs no permission to fetch this definition.
            v1alpha1::GROUP => self.own_definition.clone(),
            _ => self.definition(resource, &definitions).await?,
        };
        // A definition without this version does not describe the kind: an aggregated API server
        // can serve a further version of a kind that has a `CustomResourceDefinition`.
        let definition =
            definition.filter(|definition| definition.fields.contains_key(resource.version()));
        let is_served = definition.is_some() || self.aggregated.contains(resource.group());
        Ok(is_served.then_some(KindInfo { document, definition }))
    }

    /// Returns the resources in `declared` that the API server serves, in the order of the API
    /// server's discovery.
    ///
    /// # Errors
    ///
    /// [`RequestFault`] if discovery is not complete yet.
    pub(super) fn order(
        &self,
        declared: &BTreeSet<&Resource>,
    ) -> Result<Vec<Resource>, RequestFault> {
        let (served, _) = self.now()?;
        let all = served.resources().map(|info| &info.resource);
        Ok(all.filter(|resource| declared.contains(resource)).cloned().collect())
    }

    fn now(&self) -> Result<(Arc<ServedResources>, CrdCache), RequestFault> {
        let mut cached = self.definitions.lock();
        let unknown =
            || RequestFault::new(FaultReason::Unreachable, "discovery has not answered yet");
        let served = self.served.borrow().clone().ok_or_else(unknown)?;
        if let Some((snapshot, definitions)) = &*cached
            && Arc::ptr_eq(snapshot, &served)
        {
            return Ok((served, definitions.clone()));
        }
        let definitions = CrdCache::new(MAX_CACHED, TTL);
        *cached = Some((Arc::clone(&served), definitions.clone()));
        Ok((served, definitions))
    }

    /// Returns a kind's `CustomResourceDefinition` from the cache, or fetches it. If the cached
    /// definition has expired, kubewarm fetches it again, and reads use the expired definition for
    /// up to `MAX_STALE`.
    async fn definition(
        &self,
        resource: &Resource,
        definitions: &CrdCache,
    ) -> Result<Option<Arc<CrdInfo>>, RequestFault> {
        let key = resource.group_resource();
        let known = definitions.get_stale(key);
        let last = known.clone();
        let fetch = || fetch(Arc::clone(&self.fetch_crd_of), resource.clone(), last);
        let fetching = definitions.get_or_fetch(&self.runtime, key.clone(), None, fetch);
        let mut fetching = pin!(fetching);
        let entry = match fetching.as_mut().now_or_never() {
            Some(result) => result?,
            None => match known.filter(|entry| entry.requested_at.elapsed() < TTL + MAX_STALE) {
                Some(known) => known,
                None => fetching.await?,
            },
        };
        Ok(entry.value)
    }
}

/// Fetches a kind's `CustomResourceDefinition`. If the API server forbids the fetch, returns
/// `None`, and kubewarm treats the kind as one of an aggregated API. If the fetch fails for a
/// different reason, returns `last`, the expired definition, so that reads continue during an
/// outage.
async fn fetch(
    fetch_crd_of: CrdFetcher,
    resource: Resource,
    last: Option<CacheEntry<Option<Arc<CrdInfo>>>>,
) -> Result<Option<Arc<CrdInfo>>, RequestFault> {
    match fetch_crd_of(resource.group_resource().clone()).await {
        Ok(definition) => Ok(definition.map(Arc::new)),
        Err(fault) if fault.reason() == FaultReason::Forbidden => {
            tracing::warn!(
                %resource, %fault, "kubewarm may not read the CustomResourceDefinition, so it treats the kind as \
                 one of an aggregated API and does not serve it; name the group in --serve-aggregated-groups"
            );
            Ok(None)
        }
        Err(fault) => last.map(|entry| entry.value).ok_or(fault),
    }
}

/// The `CustomResourceDefinition` of the kind CacheProfile. kubewarm builds the definition from
/// constants, so `None` cannot occur.
fn own_definition() -> Option<Arc<CrdInfo>> {
    let applied = serde_json::to_value(CacheProfile::crd()).ok()?;
    let resource = GroupResource::new(v1alpha1::GROUP, "cacheprofiles").ok()?;
    CrdInfo::of(applied, &resource).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::{join_all, ready};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use tokio::{
        task::yield_now,
        time::{Instant, advance, sleep},
    };

    /// Looks up the resource `cacheprofiles` of the API group `group`. The fake API server has no
    /// `CustomResourceDefinition` of the resource.
    async fn served(group: &str, aggregated: &[&str]) -> Option<KindInfo> {
        let resource_name = GroupResource::new(group, "cacheprofiles").unwrap();
        let resource = Resource::new(resource_name, "v1alpha1").unwrap();
        let snapshot = ServedResources::with_resource(&resource, "CacheProfile");
        let (_discovery, now) = watch::channel(Some(Arc::new(snapshot)));
        let fetch_crd_of: CrdFetcher = Arc::new(|_| ready(Ok(None)).boxed());
        let aggregated: Vec<_> = aggregated.iter().map(|&group| group.to_owned()).collect();
        let kinds = KindResolver::with_fetcher(fetch_crd_of, now, &aggregated, Handle::current());
        kinds.resolve(&resource).await.unwrap()
    }

    /// Looks up the `CustomResourceDefinition` of one resource in a fake API server. A test can
    /// change the server's response and its delay, and read the number of requests.
    struct Resolution {
        kinds: KindResolver,
        resource: Resource,
        times: Arc<AtomicUsize>,
        answers: Arc<Mutex<Result<Option<CrdInfo>, RequestFault>>>,
        breaks_off: Arc<AtomicBool>,
        delay: Arc<Mutex<Duration>>,
        served: watch::Sender<Option<Arc<ServedResources>>>,
    }

    impl Resolution {
        fn new() -> Self {
            let resource =
                Resource::new(GroupResource::new("example.com", "widgets").unwrap(), "v1").unwrap();
            let snapshot = Arc::new(ServedResources::with_resource(&resource, "Widget"));
            let (served, now) = watch::channel(Some(snapshot));
            let times = Arc::new(AtomicUsize::new(0));
            let list_kind = "Widgets".into();
            let fields = [("v1".into(), [].into())].into();
            let known = CrdInfo { list_kind, fields, ..CrdInfo::default() };
            let answers = Arc::new(Mutex::new(Ok(Some(known))));
            let (counted, fields) = (Arc::clone(&times), Arc::clone(&answers));
            let breaks_off = Arc::new(AtomicBool::new(false));
            let delay = Arc::new(Mutex::new(Duration::from_secs(1)));
            let (breaks, lasts) = (Arc::clone(&breaks_off), Arc::clone(&delay));
            let fetch_crd_of: CrdFetcher = Arc::new(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                assert!(!breaks.load(Ordering::Relaxed), "the fetch panics");
                let (answer, delay) = (fields.lock().clone(), *lasts.lock());
                async move {
                    sleep(delay).await;
                    answer
                }
                .boxed()
            });
            let kinds = KindResolver::with_fetcher(fetch_crd_of, now, &[], Handle::current());
            Self { kinds, resource, times, answers, breaks_off, delay, served }
        }

        fn discover(&self) {
            self.served.send_replace(Some(Arc::new(ServedResources::with_resource(
                &self.resource,
                "Widget",
            ))));
        }

        /// Returns whether the lookup found the `CustomResourceDefinition`, how long the lookup
        /// took, and the number of requests to the fake API server so far.
        async fn resolve(&self) -> (Result<bool, FaultReason>, Duration, usize) {
            let began = Instant::now();
            let kind = self.kinds.resolve(&self.resource).await;
            let is_widgets =
                kind.map(|kind| kind.is_some_and(|kind| *kind.list_kind() == *"Widgets"));
            let result = is_widgets.map_err(|fault| fault.reason());
            let took = began.elapsed();
            // A spawned task fetches the expired definition again. The yield lets this task send
            // its request.
            yield_now().await;
            (result, took, self.times.load(Ordering::Relaxed))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_serves_all_and_a_refresh_delays_no_reader() {
        let request = Resolution::new();
        let second = Duration::from_secs(1);
        for result in join_all((0..50).map(|_| request.resolve())).await {
            assert_eq!(result, (Ok(true), second, 1));
        }
        advance(TTL).await;
        *request.answers.lock() = Err(RequestFault::new(FaultReason::Unreachable, "away"));
        for _ in 0..50 {
            assert_eq!(
                request.resolve().await,
                (Ok(true), Duration::ZERO, 2),
                "a refresh is in progress"
            );
        }
        sleep(2 * second).await;
        assert_eq!(request.resolve().await.2, 2, "no immediate retry");
        sleep(TTL).await;
        assert_eq!(request.resolve().await, (Ok(true), Duration::ZERO, 3));
        *request.answers.lock() = Ok(None);
        sleep(2 * TTL).await;
        assert_eq!(request.resolve().await, (Ok(true), Duration::ZERO, 4));
        sleep(2 * second).await;
        assert_eq!(
            request.resolve().await,
            (Ok(false), Duration::ZERO, 4),
            "the new answer is in use"
        );
        sleep(TTL + MAX_STALE).await;
        assert_eq!(
            request.resolve().await,
            (Ok(false), second, 5),
            "an expired answer is not used"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_the_definition_does_not_serve_is_aggregated() {
        let request = Resolution::new();
        *request.answers.lock() =
            Ok(Some(CrdInfo { fields: [("v2".into(), [].into())].into(), ..CrdInfo::default() }));
        assert_eq!(request.kinds.resolve(&request.resource).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_panics_is_repeated() {
        let request = Resolution::new();
        request.breaks_off.store(true, Ordering::Relaxed);
        assert!(request.resolve().await.0.is_err());
        request.breaks_off.store(false, Ordering::Relaxed);
        assert_eq!(request.resolve().await, (Ok(true), Duration::from_secs(1), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_discovery_snapshot_discards_cached_definitions() {
        let request = Resolution::new();
        let second = Duration::from_secs(1);
        assert_eq!(request.resolve().await, (Ok(true), second, 1));
        request.discover();
        *request.answers.lock() = Err(RequestFault::new(FaultReason::Unreachable, "away"));
        for times in [2, 3] {
            assert_eq!(request.resolve().await, (Err(FaultReason::Unreachable), second, times));
        }
        *request.answers.lock() = Ok(None);
        for (first, times) in [(second, 5), (3 * second, 7)] {
            *request.delay.lock() = first;
            let (result, ()) = tokio::join!(request.resolve(), async {
                sleep(second / 2).await;
                *request.delay.lock() = second;
                request.discover();
                assert_eq!(request.resolve().await, (Ok(false), second, times));
            });
            assert_eq!(result.0, Ok(false));
            let again = request.resolve().await;
            assert_eq!(again, (Ok(false), Duration::ZERO, times), "the newer snapshot is in use");
            request.discover();
        }
    }

    #[tokio::test]
    async fn kinds_of_aggregated_apis_are_served_only_in_named_groups() {
        assert!(served("metrics.x", &[]).await.is_none());
        assert!(served("metrics.x", &["x", "other.x", "metrics.x.y"]).await.is_none());
        let aggregated = served("metrics.x", &["other.x", "metrics.x"]).await.unwrap();
        assert!(aggregated.definition.is_none() && *aggregated.list_kind() == *"CacheProfileList");
        let built_in = served(v1alpha1::GROUP, &[v1alpha1::GROUP]).await.unwrap();
        assert!(built_in.definition.is_some(), "the built-in definition has priority");
        assert_eq!(&*built_in.list_kind(), "CacheProfileList");
    }
}
