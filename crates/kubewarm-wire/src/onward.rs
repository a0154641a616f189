//! A request that is sent on to the API server: where to, and what it changes.

use super::{
    Failure,
    path::{Path, Place, without_profile},
    query::{Parameter, Query},
};
use kubewarm_api::model::GroupResource;
use std::sync::Arc;

/// Below an object these are parts of it: whoever answers is the API server, and the version in the answer
/// is the object's. Others, such as `proxy`, answer what somebody else says.
const PARTS: [&str; 6] =
    ["approval", "ephemeralcontainers", "finalize", "resize", "scale", "status"];

/// For these the API server waits without an end, too (`BasicLongRunningRequestCheck` of `k8s.io/apiserver`).
const LASTING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// A request that is sent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Onward<'a> {
    /// The path as it came, without that of a profile before it: the API server has none.
    pub path: &'a str,
    /// What it changes, as far as the answer tells.
    pub writes: Option<Written>,
    /// Whether its answer may begin as late as it will: of logs that are followed it does with the first line.
    pub lasts: bool,
}

/// Objects that a request changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Of which resource, in whatever version.
    pub of: GroupResource,
    /// In which namespace; `None` for what lives in none.
    pub namespace: Option<Arc<str>>,
}

impl<'a> Onward<'a> {
    /// Reads a request as far as is needed to send it on.
    ///
    /// # Errors
    ///
    /// 400 for a path that two readers could read differently; 405 for a method that no API has.
    pub fn parse(method: &str, path: &'a str, query: Option<&str>) -> Result<Self, Failure> {
        let writes = match method {
            "GET" | "HEAD" | "OPTIONS" => false,
            "POST" | "PUT" | "PATCH" | "DELETE" => true,
            _ => return Err(Failure::only_get()),
        };
        let (profile, named) = Path::parse(path)?;
        let path = if profile.is_some() { without_profile(path) } else { path };
        let Path::Objects(place) = named else {
            return Ok(Self { path, writes: None, lasts: false });
        };
        let lasts = place.subresource.as_deref().is_some_and(|part| LASTING.contains(&part));
        let writes = if writes && !is_tried(query) { written(place) } else { None };
        Ok(Self { path, writes, lasts })
    }
}

/// Whether nothing is to be stored. The API server then answers a new object with whatever version its author wrote,
/// and who creates one in some namespace would have everybody wait for that.
fn is_tried(query: Option<&str>) -> bool {
    Query::parse(query).map_or(true, |query| query.given(Parameter::DryRun).is_some())
}

fn written(Place { resource, namespace, subresource, not_served, .. }: Place) -> Option<Written> {
    let is_own = match subresource {
        Some(part) => PARTS.contains(&&*part),
        None => not_served.is_none(),
    };
    is_own.then(|| Written { of: resource.group_resource().clone(), namespace })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_before_the_path_is_left_out() {
        for (path, expected) in [
            ("/api/v1/pods", "/api/v1/pods"),
            ("/profiles/a/p/api/v1/pods", "/api/v1/pods"),
            ("/profiles/a/p/openapi/v3", "/openapi/v3"),
            ("/profiles/a/p/", "/"),
            ("/profiles/a/p", "/"),
            ("/profiles/a", "/profiles/a"),
            ("/api/v1/namespaces/a/pods/p%3Ax/log", "/api/v1/namespaces/a/pods/p%3Ax/log"),
        ] {
            assert_eq!(Onward::parse("GET", path, None).unwrap().path, expected, "{path}");
        }
    }

    #[test]
    fn what_is_sent_on_is_a_path_that_everybody_reads_alike_and_a_known_method() {
        for path in
            ["//api", "/api/../x", "/api/v1/pods/a%2Fb/log", "/profiles/a/../api", "/a\u{7f}"]
        {
            assert_eq!(Onward::parse("GET", path, None).unwrap_err().code(), 400, "{path}");
        }
        for method in ["CONNECT", "TRACE", "get", "WATCH"] {
            assert_eq!(Onward::parse(method, "/api", None).unwrap_err().code(), 405, "{method}");
        }
    }

    #[test]
    fn only_the_api_servers_own_answers_tell_what_was_written() {
        let written = |method: &str, path: &str| {
            let written = Onward::parse(method, path, None).unwrap().writes?;
            Some(format!("{} {}", written.of, written.namespace.as_deref().unwrap_or("-")))
        };
        let pod = "/api/v1/namespaces/a/pods/p";
        let found = |text: &str| Some(text.to_owned());
        assert_eq!(written("PUT", pod), found("pods a"));
        assert_eq!(written("POST", "/api/v1/namespaces"), found("namespaces -"));
        assert_eq!(written("PUT", "/api/v1/namespaces/a/finalize"), found("namespaces -"));
        let scale = "/profiles/x/y/apis/apps/v1/namespaces/a/deployments/d/scale";
        assert_eq!(written("PATCH", scale), found("deployments.apps a"));
        assert_eq!(written("GET", pod), None);
        for part in ["proxy", "proxy/x", "exec", "attach", "portforward", "token", "eviction"] {
            assert_eq!(written("POST", &format!("{pod}/{part}")), None, "{part}");
        }
        assert_eq!(written("POST", "/api/v1/proxy/namespaces/a/pods/p"), None);
        assert_eq!(written("POST", "/openapi/v3"), None);
    }

    #[test]
    fn what_is_only_tried_writes_nothing() {
        let path = "/api/v1/namespaces/a/configmaps";
        let is_written = |query| Onward::parse("POST", path, Some(query)).unwrap().writes.is_some();
        for query in ["", "fieldManager=x", "pretty=true&fieldValidation=Strict", "dryrun=All"] {
            assert!(is_written(query), "{query}");
        }
        // Of what does not decode the API server reads the rest.
        for query in
            ["dryRun=All", "dryRun=", "a=b&dryRun=All", "%64ryRun=All", "a=%&dryRun=All", "a;b"]
        {
            assert!(!is_written(query), "{query}");
        }
    }

    #[test]
    fn logs_and_what_goes_on_to_a_pod_begin_as_late_as_they_will() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods/p/log", true),
            ("/api/v1/namespaces/a/pods/p/exec", true),
            ("/api/v1/namespaces/a/services/s/proxy/a/b", true),
            ("/api/v1/namespaces/a/pods/p", false),
            ("/api/v1/namespaces/a/pods/p/status", false),
            ("/api/v1/namespaces/a/pods/log", false),
            ("/version", false),
        ] {
            assert_eq!(Onward::parse("GET", path, None).unwrap().lasts, expected, "{path}");
        }
    }
}
