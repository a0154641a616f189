//! Parses request paths. Rejects a path that two servers could parse differently, so kubewarm never
//! serves it.

use super::{StatusError, query_parameters::decode};
use kubewarm_api::model::{GroupResource, ProfileRef, Resource, is_dns_label, is_dns_subdomain};
use std::{borrow::Cow, slice, sync::Arc};

/// Splits a path that begins with `/profiles/<namespace>/<name>` into the profile and the path
/// below it. Returns any other path unchanged.
pub(super) fn split_profile(path: &str) -> (Option<ProfileRef>, &str) {
    let split = || {
        let inner = path.strip_prefix('/')?.strip_prefix(PROFILES)?.strip_prefix('/')?;
        let (namespace, behind) = inner.split_once('/')?;
        let (name, below) = behind.split_at_checked(behind.find('/').unwrap_or(behind.len()))?;
        let is_profile = is_dns_label(namespace) && is_dns_subdomain(name);
        let profile = ProfileRef { namespace: namespace.into(), name: name.into() };
        is_profile.then_some((Some(profile), if below.is_empty() { "/" } else { below }))
    };
    split().unwrap_or((None, path))
}

/// First segment of the paths `/profiles/<namespace>/<name>/…`, below which only the informers of
/// one profile answer.
const PROFILES: &str = "profiles";
/// Verbs in deprecated API paths, such as `watch` in `/api/v1/watch/pods`.
const OLD_VERBS: [&str; 2] = ["watch", "proxy"];
/// First segment of paths with a namespace, and the plural name of Namespace objects.
const NAMESPACES: &str = "namespaces";
/// Subresources of a Namespace object. `/api/v1/namespaces/a/status` is the status of the Namespace
/// `a`. It is not a resource `status` in the namespace `a`.
const OF_NAMESPACES: [&str; 2] = ["status", "finalize"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestPath {
    Document(ApiDocument),
    Objects(ResourcePath),
    /// A path that kubewarm does not know. The client gets 404.
    Nothing,
}

/// A document that describes the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiDocument {
    /// The version of the server, at `/version`.
    Version,
    /// The list of versions of the core group, at `/api`.
    Core,
    /// The list of all groups except the core group, at `/apis`.
    Groups,
    /// The versions of one group, at `/apis/<group>`.
    Group(Arc<str>),
    /// The list of resources of one API version. The path is `/api/<version>` for the core group,
    /// and `/apis/<group>/<version>` for each other group.
    Resources {
        /// The API group. Empty for the core group.
        group: Arc<str>,
        /// The API version, such as `v1`.
        version: Arc<str>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourcePath {
    pub(super) resource: Resource,
    /// The namespace in which the API server authorizes the request. For the path
    /// `/namespaces/<name>`, which means a Namespace object, it is `<name>`.
    pub(super) namespace: Option<Arc<str>>,
    pub(super) name: Option<Arc<str>>,
    /// The path segment after the object's name, such as `status`; `None` if there is no such
    /// segment.
    pub(super) subresource: Option<Arc<str>>,
    /// Why kubewarm never serves the path, for the error message. With `None`, kubewarm serves the
    /// path if a profile has declared the objects.
    pub(super) not_served: Option<&'static str>,
}

/// The segments of a path, percent-decoded.
type PathSegments<'a> = [Cow<'a, str>];

impl RequestPath {
    /// Parses a percent-encoded path. Also returns the profile if the path begins with
    /// `/profiles/<namespace>/<name>`. The function ignores slashes at the end, as the API server
    /// does.
    ///
    /// # Errors
    ///
    /// 400 for these paths:
    ///
    /// - with the segments `.` or `..`, or with an encoded slash or percent sign
    /// - with an empty segment (`//`), except for an empty namespace, which means all namespaces
    /// - with a name that no resource, namespace or profile can have
    pub(super) fn parse(path: &str) -> Result<(Option<ProfileRef>, Self), StatusError> {
        let (profile, path) = split_profile(path);
        let Some(inner) = path.strip_prefix('/') else {
            return Err(StatusError::bad_request("the path must begin with a slash"));
        };
        let inner = inner.trim_end_matches('/');
        let mut segments = Vec::new();
        if !inner.is_empty() {
            for segment in inner.split('/') {
                segments.push(decode_segment(segment)?);
            }
        }
        if profile.is_none()
            && segments.len() > 2
            && segments.first().is_some_and(|segment| *segment == PROFILES)
        {
            return Err(StatusError::bad_request(
                "expected /profiles/<namespace>/<name>/, the names of a CacheProfile",
            ));
        }
        Ok((profile, parse_segments(&segments)?))
    }
}

fn decode_segment(segment: &str) -> Result<Cow<'_, str>, StatusError> {
    let refused = |what| Err(StatusError::bad_request(format!("the path must not contain {what}")));
    let decoded = decode(segment)?;
    match &*decoded {
        "." | ".." => refused("the segments . and .."),
        text if text.contains(['/', '%']) => refused("an encoded slash or percent sign"),
        _ => Ok(decoded),
    }
}

