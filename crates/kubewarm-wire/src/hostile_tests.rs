//! Tests requests that no ordinary client sends. The parser must parse or reject each request at
//! bounded cost. It must reject requests that two servers could parse differently, or forward them
//! unchanged.

use super::{request_path::RequestPath, *};
use kubewarm_api::model::{FieldSelector, LabelSelector};
use proptest::prelude::*;
use serde_json::Value;
use testbed::{Request, changed, corpus};

const REFUSALS: [u16; 6] = [400, 404, 405, 406, 421, 422];
/// Maximum length of an error response in bytes, without the part of the request that the error
/// quotes.
const LONGEST: usize = 16 << 10;

/// Parses `request`. Returns `version_error` as an error too, which kubewarm reports to a client
/// only after it has chosen a store.
fn read(request: &Request) -> Result<RequestInfo, StatusError> {
    let (path, query, accept) = (request.path(), request.query(), request.accept.as_deref());
    let parsed = RequestInfo::parse(&request.method, path, query, accept)?;
    if let RequestTarget::Objects(objects) = &parsed.target
        && let Some(failure) = &objects.version_error
    {
        return Err((**failure).clone());
    }
    Ok(parsed)
}

/// Formats the selectors of `objects` as text and parses this text. The test expects equal
/// selectors.
fn reparsed(objects: &ObjectRequest) -> (LabelSelector, FieldSelector) {
    let labels = label_selector::parse(&objects.labels.to_string()).unwrap();
    (labels, field_selector::parse(&objects.fields.to_string()).unwrap())
}

fn check(request: &Request) -> Result<(), TestCaseError> {
    let asked = match read(request) {
        Ok(asked) => asked,
        Err(failure) => return check_refusal(request, &failure),
    };
    prop_assert_eq!(&asked, &read(request).unwrap());
    prop_assert_eq!(&request.method, "GET");
    let objects = match asked.target {
        RequestTarget::Document(document, _) => {
            // The access review contains the path `document.path()`, so this path must name the
            // same document as the request.
            let (_, parsed) = RequestPath::parse(&document.path()).unwrap();
            prop_assert_eq!(parsed, RequestPath::parse(request.path()).unwrap().1);
            return Ok(());
        }
        RequestTarget::Objects(objects) => objects,
    };
    let (labels, fields) = reparsed(&objects);
    prop_assert_eq!((&labels, &fields), (&objects.labels, &objects.fields));
    let AccessAttributes { verb, name, namespace, .. } = objects.access_attributes();
    prop_assert_eq!(verb == "get", objects.name.is_some());
    prop_assert_eq!(verb == "watch", objects.watch.is_some());
    if let Some(expected) = objects.name.as_deref() {
        prop_assert_eq!(name, expected);
        prop_assert!(objects.labels.is_empty() && objects.fields.is_empty());
        prop_assert_eq!(&fields, &FieldSelector::default());
    }
    let within = objects.namespace.as_deref().unwrap_or_default();
    prop_assert_eq!(namespace, within);
    prop_assert!(!within.contains('/') && !name.contains('/') && name != ".." && name != ".");
    if let VersionMatch::Continue { version, after } = &objects.version_match {
        prop_assert!(!after.name.contains('/') && !after.namespace.contains('/'));
        if let Some(namespace) = &objects.namespace {
            prop_assert_eq!(&*after.namespace, &**namespace, "the token has another namespace");
        }
        let namespace = objects.namespace.as_deref();
        let written = encode_continue_token(version.as_ref(), after, namespace);
        prop_assert!(written.is_some());
        prop_assert_eq!(
            &continue_tokens::decode(&written.unwrap(), namespace).unwrap(),
            &objects.version_match
        );
    }
    Ok(())
}

fn check_refusal(request: &Request, failure: &StatusError) -> Result<(), TestCaseError> {
    prop_assert!(REFUSALS.contains(&failure.code()), "{}", failure.code());
    let body = failure.body();
    let status: Value = serde_json::from_str(&body).unwrap();
    prop_assert_eq!((&status["kind"], &status["status"]), (&"Status".into(), &"Failure".into()));
    prop_assert_eq!(&status["code"], &Value::from(failure.code()));
    prop_assert!(status["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    // JSON escapes some characters as six bytes, so a quoted request can be six times as long as
    // the request.
    let most = LONGEST + 6 * request.target.len();
    prop_assert!(body.len() <= most, "{} bytes of {}", body.len(), request.target.len());
    Ok(())
}

#[test]
fn requests_of_the_corpus_are_parsed_or_rejected() {
    for request in corpus() {
        check(&request).unwrap_or_else(|error| panic!("{request:?}: {error}"));
    }
}

#[test]
fn the_length_of_an_error_is_bounded_by_the_length_of_the_request() {
    let values: Vec<_> = (0..1_000).map(|n| format!("-{n:x}")).collect();
    let selectors = [
        format!("labelSelector=a+in+({})", values.join(",")),
        format!("labelSelector={}", values.join("%2C")),
        format!("fieldSelector={}", values.join("%2C")),
        format!("fieldSelector=a%3D{}", "%00".repeat(8_000)),
        format!("resourceVersionMatch={}", "%0a".repeat(8_000)),
        format!("continue={}", "e".repeat(32_000)),
        format!("limit={}", "9".repeat(32_000)),
    ];
    for query in selectors {
        let target = format!("/api/v1/pods?{query}");
        let request = Request { method: "GET".to_owned(), target, accept: None };
        let failure = read(&request).unwrap_err();
        check_refusal(&request, &failure)
            .unwrap_or_else(|error| panic!("{}: {error}", &query[..40]));
    }
}

/// Returns the configuration of the property tests. They run 4,000 cases, because each case is
/// fast. The environment variable `PROPTEST_CASES` overrides this number.
fn many() -> ProptestConfig {
    let config = ProptestConfig::default();
    let cases = std::env::var_os("PROPTEST_CASES").map_or(4_000, |_| config.cases);
    ProptestConfig { cases, ..config }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn mutated_requests_are_parsed_or_rejected(request in changed()) {
        check(&request)?;
    }

    #[test]
    fn a_forwarded_path_is_the_end_of_the_path_in_the_request(request in changed()) {
        if let Ok(onward) = ForwardPlan::parse(&request.method, request.path(), request.query()) {
            // If the path is `/profiles/<namespace>/<name>` without more, the forwarded path is
            // `/`.
            let is_own = onward.path == "/" || request.path().ends_with(onward.path);
            prop_assert!(is_own);
        }
    }
}

#[test]
fn the_empty_selector_parses_to_itself() {
    let all = LabelSelector::default();
    assert_eq!(label_selector::parse(&all.to_string()), Ok(all));
}
