//! Profiles of a cluster: read once, or followed.

use super::{Error, cluster::ConnectionArgs};
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
use kubewarm_client::Connection;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{fmt::Debug, pin::pin, sync::Arc, time::Duration};
use tokio::sync::watch;

/// How often a cluster is asked that does not let us watch.
const POLL: Duration = Duration::from_secs(1);
/// Between attempts while it does not answer at all.
const RETRY: Duration = Duration::from_secs(3);
/// Profiles a page; a status with manifests can have 256 KiB.
const PAGE: u32 = 100;

/// Where profiles are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// A namespace; `None`: that of the context.
    Namespace(Option<&'a str>),
    /// All of them.
    Everywhere,
}

/// Some profiles of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Profiles {
    api: Api<CacheProfile>,
    name: Option<String>,
    place: String,
}

/// What has been seen while following.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// In the order of namespace and name.
    pub(super) profiles: Vec<CacheProfile>,
    /// Why that may not be the newest state.
    pub(super) trouble: Option<String>,
}

impl Profiles {
    /// Finds the cluster; asks nothing yet.
    pub(super) fn connect(
        connection: &ConnectionArgs,
        place: &Place<'_>,
        name: Option<&str>,
    ) -> Result<Self, Error> {
        Ok(Self::of(&connection.connect()?, place, name))
    }

    /// Those of a cluster that is found already.
    pub(super) fn of(cluster: &Connection, place: &Place<'_>, name: Option<&str>) -> Self {
        let client = cluster.client();
        let (api, place) = match place {
            Place::Everywhere => (Api::all(client), "any namespace".to_owned()),
            Place::Namespace(namespace) => {
                let namespace = namespace.unwrap_or(cluster.namespace());
                (Api::namespaced(client, namespace), namespace.to_owned())
            }
        };
        Self { api, name: name.map(str::to_owned), place }
    }

    /// `namespace/name`, or the place, for messages.
    pub(super) fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}", self.place),
            None => self.place.clone(),
        }
    }

    /// That there is none, for a person.
    pub(super) fn nothing(&self) -> String {
        match &self.name {
            Some(_) => format!("there is no CacheProfile {}", self.title()),
            None => format!("there are no CacheProfiles in {}", self.place),
        }
    }

    /// The status of `profiles`, each with what identifies it; a `v1` List unless one was asked for.
    pub(super) fn document(&self, profiles: &[CacheProfile]) -> Value {
        match profiles {
            [profile] if self.name.is_some() => item(profile),
            _ => {
                let items: Vec<_> = profiles.iter().map(item).collect();
                json!({ "apiVersion": "v1", "kind": "List", "items": items })
            }
        }
    }

    /// Reads the profiles now, in the order of namespace and name. One that was asked for by name
    /// and does not exist is no error here.
    pub(super) async fn fetch(&self) -> Result<Vec<CacheProfile>, Error> {
        let failed = |error| {
            // The path itself is unknown: not even the group is served.
            if is_unknown(&error) {
                return Error::not_installed();
            }
            Error::of_request(self.what(), error)
        };
        if let Some(name) = &self.name {
            return match self.api.get_opt(name).await {
                // 404 may mean that the kind is unknown; only a list tells.
                Ok(None) => match self.api.list(&ListParams::default().limit(1)).await {
                    Err(error) if is_unknown(&error) => Err(Error::not_installed()),
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

    /// Keeps `seen` current, for ever: by a watch, or by asking once a second where that is not
    /// allowed.
    ///
    /// A watch is given up at its first error and begun anew: the one of kube asks for ever for a
    /// version that the server has told it is gone.
    pub(super) async fn follow(&self, seen: &watch::Sender<Seen>) {
        let mut may_watch = true;
        loop {
            if may_watch {
                may_watch = self.watch(seen).await;
            }
            let pause = match self.fetch().await {
                Ok(profiles) => {
                    seen.send_replace(Seen { profiles, trouble: None });
                    POLL
                }
                Err(error) => {
                    let trouble = std::error::Error::source(&error)
                        .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
                    seen.send_modify(|seen| seen.trouble = Some(trouble));
                    RETRY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Watches until the first error; whether it makes sense to try again.
    async fn watch(&self, seen: &watch::Sender<Seen>) -> bool {
        let mut config = watcher::Config::default().page_size(PAGE);
        if let Some(name) = &self.name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        let (store, writer) = reflector::store();
        let mut events = pin!(reflector(writer, watcher(self.api.clone(), config)));
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init | Event::InitApply(_)) => {}
                Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {
                    let mut profiles: Vec<_> =
                        store.state().into_iter().map(Arc::unwrap_or_clone).collect();
                    profiles.sort_by_key(|profile: &CacheProfile| {
                        (profile.namespace(), profile.name_any())
                    });
                    seen.send_replace(Seen { profiles, trouble: None });
                }
                Err(error) => return !is_refused(&error),
            }
        }
        true
    }

    fn what(&self) -> String {
        match &self.name {
            Some(_) => format!("CacheProfile {}", self.title()),
            None => format!("CacheProfiles in {}", self.place),
        }
    }
}

/// Lists page by page, and hands over each object.
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
