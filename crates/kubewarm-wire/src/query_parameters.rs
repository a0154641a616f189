//! Parses the query parameters of requests, and decodes percent-encoded text of queries and paths.

use super::{StatusError, status_error::quoted};
use percent_encoding::percent_decode_str;
use std::{borrow::Cow, collections::BTreeMap};

/// The query parameters of a request that kubewarm supports. kubewarm ignores all other parameters,
/// such as `fieldValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueryParameters(BTreeMap<QueryParameter, String>);

/// A query parameter that kubewarm supports. Its name in a query is the variant's name in camel
/// case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString)]
#[cfg_attr(test, derive(strum::AsRefStr, strum::VariantArray))]
#[strum(serialize_all = "camelCase")]
pub(super) enum QueryParameter {
    LabelSelector,
    FieldSelector,
    Watch,
    ResourceVersion,
    ResourceVersionMatch,
    TimeoutSeconds,
    Limit,
    Continue,
    SendInitialEvents,
    AllowWatchBookmarks,
    IncludeObject,
    DryRun,
    Pretty,
    Timeout,
}

impl QueryParameters {
    /// Parses a query. The first value of a repeated parameter counts, even if it is empty.
    ///
    /// Servers in Go ignore a parameter that they cannot decode. If this parameter is a selector,
    /// such a server returns too many objects. So kubewarm rejects the complete query.
    ///
    /// # Errors
    ///
    /// 400 for a `;`, for an invalid escape, and for text that is not UTF-8 after decoding.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, StatusError> {
        let mut parsed = Self::default();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            if pair.contains(';') {
                return Err(StatusError::bad_request("invalid semicolon separator in query"));
            }
            // In a query, unlike in a path, a plus sign is a space.
            let pair = pair.replace('+', " ");
            let (name, value) = pair.split_once('=').unwrap_or((&pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if let Ok(parameter) = name.parse() {
                parsed.0.entry(parameter).or_insert_with(|| value.into_owned());
            }
        }
        Ok(parsed)
    }

    pub(super) fn given(&self, parameter: QueryParameter) -> Option<&str> {
        self.0.get(&parameter).map(String::as_str)
    }

    /// Returns the parameter's value; an empty string if the parameter is absent.
    pub(super) fn text(&self, parameter: QueryParameter) -> &str {
        self.given(parameter).unwrap_or_default()
    }

    /// Returns whether the parameter is present and its value is neither `false` nor `0`. An empty
    /// value counts as true.
    pub(super) fn is_set(&self, parameter: QueryParameter) -> bool {
        self.given(parameter)
            .is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }

    /// Returns the parameter's value as a number; `None` if the parameter is absent.
    ///
    /// # Errors
    ///
    /// 400 with the API server's message if the value is not a number.
    pub(super) fn number(&self, parameter: QueryParameter) -> Result<Option<i64>, StatusError> {
        let Some(text) = self.given(parameter) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            let is_number = {
                let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
                !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
            };
            StatusError::bad_request(not_a_number("ParseInt", text, is_number))
        })
    }
}

/// Returns the error message of Go's `strconv` for `text`, which `function` cannot parse.
/// `is_number` is `true` if `text` is a number that is out of range.
pub(super) fn not_a_number(function: &str, text: &str, is_number: bool) -> String {
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {}: {why}", quoted(text))
}

