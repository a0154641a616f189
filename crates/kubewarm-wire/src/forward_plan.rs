//! Parses a request that kubewarm forwards to the API server. The result contains the path for the
//! API server, and the resource and namespace that the request changes.

use super::{
    StatusError,
    query_parameters::{QueryParameter, QueryParameters},
    request_path::{RequestPath, ResourcePath, split_profile},
};
use kubewarm_api::model::{GroupResource, Resource};
use percent_encoding::percent_decode_str;
use std::sync::Arc;

/// Subresources that the API server serves itself. Their responses contain the object's resource
/// version, for which kubewarm's later reads wait. A response of any other subresource, such as
/// `proxy`, can come from a different server.
const PARTS: [&str; 6] =
    ["approval", "ephemeralcontainers", "finalize", "resize", "scale", "status"];

/// Subresources for which kubewarm waits without a time limit until the API server sends the
/// headers of its response. `BasicLongRunningRequestCheck` in `k8s.io/apiserver` has the same list.
const LASTING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// A request that kubewarm forwards to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardPlan<'a> {
    /// The path of the request without the prefix `/profiles/<namespace>/<name>`, because the API
    /// server does not serve this prefix.
    pub path: &'a str,
    /// The resource that the path names, also for a subresource; `None` for a path without a
    /// resource.
    pub resource: Option<Resource>,
    /// Whether the method is POST, PUT, PATCH or DELETE.
    pub is_write: bool,
    /// The resource and namespace that the request changes. `None` if the response does not contain
    /// the resource version of the changed objects, as for reads and dry runs.
    pub writes: Option<WriteTarget>,
    /// Whether kubewarm waits without a time limit until the API server sends the headers of its
    /// response. For example, the API server sends the headers of a followed log only with the
    /// log's first line.
    pub is_long_running: bool,
}

/// The resource and namespace of the objects that a request changes. Later reads of this resource
/// and namespace wait until the store contains the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTarget {
    /// The group and resource of the changed objects. The API version is not needed, because the
    /// `resourceVersion` of an object is the same in all API versions.
    pub resource: GroupResource,
    /// The namespace in which the API server authorizes the write: for a Namespace object its own
    /// name, and `None` for other cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
}

impl<'a> ForwardPlan<'a> {
    /// Parses the parts of a request that kubewarm needs to forward it. kubewarm forwards a path
    /// that it does not understand unchanged, because only the API server can decide what the path
    /// means.
    ///
    /// # Errors
    ///
    /// 405 for a method that the Kubernetes API does not have.
    pub fn parse(method: &str, path: &'a str, query: Option<&str>) -> Result<Self, StatusError> {
        let is_write = match method {
            "GET" | "HEAD" | "OPTIONS" => false,
            "POST" | "PUT" | "PATCH" | "DELETE" => true,
            _ => return Err(StatusError::only_get()),
        };
        let parsed = RequestPath::parse(path);
        let (_, path) = split_profile(path);
        let is_unknown = parsed.is_err();
        let Ok((_, RequestPath::Objects(resource_path))) = parsed else {
            // kubewarm does not understand the path, so any segment can be the subresource. If one
            // is in `LASTING`, the request can last long, so kubewarm sets no time limit.
            let decoded = percent_decode_str(path).decode_utf8_lossy();
            let is_long_running =
                is_unknown && decoded.split('/').any(|part| LASTING.contains(&part));
            let (resource, writes) = (None, None);
            return Ok(Self { path, resource, is_write, writes, is_long_running });
        };
        let resource = Some(resource_path.resource.clone());
        let is_long_running =
            resource_path.subresource.as_deref().is_some_and(|part| LASTING.contains(&part));
        let writes =
            if is_write && !is_dry_run(query) { write_target(resource_path) } else { None };
        Ok(Self { path, resource, is_write, writes, is_long_running })
    }
}

/// Returns whether the request is a dry run, or can be one because its query does not parse.
///
/// A dry-run create returns the `resourceVersion` that the client wrote into the object. kubewarm
/// must ignore this version: with a high version, a client could make all later reads of the
/// namespace wait.
fn is_dry_run(query: Option<&str>) -> bool {
    QueryParameters::parse(query)
        .map_or(true, |query| query.given(QueryParameter::DryRun).is_some())
}

