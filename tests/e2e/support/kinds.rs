//! The kinds in the API server's discovery, for tests that read many of them.

use serde_json::Value;

use crate::accept::AGGREGATED;
use crate::api::Server;
use crate::world::Failure;

/// A version of a kind.
pub(crate) struct ApiKind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) is_namespaced: bool,
    pub(crate) verbs: Vec<String>,
}

impl ApiKind {
    /// `resource.group`, or the resource alone in the core group.
    pub(crate) fn name(&self) -> String {
        let Self { group, resource, .. } = self;
        if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") }
    }

    /// The path below which the kind's group and version are served.
    pub(crate) fn base(&self) -> String {
        let Self { group, version, .. } = self;
        if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        }
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.base(), self.resource)
    }

    /// A target of a profile.
    pub(crate) fn target(&self, number: usize) -> String {
        let Self { group, version, resource, .. } = self;
        let scope = if self.is_namespaced { "AllNamespaces" } else { "Cluster" };
        let more = if resource == "secrets" { ", secretData: Allow" } else { "" };
        format!(
            "{{name: {resource}-{number}, group: '{group}', version: {version}, resource: {resource}, \
             scope: {{type: {scope}}}, projection: {{managedFields: Keep}}{more}}}"
        )
    }
}

/// Returns every version of every kind. The preferred version of a group comes first.
pub(crate) fn discover(api: &Server, token: &str) -> Result<Vec<ApiKind>, Failure> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut kinds = Vec::new();
    for path in ["/api", "/apis"] {
        for group in list(&api.get_as(token, path, AGGREGATED)?.json()["items"]) {
            for version in list(&group["versions"]) {
                kinds.extend(list(&version["resources"]).iter().map(|resource| ApiKind {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    resource: text(&resource["resource"]),
                    is_namespaced: resource["scope"] == "Namespaced",
                    verbs: list(&resource["verbs"]).iter().map(text).collect(),
                }));
            }
        }
    }
    Ok(kinds)
}
