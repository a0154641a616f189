//! Writes the discovery documents for a list of resources.
//!
//! The groups, and the versions of each group, have the order of their first resources in the list.
//! The first version of a group is the group's preferred version.

use super::{ApiDocument, DiscoveryForm, base64};
use aws_lc_rs::digest;
use kubewarm_api::model::ResourceInfo;
use serde_json::{Value, json};

/// A discovery document and the values of its HTTP headers. The HTTP server adds `Vary: Accept` and
/// `Cache-Control: public`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryResponse {
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// Value of `ETag`, with its quotes.
    pub etag: String,
    /// The JSON document, with a line feed.
    pub body: Vec<u8>,
}

/// Media type of an aggregated discovery document.
pub const AGGREGATED_DISCOVERY: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const JSON: &str = "application/json";
/// The verbs in kubewarm's discovery documents. kubewarm serves all of them for every resource.
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// The API versions of a group in order of preference, each with its resources.
type ResourcesByVersion<'a> = Vec<(&'a str, Vec<&'a ResourceInfo>)>;

/// Writes the discovery document `document` for `resources`, which are in the API server's order.
///
/// Returns `None` if the document would list no resource: the client then gets 404. Returns `None`
/// also for `/version`, which lists no resources. The documents at `/api` and `/apis` always exist.
pub fn render_discovery_document(
    resources: &[ResourceInfo],
    document: &ApiDocument,
    listing: DiscoveryForm,
) -> Option<DiscoveryResponse> {
    match document {
        ApiDocument::Version => None,
        ApiDocument::Core => Some(core_document(resources, listing)),
        ApiDocument::Groups => Some(groups_document(resources, listing)),
        ApiDocument::Group(name) => group_document(resources, name),
        ApiDocument::Resources { group, version } => resources_document(resources, group, version),
    }
}

fn core_document(resources: &[ResourceInfo], listing: DiscoveryForm) -> DiscoveryResponse {
    let core = groups(resources, str::is_empty);
    match listing {
        DiscoveryForm::Aggregated => aggregated(&core),
        DiscoveryForm::Legacy => {
            let versions = core.iter().flat_map(|(_, versions)| versions).map(|(name, _)| *name);
            let versions: Value = versions.collect();
            let document = json!({
                "kind": "APIVersions",
                "versions": versions,
                "serverAddressByClientCIDRs": [],
            });
            sent(JSON, &document)
        }
    }
}

