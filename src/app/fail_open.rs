//! The `EndpointSlice` that leads injected pods to the API server while no replica is ready.
//!
//! kube-proxy sends connections to an endpoint that terminates and still serves only if no endpoint
//! of the Service is ready. So the API server's addresses stand in the Service as such endpoints.
//! Source: KEP-1669, "Proxy Terminating Endpoints".

use super::leader_loop::{LeaderDuty, repeat_while_leading};
use crate::commands::causes;
use http::StatusCode;
use k8s_openapi::{
    api::{
        core::v1::ConfigMap,
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kubewarm_api::{
    manifests::{FAIL_OPEN_SERVICE, FAIL_OPEN_SLICES},
    model::{FaultReason, RequestFault},
};
use kubewarm_client::{ApiClient, ApiServerConnection, LeaseState, get};
use kubewarm_inject::API_SERVER_HOST;
use kubewarm_serve::certificate::BUNDLE;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// The API server writes its own addresses here.
const APISERVER: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
/// Name of the Service's port. kube-proxy joins ports of slices and Services by name.
const PORT: &str = "api";
/// Another address of the API server is in the slice after at most this time.
const PERIOD: Duration = Duration::from_secs(5);
/// Timeout of one TLS handshake with the API server.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Keeps the slice while this replica leads. The slice outlives kubewarm.
pub(super) struct FailOpenSlices {
    client: ApiClient,
    namespace: Arc<str>,
    /// The slice with the endpoints that presented the API server's certificate.
    verified: Option<EndpointSlice>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum FailOpenError {
    #[error("cannot read or write an EndpointSlice: {0}")]
    Request(#[from] RequestFault),
    #[error("{APISERVER} has no ready IP address with one port")]
    Empty,
    #[error(
        "{address} of {APISERVER} presents no certificate of the cluster's CA for {API_SERVER_HOST}: {reason}"
    )]
    Unverified { address: String, reason: String },
}

impl FailOpenSlices {
    pub(super) fn new(client: ApiClient, namespace: Arc<str>) -> Self {
        Self { client, namespace, verified: None }
    }

    /// Keeps the slice until the shutdown. Never returns.
    ///
    /// # Cost
    ///
    /// The leader sends two small requests every 5 s, and a TLS handshake to each address of the
    /// API server when these change.
    pub(super) async fn run(self, lease: watch::Receiver<LeaseState>) {
        let failed = "cannot keep the EndpointSlice of kubewarm-api-failopen";
        repeat_while_leading(self, lease, PERIOD, failed).await;
    }

    /// A TLS handshake with each address. Otherwise, anyone who can write `default/kubernetes`
    /// could lead injected pods to another server.
    async fn verify(&self, wanted: &EndpointSlice) -> Result<(), FailOpenError> {
        let path = format!("/api/v1/namespaces/{}/configmaps/kube-root-ca.crt", self.namespace);
        let cluster: ConfigMap = self.client.get(path).send().await?.json()?;
        let authority = cluster.data.unwrap_or_default().remove(BUNDLE).unwrap_or_default();
        let port = wanted.ports.iter().flatten().find_map(|port| port.port).unwrap_or_default();
        for address in wanted.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses) {
            let unverified =
                |reason: String| FailOpenError::Unverified { address: address.clone(), reason };
            let Ok(ip) = address.parse::<IpAddr>() else {
                return Err(unverified("no IP address".to_owned()));
            };
            let port = u16::try_from(port).unwrap_or_default();
            let server = format!("https://{}", SocketAddr::new(ip, port));
            let (limit, name) = (Some(HANDSHAKE), API_SERVER_HOST);
            let connection =
                ApiServerConnection::without_credentials(&server, name, &authority, limit, None);
            let connection = connection.map_err(|error| unverified(causes(&error)))?;
            // Any response proves the handshake, also one that rejects a request without
            // credentials.
            let response = get(&connection.client(), "/version").await;
            response.map_err(|fault| unverified(causes(&fault)))?;
        }
        Ok(())
    }
}

impl LeaderDuty for FailOpenSlices {
    type Error = FailOpenError;

    async fn perform(&mut self) -> Result<(), FailOpenError> {
        let server: EndpointSlice = self.client.get(APISERVER).send().await?.json()?;
        let wanted = slice(&server, &self.namespace).ok_or(FailOpenError::Empty)?;
        if self.verified.as_ref() != Some(&wanted) {
            self.verify(&wanted).await?;
            self.verified = Some(wanted.clone());
        }
        let all = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", self.namespace);
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let path = format!("{all}/{name}");
        let response = self.client.get(path.clone()).send().await?;
        let request = if response.status == StatusCode::NOT_FOUND {
            self.client.post(all, body(&wanted)?)
        } else {
            let present: EndpointSlice = response.json()?;
            if is_current(&present, &wanted) {
                return Ok(());
            }
            let version = present.metadata.resource_version;
            let metadata = ObjectMeta { resource_version: version, ..wanted.metadata.clone() };
            self.client.put(path, body(&EndpointSlice { metadata, ..wanted })?)
        };
        let response = request.send().await?;
        // Another replica wrote it meanwhile. The next period sees that.
        if response.status == StatusCode::CONFLICT {
            return Ok(());
        }
        let _: EndpointSlice = response.json()?;
        tracing::info!(slice = name, "wrote the API server's addresses");
        Ok(())
    }
}

fn body(slice: &EndpointSlice) -> Result<Vec<u8>, RequestFault> {
    serde_json::to_vec(slice)
        .map_err(|error| RequestFault::new(FaultReason::Internal, error.to_string()))
}

/// The slice for the API server's ready endpoints. Returns `None` without an endpoint, because pods
/// reach nothing through an empty slice. Also returns `None` with several ports, because only one
/// of them is the API.
fn slice(server: &EndpointSlice, namespace: &str) -> Option<EndpointSlice> {
    let [v4, v6] = FAIL_OPEN_SLICES;
    let name = match server.address_type.as_str() {
        "IPv4" => v4,
        "IPv6" => v6,
        _ => return None,
    };
    let is_ready = |endpoint: &&Endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready).unwrap_or(true)
    };
    let fallback =
        EndpointConditions { ready: Some(false), serving: Some(true), terminating: Some(true) };
    let mut addresses: Vec<_> = server
        .endpoints
        .iter()
        .flatten()
        .filter(is_ready)
        .flat_map(|endpoint| endpoint.addresses.iter().cloned())
        .collect();
    addresses.sort();
    addresses.dedup();
    let endpoints: Vec<_> = addresses
        .into_iter()
        .map(|address| Endpoint {
            addresses: vec![address],
            conditions: Some(fallback.clone()),
            ..Endpoint::default()
        })
        .collect();
    let [port] = server.ports.as_deref()? else { return None };
    let port = EndpointPort {
        name: Some(PORT.to_owned()),
        port: Some(port.port?),
        protocol: Some("TCP".to_owned()),
        ..EndpointPort::default()
    };
    if endpoints.is_empty() {
        return None;
    }
    let labels = [
        ("kubernetes.io/service-name", FAIL_OPEN_SERVICE),
        ("endpointslice.kubernetes.io/managed-by", "kubewarm.io"),
    ];
    Some(EndpointSlice {
        address_type: server.address_type.clone(),
        endpoints: Some(endpoints),
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        ports: Some(vec![port]),
    })
}

