//! The running pods that mount kubewarm's CAs, and the CAs that they cannot have read. Also the
//! running pods that should mount them and do not.

use super::uninjected_pods::{UninjectedPod, fetch_injected_namespaces, is_injected_by_label};
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::{
    List,
    api::core::v1::{ConfigMap, HostAlias, Namespace, Pod},
};
use kube::Client;
use kubewarm_api::{
    manifests::{API_CA, INJECTED_NAMESPACES},
    model::{RequestFault, is_dns_label},
};
use kubewarm_client::get;
use kubewarm_inject::API_SERVER_HOST;
use kubewarm_serve::certificate::{BUNDLE, PublishedAuthority, published_authorities};

/// Maximum number of pods that the commands name.
const MAX_NAMED: usize = 20;

/// A running pod that mounts the CAs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CaReader {
    /// NAMESPACE/NAME
    pod: String,
    /// When its oldest container started. Most programs read CAs only at their start.
    started_at: Timestamp,
    /// The addresses of its aliases of the API server.
    aliases: Vec<String>,
}

/// The CAs that kubewarm has published, and the pods that mount them.
#[derive(Debug, Default)]
pub(super) struct CaReaders {
    authorities: Vec<PublishedAuthority>,
    readers: Vec<CaReader>,
    /// Running pods that the API server should have injected.
    uninjected: Vec<UninjectedPod>,
    /// Namespaces with the label for it that the parameters of the admission policy lack.
    unpublished: Vec<String>,
}

