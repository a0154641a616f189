//! Parses the options of a get, a list or a watch. The checks have the API server's order. So for a
//! request with several errors, kubewarm and the API server return the same error.

use super::{
    ObjectPart, ObjectRequest, ResponseForm, StatusError, TableForm, VersionMatch, continue_tokens,
    field_selector, label_selector,
    query_parameters::{QueryParameter, QueryParameters, not_a_number},
    status_error::{forbidden, unsupported},
    watch_options,
};
use kube::core::response::StatusCause;
use kubewarm_api::model::GroupResource;
use std::num::NonZeroU64;

const EXACT: &str = "Exact";
pub(super) const NOT_OLDER_THAN: &str = "NotOlderThan";
pub(super) const MATCH: &str = "resourceVersionMatch";

pub(super) fn parse_get_version(query: &QueryParameters) -> Result<VersionMatch, StatusError> {
    Ok(match version(query.text(QueryParameter::ResourceVersion))? {
        None => VersionMatch::Latest,
        Some(0) => VersionMatch::Any,
        Some(version) => VersionMatch::NotOlderThan(version.into()),
    })
}

pub(super) fn parse_list_options(
    query: &QueryParameters,
    list: &mut ObjectRequest,
) -> Result<(), StatusError> {
    let timeout = query.number(QueryParameter::TimeoutSeconds)?;
    let limit = query.number(QueryParameter::Limit)?;
    list.labels = label_selector::parse(query.text(QueryParameter::LabelSelector))?;
    list.fields = field_selector::parse(query.text(QueryParameter::FieldSelector))?;
    if query.is_set(QueryParameter::Watch) {
        let (at, watch) = watch_options::parse(query, timeout)?;
        (list.version_match, list.watch) = (at, Some(watch));
        return Ok(());
    }
    check(query)?;
    let limit = limit.and_then(|limit| u64::try_from(limit).ok()).and_then(NonZeroU64::new);
    match list_version(query, list, limit) {
        Ok(parsed) => (list.version_match, list.limit) = parsed,
        Err(failure) => list.version_error = Some(Box::new(failure.specific_to_cache())),
    }
    Ok(())
}

/// Parses the required version of a list. Also returns `limit`, or `None` if the API server ignores
/// the limit of such a list.
///
/// # Errors
///
/// - 400 if `resourceVersion` is no number, or `continue` is given too
/// - the errors of [`continue_tokens::decode`]
fn list_version(
    query: &QueryParameters,
    list: &ObjectRequest,
    limit: Option<NonZeroU64>,
) -> Result<(VersionMatch, Option<NonZeroU64>), StatusError> {
    let given = query.text(QueryParameter::ResourceVersion);
    let token = query.text(QueryParameter::Continue);
    // The API server's watch cache answers lists with `resourceVersion=0`, and ignores their limit.
    // So kubewarm ignores such a limit too.
    let limit_of_any = limit.filter(|_| !has_watch_cache(list.resource.group_resource()));
    if !token.is_empty() {
        let at = continue_tokens::decode(token, list.namespace.as_deref())?;
        if !matches!(given, "" | "0") {
            return Err(StatusError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        return Ok((at, if given.is_empty() { limit } else { limit_of_any }));
    }
    Ok(match (version(given)?, query.text(QueryParameter::ResourceVersionMatch)) {
        (None, _) => (VersionMatch::Latest, limit),
        (Some(0), _) => (VersionMatch::Any, limit_of_any),
        (Some(version), EXACT) => (VersionMatch::Exact(version.into()), limit),
        (Some(version), NOT_OLDER_THAN) => (VersionMatch::NotOlderThan(version.into()), limit),
        // A list with a limit and without `resourceVersionMatch` must have exactly the version in
        // `resourceVersion`. Clients older than `resourceVersionMatch` expect this version.
        (Some(version), _) if limit.is_some() => (VersionMatch::Exact(version.into()), limit),
        (Some(version), _) => (VersionMatch::NotOlderThan(version.into()), limit),
    })
}

/// Whether the API server serves the resource from a watch cache, which ignores the limit of some
/// lists. By default, the API server has a watch cache for each resource except events.
fn has_watch_cache(resource: &GroupResource) -> bool {
    !(matches!(resource.group(), "" | "events.k8s.io") && resource.resource() == "events")
}

/// Applies the query parameter `includeObject` to the form of a `Table`. Returns a form without a
/// table unchanged.
///
/// # Errors
///
/// 400 for an unknown value of `includeObject`.
pub(super) fn with_include_object(
    form: ResponseForm,
    query: &QueryParameters,
) -> Result<ResponseForm, StatusError> {
    let ResponseForm::Table(table) = form else { return Ok(form) };
    let object = match query.text(QueryParameter::IncludeObject) {
        "None" => None,
        "" | "Metadata" => Some(ObjectPart::Metadata(table.version)),
        "Object" => Some(ObjectPart::Full),
        other => {
            return Err(StatusError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be \
                 'Metadata', 'Object', 'None', or empty",
                super::status_error::quoted(other)
            )));
        }
    };
    Ok(ResponseForm::Table(TableForm { object, ..table }))
}

