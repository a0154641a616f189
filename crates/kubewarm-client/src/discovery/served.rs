//! What the API server serves: a snapshot of discovery, and what a target comes to in it.

use kubewarm_api::model::{GroupResource, Refusal, RefusalReason, Resource, ResourceInfo};
use std::{collections::BTreeMap, sync::Arc};

/// At most so many look-alikes in a message.
const SUGGESTIONS: usize = 3;

/// The groups with a dot that kube-apiserver serves itself, as of 1.37; a CRD has a dot in its group.
const BUILTIN_GROUPS: &[&str] = &[
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// The versions of each group by its name, the preferred version first. The name of the core group is empty. Bounded by
/// the size cap of the documents.
pub(super) type Groups = BTreeMap<Arc<str>, Arc<Vec<Version>>>;

/// One version of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) name: Arc<str>,
    /// The API server could not reach the aggregated server of the group. The resources are from its last answer.
    pub(super) is_stale: bool,
    /// By plural name; without subresources.
    pub(super) resources: BTreeMap<Arc<str>, ResourceInfo>,
}

/// A snapshot of discovery. Immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    groups: Groups,
}

impl Served {
    /// Joins the documents of `/api` and `/apis`. Where a version is stale and lists nothing,
    /// `previous` knows what it served.
    pub(super) fn new(core: &Groups, named: &Groups, previous: Option<&Self>) -> Self {
        let mut groups = core.clone();
        for (name, group) in named {
            groups.entry(Arc::clone(name)).or_insert_with(|| Arc::clone(group));
        }
        for (name, group) in &mut groups {
            let Some(known) = previous.and_then(|previous| previous.groups.get(name)) else {
                continue;
            };
            let forgotten = |version: &Version| version.is_stale && version.resources.is_empty();
            if !group.iter().any(forgotten) {
                continue;
            }
            for version in Arc::make_mut(group) {
                if forgotten(version)
                    && let Some(last) = known.iter().find(|last| last.name == version.name)
                {
                    version.resources.clone_from(&last.resources);
                }
            }
        }
        Self { groups }
    }

    /// Resolves `of` in `version`, or where that is unset in the first version, by the server's
    /// preference, that serves it. Names are matched exactly: plural, lower case.
    ///
    /// # Errors
    ///
    /// [`RefusalReason::UnknownResource`], with what looks alike; [`RefusalReason::NotListable`] if
    /// `list` or `watch` is missing.
    pub fn resolve(
        &self,
        of: &GroupResource,
        version: Option<&str>,
    ) -> Result<ResourceInfo, Refusal> {
        let unknown = |message| Refusal::new(RefusalReason::UnknownResource, message);
        let Some(versions) = self.groups.get(of.group()) else {
            return Err(unknown(self.group_unknown(of)));
        };
        let served = || versions.iter().filter_map(|it| it.resources.get(of.resource()));
        let wanted = || served().filter(|it| version.is_none_or(|v| it.resource.version() == v));
        let found = wanted().find(|it| missing_verb(it).is_none()).or_else(|| wanted().next());
        let Some(found) = found else {
            return Err(unknown(match (version, served().next()) {
                (Some(version), Some(_)) => {
                    let names: Vec<&str> = served().map(|it| it.resource.version()).collect();
                    format!(
                        "version: {of} is not served in version {version:?}, but in {}; \
                         leave version out to follow the server's preference",
                        names.join(", ")
                    )
                }
                _ => self.resource_unknown(of, versions),
            }));
        };
        if let Some(missing) = missing_verb(found) {
            let verbs =
                if found.verbs.is_empty() { "none".to_owned() } else { found.verbs.join(", ") };
            return Err(Refusal::new(
                RefusalReason::NotListable,
                format!(
                    "resource: {of} cannot be kept warm, it has no verb {missing} (its \
                     verbs: {verbs}); remove the target"
                ),
            ));
        }
        Ok(found.clone())
    }

    /// All resources: built-in groups before others, each by name; the versions of a group by the
    /// server's preference; the resources of a version by name.
    pub fn resources(&self) -> impl Iterator<Item = &ResourceInfo> {
        let is_builtin = |(name, _): &(&Arc<str>, &Arc<Vec<Version>>)| is_builtin_group(name);
        let builtin = self.groups.iter().filter(is_builtin);
        let others = self.groups.iter().filter(move |group| !is_builtin(group));
        let versions = builtin.chain(others).flat_map(|(_, versions)| &**versions);
        versions.flat_map(|version| version.resources.values())
    }

