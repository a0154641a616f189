//! The `ConfigMap` `kubewarm-inject`: the parameters with which the API server injects pods in
//! labelled namespaces.

use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kubewarm_api::{
    manifests::{FAIL_OPEN_SERVICE, INJECT_PARAMETERS, INJECTED_SERVICE, injected_ips},
    model::{FaultReason, RequestFault},
};
use kubewarm_client::ApiClient;
use kubewarm_inject::InjectedAddress;
use std::{collections::BTreeMap, sync::Arc};

/// Writes the parameters.
pub(super) struct InjectionParameters {
    pub(super) client: ApiClient,
    pub(super) namespace: Arc<str>,
    /// The cluster's DNS domain.
    pub(super) domain: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ParametersError {
    #[error("cannot read Service {name}: {source}")]
    Service { name: &'static str, source: RequestFault },
    #[error("pods cannot connect to Service {name}: it {reason}")]
    Unusable { name: &'static str, reason: &'static str },
    #[error("cannot write ConfigMap {INJECT_PARAMETERS}: {0}")]
    ConfigMap(RequestFault),
}

impl InjectionParameters {
    /// Writes the parameters unless they are current. `namespaces` are those in which new pods can
    /// mount the CAs. If pods cannot connect to a Service, the `ConfigMap` gets no data, so that
    /// pods start without the injection.
    ///
    /// # Cost
    ///
    /// Three GETs.
    pub(super) async fn write(&self, namespaces: &[&str]) -> Result<(), ParametersError> {
        let found = match self.ips(FAIL_OPEN_SERVICE).await {
            Ok(fail_open) => self.ips(INJECTED_SERVICE).await.map(|kubewarm| (fail_open, kubewarm)),
            Err(error) => Err(error),
        };
        let data = match &found {
            Ok((fail_open, kubewarm)) => self.data(fail_open, kubewarm, namespaces),
            // Nothing is known about the Service.
            Err(ParametersError::Service { .. }) => return found.map(drop),
            Err(_) => BTreeMap::new(),
        };
        self.replace(data).await.map_err(ParametersError::ConfigMap)?;
        found.map(drop)
    }

    /// The cluster IPs of a Service, separated by commas.
    async fn ips(&self, name: &'static str) -> Result<String, ParametersError> {
        let path = format!("/api/v1/namespaces/{}/services/{name}", self.namespace);
        let failed = |source| ParametersError::Service { name, source };
        let response = self.client.get(path).send().await.map_err(failed)?;
        let found = match response.status {
            StatusCode::NOT_FOUND => Err("does not exist"),
            _ => ips(&response.json().map_err(failed)?),
        };
        found.map_err(|reason| ParametersError::Unusable { name, reason })
    }

    /// The parameters. Without a namespace there are none, because the admission policy needs one.
    fn data(
        &self,
        fail_open: &str,
        kubewarm: &str,
        namespaces: &[&str],
    ) -> BTreeMap<String, String> {
        if namespaces.is_empty() {
            return BTreeMap::new();
        }
        let names = InjectedAddress { ips: Vec::new(), domain: self.domain.clone() }.names();
        let all = [
            ("daemonSetIps", kubewarm.to_owned()),
            ("hostnames", names.join(",")),
            ("ips", fail_open.to_owned()),
            ("namespaces", namespaces.join(",")),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    async fn replace(&self, data: BTreeMap<String, String>) -> Result<(), RequestFault> {
        let path = format!("/api/v1/namespaces/{}/configmaps/{INJECT_PARAMETERS}", self.namespace);
        let mut current: ConfigMap = self.client.get(&*path).send().await?.json()?;
        if current.data.clone().unwrap_or_default() == data {
            return Ok(());
        }
        let count = data.get("namespaces").map_or(0, |names| names.split(',').count());
        current.data = Some(data);
        let body = serde_json::to_vec(&current)
            .map_err(|error| RequestFault::new(FaultReason::Internal, error.to_string()))?;
        let response = self.client.put(path, body).send().await?;
        if response.status.is_success() {
            tracing::info!(namespaces = count, "wrote ConfigMap {INJECT_PARAMETERS}");
            return Ok(());
        }
        // Somebody else changed it meanwhile. The next period sees that.
        if response.status == StatusCode::CONFLICT { Ok(()) } else { Err(response.fault()) }
    }
}

/// The cluster IPs of the Service, separated by commas, or why pods cannot connect to it.
fn ips(service: &Service) -> Result<String, &'static str> {
    let ips: Vec<_> = injected_ips(service)?.iter().map(ToString::to_string).collect();
    if ips.is_empty() { Err("has no cluster IP") } else { Ok(ips.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ips_of(spec: &Value) -> Result<String, &'static str> {
        ips(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap())
    }

    #[test]
    fn pods_connect_to_all_cluster_ips_on_port_443() {
        let both = json!({"clusterIPs": ["10.96.0.9", "fd00::9"], "ports": [{"port": 443}]});
        assert_eq!(ips_of(&both).unwrap(), "10.96.0.9,fd00::9");
        for (spec, reason) in [
            (json!({"clusterIPs": ["None"], "ports": [{"port": 443}]}), "cluster IP"),
            (json!({"clusterIPs": ["10.96.0.9"], "ports": [{"port": 6443}]}), "port 443"),
        ] {
            let error = ips_of(&spec).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