fn write_target(
    ResourcePath { resource, namespace, subresource, not_served, .. }: ResourcePath,
) -> Option<WriteTarget> {
    let is_own = match subresource {
        Some(part) => PARTS.contains(&&*part),
        None => not_served.is_none(),
    };
    is_own.then(|| WriteTarget { resource: resource.group_resource().clone(), namespace })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_of_a_profile_is_not_forwarded() {
        for (path, expected) in [
            ("/api/v1/pods", "/api/v1/pods"),
            ("/profiles/a/p/api/v1/pods", "/api/v1/pods"),
            ("/profiles/a/p/openapi/v3", "/openapi/v3"),
            ("/profiles/a/p/", "/"),
            ("/profiles/a/p", "/"),
            ("/profiles/a", "/profiles/a"),
            ("/api/v1/namespaces/a/pods/p%3Ax/log", "/api/v1/namespaces/a/pods/p%3Ax/log"),
        ] {
            assert_eq!(ForwardPlan::parse("GET", path, None).unwrap().path, expected, "{path}");
        }
    }

    #[test]
    fn a_plan_names_the_resource_of_its_path() {
        for (method, path, expected) in [
            ("GET", "/api/v1/pods", (Some("pods"), false)),
            ("POST", "/api/v1/namespaces/a/pods/p/eviction", (Some("pods"), true)),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d", (Some("deployments.apps"), true)),
            ("HEAD", "/openapi/v3", (None, false)),
        ] {
            let plan = ForwardPlan::parse(method, path, None).unwrap();
            let resource = plan.resource.map(|resource| resource.group_resource().to_string());
            assert_eq!((resource.as_deref(), plan.is_write), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_path_that_kubewarm_does_not_understand_is_forwarded_unchanged() {
        for path in [
            "//api",
            "/api/../x",
            "/api/v1/pods/a%2Fb",
            "/api/v1/namespaces/A/pods",
            "/profiles/a/../api",
            "/profiles/a%2Fb/p/api",
            "/a\u{7f}%",
        ] {
            for (method, is_write) in [("GET", false), ("PUT", true)] {
                let (resource, writes, is_long_running) = (None, None, false);
                let plan = ForwardPlan { path, resource, is_write, writes, is_long_running };
                assert_eq!(ForwardPlan::parse(method, path, None), Ok(plan), "{path}");
            }
        }
        let below = ForwardPlan::parse("GET", "/profiles/a/p/api/v1//pods/../%2e", None).unwrap();
        assert_eq!(below.path, "/api/v1//pods/../%2e");
        let to_pod = "/api/v1/namespaces/a/pods/p/proxy/x%2Fy/../z";
        assert!(ForwardPlan::parse("GET", to_pod, None).unwrap().is_long_running);
        let encoded = "/api/v1/namespaces/a/pods/p/l%6Fg/../z";
        assert!(ForwardPlan::parse("GET", encoded, None).unwrap().is_long_running);
    }

    #[test]
    fn unknown_methods_are_not_forwarded() {
        for method in ["CONNECT", "TRACE", "get", "WATCH"] {
            assert_eq!(
                ForwardPlan::parse(method, "/api", None).unwrap_err().code(),
                405,
                "{method}"
            );
        }
    }

    #[test]
    fn only_responses_of_the_api_server_itself_report_a_write() {
        let written = |method: &str, path: &str| {
            let written = ForwardPlan::parse(method, path, None).unwrap().writes?;
            Some(format!("{} {}", written.resource, written.namespace.as_deref().unwrap_or("-")))
        };
        let pod = "/api/v1/namespaces/a/pods/p";
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(written("PUT", pod), text("pods a"));
        assert_eq!(written("POST", "/api/v1/namespaces"), text("namespaces -"));
        assert_eq!(written("PUT", "/api/v1/namespaces/a/finalize"), text("namespaces a"));
        let scale = "/profiles/x/y/apis/apps/v1/namespaces/a/deployments/d/scale";
        assert_eq!(written("PATCH", scale), text("deployments.apps a"));
        assert_eq!(written("GET", pod), None);
        for part in ["proxy", "proxy/x", "exec", "attach", "portforward", "token", "eviction"] {
            assert_eq!(written("POST", &format!("{pod}/{part}")), None, "{part}");
        }
        assert_eq!(written("POST", "/api/v1/proxy/namespaces/a/pods/p"), None);
        assert_eq!(written("POST", "/openapi/v3"), None);
    }

    #[test]
    fn a_dry_run_reports_no_write() {
        let path = "/api/v1/namespaces/a/configmaps";
        let is_written =
            |query| ForwardPlan::parse("POST", path, Some(query)).unwrap().writes.is_some();
        for query in ["", "fieldManager=x", "pretty=true&fieldValidation=Strict", "dryrun=All"] {
            assert!(is_written(query), "{query}");
        }
        // The API server ignores a query parameter that it cannot decode, and uses all others. So
        // each of these queries can be a dry run, although kubewarm cannot parse some of them.
        for query in
            ["dryRun=All", "dryRun=", "a=b&dryRun=All", "%64ryRun=All", "a=%&dryRun=All", "a;b"]
        {
            assert!(!is_written(query), "{query}");
        }
    }

    #[test]
    fn logs_and_connections_to_pods_have_no_time_limit() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods/p/log", true),
            ("/api/v1/namespaces/a/pods/p/exec", true),
            ("/api/v1/namespaces/a/services/s/proxy/a/b", true),
            ("/api/v1/namespaces/a/pods/p", false),
            ("/api/v1/namespaces/a/pods/p/status", false),
            ("/api/v1/namespaces/a/pods/log", false),
            ("/version", false),
        ] {
            assert_eq!(
                ForwardPlan::parse("GET", path, None).unwrap().is_long_running,
                expected,
                "{path}"
            );
        }
    }
}