    /// The description of `resource`; `None` if it is not served.
    #[must_use]
    pub fn described(&self, resource: &Resource) -> Option<&ResourceInfo> {
        let mut versions = self.groups.get(resource.group())?.iter();
        let version = versions.find(|version| *version.name == *resource.version())?;
        version.resources.get(resource.resource())
    }

    fn group_unknown(&self, of: &GroupResource) -> String {
        format!(
            "group: this cluster serves no group {:?}; the target starts by itself once \
             its CustomResourceDefinition or API service is installed{}",
            of.group(),
            self.other_groups(of)
        )
    }

    fn resource_unknown(&self, of: &GroupResource, versions: &[Version]) -> String {
        let place = match of.group() {
            "" => "the core group".to_owned(),
            group => format!("group {group:?}"),
        };
        if versions.iter().any(|version| version.is_stale) {
            return format!(
                "resource: {place} does not answer the API server, so it is not known \
                 whether it serves {:?}; see `kubectl get apiservices`",
                of.resource()
            );
        }
        let mut alike: Vec<&str> = versions
            .iter()
            .flat_map(|version| version.resources.values())
            .filter(|served| is_like(served, of.resource()))
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
            of.resource(),
            self.other_groups(of)
        )
    }

    /// The same plural in other groups: people forget, or mistake, the group.
    fn other_groups(&self, of: &GroupResource) -> String {
        let others: Vec<String> = self
            .groups
            .iter()
            .filter(|(name, _)| &***name != of.group())
            .filter(|(_, versions)| {
                versions.iter().any(|v| v.resources.contains_key(of.resource()))
            })
            .map(|(name, _)| format!("{name:?}"))
            .take(SUGGESTIONS)
            .collect();
        if others.is_empty() {
            return String::new();
        }
        format!("; group {} serves {:?}", others.join(" and "), of.resource())
    }
}

/// Of the two verbs that an informer needs, the first that is missing.
fn missing_verb(served: &ResourceInfo) -> Option<&'static str> {
    ["list", "watch"].into_iter().find(|verb| !served.verbs.iter().any(|has| **has == **verb))
}

/// Whether the author of a profile may have meant `served` by the plural `asked`.
fn is_like(served: &ResourceInfo, asked: &str) -> bool {
    let plural = served.resource.resource().as_bytes();
    served.is_called(asked) || (asked.len() >= 4 && is_near(plural, asked.as_bytes()))
}

/// Whether the API server itself serves a group: the core group, one without a dot such as `apps`,
/// or one of its own below `k8s.io`.
///
/// Discovery does not say which groups come from CRDs and which from API services, and both occur
/// below `k8s.io` (`snapshot.storage.k8s.io`, `metrics.k8s.io`), so these are listed: a group that a
/// later Kubernetes adds counts as foreign, which is the careful side.
#[must_use]
pub fn is_builtin_group(group: &str) -> bool {
    !group.contains('.') || BUILTIN_GROUPS.contains(&group)
}

/// Whether one edit (a byte more, less, or another) leads from one to the other.
fn is_near(a: &[u8], b: &[u8]) -> bool {
    let same_start = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let same_end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let longest = a.len().max(b.len());
    a.len().abs_diff(b.len()) <= 1 && same_start + same_end + 1 >= longest
}

