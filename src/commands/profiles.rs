//! Lists the profiles of a cluster once, or follows their changes with a watch.

use super::{CommandError, profile_readiness::title};
use futures::StreamExt as _;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, ObjectList},
    runtime::{
        reflector::{self, reflector},
        watcher::{self, Event, watcher},
    },
};
use kubewarm_api::v1alpha1::{self, CacheProfile};
use kubewarm_client::ApiServerConnection;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{convert::Infallible, fmt::Debug, ops::ControlFlow, pin::pin, sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// Interval of lists if the user has no permission to watch profiles. `follow` also calls its
/// callback at this interval while no profile changes, so that printed durations advance.
const POLL: Duration = Duration::from_secs(1);
/// Delay from a failed list of profiles to the next list.
const RETRY: Duration = Duration::from_secs(3);
/// Maximum number of profiles per page of a list. One status with RBAC manifests can have 256 KiB,
/// so a page can have 25 MiB.
const PAGE: u32 = 100;

/// Selects one profile, all profiles of a namespace, or all profiles of the cluster.
#[derive(Clone, Debug)]
pub(super) struct ProfileSelection {
    api: Api<CacheProfile>,
    name: Option<String>,
    place: String,
}

/// The profiles that [`ProfileSelection::follow`] updates, as of the last successful request.
#[derive(Clone, Debug, Default)]
pub(super) struct ProfileListState {
    /// Sorted by namespace and name.
    pub(super) profiles: Vec<CacheProfile>,
    /// Error of the last request, or `None` if that request succeeded. After an error, `profiles`
    /// can be outdated.
    pub(super) trouble: Option<String>,
}

impl ProfileSelection {
    /// Selects the profile `name`. Without a name, selects all profiles of `namespace`, or else of
    /// the namespace in the kubeconfig's current context. This function sends no request.
    pub(super) fn of(
        cluster: &ApiServerConnection,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Self {
        let namespace = namespace.unwrap_or_else(|| cluster.namespace());
        let api = Api::namespaced(cluster.client(), namespace);
        Self { api, name: name.map(str::to_owned), place: namespace.to_owned() }
    }

    pub(super) fn everywhere(cluster: &ApiServerConnection) -> Self {
        let place = "any namespace".to_owned();
        Self { api: Api::all(cluster.client()), name: None, place }
    }

    /// Returns the selection for messages: `NAME -n NAMESPACE` for one profile, or the namespace
    /// for several profiles.
    pub(super) fn title(&self) -> String {
        match &self.name {
            Some(name) => title(name, &self.place),
            None => self.place.clone(),
        }
    }

    fn what(&self) -> String {
        let title = self.title();
        match &self.name {
            Some(_) => format!("CacheProfile {title}"),
            None => format!("CacheProfiles in {title}"),
        }
    }

    /// Returns the message for a selection that contains no profile.
    pub(super) fn nothing(&self) -> String {
        let verb = if self.name.is_some() { "is" } else { "are" };
        format!("there {verb} no {}", self.what())
    }

    /// Returns the error for a selected profile that does not exist.
    pub(super) fn not_found(&self) -> CommandError {
        CommandError::new(format!("{}; `kubewarm status -A` shows all", self.nothing()))
    }

    /// Returns metadata and status of `profiles`, without the spec. The result is one object if the
    /// user named a profile, and otherwise a `v1` List.
    pub(super) fn document(&self, profiles: &[CacheProfile]) -> Value {
        match profiles {
            [profile] if self.name.is_some() => item(profile),
            _ => {
                let items: Vec<_> = profiles.iter().map(item).collect();
                json!({ "apiVersion": "v1", "kind": "List", "items": items })
            }
        }
    }

    /// Reads the profiles, sorted by namespace and name. A profile that does not exist is not an
    /// error.
    ///
    /// # Errors
    ///
    /// [`CommandError`] if a request fails, or if kubewarm's CRD is not installed.
    pub(super) async fn fetch(&self) -> Result<Vec<CacheProfile>, CommandError> {
        let failed = |error| {
            // A list gets 404 only if the API server does not serve CacheProfiles, so the CRD is
            // not installed.
            if is_unknown(&error) {
                return CommandError::not_installed();
            }
            CommandError::of_request(self.what(), error)
        };
        if let Some(name) = &self.name {
            return match self.api.get_opt(name).await {
                // For one object, 404 means that the object or the CRD is missing. The following
                // list returns 404 only if the CRD is missing.
                Ok(None) => match self.api.list(&ListParams::default().limit(1)).await {
                    Err(error) if is_unknown(&error) => Err(CommandError::not_installed()),
                    _ => Ok(Vec::new()),
                },
                Ok(Some(profile)) => Ok(vec![profile]),
                Err(error) => Err(failed(error)),
            };
        }
        let mut profiles = Vec::new();
        let query = ListParams::default().limit(PAGE);
        pages(&self.api, query, |profile| profiles.push(profile)).await.map_err(failed)?;
        Ok(profiles)
    }

    /// Keeps `seen` current with a watch, or with a list every second if the user has no permission
    /// to watch. Calls `each` immediately, after each change and after each second without a
    /// change, until `each` returns `Break`.
    ///
    /// After each error, starts a new watch. kube's watcher would instead repeat a request with an
    /// expired resource version without end.
    pub(super) async fn follow<B>(
        &self,
        seen: &mut ProfileListState,
        mut each: impl FnMut(&ProfileListState) -> ControlFlow<B>,
    ) -> ControlFlow<B, Infallible> {
        each(seen)?;
        let mut can_watch = true;
        loop {
            if can_watch {
                can_watch = self.watch(seen, &mut each).await?;
            }
            let pause = match each_second(self.fetch(), seen, &mut each).await? {
                Ok(profiles) => {
                    *seen = ProfileListState { profiles, trouble: None };
                    POLL
                }
                Err(error) => {
                    let trouble = std::error::Error::source(&error)
                        .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
                    seen.trouble = Some(trouble);
                    RETRY
                }
            };
            each(seen)?;
            each_second(sleep(pause), seen, &mut each).await?;
        }
    }

    /// Watches the selected profiles until the first error. Returns false if the API server rejects
    /// the watch with 401, 403 or 405.
    async fn watch<B>(
        &self,
        seen: &mut ProfileListState,
        each: &mut impl FnMut(&ProfileListState) -> ControlFlow<B>,
    ) -> ControlFlow<B, bool> {
        let mut config = watcher::Config::default().page_size(PAGE);
        if let Some(name) = &self.name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        let (store, writer) = reflector::store();
        let mut events = pin!(reflector(writer, watcher(self.api.clone(), config)));
        loop {
            match each_second(events.next(), seen, each).await? {
                Some(Ok(Event::Init | Event::InitApply(_))) => {}
                Some(Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_))) => {
                    let mut profiles: Vec<_> =
                        store.state().into_iter().map(Arc::unwrap_or_clone).collect();
                    profiles.sort_by_key(|profile: &CacheProfile| {
                        (profile.namespace(), profile.name_any())
                    });
                    *seen = ProfileListState { profiles, trouble: None };
                    each(seen)?;
                }
                Some(Err(error)) => return ControlFlow::Continue(!is_refused(&error)),
                None => return ControlFlow::Continue(true),
            }
        }
    }
}

