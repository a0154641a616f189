//! Kubeconfigs with one context.

use super::context_user::ContextUser;
use k8s_openapi::ByteString;
use kube::config::{Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};

/// Name of the cluster, the user and the context.
const NAME: &str = "kubewarm";

/// Returns the entry of a server. Its certificate must contain `tls_server_name`, by default the
/// server's host. `certificates` is PEM that verifies it; `None` means the CAs of the system, or
/// plain HTTP.
pub fn kubeconfig_cluster(
    server: String,
    tls_server_name: Option<String>,
    certificates: Option<String>,
) -> Cluster {
    Cluster {
        server: Some(server),
        tls_server_name,
        certificate_authority_data: certificates.map(base64),
        ..Cluster::default()
    }
}

/// Returns the kubeconfig of `user` at `cluster`.
pub fn single_context_kubeconfig(
    cluster: Cluster,
    ContextUser { user, namespace }: ContextUser,
) -> Kubeconfig {
    let name = || NAME.to_owned();
    let context = Context { cluster: name(), user: Some(name()), namespace, ..Context::default() };
    Kubeconfig {
        api_version: Some("v1".to_owned()),
        kind: Some("Config".to_owned()),
        clusters: vec![NamedCluster {
            name: name(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    }
}

/// Encodes `text` in standard base64. Kubernetes encodes bytes in JSON the same way, so
/// `ByteString` contains the needed encoder.
fn base64(text: String) -> String {
    match serde_json::to_value(ByteString(text.into_bytes())) {
        Ok(serde_json::Value::String(text)) => text,
        // Unreachable: `ByteString` always serializes to a string.
        Ok(_) | Err(_) => String::new(),
    }
}