/// Reads the published CAs and the pods. Returns `None` if there is no `ConfigMap` `name` in
/// `namespace`, because kubewarm then issues no certificate.
///
/// # Errors
///
/// [`RequestFault`] if a request fails, also if the user lacks a permission.
///
/// # Cost
///
/// Three requests, and a list of pods in pages of 500 for each namespace with the label
/// `kubewarm.io/inject`.
pub(super) async fn fetch_ca_readers(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<CaReaders>, RequestFault> {
    let response =
        get(client, &format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await?;
    if response.status == 404 {
        return Ok(None);
    }
    let published: ConfigMap = response.json()?;
    let bundle = published.data.unwrap_or_default().remove(BUNDLE).unwrap_or_default();
    let mut all = CaReaders { authorities: published_authorities(&bundle), ..CaReaders::default() };
    let namespaces: List<Namespace> = get(client, INJECTED_NAMESPACES).await?.json()?;
    let injected = fetch_injected_namespaces(client, namespace).await?;
    for namespace in &namespaces.items {
        let by_label = is_injected_by_label(namespace);
        let Some(namespace) = namespace.metadata.name.as_deref().filter(|name| is_dns_label(name))
        else {
            continue;
        };
        let is_injected = by_label && injected.contains(namespace);
        if by_label && !is_injected {
            all.unpublished.push(namespace.to_owned());
        }
        let mut token = String::new();
        loop {
            let path = format!("/api/v1/namespaces/{namespace}/pods?limit=500&continue={token}");
            let pods: List<Pod> = get(client, &path).await?.json()?;
            let (readers, others): (Vec<_>, Vec<_>) =
                pods.items.iter().partition(|pod| mounts_cas(pod));
            all.readers.extend(readers.into_iter().filter_map(CaReader::of));
            let others = others.into_iter().filter(|_| is_injected);
            all.uninjected.extend(others.filter_map(UninjectedPod::of));
            match pods.metadata.continue_ {
                Some(next) if !next.is_empty() => token = next,
                Some(_) | None => break,
            }
        }
    }
    Ok(Some(all))
}

fn mounts_cas(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut sources = volumes.flat_map(|volume| {
        let projected = volume.projected.iter().flat_map(|volume| volume.sources.iter().flatten());
        let projected = projected.filter_map(|source| Some(&source.config_map.as_ref()?.name));
        volume.config_map.iter().map(|source| &source.name).chain(projected)
    });
    sources.any(|name| name == API_CA)
}

impl CaReader {
    /// `None` for a pod that runs no container. The caller has checked that the pod mounts the CAs.
    fn of(pod: &Pod) -> Option<Self> {
        let containers = pod.status.as_ref()?.container_statuses.iter().flatten();
        let started = containers.filter_map(|container| {
            container.state.as_ref()?.running.as_ref()?.started_at.as_ref()
        });
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        Some(Self {
            pod: format!("{namespace}/{}", pod.metadata.name.as_deref()?),
            started_at: started.map(|time| time.0).min()?,
            aliases: aliases(pod),
        })
    }
}

fn aliases(pod: &Pod) -> Vec<String> {
    let aliases = pod.spec.iter().flat_map(|spec| spec.host_aliases.iter().flatten());
    let is_ours =
        |alias: &&HostAlias| alias.hostnames.iter().flatten().any(|name| name == API_SERVER_HOST);
    aliases.filter(is_ours).map(|alias| alias.ip.clone()).collect()
}

impl CaReaders {
    /// Names of the pods whose alias leads to none of `addresses`. These are the addresses of
    /// kubewarm's Services and of the API server, so the pods reach neither server.
    pub(super) fn astray(&self, addresses: &[String]) -> Option<String> {
        self.names_of(|reader| reader.aliases.iter().any(|alias| !addresses.contains(alias)))
    }

    /// The pods that show no reason why they are not injected.
    pub(super) fn missed(&self) -> Option<String> {
        let missed = self.uninjected.iter().filter(|one| one.reason.is_none());
        names(missed.map(|one| one.pod.clone()).collect())
    }

    /// The pods that cannot be injected, with the reasons.
    pub(super) fn refused(&self) -> Option<String> {
        let refused =
            self.uninjected.iter().filter_map(|one| Some((&one.pod, one.reason.as_ref()?)));
        names(refused.map(|(pod, reason)| format!("{pod} ({reason})")).collect())
    }

    /// The namespaces with the label for the injection that the admission policy does not inject.
    pub(super) fn unpublished(&self) -> Option<String> {
        names(self.unpublished.clone())
    }

    /// Number of pods that mount the CAs.
    pub(super) fn count(&self) -> usize {
        self.readers.len()
    }

    /// The pods that cannot have read the CA that signs now. They cannot verify kubewarm.
    pub(super) fn broken(&self) -> Option<String> {
        let signing = self.authorities.first()?;
        self.started_before(signing)
    }

    /// The pods that cannot have read the next CA, and the date from which they cannot verify
    /// kubewarm.
    pub(super) fn outdated(&self) -> Option<(String, String)> {
        let next = self.authorities.get(1..)?.iter().max_by_key(|next| next.published_at)?;
        let date = next.signs_at.to_zoned(TimeZone::UTC).date().to_string();
        Some((self.started_before(next)?, date))
    }

    fn started_before(&self, authority: &PublishedAuthority) -> Option<String> {
        self.names_of(|reader| reader.started_at < authority.published_at)
    }

    /// The names of the selected pods, or `None` if there are none.
    fn names_of(&self, is_selected: impl Fn(&CaReader) -> bool) -> Option<String> {
        let selected = self.readers.iter().filter(|reader| is_selected(reader));
        names(selected.map(|one| one.pod.clone()).collect())
    }
}

/// A text with the first names, or `None` without names.
fn names(mut all: Vec<String>) -> Option<String> {
    let more = all.len().saturating_sub(MAX_NAMED);
    all.truncate(MAX_NAMED);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(volume: &Value, state: &Value) -> Option<CaReader> {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "a"},
            "spec": {"containers": [], "hostAliases": [
                {"ip": "10.0.0.1", "hostnames": ["db"]},
                {"ip": "10.96.0.99", "hostnames": ["kubernetes", "kubernetes.default.svc"]},
            ], "volumes": [{"name": "other", "emptyDir": {}}, volume]},
            "status": {"containerStatuses": [
                {"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state},
            ]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        CaReader::of(&pod).filter(|_| mounts_cas(&pod))
    }

    #[test]
    fn a_running_pod_with_the_config_map_is_a_reader() {
        let projected = json!({"name": "ca", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "kubewarm-api-ca"}},
        ]}});
        let plain = json!({"name": "ca", "configMap": {"name": "kubewarm-api-ca"}});
        let running = json!({"running": {"startedAt": "2026-12-01T00:00:00Z"}});
        let started_at = "2026-12-01T00:00:00Z".parse().unwrap();
        for volume in [&projected, &plain] {
            let aliases = vec!["10.96.0.99".to_owned()];
            let reader = CaReader { pod: "shop/a".to_owned(), started_at, aliases };
            assert_eq!(pod(volume, &running), Some(reader));
            assert_eq!(pod(volume, &json!({"waiting": {}})), None);
        }
        let other = json!({"name": "ca", "configMap": {"name": "kube-root-ca.crt"}});
        assert_eq!(pod(&other, &running), None);
    }

    #[test]
    fn pods_that_started_before_a_publication_lack_its_ca() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let authority = |published, signs| PublishedAuthority {
            published_at: at(published),
            signs_at: at(signs),
        };
        let reader = |second| CaReader {
            pod: format!("a/{second}"),
            started_at: at(second),
            aliases: vec![format!("10.0.0.{}", second % 2)],
        };
        let readers = (0..30).map(reader);
        let mut all = CaReaders {
            authorities: vec![authority(2, 2)],
            readers: readers.collect(),
            ..CaReaders::default()
        };
        assert_eq!(all.broken().as_deref(), Some("a/0, a/1"));
        assert_eq!(all.outdated(), None);
        all.authorities.push(authority(25, 86_400));
        let (pods, date) = all.outdated().unwrap();
        assert!(pods.starts_with("a/0, a/1, ") && pods.ends_with(", a/19, 5 more"), "{pods}");
        assert_eq!(date, "1970-01-02");
        all.readers.retain(|reader| reader.started_at >= at(25));
        assert_eq!((all.broken(), all.outdated(), all.count()), (None, None, 5));
        let services = ["10.0.0.0", "10.0.0.1"].map(str::to_owned);
        assert_eq!(all.astray(&services), None);
        assert_eq!(all.astray(&services[..1]).as_deref(), Some("a/25, a/27, a/29"));
    }

    #[test]
    fn pods_without_the_injection_are_named_by_its_absence_or_its_reason() {
        let pod = |name: &str, reason: Option<&str>| UninjectedPod {
            pod: name.to_owned(),
            reason: reason.map(str::to_owned),
        };
        let all = CaReaders {
            uninjected: vec![pod("a/b", None), pod("a/c", Some("it has no token"))],
            unpublished: vec!["d".to_owned(), "e".to_owned()],
            ..CaReaders::default()
        };
        assert_eq!(all.missed().as_deref(), Some("a/b"));
        assert_eq!(all.refused().as_deref(), Some("a/c (it has no token)"));
        assert_eq!(all.unpublished().as_deref(), Some("d, e"));
        assert_eq!(CaReaders::default().missed(), None);
    }
}