/// Decodes percent-encoded text.
///
/// # Errors
///
/// 400 for an incomplete escape, and for text that is not UTF-8 after decoding.
pub(super) fn decode(text: &str) -> Result<Cow<'_, str>, StatusError> {
    // `percent_decode_str` accepts an incomplete escape and keeps it unchanged. So this check
    // rejects incomplete escapes.
    let is_escape =
        |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|digit| digit.is_ascii_hexdigit());
    if !text.split('%').skip(1).all(is_escape) {
        return Err(StatusError::bad_request("invalid URL escape"));
    }
    percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| StatusError::bad_request("the URL is not UTF-8 once it is decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::VariantArray as _;

    fn query(text: &str) -> QueryParameters {
        QueryParameters::parse(Some(text)).unwrap()
    }

    #[test]
    fn the_first_value_of_a_repeated_parameter_counts_even_if_empty() {
        let labels = QueryParameter::LabelSelector;
        assert_eq!(query("labelSelector=a&labelSelector=b").given(labels), Some("a"));
        assert_eq!(query("labelSelector=&labelSelector=b").given(labels), Some(""));
        assert_eq!(query("labelSelector&labelSelector=b").given(labels), Some(""));
        assert_eq!(query("label%53elector=a%3Db+c&labelSelector=b").given(labels), Some("a=b c"));
        assert_eq!(query("LABELSELECTOR=a&x=y&&").given(labels), None);
    }

    #[test]
    fn every_parameter_occurs_in_the_mutated_requests() {
        for name in QueryParameter::VARIANTS.iter().map(AsRef::as_ref) {
            assert!(testbed::PARAMETERS.contains(&name), "{name} is never mutated");
            let has =
                |query: &str| query.split('&').any(|pair| pair.starts_with(&format!("{name}=")));
            let is_sent = |request: &testbed::Request| request.query().is_some_and(has);
            assert!(testbed::corpus().iter().any(is_sent), "no request has {name}");
        }
    }

    #[test]
    fn every_parameter_is_found_by_its_name() {
        for (parameter, name) in [
            (QueryParameter::LabelSelector, "labelSelector"),
            (QueryParameter::FieldSelector, "fieldSelector"),
            (QueryParameter::Watch, "watch"),
            (QueryParameter::ResourceVersion, "resourceVersion"),
            (QueryParameter::ResourceVersionMatch, "resourceVersionMatch"),
            (QueryParameter::TimeoutSeconds, "timeoutSeconds"),
            (QueryParameter::Limit, "limit"),
            (QueryParameter::Continue, "continue"),
            (QueryParameter::SendInitialEvents, "sendInitialEvents"),
        ] {
            assert_eq!(query(&format!("{name}=x")).given(parameter), Some("x"), "{name}");
        }
    }

    #[test]
    fn a_query_that_go_would_parse_in_part_is_rejected() {
        for text in ["a=%", "a=%4", "a=%zz", "%=a", "limit=1;continue=x", "a=%ff", "%c3%28=a"] {
            let failure = QueryParameters::parse(Some(text)).unwrap_err();
            assert_eq!(failure.code(), 400, "{text}");
        }
        assert_eq!(QueryParameters::parse(None).unwrap(), QueryParameters::default());
    }

    #[test]
    fn booleans_are_parsed_as_in_the_api_server() {
        for (text, expected) in [
            ("", false),
            ("watch", true),
            ("watch=", true),
            ("watch=true", true),
            ("watch=1", true),
            ("watch=no", true),
            ("watch=0", false),
            ("watch=false", false),
            ("watch=False", false),
        ] {
            assert_eq!(query(text).is_set(QueryParameter::Watch), expected, "{text}");
        }
    }

    #[test]
    fn invalid_numbers_have_the_errors_of_the_api_server() {
        assert!(query("limit=+5").number(QueryParameter::Limit).is_err(), "a plus sign is a space");
        assert_eq!(query("limit=%2B5").number(QueryParameter::Limit), Ok(Some(5)));
        assert_eq!(query("limit=-1").number(QueryParameter::Limit), Ok(Some(-1)));
        assert_eq!(query("").number(QueryParameter::Limit), Ok(None));
        for (text, expected) in [
            ("limit=abc", r#"strconv.ParseInt: parsing "abc": invalid syntax"#),
            ("limit=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
            (
                "limit=9223372036854775808",
                r#"strconv.ParseInt: parsing "9223372036854775808": value out of range"#,
            ),
        ] {
            let failure = query(text).number(QueryParameter::Limit).unwrap_err();
            assert_eq!((failure.code(), failure.message()), (400, expected));
        }
    }
}
