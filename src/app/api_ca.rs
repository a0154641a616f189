//! The `ConfigMap` `kubewarm-api-ca` in each namespace with the label `kubewarm.io/inject`: one
//! bundle of the CAs of kubewarm and of the API server, so that a pod can verify either under the
//! same name.

use super::{
    injection_parameters::{InjectionParameters, ParametersError},
    leader_loop::{LeaderDuty, repeat_while_leading},
};
use http::StatusCode;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::{ObjectList, PartialObjectMeta};
use kubewarm_api::{
    manifests::{API_CA, INJECT_LABEL, INJECT_PODS, INJECTED_NAMESPACES},
    model::{FaultReason, RequestFault},
};
use kubewarm_client::{ApiClient, LeaseState};
use kubewarm_serve::certificate::BUNDLE;
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// The `ConfigMap` with the cluster's CA, which Kubernetes keeps in each namespace.
const CLUSTER_CA: &str = "kube-root-ca.crt";
/// All these `ConfigMap`s. RBAC compares a field selector on the name with `resourceNames`.
const PUBLISHED: &str = "/api/v1/configmaps?fieldSelector=metadata.name%3Dkubewarm-api-ca";
/// Only metadata, because a bundle has up to 20 KiB, and there can be a thousand.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Maximum size of a list of metadata: more than 10,000 namespaces.
const MAX_LIST: usize = 32 << 20;
/// A user who labels a namespace waits for the `ConfigMap` at most this long.
const PERIOD: Duration = Duration::from_secs(5);

/// Publishes the bundle while this replica leads.
pub(super) struct ApiCaPublisher {
    client: ApiClient,
    operator_namespace: Arc<str>,
    /// kubewarm's own CAs; `None` until this replica has read them.
    authorities: watch::Receiver<Option<Arc<str>>>,
    /// The parameters of the injection by label; `None` without `--inject-policy`.
    parameters: Option<InjectionParameters>,
    bundle: String,
    /// The resource versions of the `ConfigMap`s that contain `bundle`, by namespace.
    current: HashMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ApiCaError {
    #[error("cannot read the namespaces, their ConfigMaps or the cluster's CA: {0}")]
    Read(#[from] RequestFault),
    #[error("cannot write ConfigMap {API_CA} into namespace {namespace:?}: {source}")]
    Write { namespace: String, source: RequestFault },
    #[error(transparent)]
    Parameters(#[from] ParametersError),
}

/// A write of one `ConfigMap`.
#[derive(Debug, PartialEq, Eq)]
enum BundleWrite {
    Create(String),
    Update(String),
}

impl ApiCaPublisher {
    pub(super) fn new(
        client: ApiClient,
        operator_namespace: Arc<str>,
        authorities: watch::Receiver<Option<Arc<str>>>,
        parameters: Option<InjectionParameters>,
    ) -> Self {
        let (bundle, current) = (String::new(), HashMap::new());
        Self { client, operator_namespace, authorities, parameters, bundle, current }
    }

    /// Publishes until the shutdown. Never returns.
    ///
    /// # Cost
    ///
    /// The leader sends three small requests every 5 s, six with parameters, and a write for each
    /// `ConfigMap` that is missing or has changed.
    pub(super) async fn run(self, lease: watch::Receiver<LeaseState>) {
        let failed = "cannot publish what injected pods need";
        repeat_while_leading(self, lease, PERIOD, failed).await;
    }

    async fn write(&mut self, write: BundleWrite) -> Result<(), ApiCaError> {
        let (BundleWrite::Create(namespace) | BundleWrite::Update(namespace)) = &write;
        let namespace = namespace.clone();
        let failed =
            |source: RequestFault| ApiCaError::Write { namespace: namespace.clone(), source };
        let metadata = ObjectMeta { name: Some(API_CA.to_owned()), ..ObjectMeta::default() };
        let data = Some([(BUNDLE.to_owned(), self.bundle.clone())].into());
        let body = ConfigMap { metadata, data, ..ConfigMap::default() };
        let body = serde_json::to_vec(&body)
            .map_err(|error| RequestFault::new(FaultReason::Internal, error.to_string()))
            .map_err(failed)?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let request = match write {
            BundleWrite::Create(_) => self.client.post(path, body),
            BundleWrite::Update(_) => self.client.put(format!("{path}/{API_CA}"), body),
        };
        let response = request.send().await.map_err(failed)?;
        // Somebody else created or deleted it meanwhile. The next period sees that.
        if matches!(response.status, StatusCode::CONFLICT | StatusCode::NOT_FOUND) {
            return Ok(());
        }
        let written: PartialObjectMeta<ConfigMap> = response.json().map_err(failed)?;
        let version = written.metadata.resource_version.unwrap_or_default();
        tracing::info!(%namespace, "wrote the CAs into ConfigMap {API_CA}");
        self.current.insert(namespace, version);
        Ok(())
    }

    async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestFault> {
        self.client.get(path).accept(METADATA).at_most(MAX_LIST).send().await?.json()
    }
}

impl LeaderDuty for ApiCaPublisher {
    type Error = ApiCaError;

    async fn perform(&mut self) -> Result<(), ApiCaError> {
        let Some(authorities) = self.authorities.borrow().clone() else { return Ok(()) };
        let cluster =
            format!("/api/v1/namespaces/{}/configmaps/{CLUSTER_CA}", self.operator_namespace);
        let cluster: ConfigMap = self.client.get(cluster).send().await?.json()?;
        let bundle = joined(&authorities, cluster.data.unwrap_or_default().get(BUNDLE));
        if bundle != self.bundle {
            self.current.clear();
            self.bundle = bundle;
        }
        let namespaces: ObjectList<PartialObjectMeta<Namespace>> =
            self.list(INJECTED_NAMESPACES).await?;
        let published: ObjectList<PartialObjectMeta<ConfigMap>> = self.list(PUBLISHED).await?;
        let labelled = namespaces.items.iter().map(|namespace| &namespace.metadata);
        let published = published.items.iter().map(|published| &published.metadata);
        let mut result = Ok(());
        for write in plan(labelled, published, &mut self.current) {
            // A namespace without quota for the object does not delay others.
            result = self.write(write).await.and(result);
        }
        if let Some(parameters) = &self.parameters {
            let namespaces = injected(&namespaces.items, &self.current);
            parameters.write(&namespaces).await?;
        }
        result
    }
}

/// kubewarm's CAs and the cluster's, as one text.
fn joined(authorities: &str, cluster: Option<&String>) -> String {
    let cluster = cluster.map_or("", String::as_str).trim_end();
    format!("{}\n{cluster}\n", authorities.trim_end())
}

/// The namespaces whose new pods the API server injects, sorted: they have the label for it, and
/// pods can mount the CAs there.
fn injected<'a>(
    labelled: &'a [PartialObjectMeta<Namespace>],
    current: &HashMap<String, String>,
) -> Vec<&'a str> {
    let is_injected = |metadata: &&ObjectMeta| {
        let labels = metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(INJECT_LABEL)).is_some_and(|value| value == INJECT_PODS)
    };
    let metadata = labelled.iter().map(|namespace| &namespace.metadata).filter(is_injected);
    let names = metadata.filter_map(|metadata| metadata.name.as_deref());
    let names: BTreeSet<_> = names.filter(|name| current.contains_key(*name)).collect();
    names.into_iter().collect()
}