impl Served {
    /// A snapshot in which `of` alone is served; its objects live in namespaces and are called `kind`.
    #[must_use]
    pub fn with(of: &Resource, kind: &str) -> Self {
        let resources = [(of.resource().into(), ResourceInfo::new(of.clone(), kind))].into();
        let version = Version { name: of.version().into(), resources, ..Version::default() };
        Self { groups: [(of.group().into(), Arc::new(vec![version]))].into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[&str] = &["get", "list", "watch"];

    /// A version of `group`; each resource with its kind and verbs.
    fn version(group: &str, name: &str, resources: &[(&str, &str, &[&str])]) -> Version {
        let resource = |&(plural, kind, verbs): &(&str, &str, &[&str])| {
            let of = GroupResource::new(group, plural).unwrap();
            let described = ResourceInfo {
                verbs: verbs.iter().map(|verb| Arc::from(*verb)).collect(),
                singular: kind.to_lowercase().into(),
                ..ResourceInfo::new(Resource::new(of, name).unwrap(), kind)
            };
            (Arc::from(plural), described)
        };
        let resources = resources.iter().map(resource).collect();
        Version { name: name.into(), is_stale: false, resources }
    }

    fn groups(list: &[(&str, &[Version])]) -> Groups {
        let group = |versions: &[Version]| Arc::new(versions.to_vec());
        list.iter().map(|(name, versions)| (Arc::from(*name), group(versions))).collect()
    }

    fn served() -> Served {
        let core = [("pods", "Pod", ALL), ("bindings", "Binding", &["create"])];
        let core = groups(&[("", &[version("", "v1", &core)])]);
        let (orders, carts) = (("orders", "Order", ALL), ("carts", "Cart", ALL));
        let shop = "shop.example";
        let named = groups(&[
            ("apps", &[version("apps", "v1", &[("deployments", "Deployment", ALL)])]),
            (shop, &[version(shop, "v2", &[orders]), version(shop, "v1", &[orders, carts])]),
        ]);
        Served::new(&core, &named, None)
    }

    fn resolve(group: &str, plural: &str, version: Option<&str>) -> Result<String, Refusal> {
        let of = GroupResource::new(group, plural).unwrap();
        served().resolve(&of, version).map(|target| target.resource.to_string())
    }

    #[test]
    fn an_unset_version_is_the_first_preferred_one_that_serves_the_resource() {
        assert_eq!(resolve("", "pods", None).unwrap(), "pods.v1");
        assert_eq!(resolve("shop.example", "orders", None).unwrap(), "orders.v2.shop.example");
        assert_eq!(resolve("shop.example", "carts", None).unwrap(), "carts.v1.shop.example");
        assert_eq!(
            resolve("shop.example", "orders", Some("v1")).unwrap(),
            "orders.v1.shop.example"
        );
    }

    #[test]
    fn what_is_not_served_is_unknown_and_the_message_helps() {
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
    fn without_list_or_watch_a_resource_is_not_listable() {
        let refusal = resolve("", "bindings", None).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::NotListable);
        assert!(refusal.message.contains("no verb list (its verbs: create)"), "{refusal}");
    }

    #[test]
    fn a_stale_version_keeps_what_it_served_last() {
        let stale = Version { is_stale: true, ..version("shop.example", "v1", &[]) };
        let before = served();
        let now = groups(&[("shop.example", &[version("shop.example", "v2", &[]), stale.clone()])]);
        let kept = Served::new(&Groups::new(), &now, Some(&before));
        let of = GroupResource::new("shop.example", "carts").unwrap();
        assert!(kept.resolve(&of, None).is_ok());
        assert!(!kept.groups.contains_key("apps"));

        let never_seen = Served::new(&Groups::new(), &groups(&[("x.example", &[stale])]), None);
        let of = GroupResource::new("x.example", "carts").unwrap();
        let refusal = never_seen.resolve(&of, None).unwrap_err();
        assert!(refusal.message.contains("does not answer"), "{refusal}");
    }

    #[test]
    fn resources_are_in_the_order_in_which_clients_prefer_them() {
        let served = served();
        let all: Vec<_> = served.resources().map(|it| it.resource.to_string()).collect();
        assert_eq!(
            all,
            [
                "bindings.v1",
                "pods.v1",
                "deployments.v1.apps",
                "orders.v2.shop.example",
                "carts.v1.shop.example",
                "orders.v1.shop.example",
            ]
        );
        for described in served.resources() {
            assert_eq!(served.described(&described.resource), Some(described));
        }
        let of = GroupResource::new("shop.example", "carts").unwrap();
        assert_eq!(served.described(&Resource::new(of, "v2").unwrap()), None);
    }

    #[test]
    fn only_the_servers_own_groups_are_builtin() {
        for group in ["", "apps", "batch", "events.k8s.io", "rbac.authorization.k8s.io"] {
            assert!(is_builtin_group(group), "{group}");
        }
        for group in ["metrics.k8s.io", "snapshot.storage.k8s.io", "cert-manager.io"] {
            assert!(!is_builtin_group(group), "{group}");
        }
    }
}
