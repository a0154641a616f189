//! The running pods that the API server should inject by the label of their namespace, and did not.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Client;
use kubewarm_api::{
    manifests::{INJECT_DISABLED, INJECT_LABEL, INJECT_PARAMETERS, INJECT_PODS},
    model::RequestFault,
};
use kubewarm_client::get;
use kubewarm_inject::live_pod_refusals;
use std::collections::BTreeSet;

/// A running pod that is not injected.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UninjectedPod {
    /// NAMESPACE/NAME
    pub(super) pod: String,
    /// What prevents the injection; `None` if the pod shows nothing that does.
    pub(super) reason: Option<String>,
}

impl UninjectedPod {
    /// `None` for a pod that opted out, or runs no container. The caller has checked that the pod
    /// does not mount kubewarm's CAs.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(INJECT_LABEL));
        let is_running = pod
            .status
            .as_ref()?
            .container_statuses
            .iter()
            .flatten()
            .any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
        if !is_running || label.is_some_and(|value| value == INJECT_DISABLED) {
            return None;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref()?;
        let reasons = serde_json::to_value(pod).map(|pod| live_pod_refusals(&pod));
        let reason = reasons.unwrap_or_default().into_iter().next();
        // The rest is advice for manifests.
        let reason =
            reason.map(|reason| reason.split([',', ';']).next().unwrap_or_default().to_owned());
        Some(Self { pod: format!("{namespace}/{name}"), reason })
    }
}

/// Whether the API server should inject all pods of the namespace.
pub(super) fn is_injected_by_label(namespace: &Namespace) -> bool {
    let labels = namespace.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(INJECT_LABEL)).is_some_and(|value| value == INJECT_PODS)
}

/// The namespaces that the parameters of the admission policy name. Empty without the parameters.
pub(super) async fn fetch_injected_namespaces(
    client: &Client,
    operator_namespace: &str,
) -> Result<BTreeSet<String>, RequestFault> {
    let path = format!("/api/v1/namespaces/{operator_namespace}/configmaps/{INJECT_PARAMETERS}");
    let response = get(client, &path).await?;
    if response.status == 404 {
        return Ok(BTreeSet::new());
    }
    let names = response.json::<ConfigMap>()?.data.unwrap_or_default().remove("namespaces");
    Ok(names.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(label: &str, container: &Value, volume: &str, state: &Value) -> Option<UninjectedPod> {
        let pod = json!({
            "metadata": {
                "namespace": "shop", "name": "a", "labels": {"kubewarm.io/inject": label},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "1", "controller": true}],
            },
            "spec": {"containers": [container], "volumes": [{"name": volume, "emptyDir": {}}]},
            "status": {"containerStatuses": [
                {"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state},
            ]},
        });
        UninjectedPod::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn running_pods_that_did_not_opt_out_are_named_with_the_reason() {
        let running = json!({"running": {}});
        let mount = json!({"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
        let plain = json!({"name": "a", "volumeMounts": [mount]});
        let own = json!({"name": "a", "args": ["--master=b"], "volumeMounts": [mount]});
        let of = |reason: Option<&str>| {
            let (pod, reason) = ("shop/a".to_owned(), reason.map(str::to_owned));
            Some(UninjectedPod { pod, reason })
        };
        assert_eq!(pod("", &plain, "kube-api-access-x", &running), of(None));
        let flag = of(Some("spec.containers[a] has the flag --master"));
        assert_eq!(pod("", &own, "kube-api-access-x", &running), flag);
        let token = of(Some("it has no token for the API server"));
        assert_eq!(pod("", &plain, "data", &running), token);
        assert_eq!(pod("disabled", &plain, "kube-api-access-x", &running), None);
        assert_eq!(pod("", &plain, "kube-api-access-x", &json!({"waiting": {}})), None);
    }
}