fn groups_document(resources: &[ResourceInfo], listing: DiscoveryForm) -> DiscoveryResponse {
    let listed = groups(resources, |group| !group.is_empty());
    match listing {
        DiscoveryForm::Aggregated => aggregated(&listed),
        DiscoveryForm::Legacy => {
            let groups: Value =
                listed.iter().map(|(name, versions)| group(name, versions)).collect();
            sent(JSON, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
    }
}

fn group_document(resources: &[ResourceInfo], name: &str) -> Option<DiscoveryResponse> {
    if name.is_empty() {
        return None;
    }
    let matching = groups(resources, |group| group == name);
    let (name, versions) = matching.first()?;
    let mut document = group(name, versions);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(sent(JSON, &document))
}

fn resources_document(
    resources: &[ResourceInfo],
    group: &str,
    version: &str,
) -> Option<DiscoveryResponse> {
    let is_of =
        |info: &&ResourceInfo| info.resource.group() == group && info.resource.version() == version;
    let served: Vec<_> = resources
        .iter()
        .filter(is_of)
        .map(|info| {
            let listed = json!({
                "name": info.resource.resource(),
                "singularName": &*info.singular,
                "namespaced": info.is_namespaced,
                "kind": &*info.kind,
                "verbs": VERBS,
            });
            with_names(listed, info)
        })
        .collect();
    if served.is_empty() {
        return None;
    }
    let group_version = group_version(group, version);
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": served});
    // As in the API server, the resource list of the core group has no field `apiVersion`.
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Some(sent(JSON, &document))
}

/// Returns whether the value of the header `If-None-Match` contains `etag`. If so, the response is
/// a 304 without a body.
pub fn is_known(if_none_match: &str, etag: &str) -> bool {
    let mut tags = if_none_match.split(',').map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

fn groups<'a>(
    resources: &'a [ResourceInfo],
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<(&'a str, ResourcesByVersion<'a>)> {
    let mut groups: Vec<(&str, ResourcesByVersion<'a>)> = Vec::new();
    for resource in resources.iter().filter(|resource| is_wanted(resource.resource.group())) {
        let versions = entry(&mut groups, resource.resource.group());
        entry(versions, resource.resource.version()).push(resource);
    }
    groups
}

/// Returns the value for `name` in `list`. If `list` does not contain `name`, appends `name` with a
/// default value. The search is linear, because a list of groups or versions is short.
fn entry<'a, 'b, T: Default>(list: &'b mut Vec<(&'a str, T)>, name: &'a str) -> &'b mut T {
    let at = list.iter().position(|(known, _)| *known == name).unwrap_or(list.len());
    if at == list.len() {
        list.push((name, T::default()));
    }
    &mut list[at].1
}

fn aggregated(groups: &[(&str, ResourcesByVersion<'_>)]) -> DiscoveryResponse {
    let version = |(version, resources): &(&str, Vec<&ResourceInfo>)| {
        let resources: Value = resources.iter().map(|info| aggregated_resource(info)).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let group = |(name, versions): &(&str, ResourcesByVersion<'_>)| {
        let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
        let versions: Value = versions.iter().map(version).collect();
        json!({"metadata": metadata, "versions": versions})
    };
    let items: Value = groups.iter().map(group).collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    sent(AGGREGATED_DISCOVERY, &document)
}

fn aggregated_resource(described: &ResourceInfo) -> Value {
    let ResourceInfo { resource, kind, is_namespaced, singular, .. } = described;
    let (group, version) = (resource.group(), resource.version());
    let served = json!({
        "resource": resource.resource(),
        "responseKind": {"group": group, "version": version, "kind": &**kind},
        "scope": if *is_namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &**singular,
        "verbs": VERBS,
    });
    with_names(served, described)
}

fn with_names(mut document: Value, resource: &ResourceInfo) -> Value {
    let members = [("shortNames", &resource.short_names), ("categories", &resource.categories)];
    for (member, names) in members.into_iter().filter(|(_, names)| !names.is_empty()) {
        document[member] = names.iter().map(|name| &**name).collect();
    }
    document
}

fn group<'a>(name: &'a str, versions: &ResourcesByVersion<'a>) -> Value {
    let version = |(version, _): &(&str, Vec<&ResourceInfo>)| json!({"groupVersion": group_version(name, version), "version": version});
    let versions: Vec<_> = versions.iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Serializes `document`. The entity tag is a hash of the response body. So equal documents have
/// equal entity tags in every replica of kubewarm.
fn sent(content_type: &'static str, document: &Value) -> DiscoveryResponse {
    let mut body = serde_json::to_vec(document).unwrap_or_default();
    body.push(b'\n');
    let tag = base64::encode(digest::digest(&digest::SHA256, &body).as_ref());
    DiscoveryResponse { content_type, etag: format!("\"{tag}\""), body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{GroupResource, Resource};

    fn resource(group: &str, version: &str, plural: &str, kind: &str) -> ResourceInfo {
        let group_resource = GroupResource::new(group, plural).unwrap();
        let resource = Resource::new(group_resource, version).unwrap();
        ResourceInfo { singular: kind.to_lowercase().into(), ..ResourceInfo::new(resource, kind) }
    }

    fn served() -> Vec<ResourceInfo> {
        let deployments = ResourceInfo {
            short_names: ["deploy".into()].into(),
            categories: ["all".into()].into(),
            ..resource("apps", "v1", "deployments", "Deployment")
        };
        let nodes = ResourceInfo { is_namespaced: false, ..resource("", "v1", "nodes", "Node") };
        vec![
            nodes,
            deployments,
            resource("shop.example", "v2", "orders", "Order"),
            resource("shop.example", "v1", "orders", "Order"),
            resource("apps", "v1", "daemonsets", "DaemonSet"),
        ]
    }

    fn body(sent: &DiscoveryResponse) -> Value {
        assert!(sent.body.ends_with(b"\n"));
        serde_json::from_slice(&sent.body).unwrap()
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn aggregated_documents_contain_all_resources() {
        let core = core_document(&served(), DiscoveryForm::Aggregated);
        assert_eq!(
            body(&core),
            value(
                r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"nodes","responseKind":{"group":"","version":"v1","kind":"Node"},"scope":"Cluster","singularResource":"node","verbs":["get","list","watch"]}],"freshness":"Current"}]}]}"#
            )
        );
        assert_eq!(core.content_type, AGGREGATED_DISCOVERY);
        let document = groups_document(&served()[1..3], DiscoveryForm::Aggregated);
        assert_eq!(
            body(&document),
            value(
                r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"deployments","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["get","list","watch"],"shortNames":["deploy"],"categories":["all"]}],"freshness":"Current"}]},{"metadata":{"name":"shop.example"},"versions":[{"version":"v2","resources":[{"resource":"orders","responseKind":{"group":"shop.example","version":"v2","kind":"Order"},"scope":"Namespaced","singularResource":"order","verbs":["get","list","watch"]}],"freshness":"Current"}]}]}"#
            )
        );
    }

    #[test]
    fn legacy_documents_match_the_api_server() {
        let all = served();
        assert_eq!(
            body(&core_document(&all, DiscoveryForm::Legacy)),
            value(r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#)
        );
        assert_eq!(
            body(&groups_document(&all, DiscoveryForm::Legacy)),
            value(
                r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}},{"name":"shop.example","versions":[{"groupVersion":"shop.example/v2","version":"v2"},{"groupVersion":"shop.example/v1","version":"v1"}],"preferredVersion":{"groupVersion":"shop.example/v2","version":"v2"}}]}"#
            )
        );
        assert_eq!(
            body(&group_document(&all, "apps").unwrap()),
            value(
                r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#
            )
        );
        assert_eq!(
            body(&resources_document(&all, "", "v1").unwrap()),
            value(
                r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"nodes","singularName":"node","namespaced":false,"kind":"Node","verbs":["get","list","watch"]}]}"#
            )
        );
        assert_eq!(
            body(&resources_document(&all, "apps", "v1").unwrap()),
            value(
                r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["get","list","watch"],"shortNames":["deploy"],"categories":["all"]},{"name":"daemonsets","singularName":"daemonset","namespaced":true,"kind":"DaemonSet","verbs":["get","list","watch"]}]}"#
            )
        );
    }

    #[test]
    fn unserved_groups_have_no_document_but_api_and_apis_always_exist() {
        let all = served();
        assert_eq!(group_document(&all, ""), None);
        assert_eq!(group_document(&all, "none.example"), None);
        assert_eq!(resources_document(&all, "apps", "v2"), None);
        assert_eq!(resources_document(&all, "none.example", "v1"), None);
        let empty = value(
            r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}"#,
        );
        assert_eq!(body(&core_document(&[], DiscoveryForm::Aggregated)), empty);
        assert_eq!(body(&groups_document(&[], DiscoveryForm::Aggregated)), empty);
        assert_eq!(body(&core_document(&[], DiscoveryForm::Legacy))["versions"], json!([]));
        assert_eq!(body(&groups_document(&[], DiscoveryForm::Legacy))["groups"], json!([]));
    }

    #[test]
    fn different_documents_have_different_entity_tags() {
        let (all, fewer) = (served(), &served()[..2]);
        let tag = groups_document(&all, DiscoveryForm::Aggregated).etag;
        assert_eq!(groups_document(&served(), DiscoveryForm::Aggregated).etag, tag);
        assert_ne!(groups_document(fewer, DiscoveryForm::Aggregated).etag, tag);
        assert_ne!(groups_document(&all, DiscoveryForm::Legacy).etag, tag);
        assert!(is_known(&tag, &tag) && is_known(&format!("\"x\", W/{tag}"), &tag));
        assert!(is_known("*", &tag));
        assert!(!is_known("", &tag) && !is_known("\"x\"", &tag));
        assert!(!is_known(tag.trim_matches('"'), &tag));
    }
}