/// The writes after which all labelled namespaces have the current bundle. Removes namespaces
/// without the label from `current`; their `ConfigMap`s stay, because pods can still mount them.
/// Removes the namespaces of the writes too, until a write succeeds.
fn plan<'a>(
    labelled: impl Iterator<Item = &'a ObjectMeta>,
    published: impl Iterator<Item = &'a ObjectMeta>,
    current: &mut HashMap<String, String>,
) -> Vec<BundleWrite> {
    let versions: HashMap<_, _> = published
        .map(|object| (object.namespace.as_ref(), object.resource_version.as_ref()))
        .collect();
    let is_alive = |namespace: &&ObjectMeta| namespace.deletion_timestamp.is_none();
    let names: BTreeSet<_> =
        labelled.filter(is_alive).filter_map(|one| one.name.as_ref()).collect();
    current.retain(|name, _| names.contains(&name));
    let write = |name: &&String| match versions.get(&Some(*name)) {
        None => Some(BundleWrite::Create((*name).clone())),
        Some(version) if *version == current.get(*name) => None,
        Some(_) => Some(BundleWrite::Update((*name).clone())),
    };
    let writes: Vec<_> = names.iter().filter_map(write).collect();
    for BundleWrite::Create(name) | BundleWrite::Update(name) in &writes {
        current.remove(name);
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn namespace(name: &str) -> ObjectMeta {
        ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
    }

    fn published(namespace: &str, version: &str) -> ObjectMeta {
        let (namespace, resource_version) = (Some(namespace.to_owned()), Some(version.to_owned()));
        ObjectMeta { namespace, resource_version, ..ObjectMeta::default() }
    }

    #[test]
    fn missing_and_changed_config_maps_are_written() {
        let ending = ObjectMeta {
            deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            ..namespace("ending")
        };
        let labelled = [namespace("new"), namespace("same"), namespace("edited"), ending];
        let there = [published("same", "1"), published("edited", "3"), published("other", "1")];
        let known = ["same", "edited", "other"].map(|name| (name.to_owned(), "1".to_owned()));
        let mut current = HashMap::from(known);
        let writes = plan(labelled.iter(), there.iter(), &mut current);
        let expected =
            [BundleWrite::Update("edited".to_owned()), BundleWrite::Create("new".to_owned())];
        assert_eq!(writes, expected);
        assert_eq!(current.keys().collect::<Vec<_>>(), ["same"], "the others are to be written");
        current.clear();
        assert_eq!(plan(labelled.iter(), there.iter(), &mut current).len(), 3, "another bundle");
    }

    #[test]
    fn only_labelled_namespaces_with_the_current_bundle_are_injected() {
        let labelled = |(name, value): (&str, &str)| {
            let labels = Some([(INJECT_LABEL.to_owned(), value.to_owned())].into());
            let metadata = ObjectMeta { labels, ..namespace(name) };
            PartialObjectMeta { metadata, ..PartialObjectMeta::default() }
        };
        let all = [("shop", "pods"), ("bank", "pods"), ("other", ""), ("new", "pods")];
        let current = ["shop", "bank", "other"].map(|name| (name.to_owned(), "1".to_owned()));
        assert_eq!(injected(&all.map(labelled), &HashMap::from(current)), ["bank", "shop"]);
    }

    #[test]
    fn a_bundle_has_both_cas_without_empty_lines() {
        assert_eq!(joined("own\n", Some(&"cluster".to_owned())), "own\ncluster\n");
    }
}