fn parse_segments(segments: &PathSegments<'_>) -> Result<RequestPath, StatusError> {
    let [root, rest @ ..] = segments else {
        return Ok(RequestPath::Nothing);
    };
    Ok(match (&**root, rest) {
        ("version", []) => RequestPath::Document(ApiDocument::Version),
        ("api", []) => RequestPath::Document(ApiDocument::Core),
        ("api", [version]) => resources("", version),
        ("api", [version, rest @ ..]) => {
            RequestPath::Objects(parse_resource_path("", version, rest)?)
        }
        // The core group has an empty name, but no path below `/apis`.
        ("apis", [group, ..]) if group.is_empty() => {
            return Err(StatusError::bad_request("the path must not contain //"));
        }
        ("apis", []) => RequestPath::Document(ApiDocument::Groups),
        ("apis", [group]) if parse_resource("x", group, "v1").is_ok() => {
            RequestPath::Document(ApiDocument::Group((&**group).into()))
        }
        ("apis", [group, version]) => resources(group, version),
        ("apis", [group, version, rest @ ..]) => {
            RequestPath::Objects(parse_resource_path(group, version, rest)?)
        }
        _ => RequestPath::Nothing,
    })
}

fn resources(group: &str, version: &str) -> RequestPath {
    if parse_resource("x", group, version).is_err() {
        return RequestPath::Nothing;
    }
    RequestPath::Document(ApiDocument::Resources { group: group.into(), version: version.into() })
}

impl ApiDocument {
    /// Returns the document's path for the caller's access review, without
    /// `/profiles/<namespace>/<name>`.
    pub fn path(&self) -> String {
        match self {
            Self::Version => "/version".to_owned(),
            Self::Core => "/api".to_owned(),
            Self::Groups => "/apis".to_owned(),
            Self::Group(group) => format!("/apis/{group}"),
            Self::Resources { group, version } if group.is_empty() => format!("/api/{version}"),
            Self::Resources { group, version } => format!("/apis/{group}/{version}"),
        }
    }
}

fn parse_resource(plural: &str, group: &str, version: &str) -> Result<Resource, StatusError> {
    GroupResource::new(group, plural)
        .and_then(|group_resource| Resource::new(group_resource, version))
        .map_err(|invalid| StatusError::bad_request(invalid.to_string()))
}

