//! A snapshot of the resources that the API server serves. kubewarm looks up the resources of
//! targets in this snapshot.

use kubewarm_api::model::{GroupResource, Refusal, RefusalReason, Resource, ResourceInfo};
use std::sync::Arc;

const SUGGESTIONS: usize = 3;

/// A group and its versions. The API server's preferred version is the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedGroup {
    /// The name of the group; empty for the core group.
    pub(super) name: Arc<str>,
    pub(super) versions: Arc<Vec<ServedVersion>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServedVersion {
    pub(super) name: Arc<str>,
    /// Whether the API server could not reach the aggregated server of the group. In this case,
    /// `resources` can be outdated.
    pub(super) is_stale: bool,
    /// The version's resources, without subresources, because a profile cannot name a subresource.
    pub(super) resources: Vec<ResourceInfo>,
}

/// An immutable snapshot of the resources that the API server serves.
///
/// Groups, versions and resources have the API server's order, because clients take the first
/// version of a group as the preferred one. Lookups are linear, because the lists are short: a
/// discovery document has a size limit of 32 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedResources {
    groups: Vec<ServedGroup>,
}

impl ServedVersion {
    fn get(&self, plural: &str) -> Option<&ResourceInfo> {
        self.resources.iter().find(|info| info.resource.resource() == plural)
    }
}

impl ServedResources {
    /// Joins the documents of `/api` and `/apis`. While the API server cannot reach an aggregated
    /// API server, the document marks its versions as stale and can omit their resources. Such a
    /// version gets its resources from `previous`, so that kubewarm does not stop their informers.
    pub(super) fn new(
        core: &[ServedGroup],
        groups: &[ServedGroup],
        previous: Option<&Self>,
    ) -> Self {
        let mut groups: Vec<_> = core.iter().chain(groups).cloned().collect();
        for ServedGroup { name, versions } in &mut groups {
            let Some(known) = previous.and_then(|previous| previous.versions(name)) else {
                continue;
            };
            let forgotten =
                |version: &ServedVersion| version.is_stale && version.resources.is_empty();
            if !versions.iter().any(forgotten) {
                continue;
            }
            for version in Arc::make_mut(versions) {
                if forgotten(version)
                    && let Some(last) = known.iter().find(|last| last.name == version.name)
                {
                    version.resources.clone_from(&last.resources);
                }
            }
        }
        Self { groups }
    }

    fn versions(&self, group: &str) -> Option<&[ServedVersion]> {
        let group = self.groups.iter().find(|entry| *entry.name == *group)?;
        Some(&group.versions)
    }

    /// Returns the description of `resource` in `version`. If `version` is `None`, selects the
    /// first version in the server's order of preference in which `resource` supports `list` and
    /// `watch`.
    ///
    /// The name of the resource must match exactly: plural, lower case.
    ///
    /// # Errors
    ///
    /// [`RefusalReason::UnknownResource`] with suggestions if the API server does not serve the
    /// resource. [`RefusalReason::NotListable`] if the resource lacks `list` or `watch`.
    pub fn resolve(
        &self,
        resource: &GroupResource,
        version: Option<&str>,
    ) -> Result<ResourceInfo, Refusal> {
        let unknown = |message| Refusal::new(RefusalReason::UnknownResource, message);
        let Some(versions) = self.versions(resource.group()) else {
            return Err(unknown(self.group_unknown(resource)));
        };
        let served = || versions.iter().filter_map(|entry| entry.get(resource.resource()));
        let wanted =
            || served().filter(|info| version.is_none_or(|v| info.resource.version() == v));
        let info = wanted().find(|info| missing_verb(info).is_none()).or_else(|| wanted().next());
        let Some(info) = info else {
            return Err(unknown(match (version, served().next()) {
                (Some(version), Some(_)) => {
                    let names: Vec<&str> = served().map(|info| info.resource.version()).collect();
                    format!(
                        "version: {resource} is not served in version {version:?}, but in {}; \
                         leave version out to follow the server's preference",
                        names.join(", ")
                    )
                }
                _ => self.resource_unknown(resource, versions),
            }));
        };
        if let Some(missing) = missing_verb(info) {
            let verbs =
                if info.verbs.is_empty() { "none".to_owned() } else { info.verbs.join(", ") };
            return Err(Refusal::new(
                RefusalReason::NotListable,
                format!(
                    "resource: {resource} cannot be kept warm, it has no verb {missing} (its \
                     verbs: {verbs}); remove the target"
                ),
            ));
        }
        Ok(info.clone())
    }