fn is_current(present: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let labels = |slice: &EndpointSlice| slice.metadata.labels.clone().unwrap_or_default();
    let present_labels = labels(present);
    present.endpoints == wanted.endpoints
        && present.ports == wanted.ports
        && labels(wanted).iter().all(|(key, value)| present_labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn server(endpoints: &Value, ports: &Value) -> EndpointSlice {
        serde_json::from_value(json!({
            "metadata": {"name": "kubernetes"}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
        }))
        .unwrap()
    }

    #[test]
    fn the_slice_has_the_ready_addresses_as_terminating_endpoints() {
        let port = json!([{"name": "https", "port": 6443, "protocol": "TCP"}]);
        let endpoints = json!([
            {"addresses": ["10.0.0.2"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.1"]},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": false}},
        ]);
        let made = slice(&server(&endpoints, &port), "kubewarm-system").unwrap();
        let fallback = json!({"ready": false, "serving": true, "terminating": true});
        let expected = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "kubewarm-apiserver-ipv4", "namespace": "kubewarm-system",
                "labels": {
                    "kubernetes.io/service-name": "kubewarm-api-failopen",
                    "endpointslice.kubernetes.io/managed-by": "kubewarm.io",
                },
            },
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": fallback},
                {"addresses": ["10.0.0.2"], "conditions": fallback},
            ],
            "ports": [{"name": "api", "port": 6443, "protocol": "TCP"}],
        });
        assert_eq!(serde_json::to_value(&made).unwrap(), expected);
        let mut other = made.clone();
        assert!(is_current(&other, &made));
        other.endpoints = Some(Vec::new());
        assert!(!is_current(&other, &made));
        assert!(slice(&server(&json!([]), &port), "a").is_none(), "never an empty slice");
        let ports = json!([{"name": "https", "port": 6443}, {"name": "metrics", "port": 9090}]);
        assert!(slice(&server(&endpoints, &ports), "a").is_none());
    }
}