/// Checks the options of a list by the rules of `ValidateListOptions` in apimachinery.
fn check(query: &QueryParameters) -> Result<(), StatusError> {
    let given = query.text(QueryParameter::ResourceVersion);
    let matched = query.text(QueryParameter::ResourceVersionMatch);
    let is_matched = !matched.is_empty();
    StatusError::check_options([
        (is_matched && given.is_empty()).then(|| {
            forbidden(
                MATCH,
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            )
        }),
        match_with_continue(query),
        (is_matched && !matches!(matched, EXACT | NOT_OLDER_THAN))
            .then(|| unsupported(MATCH, matched, r#""Exact", "NotOlderThan", """#)),
        (matched == EXACT && given == "0").then(|| {
            forbidden(
                MATCH,
                r#"Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
            )
        }),
        query.given(QueryParameter::SendInitialEvents).map(|_| {
            forbidden("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list")
        }),
    ])
}

/// Returns an error if the query contains both `resourceVersionMatch` and `continue`. The rule
/// applies to lists and watches.
pub(super) fn match_with_continue(query: &QueryParameters) -> Option<StatusCause> {
    let is_given = |parameter| !query.text(parameter).is_empty();
    (is_given(QueryParameter::ResourceVersionMatch) && is_given(QueryParameter::Continue)).then(
        || {
            forbidden(
                MATCH,
                "Forbidden: resourceVersionMatch is forbidden when continue is provided",
            )
        },
    )
}

/// Parses the value of `resourceVersion`; returns `None` if it is empty.
///
/// # Errors
///
/// 400 if `text` is not a number.
pub(super) fn version(text: &str) -> Result<Option<u64>, StatusError> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u64>() {
        _ if text.is_empty() => Ok(None),
        Ok(number) if is_number => Ok(Some(number)),
        _ => {
            let why = not_a_number("ParseUint", text, is_number);
            let text = super::status_error::quoted(text);
            Err(StatusError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text}: {why}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MetaVersion, RequestInfo, RequestTarget};
    use kubewarm_api::model::ObjectKey;

    fn list(query: &str) -> Result<ObjectRequest, StatusError> {
        let asked = RequestInfo::parse("GET", "/api/v1/namespaces/ns/pods", Some(query), None)?;
        let RequestTarget::Objects(list) = asked.target else { panic!("{query} lists nothing") };
        match &list.version_error {
            Some(failure) => Err((**failure).clone()),
            None => Ok(*list),
        }
    }

    fn token(version: u64) -> String {
        let after = ObjectKey { namespace: "ns".into(), name: "a".into() };
        let version = (version > 0).then(|| version.into());
        crate::encode_continue_token(version.as_ref(), &after, Some("ns")).unwrap()
    }

    /// Parses the options of a list. Returns its version requirement and its limit as text. Limit 0
    /// means no limit.
    fn summary(query: &str) -> String {
        let options = list(query).unwrap();
        let limit = options.limit.map_or(0, NonZeroU64::get);
        match options.version_match {
            VersionMatch::Latest => format!("latest {limit}"),
            VersionMatch::Any => format!("any {limit}"),
            VersionMatch::NotOlderThan(version) => format!("from {version} {limit}"),
            VersionMatch::Exact(version) => format!("at {version} {limit}"),
            VersionMatch::Continue { version, after } => {
                let version =
                    version.map_or_else(|| "newest".to_owned(), |version| version.to_string());
                format!("on {version} after {}/{} {limit}", after.namespace, after.name)
            }
        }
    }

    #[test]
    fn versions_matches_and_limits_mean_the_same_as_in_the_api_server() {
        let (on, newest) = (token(5), token(0));
        for (query, expected) in [
            ("", "latest 0"),
            ("limit=500", "latest 500"),
            ("limit=0", "latest 0"),
            ("limit=-1", "latest 0"),
            ("resourceVersion=", "latest 0"),
            ("resourceVersion=0", "any 0"),
            ("resourceVersion=0&limit=500", "any 0"),
            ("resourceVersion=00&limit=500", "any 0"),
            ("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=5", "any 0"),
            ("resourceVersion=7", "from 7 0"),
            ("resourceVersion=7&limit=5", "at 7 5"),
            ("resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan", "from 7 5"),
            ("resourceVersion=7&resourceVersionMatch=NotOlderThan", "from 7 0"),
            ("resourceVersion=7&resourceVersionMatch=Exact", "at 7 0"),
            ("resourceVersion=7&resourceVersionMatch=Exact&limit=5", "at 7 5"),
            (&format!("continue={on}"), "on 5 after ns/a 0"),
            (&format!("continue={on}&limit=5"), "on 5 after ns/a 5"),
            (&format!("continue={on}&limit=5&resourceVersion=0"), "on 5 after ns/a 0"),
            (&format!("continue={newest}"), "on newest after ns/a 0"),
        ] {
            assert_eq!(summary(query), expected, "{query}");
        }
    }

    #[test]
    fn a_list_of_events_at_any_version_has_a_limit() {
        for (path, limit) in [
            ("/api/v1/events", 5),
            ("/apis/events.k8s.io/v1/events", 5),
            ("/api/v1/pods", 0),
            ("/apis/example.com/v1/events", 0),
        ] {
            for more in [String::new(), format!("&continue={}", token(5))] {
                let query = format!("resourceVersion=0&limit=5{more}");
                let path = path.replace("/v1/", "/v1/namespaces/ns/");
                let parsed = RequestInfo::parse("GET", &path, Some(&query), None).unwrap();
                let RequestTarget::Objects(list) = parsed.target else { panic!("{path}") };
                assert_eq!(list.limit.map_or(0, NonZeroU64::get), limit, "{path}?{query}");
            }
        }
    }

    #[test]
    fn options_that_exclude_each_other_have_the_errors_of_the_api_server() {
        let on = token(5);
        let listed = "ListOptions.meta.k8s.io \"\" is invalid: ";
        let matched = "resourceVersionMatch";
        for (query, code, expected) in [
            (
                "resourceVersionMatch=Exact".to_owned(),
                422,
                format!(
                    "{listed}{matched}: Forbidden: {matched} is forbidden unless resourceVersion is \
                     provided"
                ),
            ),
            (
                "resourceVersion=0&resourceVersionMatch=Exact".to_owned(),
                422,
                format!(
                    "{listed}{matched}: Forbidden: {matched} \"exact\" is forbidden for \
                     resourceVersion \"0\""
                ),
            ),
            (
                format!("resourceVersion=5&resourceVersionMatch=Exact&continue={on}"),
                422,
                format!(
                    "{listed}{matched}: Forbidden: {matched} is forbidden when continue is provided"
                ),
            ),
            (
                "resourceVersion=5&resourceVersionMatch=exact".to_owned(),
                422,
                format!(
                    "{listed}{matched}: Unsupported value: \"exact\": supported values: \"Exact\", \
                     \"NotOlderThan\", \"\""
                ),
            ),
            (
                "sendInitialEvents=false".to_owned(),
                422,
                format!(
                    "{listed}sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
                ),
            ),
            (
                format!("continue={on}&resourceVersion=5"),
                400,
                "specifying resource version is not allowed when using continue".to_owned(),
            ),
            (
                "resourceVersion=abc".to_owned(),
                400,
                "invalid resource version: resourceVersion: Invalid value: \"abc\": \
                 strconv.ParseUint: parsing \"abc\": invalid syntax"
                    .to_owned(),
            ),
            (
                "resourceVersion=18446744073709551616".to_owned(),
                400,
                "invalid resource version: resourceVersion: Invalid value: \
                 \"18446744073709551616\": strconv.ParseUint: parsing \"18446744073709551616\": \
                 value out of range"
                    .to_owned(),
            ),
            (
                "limit=x&labelSelector=,".to_owned(),
                400,
                "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned(),
            ),
        ] {
            let failure = list(&query).unwrap_err();
            assert_eq!((failure.code(), failure.message()), (code, &*expected), "{query}");
        }
        for query in ["resourceVersion=%2B5", "resourceVersion=-1", "timeoutSeconds=x"] {
            assert_eq!(list(query).unwrap_err().code(), 400, "{query}");
        }
    }

    #[test]
    fn a_watch_has_the_selectors_of_a_list_and_no_limit() {
        let options = list("watch=1&labelSelector=a&resourceVersion=7&limit=5").unwrap();
        assert!(options.watch.is_some() && !options.labels.is_empty() && options.limit.is_none());
        assert_eq!(list("watch=1&labelSelector=,").unwrap_err().code(), 400);
    }

    #[test]
    fn include_object_sets_the_part_of_each_object_in_a_table() {
        let form_with = |form, query: &str| {
            with_include_object(form, &QueryParameters::parse(Some(query)).unwrap())
        };
        let version = MetaVersion::V1;
        let table = |object| ResponseForm::Table(TableForm { version, object });
        let (full, metadata) = (ObjectPart::Full, ObjectPart::Metadata(version));
        for (given, expected) in [
            ("", Some(metadata)),
            ("None", None),
            ("Metadata", Some(metadata)),
            ("Object", Some(full)),
        ] {
            let query = format!("includeObject={given}");
            assert_eq!(form_with(table(None), &query), Ok(table(expected)));
            assert_eq!(
                form_with(ResponseForm::Object(full), &query),
                Ok(ResponseForm::Object(full))
            );
        }
        let failure = form_with(table(None), "includeObject=all").unwrap_err();
        assert_eq!(
            (failure.code(), failure.message()),
            (
                400,
                "Unable to convert to Table as requested: includeObject: Invalid value: \"all\": must be \
                 'Metadata', 'Object', 'None', or empty"
            )
        );
        let metadata = ResponseForm::Object(metadata);
        assert_eq!(form_with(metadata, "includeObject=all"), Ok(metadata));
    }

    #[test]
    fn a_get_never_requires_an_exact_version() {
        for (query, expected) in [
            ("", VersionMatch::Latest),
            ("resourceVersion=0", VersionMatch::Any),
            ("resourceVersion=5", VersionMatch::NotOlderThan(5.into())),
            (
                "resourceVersion=5&resourceVersionMatch=Exact&watch=1",
                VersionMatch::NotOlderThan(5.into()),
            ),
        ] {
            let at = parse_get_version(&QueryParameters::parse(Some(query)).unwrap()).unwrap();
            assert_eq!(at, expected, "{query}");
        }
        assert_eq!(
            parse_get_version(&QueryParameters::parse(Some("resourceVersion=x")).unwrap())
                .unwrap_err()
                .code(),
            400
        );
    }
}