    /// Returns all resources that the API server serves, in the API server's order.
    pub fn resources(&self) -> impl Iterator<Item = &ResourceInfo> {
        let versions = self.groups.iter().flat_map(|group| &**group.versions);
        versions.flat_map(|version| &version.resources)
    }

    /// Returns the description of `resource`; `None` if the API server does not serve this
    /// resource.
    pub fn get(&self, resource: &Resource) -> Option<&ResourceInfo> {
        let mut versions = self.versions(resource.group())?.iter();
        versions.find(|version| *version.name == *resource.version())?.get(resource.resource())
    }

    /// Returns whether the API server serves each resource of `earlier` in the same version.
    pub(super) fn contains_all_of(&self, earlier: &Self) -> bool {
        self == earlier || earlier.resources().all(|info| self.get(&info.resource).is_some())
    }

    fn group_unknown(&self, resource: &GroupResource) -> String {
        format!(
            "group: this cluster serves no group {:?}; the target starts by itself once \
             its CustomResourceDefinition or API service is installed{}",
            resource.group(),
            self.other_groups(resource)
        )
    }

    fn resource_unknown(&self, resource: &GroupResource, versions: &[ServedVersion]) -> String {
        let place = match resource.group() {
            "" => "the core group".to_owned(),
            group => format!("group {group:?}"),
        };
        if versions.iter().any(|version| version.is_stale) {
            return format!(
                "resource: {place} does not answer the API server, so it is not known \
                 whether it serves {:?}; see `kubectl get apiservices`",
                resource.resource()
            );
        }
        let mut alike: Vec<&str> = versions
            .iter()
            .flat_map(|version| &version.resources)
            .filter(|served| is_like(served, resource.resource()))
            .map(|served| served.resource.resource())
            .collect();
        alike.sort_unstable();
        alike.dedup();
        alike.truncate(SUGGESTIONS);
        let advice = if alike.is_empty() {
            "the target starts by itself once it does".to_owned()
        } else {
            format!("did you mean {}?", alike.join(" or "))
        };
        format!(
            "resource: {place} serves no resource {:?}; {advice}{}",
            resource.resource(),
            self.other_groups(resource)
        )
    }

    /// Returns a hint about other groups that have a resource with the same plural as `resource`,
    /// for an error message. Users often omit the group or name a wrong group.
    fn other_groups(&self, resource: &GroupResource) -> String {
        let others: Vec<String> = self
            .groups
            .iter()
            .filter(|group| *group.name != *resource.group())
            .filter(|group| {
                group.versions.iter().any(|version| version.get(resource.resource()).is_some())
            })
            .map(|group| format!("{:?}", group.name))
            .take(SUGGESTIONS)
            .collect();
        if others.is_empty() {
            return String::new();
        }
        format!("; group {} serves {:?}", others.join(" and "), resource.resource())
    }
}

/// Returns `list` or `watch` if `served` lacks this verb. An informer needs both verbs.
fn missing_verb(served: &ResourceInfo) -> Option<&'static str> {
    ["list", "watch"].into_iter().find(|verb| !served.verbs.iter().any(|has| **has == **verb))
}

/// Returns whether the plural `asked` might be a misspelling or another name of `served`.
fn is_like(served: &ResourceInfo, asked: &str) -> bool {
    let plural = served.resource.resource().as_bytes();
    served.is_called(asked) || (asked.len() >= 4 && is_near(plural, asked.as_bytes()))
}

/// Returns whether one edit changes `a` into `b`: one byte inserted, removed or replaced.
fn is_near(a: &[u8], b: &[u8]) -> bool {
    let same_start = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let same_end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let longest = a.len().max(b.len());
    a.len().abs_diff(b.len()) <= 1 && same_start + same_end + 1 >= longest
}

