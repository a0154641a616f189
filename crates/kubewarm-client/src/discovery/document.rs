//! Parses the aggregated discovery documents of the API server.
//!
//! The parser skips a resource whose name is missing or not valid in a path, because no client can
//! request it.

use super::served_resources::{ServedGroup, ServedVersion};
use kube::core::{ObjectMeta, discovery::v2::GroupVersionKind};
use kubewarm_api::model::{GroupResource, Resource, ResourceInfo};
use serde::Deserialize;
use std::sync::Arc;

/// Maximum number of short names, and of categories, that kubewarm keeps for each resource. The
/// limit bounds memory, because kubewarm keeps these names for every resource of the cluster.
const NAMES: usize = 16;

/// A response to a discovery request: an `APIGroupDiscoveryList`, or any other JSON object.
///
/// Any field can be absent or null, because aggregated API servers send only some of the fields.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RawGroupList {
    kind: String,
    items: Option<Vec<RawGroup>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawGroup {
    metadata: Option<ObjectMeta>,
    versions: Option<Vec<RawVersion>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawVersion {
    version: String,
    freshness: Option<String>,
    resources: Option<Vec<RawResource>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawResource {
    resource: String,
    response_kind: Option<GroupVersionKind>,
    scope: Option<String>,
    verbs: Option<Vec<String>>,
    singular_resource: Option<String>,
    short_names: Option<Vec<String>>,
    categories: Option<Vec<String>>,
}

impl RawGroupList {
    /// Returns the groups in the document; `None` if the document is not an
    /// `APIGroupDiscoveryList`.
    pub(super) fn groups(self) -> Option<Vec<ServedGroup>> {
        let items = self.items.filter(|_| self.kind == "APIGroupDiscoveryList")?;
        let groups = items.into_iter().filter_map(|item| {
            // The core group has no name, or an empty name.
            let name = item.metadata.unwrap_or_default().name.unwrap_or_default();
            let versions = item.versions.unwrap_or_default().into_iter();
            let versions: Vec<_> = versions.filter_map(|raw| raw.checked(&name)).collect();
            let is_empty = versions.is_empty();
            (!is_empty).then(|| ServedGroup { name: name.into(), versions: Arc::new(versions) })
        });
        Some(groups.collect())
    }
}

impl RawVersion {
    fn checked(self, group: &str) -> Option<ServedVersion> {
        // `GroupResource` and `Resource` check group, version and resource together. The valid
        // resource name `x` limits the check to group and version, because a version without
        // resources is valid too.
        let any = GroupResource::new(group, "x").ok()?;
        Resource::new(any, &self.version).ok()?;
        let is_stale = self.freshness.as_deref() == Some("Stale");
        let resources = self.resources.unwrap_or_default().into_iter();
        let resources = resources.filter_map(|raw| raw.checked(group, &self.version)).collect();
        Some(ServedVersion { name: self.version.into(), is_stale, resources })
    }
}

impl RawResource {
    fn checked(self, group: &str, version: &str) -> Option<ResourceInfo> {
        let group_resource = GroupResource::new(group, &self.resource).ok()?;
        let resource = Resource::new(group_resource, version).ok()?;
        let mut verbs: Vec<Arc<str>> =
            self.verbs.unwrap_or_default().into_iter().map(Arc::from).collect();
        verbs.sort_unstable();
        verbs.dedup();
        let singular = self.singular_resource.filter(|name| is_name(name));
        Some(ResourceInfo {
            resource,
            kind: self.response_kind.and_then(|raw| raw.kind).unwrap_or_default().into(),
            is_namespaced: self.scope.as_deref() == Some("Namespaced"),
            verbs: verbs.into(),
            singular: singular.unwrap_or_default().into(),
            short_names: names(self.short_names),
            categories: names(self.categories),
        })
    }
}

fn names(names: Option<Vec<String>>) -> Arc<[Arc<str>]> {
    let all = names.unwrap_or_default().into_iter().filter(|name| is_name(name));
    all.take(NAMES).map(Arc::from).collect()
}

/// Returns whether `name` has 1 to 63 bytes. The names in a CRD must be DNS labels, whose maximum
/// length is 63 bytes.
fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<ServedGroup>> {
        serde_json::from_str::<RawGroupList>(text).unwrap().groups()
    }

    #[test]
    fn all_fields_of_a_document_are_parsed() {
        let text = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2",
            "metadata":{},"items":[{"metadata":{"name":"apps","creationTimestamp":null},
            "versions":[{"version":"v1","freshness":"Stale","resources":[{"resource":"deployments",
            "responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced",
            "singularResource":"deployment","verbs":["watch","list","get"],"shortNames":["deploy"],
            "categories":["all"],"subresources":[{"subresource":"scale","verbs":["get"]}]}]}]}]}"#;
        let groups = read(text).unwrap();
        assert_eq!(&*groups[0].name, "apps");
        let version = &groups[0].versions[0];
        assert_eq!((&*version.name, version.is_stale), ("v1", true));
        let deployments = &version.resources[0];
        assert_eq!(deployments.resource.to_string(), "deployments.v1.apps");
        assert_eq!(&*deployments.kind, "Deployment");
        assert!(deployments.is_namespaced);
        assert_eq!(deployments.verbs.join(","), "get,list,watch");
        assert_eq!(
            (&*deployments.singular, &*deployments.short_names.join(",")),
            ("deployment", "deploy")
        );
        assert_eq!(deployments.categories.join(","), "all");
    }

    #[test]
    fn short_names_and_categories_of_a_resource_are_limited() {
        let many: Vec<_> = (0..100).map(|at| format!("\"n{at}\"")).collect();
        let (many, long) = (many.join(","), "x".repeat(64));
        let text = format!(
            r#"{{"kind":"APIGroupDiscoveryList","items":[{{"versions":[{{"version":"v1",
            "resources":[{{"resource":"odds","singularResource":"{long}",
            "shortNames":["","{long}",{many}],"categories":[{many}],"verbs":[]}}]}}]}}]}}"#
        );
        let groups = read(&text).unwrap();
        let kind = &groups[0].versions[0].resources[0];
        assert_eq!((&*kind.singular, kind.short_names.len()), ("", NAMES));
        assert_eq!((&*kind.short_names[0], kind.categories.len()), ("n0", NAMES));
    }

    #[test]
    fn invalid_entries_are_skipped() {
        let text = r#"{"kind":"APIGroupDiscoveryList","items":[{},{"metadata":null},
            {"metadata":{"name":"../x"},"versions":[{"version":"v1"}]},
            {"metadata":{"name":"a.example"},"versions":[{"version":"v/1"},{"version":"v1",
            "resources":[{},{"resource":"a/b"},{"resource":"odds","responseKind":null,
            "verbs":null}]},{}]}]}"#;
        let groups = read(text).unwrap();
        assert_eq!(groups.len(), 1);
        let versions = &groups[0].versions;
        assert_eq!((&*groups[0].name, versions.len()), ("a.example", 1));
        let resources: Vec<_> = versions[0].resources.iter().map(|info| &info.resource).collect();
        assert_eq!(
            resources.iter().map(|resource| resource.resource()).collect::<Vec<_>>(),
            ["odds"]
        );
        assert_eq!(read(r#"{"kind":"APIGroupDiscoveryList","items":null}"#), None);
        assert_eq!(read(r#"{"kind":"Status"}"#), None);
        assert_eq!(read(r#"{"kind":"APIVersions","versions":["v1"]}"#), None);
    }
}
