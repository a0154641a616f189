use super::*;
use crate::ObjectPart;
use proptest::prelude::*;

fn get(path: &str, query: &str) -> Result<RequestInfo, StatusError> {
    RequestInfo::parse("GET", path, Some(query), None)
}

fn objects_of(path: &str, query: &str) -> ObjectRequest {
    match get(path, query).unwrap().target {
        RequestTarget::Objects(objects) => *objects,
        RequestTarget::Document(other, _) => panic!("{other:?}"),
    }
}

/// Returns the verb, resource, namespace and name in the access review of a request to `path` with
/// `query`.
fn reviewed(path: &str, query: &str) -> String {
    let objects = objects_of(path, query);
    let AccessAttributes { verb, group, version, resource, namespace, name } =
        objects.access_attributes();
    format!("{verb} {resource}.{version}.{group} {namespace}/{name}")
}

#[test]
fn the_access_review_covers_the_parsed_request() {
    for (path, query, expected) in [
        ("/api/v1/namespaces/a/pods/p", "", "get pods.v1. a/p"),
        ("/api/v1/namespaces/a/pods/p", "watch=1", "get pods.v1. a/p"),
        ("/api/v1/namespaces/a/pods/p", "fieldSelector=metadata.name=q", "get pods.v1. a/p"),
        ("/api/v1/namespaces/a/pods", "", "list pods.v1. a/"),
        ("/api/v1/pods", "watch=true", "watch pods.v1. /"),
        ("/api/v1/pods", "fieldSelector=metadata.namespace=a", "list pods.v1. /"),
        ("/api/v1/pods", "fieldSelector=metadata.name%3Dp", "list pods.v1. /p"),
        ("/api/v1/pods", "fieldSelector=metadata.name!%3Dp", "list pods.v1. /"),
        ("/api/v1/pods", "fieldSelector=metadata.name=..", "list pods.v1. /"),
        ("/api/v1/pods", "fieldSelector=metadata.name=a%252Fb", "list pods.v1. /"),
        ("/api/v1/namespaces/a", "", "get namespaces.v1. a/a"),
        ("/api/v1/namespaces", "", "list namespaces.v1. /"),
        ("/apis/x.example/v1/namespaces/a/namespaces/b", "", "get namespaces.v1.x.example a/b"),
        ("/apis/x.example/v1/namespaces/a/namespaces", "", "list namespaces.v1.x.example a/"),
        ("/apis/x.example/v1/namespaces/a", "", "get namespaces.v1.x.example a/a"),
        ("/apis/apps/v1/deployments", "", "list deployments.v1.apps /"),
    ] {
        assert_eq!(reviewed(path, query), expected, "{path}?{query}");
    }
}

#[test]
fn a_get_has_no_selectors_and_a_list_has_all_of_them() {
    let query = "labelSelector=a>1,b&fieldSelector=metadata.name!=x&limit=5";
    let request = objects_of("/api/v1/nodes/n", query);
    assert!(request.labels.is_empty() && request.fields.is_empty() && request.limit.is_none());
    assert_eq!(request.name.as_deref(), Some("n"));
    let all = objects_of("/api/v1/nodes", query);
    assert_eq!(all.labels.to_string(), "b,a>1");
    assert_eq!(all.fields.to_string(), "metadata.name!=x");
    assert_eq!((all.limit, all.form), (NonZeroU64::new(5), ResponseForm::Object(ObjectPart::Full)));
}

#[test]
fn the_access_review_of_a_document_has_its_path() {
    for path in ["/version", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"] {
        for variant in [path.to_owned(), format!("{path}/"), format!("/profiles/a/b{path}")] {
            let RequestTarget::Document(document, _) = get(&variant, "").unwrap().target else {
                panic!("{variant}")
            };
            assert_eq!(document.path(), path);
        }
    }
}

#[test]
fn each_request_that_is_not_served_has_the_right_status_code() {
    for (method, path, accept, code) in [
        ("GET", "/metrics", None, 404),
        ("POST", "/metrics", None, 404),
        ("POST", "/apis", None, 405),
        ("HEAD", "/api/v1/pods", None, 405),
        ("PUT", "/api/v1/namespaces/a/pods/p", None, 405),
        ("POST", "/api/v1/namespaces/a/pods/p/exec", None, 405),
        ("GET", "/api/v1/namespaces/a/pods/p/log", None, 421),
        ("GET", "/api/v1/namespaces/a/status", None, 421),
        ("GET", "/api/v1/namespaces/a/namespaces/b", None, 421),
        ("GET", "/api/v1/watch/pods", None, 421),
        ("GET", "/api/v1/watch/namespaces/a/pods/p", None, 421),
        ("GET", "/api/v1/pods", Some("application/yaml"), 406),
        ("GET", "/version", Some("application/yaml"), 406),
        ("GET", "/apis", Some("text/html"), 406),
        ("GET", "/api/v1/pods/a%2Fb", None, 400),
        ("DELETE", "/api/v1//pods", None, 400),
    ] {
        let failure = RequestInfo::parse(method, path, None, accept).unwrap_err();
        assert_eq!(failure.code(), code, "{method} {path}");
    }
    let failure = RequestInfo::parse("DELETE", "/api/v1/pods", None, None).unwrap_err();
    assert_eq!(
        failure.message(),
        "deletecollection is not supported on resources of kind \"pods\""
    );
}