impl ServedResources {
    /// Returns a snapshot that contains only `resource`, as a namespaced resource of this `kind`.
    /// For tests.
    pub fn with_resource(resource: &Resource, kind: &str) -> Self {
        let resources = vec![ResourceInfo::new(resource.clone(), kind)];
        let version = ServedVersion {
            name: resource.version().into(),
            resources,
            ..ServedVersion::default()
        };
        let versions = Arc::new(vec![version]);
        Self { groups: vec![ServedGroup { name: resource.group().into(), versions }] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[&str] = &["get", "list", "watch"];

    fn version(group: &str, name: &str, resources: &[(&str, &str, &[&str])]) -> ServedVersion {
        let resource = |&(plural, kind, verbs): &(&str, &str, &[&str])| {
            let resource = GroupResource::new(group, plural).unwrap();
            ResourceInfo {
                verbs: verbs.iter().map(|verb| Arc::from(*verb)).collect(),
                singular: kind.to_lowercase().into(),
                ..ResourceInfo::new(Resource::new(resource, name).unwrap(), kind)
            }
        };
        let resources = resources.iter().map(resource).collect();
        ServedVersion { name: name.into(), is_stale: false, resources }
    }

    fn groups(list: &[(&str, &[ServedVersion])]) -> Vec<ServedGroup> {
        let group = |(name, versions): &(&str, &[ServedVersion])| ServedGroup {
            name: Arc::from(*name),
            versions: Arc::new(versions.to_vec()),
        };
        list.iter().map(group).collect()
    }

    fn served() -> ServedResources {
        let core = [("pods", "Pod", ALL), ("bindings", "Binding", &["create"])];
        let core = groups(&[("", &[version("", "v1", &core)])]);
        let (orders, carts) = (("orders", "Order", ALL), ("carts", "Cart", ALL));
        let shop = "shop.example";
        let groups = groups(&[
            (shop, &[version(shop, "v2", &[orders]), version(shop, "v1", &[orders, carts])]),
            ("apps", &[version("apps", "v1", &[("deployments", "Deployment", ALL)])]),
        ]);
        ServedResources::new(&core, &groups, None)
    }

    fn resolve(group: &str, plural: &str, version: Option<&str>) -> Result<String, Refusal> {
        let resource = GroupResource::new(group, plural).unwrap();
        served().resolve(&resource, version).map(|target| target.resource.to_string())
    }

    #[test]
    fn an_unset_version_resolves_to_the_preferred_version_that_serves_the_resource() {
        assert_eq!(resolve("", "pods", None).unwrap(), "pods.v1");
        assert_eq!(resolve("shop.example", "orders", None).unwrap(), "orders.v2.shop.example");
        assert_eq!(resolve("shop.example", "carts", None).unwrap(), "carts.v1.shop.example");
        assert_eq!(
            resolve("shop.example", "orders", Some("v1")).unwrap(),
            "orders.v1.shop.example"
        );
    }

    #[test]
    fn the_message_about_an_unknown_resource_suggests_a_fix() {
        for (group, plural, version, expected) in [
            ("apps", "deployment", None, "did you mean deployments?"),
            ("apps", "deploymnets", None, "serves no resource \"deploymnets\""),
            ("apps", "deploments", None, "did you mean deployments?"),
            ("", "deployments", None, "group \"apps\" serves \"deployments\""),
            ("none.example", "pods", None, "serves no group \"none.example\""),
            ("none.example", "pods", None, "group \"\" serves \"pods\""),
            ("shop.example", "carts", Some("v2"), "not served in version \"v2\", but in v1"),
            ("shop.example", "orders", Some("v9"), "but in v2, v1"),
        ] {
            let refusal = resolve(group, plural, version).unwrap_err();
            assert_eq!(refusal.reason, RefusalReason::UnknownResource);
            assert!(refusal.message.contains(expected), "{expected} in {}", refusal.message);
        }
    }

    #[test]
    fn a_resource_without_list_or_watch_is_not_listable() {
        let refusal = resolve("", "bindings", None).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::NotListable);
        assert!(refusal.message.contains("no verb list (its verbs: create)"), "{refusal}");
    }

    #[test]
    fn a_stale_version_keeps_its_last_resources() {
        let stale = ServedVersion { is_stale: true, ..version("shop.example", "v1", &[]) };
        let before = served();
        let now = groups(&[("shop.example", &[version("shop.example", "v2", &[]), stale.clone()])]);
        let kept = ServedResources::new(&[], &now, Some(&before));
        let carts = GroupResource::new("shop.example", "carts").unwrap();
        assert!(kept.resolve(&carts, None).is_ok());
        assert!(kept.versions("apps").is_none());

        let never_seen = ServedResources::new(&[], &groups(&[("x.example", &[stale])]), None);
        let carts = GroupResource::new("x.example", "carts").unwrap();
        let refusal = never_seen.resolve(&carts, None).unwrap_err();
        assert!(refusal.message.contains("does not answer"), "{refusal}");
    }

    #[test]
    fn groups_versions_and_resources_keep_the_api_servers_order() {
        let served = served();
        let all: Vec<_> = served.resources().map(|info| info.resource.to_string()).collect();
        assert_eq!(
            all,
            [
                "pods.v1",
                "bindings.v1",
                "orders.v2.shop.example",
                "orders.v1.shop.example",
                "carts.v1.shop.example",
                "deployments.v1.apps",
            ]
        );
        for described in served.resources() {
            assert_eq!(served.get(&described.resource), Some(described));
        }
        let carts = GroupResource::new("shop.example", "carts").unwrap();
        assert_eq!(served.get(&Resource::new(carts, "v2").unwrap()), None);
    }
}
