//! Discovery documents as they come over the wire: the aggregated form, and the one before it.
//!
//! What lacks a name, or carries one that cannot be part of a path, is skipped: such a resource
//! could not be asked for anyway.

use super::served::{Freshness, Group, Groups, Kind, Version};
use kubewarm_api::model::{GroupResource, Resource};
use serde::Deserialize;
use std::{collections::BTreeMap, sync::Arc};

/// Short names that are kept of a resource, and categories: more than any has. They are kept for
/// every resource of the cluster, warmed or not.
const NAMES: usize = 16;

/// A document of `/api` or `/apis`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Document {
    /// Everything.
    Aggregated(Groups),
    /// Group versions only, the preferred of each group first: their resources are to be asked for
    /// one by one.
    Index(Vec<GroupVersion>),
}

/// A group and one of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupVersion {
    pub(super) group: Arc<str>,
    pub(super) version: Arc<str>,
}

/// Any of the three documents; the fields of the others are absent.
#[derive(Deserialize)]
pub(super) struct Raw {
    #[serde(default)]
    kind: String,
    /// Of an `APIGroupDiscoveryList`.
    #[serde(default)]
    items: Option<Vec<RawGroup>>,
    /// Of an `APIGroupList`.
    #[serde(default)]
    groups: Option<Vec<RawIndexGroup>>,
    /// Of `APIVersions`.
    #[serde(default)]
    versions: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RawGroup {
    #[serde(default)]
    metadata: Option<RawName>,
    #[serde(default)]
    versions: Option<Vec<RawVersion>>,
}

#[derive(Default, Deserialize)]
struct RawName {
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
struct RawVersion {
    #[serde(default)]
    version: String,
    #[serde(default)]
    freshness: Option<String>,
    #[serde(default)]
    resources: Option<Vec<RawResource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResource {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    response_kind: Option<RawKind>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    verbs: Option<Vec<String>>,
    #[serde(default)]
    singular_resource: Option<String>,
    #[serde(default)]
    short_names: Option<Vec<String>>,
    #[serde(default)]
    categories: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RawKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawIndexGroup {
    #[serde(default)]
    name: String,
    #[serde(default)]
    versions: Option<Vec<RawIndexVersion>>,
    #[serde(default)]
    preferred_version: Option<RawIndexVersion>,
}

#[derive(Deserialize)]
struct RawIndexVersion {
    #[serde(default)]
    version: String,
}

/// An `APIResourceList`.
#[derive(Deserialize)]
pub(super) struct RawResourceList {
    #[serde(default)]
    resources: Option<Vec<RawListedResource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawListedResource {
    #[serde(default)]
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Option<Vec<String>>,
    #[serde(default)]
    singular_name: Option<String>,
    #[serde(default)]
    short_names: Option<Vec<String>>,
    #[serde(default)]
    categories: Option<Vec<String>>,
}

/// What a resource is called besides its plural name, as the documents have it.
struct Called {
    kind: String,
    singular: Option<String>,
    short_names: Option<Vec<String>>,
    categories: Option<Vec<String>>,
}

impl Raw {
    /// Reads the document; `None` if it is none of discovery.
    pub(super) fn read(self) -> Option<Document> {
        match &*self.kind {
            "APIGroupDiscoveryList" => Some(Document::Aggregated(aggregated(self.items?))),
            "APIGroupList" => Some(Document::Index(index(self.groups?))),
            "APIVersions" => {
                let versions = self.versions?.into_iter();
                let named = versions.filter_map(|version| group_version("", &version));
                Some(Document::Index(named.collect()))
            }
            _ => None,
        }
    }
}

impl RawResourceList {
    /// The resources without subresources, which have a slash in their names.
    pub(super) fn read(self) -> BTreeMap<Arc<str>, Kind> {
        let listed = self.resources.unwrap_or_default().into_iter();
        listed
            .filter_map(|raw| {
                let called = Called {
                    kind: raw.kind,
                    singular: raw.singular_name,
                    short_names: raw.short_names,
                    categories: raw.categories,
                };
                entry(&raw.name, raw.namespaced, raw.verbs, called)
            })
            .collect()
    }
}

fn aggregated(items: Vec<RawGroup>) -> Groups {
    let mut groups = Groups::new();
    for item in items {
        // The core group's document has no name, or an empty one.
        let name = item.metadata.unwrap_or_default().name.unwrap_or_default();
        let mut versions = Vec::new();
        for raw in item.versions.unwrap_or_default() {
            let Some(GroupVersion { version, .. }) = group_version(&name, &raw.version) else {
                continue;
            };
            let freshness = match raw.freshness.as_deref() {
                Some("Stale") => Freshness::Stale,
                Some(_) | None => Freshness::Current,
            };
            let resources = raw.resources.unwrap_or_default().into_iter().filter_map(|raw| {
                let called = Called {
                    kind: raw.response_kind.map(|raw| raw.kind).unwrap_or_default(),
                    singular: raw.singular_resource,
                    short_names: raw.short_names,
                    categories: raw.categories,
                };
                let namespaced = raw.scope.as_deref() == Some("Namespaced");
                entry(&raw.resource, namespaced, raw.verbs, called)
            });
            versions.push(Version { name: version, freshness, resources: resources.collect() });
        }
        if !versions.is_empty() {
            groups.entry(name.into()).or_insert_with(|| Arc::new(Group(versions)));
        }
    }
    groups
}

fn index(groups: Vec<RawIndexGroup>) -> Vec<GroupVersion> {
    let mut all = Vec::new();
    for group in groups {
        let preferred = group.preferred_version.map(|raw| raw.version).unwrap_or_default();
        let mut versions: Vec<String> =
            group.versions.unwrap_or_default().into_iter().map(|raw| raw.version).collect();
        // Stable: the others stay in the server's order.
        versions.sort_by_key(|version| *version != preferred);
        all.extend(versions.iter().filter_map(|version| group_version(&group.name, version)));
    }
    all
}

fn group_version(group: &str, version: &str) -> Option<GroupVersion> {
    // Any plural will do: what is checked are the other two.
    let of = GroupResource::new(group, "x").ok()?;
    Resource::new(of, version).ok()?;
    Some(GroupVersion { group: group.into(), version: version.into() })
}

fn entry(
    plural: &str,
    namespaced: bool,
    verbs: Option<Vec<String>>,
    called: Called,
) -> Option<(Arc<str>, Kind)> {
    GroupResource::new("", plural).ok()?;
    let mut verbs: Vec<Arc<str>> = verbs.unwrap_or_default().into_iter().map(Arc::from).collect();
    verbs.sort_unstable();
    verbs.dedup();
    let Called { kind, singular, short_names, categories } = called;
    let kind = Kind {
        name: kind.into(),
        namespaced,
        verbs: verbs.into(),
        singular: singular.filter(|name| is_name(name)).unwrap_or_default().into(),
        short_names: names(short_names),
        categories: names(categories),
    };
    Some((plural.into(), kind))
}

/// At most [`NAMES`] of them, in the server's order.
fn names(names: Option<Vec<String>>) -> Box<[Arc<str>]> {
    let all = names.unwrap_or_default().into_iter().filter(|name| is_name(name));
    all.take(NAMES).map(Arc::from).collect()
}

/// The length is that of a DNS label, which a CRD's names have to be.
fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Document> {
        serde_json::from_str::<Raw>(text).unwrap().read()
    }

    #[test]
    fn the_aggregated_form_has_everything() {
        let text = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2",
            "metadata":{},"items":[{"metadata":{"name":"apps","creationTimestamp":null},
            "versions":[{"version":"v1","freshness":"Stale","resources":[{"resource":"deployments",
            "responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced",
            "singularResource":"deployment","verbs":["watch","list","get"],"shortNames":["deploy"],
            "categories":["all"],"subresources":[{"subresource":"scale","verbs":["get"]}]}]}]}]}"#;
        let Some(Document::Aggregated(groups)) = read(text) else { panic!("not aggregated") };
        let version = &groups["apps"].0[0];
        assert_eq!((&*version.name, version.freshness), ("v1", Freshness::Stale));
        let kind = &version.resources["deployments"];
        assert_eq!(&*kind.name, "Deployment");
        assert!(kind.namespaced);
        assert_eq!(kind.verbs.join(","), "get,list,watch");
        assert_eq!((&*kind.singular, &*kind.short_names.join(",")), ("deployment", "deploy"));
        assert_eq!(kind.categories.join(","), "all");
    }

    #[test]
    fn names_of_a_resource_have_a_bound() {
        let many: Vec<_> = (0..100).map(|at| format!("\"n{at}\"")).collect();
        let (many, long) = (many.join(","), "x".repeat(64));
        let text = format!(
            r#"{{"resources":[{{"name":"odds","kind":"Odd","singularName":"{long}",
            "shortNames":["","{long}",{many}],"categories":[{many}],"verbs":[]}}]}}"#
        );
        let resources = serde_json::from_str::<RawResourceList>(&text).unwrap().read();
        let kind = &resources["odds"];
        assert_eq!((&*kind.singular, kind.short_names.len()), ("", NAMES));
        assert_eq!((&*kind.short_names[0], kind.categories.len()), ("n0", NAMES));
    }

    #[test]
    fn odd_entries_are_skipped() {
        let text = r#"{"kind":"APIGroupDiscoveryList","items":[{},{"metadata":null},
            {"metadata":{"name":"../x"},"versions":[{"version":"v1"}]},
            {"metadata":{"name":"a.example"},"versions":[{"version":"v/1"},{"version":"v1",
            "resources":[{},{"resource":"a/b"},{"resource":"odds","responseKind":null,
            "verbs":null}]},{}]}]}"#;
        let Some(Document::Aggregated(groups)) = read(text) else { panic!("not aggregated") };
        assert_eq!(groups.len(), 1);
        let versions = &groups["a.example"].0;
        assert_eq!(versions.len(), 1);
        assert_eq!(versions[0].resources.keys().map(|name| &**name).collect::<Vec<_>>(), ["odds"]);
        assert_eq!(read(r#"{"kind":"APIGroupDiscoveryList","items":null}"#), None);
        assert_eq!(read(r#"{"kind":"Status"}"#), None);
    }

    #[test]
    fn an_index_lists_the_preferred_version_first() {
        let text = r#"{"kind":"APIGroupList","groups":[{"name":"a.example","versions":[
            {"groupVersion":"a.example/v1","version":"v1"},{"version":"v2"},{"version":"v3"}],
            "preferredVersion":{"version":"v2"}}]}"#;
        let Some(Document::Index(list)) = read(text) else { panic!("not an index") };
        let versions: Vec<_> = list.iter().map(|gv| &*gv.version).collect();
        assert_eq!(versions, ["v2", "v1", "v3"]);
        let Some(Document::Index(list)) = read(r#"{"kind":"APIVersions","versions":["v1"]}"#)
        else {
            panic!("not an index")
        };
        assert_eq!(list, [GroupVersion { group: "".into(), version: "v1".into() }]);
    }

    #[test]
    fn subresources_of_a_list_are_left_out() {
        let text = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
            {"name":"pods","kind":"Pod","namespaced":true,"verbs":["list","watch"]},
            {"name":"pods/log","kind":"Pod","namespaced":true,"verbs":["get"]}]}"#;
        let resources = serde_json::from_str::<RawResourceList>(text).unwrap().read();
        assert_eq!(resources.len(), 1);
        assert!(resources["pods"].namespaced);
    }
}