#[test]
fn only_watches_have_any_timeout() {
    for path in ["/api/v1/pods", "/api/v1/nodes/n", "/api", "/apis/apps", "/api/v1", "/version"] {
        assert_eq!(get(path, "timeout=30").unwrap_err().code(), 400, "{path}");
        assert!(get(path, "timeout=30s").is_ok(), "{path}");
    }
    assert!(get("/api/v1/pods", "watch=1&timeout=30").is_ok());
}

#[test]
fn any_application_type_selects_json_for_custom_resources_only() {
    for (path, code) in [
        ("/apis/example.com/v1/widgets", None),
        ("/apis/snapshot.storage.k8s.io/v1/namespaces/a/volumesnapshots/s", None),
        ("/apis/kubewarm.io/v1alpha1/cacheprofiles", None),
        ("/apis/apps/v1/deployments", Some(406)),
        ("/api/v1/pods", Some(406)),
    ] {
        let parsed = RequestInfo::parse("GET", path, None, Some("application/*"));
        assert_eq!(parsed.err().map(|failure| failure.code()), code, "{path}");
    }
}

/// Checks that a request is parsed, and returns the error that it gets once its objects are found.
fn format_error(path: &str, query: &str, accept: &str) -> (u16, String) {
    let parsed = RequestInfo::parse("GET", path, Some(query), Some(accept)).unwrap();
    let RequestTarget::Objects(objects) = parsed.target else { panic!("{path}") };
    let failure = objects.format(ObjectEncoding::Json).unwrap_err();
    (failure.code(), failure.message().to_owned())
}

#[test]
fn objects_are_found_before_their_form_is_checked() {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for path in ["/api/v1/nodes", "/api/v1/nodes/n"] {
        let (code, message) = format_error(path, "includeObject=all", table);
        assert_eq!(code, 400);
        assert!(message.contains("includeObject: Invalid value: \"all\""), "{message}");
    }
    let is = "but the requested object is";
    for (path, accept, expected) in [
        ("/api/v1/nodes", metadata, format!("you requested PartialObjectMetadata, {is} a list")),
        (
            "/api/v1/nodes/n",
            list,
            format!("you requested PartialObjectMetadataList, {is} not a list"),
        ),
    ] {
        assert_eq!(format_error(path, "", accept), (406, expected));
    }
    for (query, accept) in [("watch=1&includeObject=all", table), ("watch=1", list)] {
        let parsed = RequestInfo::parse("GET", "/api/v1/nodes", Some(query), Some(accept));
        assert!(parsed.is_err(), "no event of a watch follows: {query}");
    }
}

#[test]
fn an_invalid_version_of_a_list_does_not_hide_an_unknown_field() {
    for query in ["continue=garbage", "resourceVersion=-1"] {
        let list = objects_of("/api/v1/nodes", &format!("fieldSelector=x%3Dy&{query}"));
        assert_eq!(list.fields.to_string(), "x=y");
        assert_eq!(list.version_error.map(|failure| failure.code()), Some(400), "{query}");
    }
}

#[test]
fn a_profile_in_the_path_does_not_change_the_request() {
    let plain = get("/api/v1/pods", "labelSelector=a").unwrap();
    let below = get("/profiles/team-a/p/api/v1/pods", "labelSelector=a").unwrap();
    assert_eq!(plain.target, below.target);
    assert_eq!((plain.profile.is_none(), below.profile.is_some()), (true, true));
}

proptest! {
    #[test]
    fn no_request_causes_a_panic(
        method in "(GET|POST|.{0,5})",
        path in r"(/(api|apis|v1|namespaces|watch|pods|a|%2F|\.\.|%|profiles|version|.{0,3})){0,8}/?",
        query in proptest::option::of(
            r"((labelSelector|fieldSelector|limit|continue|watch|resourceVersion|resourceVersionMatch)=.{0,20}&?){0,4}"
        ),
        accept in proptest::option::of(".{0,40}"),
    ) {
        if let Ok(RequestInfo { target: RequestTarget::Objects(objects), .. }) =
            RequestInfo::parse(&method, &path, query.as_deref(), accept.as_deref())
        {
            let access = objects.access_attributes();
            prop_assert_eq!(access.verb == "get", objects.name.is_some());
            if access.verb == "list" {
                prop_assert_eq!(access.namespace, objects.namespace.as_deref().unwrap_or(""));
            }
        }
    }
}