/// Waits for `work`, and calls `each` every second until `work` is complete. Returns early if
/// `each` returns `Break`.
async fn each_second<B, T>(
    work: impl Future<Output = T>,
    seen: &ProfileListState,
    each: &mut impl FnMut(&ProfileListState) -> ControlFlow<B>,
) -> ControlFlow<B, T> {
    let mut work = pin!(work);
    loop {
        match timeout(POLL, &mut work).await {
            Ok(output) => return ControlFlow::Continue(output),
            Err(_) => each(seen)?,
        }
    }
}

/// Lists objects page by page and calls `each` for each object.
pub(super) async fn pages<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    mut page: ListParams,
    mut each: impl FnMut(K),
) -> Result<(), kube::Error> {
    loop {
        let ObjectList { metadata, items, .. } = api.list(&page).await?;
        items.into_iter().for_each(&mut each);
        match metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}

fn item(profile: &CacheProfile) -> Value {
    let metadata = &profile.metadata;
    json!({
        "apiVersion": format!("{}/{}", v1alpha1::GROUP, v1alpha1::VERSION),
        "kind": "CacheProfile",
        "metadata": {
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
            "generation": metadata.generation,
        },
        "status": profile.status,
    })
}

fn is_unknown(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn is_refused(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            matches!(status.code, 401 | 403 | 405)
        }
        watcher::Error::WatchError(status) => matches!(status.code, 401 | 403 | 405),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test(start_paused = true)]
    async fn the_callback_runs_every_second_while_a_request_hangs() {
        let seen = ProfileListState { profiles: Vec::new(), trouble: None };
        let mut calls = 0;
        let mut each = |_: &ProfileListState| {
            calls += 1;
            if calls < 60 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let began = tokio::time::Instant::now();
        let broken = each_second(pending::<()>(), &seen, &mut each).await;
        assert_eq!(broken, ControlFlow::Break(()));
        assert_eq!((calls, began.elapsed()), (60, Duration::from_mins(1)));
    }
}
