use super::*;
use crate::PROTOBUF;

fn of(group: &str, resource: &str) -> GroupResource {
    GroupResource::new(group, resource).unwrap()
}

fn access(namespace: &'static str, name: &'static str) -> AccessAttributes<'static> {
    let (group, version, resource) = ("apps", "v1", "deployments");
    AccessAttributes { verb: "list", group, version, resource, namespace, name }
}

/// Returns the body without its line feed.
fn body(failure: &StatusError) -> String {
    failure.body().strip_suffix('\n').unwrap().to_owned()
}

#[test]
fn errors_have_the_bodies_of_the_api_server() {
    assert_eq!(
        body(&StatusError::not_found(&of("", "pods"), "abc")),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"abc\" not found","reason":"NotFound","details":{"name":"abc","kind":"pods"},"code":404}"#
    );
    assert_eq!(
        body(&StatusError::forbidden("jane", &access("ns", ""), None)),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps is forbidden: User \"jane\" cannot list resource \"deployments\" in API group \"apps\" in the namespace \"ns\"","reason":"Forbidden","details":{"group":"apps","kind":"deployments"},"code":403}"#
    );
    assert_eq!(
        body(&StatusError::unauthorized()),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#
    );
    assert_eq!(
        body(&StatusError::method_not_allowed(&of("apps", "deployments"), "create")),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"create is not supported on resources of kind \"deployments.apps\"","reason":"MethodNotAllowed","details":{"group":"apps","kind":"deployments"},"code":405}"#
    );
    assert_eq!(
        body(&StatusError::not_acceptable(&[JSON, PROTOBUF])),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"only the following media types are accepted: application/json, application/vnd.kubernetes.protobuf","reason":"NotAcceptable","details":{},"code":406}"#
    );
    assert_eq!(
        body(&StatusError::expired()),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410}"#
    );
    assert_eq!(
        body(&StatusError::too_large_version(&999.into(), &100.into())),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 999, current: 100","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#
    );
    assert_eq!(
        body(&StatusError::forbidden_path("jane", "/apis", None)),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"forbidden: User \"jane\" cannot get path \"/apis\"","reason":"Forbidden","details":{},"code":403}"#
    );
    assert_eq!(
        body(&StatusError::no_such_path()),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#
    );
}

#[test]
fn an_expired_continue_token_is_answered_with_a_new_one() {
    let failure = StatusError::expired_continue(Some("dG9rZW4".to_owned()));
    assert_eq!(
        body(&failure),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"dG9rZW4"},"status":"Failure","message":"The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.","reason":"Expired","code":410}"#
    );
    let without = StatusError::expired_continue(None);
    assert!(without.message().ends_with("without the continue parameter."), "{without}");
}

#[test]
fn errors_that_only_a_cache_has_use_the_same_format() {
    let failure = StatusError::not_cached(&of("", "pods"), "", "no CacheProfile declares it");
    assert_eq!(
        body(&failure),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods not cached: no CacheProfile declares it; send the request to the API server","reason":"NotCached","details":{"kind":"pods"},"code":421}"#
    );
    assert_eq!(
        body(&StatusError::not_warm(&of("", "pods"), 2)),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods not warm: a list waits or is under way; the status of the CacheProfile shows its progress","reason":"TooManyRequests","details":{"kind":"pods","retryAfterSeconds":2},"code":429}"#
    );
}

#[test]
fn the_limit_of_agents_is_an_error_that_names_the_account_and_the_flag() {
    let failure = StatusError::agents_limit("shop/agent", 3);
    assert_eq!((failure.code(), failure.is_rejection()), (429, true));
    assert!(failure.message().contains("ServiceAccount shop/agent in --agents"), "{failure}");
}

#[test]
fn temporary_errors_have_a_retry_after() {
    let pods = of("", "pods");
    for (failure, code, seconds) in [
        (StatusError::not_warm(&pods, 0), 429, Some(1)),
        (StatusError::too_many_requests(3), 429, Some(3)),
        (StatusError::user_limit(1), 429, Some(1)),
        (StatusError::agents_limit("shop/agent", 1), 429, Some(1)),
        (StatusError::access_missing(&pods, "no"), 503, None),
        (StatusError::paused(&pods), 503, None),
        (StatusError::access_unverified(&pods, 1), 429, Some(1)),
        (StatusError::unavailable("reviews cannot be made", 1), 503, Some(1)),
        (StatusError::too_large_version(&9.into(), &0.into()), 504, Some(1)),
        (StatusError::stale(&pods, "silent for 130 s", 2), 504, Some(2)),
        (StatusError::expired(), 410, None),
        (StatusError::internal("a fault"), 500, None),
        (StatusError::bad_request("no"), 400, None),
    ] {
        assert_eq!((failure.code(), failure.retry_after()), (code, seconds), "{failure}");
        let details = format!("\"retryAfterSeconds\":{}", seconds.unwrap_or_default());
        assert_eq!(failure.body().contains(&details), seconds.is_some(), "{failure}");
    }
}

#[test]
fn forbidden_names_paths_and_scopes_have_the_messages_of_the_api_server() {
    let failure = StatusError::forbidden("jane", &access("", "web"), Some("not today"));
    assert_eq!(
        failure.message(),
        "deployments.apps \"web\" is forbidden: User \"jane\" cannot list resource \
         \"deployments\" in API group \"apps\" at the cluster scope: not today"
    );
    let failure = StatusError::forbidden_path("<b>&", "/apis", None);
    assert_eq!(failure.message(), "forbidden: User \"&lt;b&gt;&amp;\" cannot get path \"/apis\"");
}

#[test]
fn all_violated_rules_of_options_are_reported() {
    let failure = |wrong: [Option<StatusCause>; 2]| StatusError::check_options(wrong).unwrap_err();
    let detail = "Forbidden: sendInitialEvents is forbidden for list";
    let status = failure([Some(forbidden("sendInitialEvents", detail)), None]);
    assert_eq!(
        body(&status),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: sendInitialEvents is forbidden for list","field":"sendInitialEvents"}]},"code":422}"#
    );
    let [a, b] = [forbidden("a", "Forbidden: x"), forbidden("b", "Forbidden: y")];
    let two = failure([Some(a), Some(b)]);
    assert!(two.message().ends_with("[a: Forbidden: x, b: Forbidden: y]"), "{two}");
    assert_eq!(StatusError::check_options([None]), Ok(()));
}

#[test]
fn text_is_quoted_as_in_go() {
    for (text, expected) in [
        ("plain 'it' <&>", r#""plain 'it' <&>""#),
        ("a\"b\\c", r#""a\"b\\c""#),
        ("\n\r\t\u{7}\u{8}\u{b}\u{c}", r#""\n\r\t\a\b\v\f""#),
        ("\u{0}\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
        ("größer \u{85}\u{202e}", r#""größer \u0085\u202e""#),
        ("\u{e0001}", r#""\U000e0001""#),
    ] {
        assert_eq!(quoted(text), expected);
    }
}
