//! Profiles of a cluster: read once, or followed.

use super::{Error, print::Shape};
use crate::{api::CacheProfile, cli::ConnectionArgs, cluster::Connection};
use futures::StreamExt as _;
use kube::{
    Api,
    api::ListParams,
    runtime::watcher::{self, Event, watcher},
};
use std::{collections::BTreeMap, pin::pin, time::Duration};
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
        let cluster =
            Connection::load(connection.kubeconfig.as_deref(), connection.context.as_deref())?;
        Ok(Self::of(&cluster, place, name))
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

    /// Whether one profile was asked for.
    pub(super) fn shape(&self) -> Shape {
        if self.name.is_some() { Shape::One } else { Shape::List }
    }

    /// Reads the profiles now, in the order of namespace and name. One that was asked for by name
    /// and does not exist is no error here.
    pub(super) async fn fetch(&self) -> Result<Vec<CacheProfile>, Error> {
        let failed = |error| Error::of_request(self.what(), error);
        if let Some(name) = &self.name {
            return match self.api.get_opt(name).await {
                // 404 may mean that the kind is unknown; only a list tells.
                Ok(None) => {
                    let probe = self.api.list(&ListParams::default().limit(1)).await;
                    match probe {
                        Err(kube::Error::Api(status)) if status.code == 404 => {
                            Err(Error::NotInstalled)
                        }
                        _ => Ok(Vec::new()),
                    }
                }
                Ok(Some(profile)) => Ok(vec![profile]),
                Err(error) => Err(failed(error)),
            };
        }
        let mut profiles = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = self.api.list(&page).await.map_err(failed)?;
            profiles.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(profiles),
            }
        }
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
        let mut events = pin!(watcher(self.api.clone(), config));
        let mut known = BTreeMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    known.clear();
                    continue;
                }
                Ok(Event::InitApply(profile)) => {
                    known.insert(key(&profile), profile);
                    continue;
                }
                Ok(Event::InitDone) => {}
                Ok(Event::Apply(profile)) => {
                    known.insert(key(&profile), profile);
                }
                Ok(Event::Delete(profile)) => {
                    known.remove(&key(&profile));
                }
                Err(error) => return !is_refused(&error),
            }
            let profiles = known.values().cloned().collect();
            seen.send_replace(Seen { profiles, trouble: None });
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

fn key(profile: &CacheProfile) -> (Option<String>, Option<String>) {
    (profile.metadata.namespace.clone(), profile.metadata.name.clone())
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