/// Parses the path segments after the API version. kubewarm uses the result for the access review,
/// so the function follows the API server's rules.
fn parse_resource_path(
    group: &str,
    version: &str,
    segments: &PathSegments<'_>,
) -> Result<ResourcePath, StatusError> {
    if segments.first().is_some_and(|first| OLD_VERBS.contains(&&**first)) {
        // kubewarm never serves paths below `/watch/` or `/proxy/`. So the resource appears only in
        // the error message, and the last segment is good enough.
        let plural = segments.last().map(|last| &**last).filter(|last| is_dns_label(last));
        let resource = parse_resource(plural.unwrap_or("watch"), group, version)?;
        let not_served = Some("paths below /watch/ and /proxy/ are not served");
        return Ok(ResourcePath {
            resource,
            namespace: None,
            name: None,
            subresource: None,
            not_served,
        });
    }
    let (namespace, rest) = match segments {
        // As at the API server, an empty namespace means all namespaces. Clients send such a path
        // if the user passes an empty namespace.
        [first, namespace, plural]
            if *first == NAMESPACES
                && namespace.is_empty()
                && !OF_NAMESPACES.contains(&&**plural) =>
        {
            (None, slice::from_ref(plural))
        }
        [first, namespace, rest @ ..] if *first == NAMESPACES => {
            let is_object = rest.first().is_none_or(|sub| OF_NAMESPACES.contains(&&**sub));
            if !is_object && !is_dns_label(namespace) {
                return Err(StatusError::bad_request(format!(
                    "namespace {namespace:?} is not a DNS label"
                )));
            }
            // The API server authorizes `/namespaces/<name>` in the namespace `<name>`, in any API
            // group.
            (Some(Arc::from(&**namespace)), if is_object { segments } else { rest })
        }
        _ => (None, segments),
    };
    let plural = rest.first().map_or("", |plural| &**plural);
    if rest.get(1).is_some_and(|name| name.is_empty()) {
        return Err(StatusError::bad_request("the path must not contain //"));
    }
    let not_served = if rest.len() > 2 {
        Some("subresources are not served")
    } else if group.is_empty() && plural == NAMESPACES && rest.len() < segments.len() {
        Some("Namespace objects are in no namespace")
    } else {
        None
    };
    Ok(ResourcePath {
        resource: parse_resource(plural, group, version)?,
        namespace,
        name: rest.get(1).map(|name| Arc::from(&**name)),
        subresource: rest.get(2).map(|name| Arc::from(&**name)),
        not_served,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place_of(path: &str) -> ResourcePath {
        let (_, RequestPath::Objects(place)) = RequestPath::parse(path).unwrap() else {
            panic!("{path} names no objects")
        };
        place
    }

    /// Parses `path`. Returns `resource | namespace | name`, with `!` at the end if kubewarm never
    /// serves the path.
    fn summary(path: &str) -> String {
        let place = place_of(path);
        let (namespace, name) = (place.namespace.as_deref(), place.name.as_deref());
        let mark = if place.not_served.is_some() { "!" } else { "" };
        let (namespace, name) = (namespace.unwrap_or("-"), name.unwrap_or("-"));
        format!("{} | {namespace} | {name}{mark}", place.resource)
    }

    #[test]
    fn paths_are_parsed_as_in_the_api_server() {
        for (path, expected) in [
            ("/api/v1/pods", "pods.v1 | - | -"),
            ("/api/v1/pods/", "pods.v1 | - | -"),
            ("/api/v1/pods//", "pods.v1 | - | -"),
            ("/api/v1/namespaces//pods", "pods.v1 | - | -"),
            ("/api/v1/namespaces//pods/", "pods.v1 | - | -"),
            ("/api/v1/namespaces//", "namespaces.v1 | - | -"),
            ("/api/v1/nodes/n1", "nodes.v1 | - | n1"),
            ("/api/v1/nodes/n%091%0A", "nodes.v1 | - | n\t1\n"),
            ("/api/v1/namespaces", "namespaces.v1 | - | -"),
            ("/api/v1/namespaces/a", "namespaces.v1 | a | a"),
            ("/api/v1/namespaces/a/namespaces/b", "namespaces.v1 | a | b!"),
            ("/api/v1/namespaces/a/pods", "pods.v1 | a | -"),
            ("/api/v1/namespaces/a/pods/p", "pods.v1 | a | p"),
            ("/api/v1/namespaces/a/status", "namespaces.v1 | a | a!"),
            ("/api/v1/namespaces/a/finalize", "namespaces.v1 | a | a!"),
            ("/api/v1/namespaces/a/pods/p/log", "pods.v1 | a | p!"),
            ("/api/v1/nodes/n1/proxy/a/b", "nodes.v1 | - | n1!"),
            ("/api/v1/watch/pods", "pods.v1 | - | -!"),
            ("/api/v1/watch/namespaces/a/pods", "pods.v1 | - | -!"),
            ("/api/v1/proxy/namespaces/a/X", "watch.v1 | - | -!"),
            ("/apis/apps/v1/namespaces/a/deployments", "deployments.v1.apps | a | -"),
            ("/apis/shop.example/v1/orders/o", "orders.v1.shop.example | - | o"),
            ("/apis/x.example/v1/namespaces/a", "namespaces.v1.x.example | a | a"),
            ("/apis/x.example/v1/namespaces/a/namespaces", "namespaces.v1.x.example | a | -"),
            ("/apis/x.example/v1/namespaces/a/namespaces/b", "namespaces.v1.x.example | a | b"),
            ("/apis/x.example/v1/namespaces/a/status/b", "namespaces.v1.x.example | a | a!"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "clusterroles.v1.rbac.authorization.k8s.io | - | system:node",
            ),
            ("/api/v1/nodes/a+b", "nodes.v1 | - | a+b"),
        ] {
            assert_eq!(summary(path), expected, "{path}");
        }
    }

    #[test]
    fn documents_have_their_own_paths() {
        let resources =
            |group: &str| ApiDocument::Resources { group: group.into(), version: "v1".into() };
        for (path, expected) in [
            ("/version", ApiDocument::Version),
            ("/api", ApiDocument::Core),
            ("/api/", ApiDocument::Core),
            ("/apis", ApiDocument::Groups),
            ("/apis/apps", ApiDocument::Group("apps".into())),
            ("/api/v1", resources("")),
            ("/apis/apps/v1", resources("apps")),
        ] {
            let document = RequestPath::Document(expected);
            assert_eq!(RequestPath::parse(path).unwrap(), (None, document), "{path}");
        }
        for path in [
            "/",
            "//",
            "//api/v1/pods",
            "/healthz",
            "/version/x",
            "/apis/UP",
            "/apis/apps/V1",
            "/openapi/v3",
            "/openapi/v3/apis/apps/v1",
            "/openapi/v2",
            "/profiles",
            "/profiles/a",
        ] {
            assert_eq!(RequestPath::parse(path).unwrap(), (None, RequestPath::Nothing), "{path}");
        }
    }

    #[test]
    fn a_path_below_a_profile_is_parsed_like_any_other() {
        let (profile, path) =
            RequestPath::parse("/profiles/team-a/my.profile/api/v1/pods").unwrap();
        let profile = profile.unwrap();
        assert_eq!((&*profile.namespace, &*profile.name), ("team-a", "my.profile"));
        assert!(matches!(path, RequestPath::Objects(_)));
        let (profile, root) = RequestPath::parse("/profiles/team-a/p/").unwrap();
        assert_eq!((profile.is_some(), root), (true, RequestPath::Nothing));
        for path in ["/profiles/A/p/api", "/profiles/a/P/api", "/profiles/a/-/api/v1/pods"] {
            assert_eq!(RequestPath::parse(path).unwrap_err().code(), 400, "{path}");
        }
    }

    #[test]
    fn ambiguous_paths_are_rejected() {
        for path in [
            "",
            "api/v1/pods",
            "/api//v1/pods",
            "/apis//v1/pods",
            "/api/v1//pods",
            "/api/v1/pods//log",
            "/api/v1/namespaces//pods/p",
            "/api/v1/namespaces//status",
            "/api/v1/namespaces/a//p",
            "/api/v1/./pods",
            "/api/v1/x/../pods",
            "/api/v1/%2e%2e/pods",
            "/api/v1/.%2E/pods",
            "/api/v1/namespaces/a%2Fpods",
            "/api/v1/namespaces/a%2fb/pods",
            "/api/v1/pods/a%252Fb",
            "/api/v1/pods/a%",
            "/api/v1/pods/%ff",
            "/api/v1/Pods",
            "/api/v1/pods.x",
            "/api/V1/pods",
            "/apis/UP/v1/pods",
            "/api/v1/namespaces/A/pods",
            "/api/v1/namespaces/a.b/pods",
            "/profiles/a/../api/v1/pods",
        ] {
            assert_eq!(RequestPath::parse(path).unwrap_err().code(), 400, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_causes_a_panic(any in ".{0,60}", likely in r"(/(api|apis|v1|namespaces|watch|a|%2F|\.\.|%|profiles|)){0,8}") {
            let _ = RequestPath::parse(&any);
            let _ = RequestPath::parse(&likely);
        }

        #[test]
        fn parsing_returns_the_parts_of_a_path(
            group in "([a-z]{1,5}(\\.[a-z]{1,5})?)?",
            plural in "[a-z]{1,9}",
            namespace in proptest::option::of("[a-z]{1,9}"),
            name in proptest::option::of("[a-z.:]{1,9}"),
        ) {
            let name = name.filter(|name| !matches!(&**name, "." | ".."));
            prop_assume!(!["watch", "proxy", "namespaces"].contains(&&*plural));
            prop_assume!(!OF_NAMESPACES.contains(&&*plural));
            let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
            let within = namespace.as_ref().map_or(String::new(), |namespace| format!("/namespaces/{namespace}"));
            let last = name.as_ref().map_or(String::new(), |name| format!("/{name}"));
            let place = place_of(&format!("{root}/v1{within}/{plural}{last}"));
            prop_assert_eq!(place.resource.group(), group);
            prop_assert_eq!(place.resource.resource(), plural);
            prop_assert_eq!(place.namespace.as_deref(), namespace.as_deref());
            prop_assert_eq!(place.name.as_deref(), name.as_deref());
            prop_assert_eq!(place.not_served, None);
        }
    }
}
