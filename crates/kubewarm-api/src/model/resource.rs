//! Names of API resources. They are validated, so that they can be part of a URL path.

use super::ValidationError;
use std::{fmt, sync::Arc};

/// Group and plural name of a resource, without a version, because RBAC rules and most targets name
/// no version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    group: Arc<str>,
    resource: Arc<str>,
}

/// Group, version and plural name of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    group_resource: GroupResource,
    version: Arc<str>,
}

/// Discovery's description of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    /// Group, version and plural name.
    pub resource: Resource,
    /// Kind of one object, such as `Deployment`.
    pub kind: Arc<str>,
    /// Whether the resource is namespaced.
    pub is_namespaced: bool,
    /// Verbs that the API server supports for the resource, sorted.
    pub verbs: Arc<[Arc<str>]>,
    /// Singular name in lower case; empty if discovery reports no singular name.
    pub singular: Arc<str>,
    /// Short names that `kubectl` accepts, such as `deploy`.
    pub short_names: Arc<[Arc<str>]>,
    /// Categories that contain the resource, such as `all`.
    pub categories: Arc<[Arc<str>]>,
}

impl GroupResource {
    /// Creates the name of a resource. `group` must be empty (the core group) or a DNS subdomain of
    /// at most 253 bytes. `resource` must be a DNS label of at most 63 bytes.
    ///
    /// # Errors
    ///
    /// [`ValidationError`] with the invalid name in its message. The field `part` of the error is
    /// `group` or `resource`.
    pub fn new(group: &str, resource: &str) -> Result<Self, ValidationError> {
        if !group.is_empty() && !is_dns_subdomain(group) {
            return Err(ValidationError::part(
                "group",
                format!(
                    "group {group:?} is not a DNS subdomain such as \"apps\" or \"cert-manager.io\""
                ),
            ));
        }
        if !is_dns_label(resource) {
            return Err(ValidationError::part(
                "resource",
                format!(
                    "resource {resource:?} is not a plural name such as \"deployments\"; subresources \
                     cannot be warmed"
                ),
            ));
        }
        Ok(Self { group: group.into(), resource: resource.into() })
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The plural name, such as `deployments`.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Whether this is the resource `secrets` of the core group.
    pub fn is_secrets(&self) -> bool {
        self.group.is_empty() && &*self.resource == "secrets"
    }
}

impl Resource {
    /// Adds `version` to `group_resource`. The version must be a DNS label of at most 63 bytes.
    ///
    /// # Errors
    ///
    /// [`ValidationError`] if the version is not a DNS label. The error's `part` is `version`.
    pub fn new(group_resource: GroupResource, version: &str) -> Result<Self, ValidationError> {
        if !is_dns_label(version) {
            return Err(ValidationError::part(
                "version",
                format!("version {version:?} is not a DNS label such as \"v1\""),
            ));
        }
        Ok(Self { group_resource, version: version.into() })
    }

    /// The resource without its version.
    pub fn group_resource(&self) -> &GroupResource {
        &self.group_resource
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.group_resource.group()
    }

    /// The API version, such as `v1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The plural name, such as `deployments`.
    pub fn resource(&self) -> &str {
        self.group_resource.resource()
    }

    /// The `apiVersion` of an object, such as `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group() {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The URL path of the group and version, such as `/api/v1` or `/apis/apps/v1`.
    pub fn api_path(&self) -> String {
        if self.group().is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group(), self.version)
        }
    }
}

impl ResourceInfo {
    /// Creates the description of a namespaced resource. Verbs, singular name, short names and
    /// categories are empty.
    pub fn new(resource: Resource, kind: &str) -> Self {
        Self {
            resource,
            kind: kind.into(),
            is_namespaced: true,
            verbs: Arc::default(),
            singular: Arc::default(),
            short_names: Arc::default(),
            categories: Arc::default(),
        }
    }

    /// Whether `name` is the resource's plural name, singular name, kind or one of its short names.
    /// Upper and lower case count as equal.
    pub fn is_called(&self, name: &str) -> bool {
        [self.resource.resource(), &self.kind, &self.singular]
            .into_iter()
            .chain(self.short_names.iter().map(AsRef::as_ref))
            .any(|known| known.eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for GroupResource {
    /// Writes the name as `kubectl` does: `pods`, `deployments.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => f.write_str(&self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}

impl fmt::Display for Resource {
    /// Writes a name that `kubectl` accepts: `pods.v1`, `deployments.v1.apps`. For the core group,
    /// `kubectl` itself writes a trailing dot; this function does not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group() {
            "" => write!(f, "{}.{}", self.resource(), self.version),
            group => write!(f, "{}.{}.{group}", self.resource(), self.version),
        }
    }
}

/// Whether `text` is an RFC 1123 label: 1 to 63 lower-case letters, digits and inner hyphens.
pub fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether `text` is an RFC 1123 subdomain: labels joined by dots, at most 253 bytes.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_change_the_path_are_rejected() {
        for group in ["a/b", "..", "a..b", "A", "a%2Fb", "-a", "a b", "a\n", "*"] {
            assert!(GroupResource::new(group, "pods").is_err(), "group {group:?}");
        }
        for resource in ["", "pods/status", "..", "Pods", "pods?watch=1", "a.b", "*"] {
            assert!(GroupResource::new("", resource).is_err(), "resource {resource:?}");
        }
        let pods = GroupResource::new("", "pods").unwrap();
        for version in ["", "v1/x", "..", "V1", "v1#"] {
            assert!(Resource::new(pods.clone(), version).is_err(), "version {version:?}");
        }
    }

    #[test]
    fn resources_are_written_as_in_kubectl() {
        let pods = Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap();
        let apps = Resource::new(GroupResource::new("apps", "deployments").unwrap(), "v1").unwrap();
        assert_eq!((pods.to_string(), pods.api_path()), ("pods.v1".into(), "/api/v1".into()));
        assert_eq!((&*pods.api_version(), &*apps.api_version()), ("v1", "apps/v1"));
        assert_eq!(apps.to_string(), "deployments.v1.apps");
        assert_eq!(apps.api_path(), "/apis/apps/v1");
        assert_eq!(apps.group_resource().to_string(), "deployments.apps");
    }
}
