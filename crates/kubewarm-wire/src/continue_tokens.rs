//! Encodes and decodes the continue tokens of lists in the API server's format, which is public and
//! stable.

use super::{StatusError, VersionMatch, base64};
use kubewarm_api::model::{ObjectKey, ResourceVersion};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The version of the format of continue tokens. The API server supports no other version.
const FORMAT: &str = "meta.k8s.io/v1";
/// In the field `rv` of a continue token, this value means the newest resource version.
const NEWEST: i64 = -1;

#[derive(Deserialize, Serialize)]
struct ContinueToken<'a> {
    #[serde(rename = "v", default)]
    format: Cow<'a, str>,
    #[serde(rename = "rv", default)]
    version: i64,
    #[serde(rename = "start", default)]
    start: Cow<'a, str>,
}

/// Encodes a continue token of a list of `namespace`, or of all namespaces (`None`). With this
/// token, the list continues with the objects after `after`.
///
/// The list continues at the resource version `version`, the version of its earlier pages. If
/// `version` is `None`, the list continues at the newest version. The token does not name the
/// resource, because the request's path does.
///
/// Returns `None` if `version` is not a number from 1 to `i64::MAX`, because a token cannot contain
/// such a version.
pub fn encode_continue_token(
    version: Option<&ResourceVersion>,
    after: &ObjectKey,
    namespace: Option<&str>,
) -> Option<String> {
    let version = match version {
        None => NEWEST,
        Some(version) => version
            .as_u64()
            .and_then(|number| i64::try_from(number).ok())
            .filter(|number| *number > 0)?,
    };
    // `start` is the object's key (`namespace/name`) and a NUL byte. No other key sorts between the
    // object's key and `start`, so `start` is the first possible key of the next page.
    let start = match (namespace, &*after.namespace) {
        (Some(_), _) | (None, "") => format!("{}\0", after.name),
        (None, within) => format!("{within}/{}\0", after.name),
    };
    let token = ContinueToken { format: FORMAT.into(), version, start: start.into() };
    Some(base64::encode(&serde_json::to_vec(&token).ok()?))
}

/// Decodes a continue token for a list of `namespace`, or of all namespaces (`None`).
///
/// # Errors
///
/// 400 with the API server's message. The function rejects a token that continues after an object
/// that cannot be in the list.
pub(super) fn decode(token: &str, namespace: Option<&str>) -> Result<VersionMatch, StatusError> {
    let invalid = |why: &str| {
        StatusError::bad_request(format!("invalid continue token: continue key is not valid{why}"))
    };
    let bytes = base64::decode(token)
        .map_err(|at| invalid(&format!(": illegal base64 data at input byte {at}")))?;
    let Ok(ContinueToken { format, version, start }) = serde_json::from_slice(&bytes) else {
        return Err(invalid(": not the JSON of a token"));
    };
    if format != FORMAT {
        return Err(invalid(&format!(": server does not recognize this encoded version {format}")));
    }
    if version == 0 {
        return Err(invalid(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
    }
    if start.is_empty() {
        return Err(invalid(": encoded start key empty (version meta.k8s.io/v1)"));
    }
    let after = parse_start_key(&start, namespace)
        .ok_or_else(|| invalid(&format!(": {}", start.escape_debug())))?;
    let version = u64::try_from(version).ok().map(ResourceVersion::from);
    Ok(VersionMatch::Continue { version, after })
}

/// Returns the last object of the previous page. `start` is the first possible key after this
/// object. Returns `None` if `start` is invalid. In a list of one namespace, `start` does not
/// contain the namespace.
fn parse_start_key(start: &str, namespace: Option<&str>) -> Option<ObjectKey> {
    let key = start.strip_prefix('/').unwrap_or(start).strip_suffix('\0')?;
    let (within, name) = match (namespace, key.split_once('/')) {
        (Some(namespace), None) => (namespace, key),
        (None, None) => ("", key),
        (None, Some((within, name))) => (is_segment(within).then_some(within)?, name),
        (Some(_), Some(_)) => return None,
    };
    is_segment(name).then(|| ObjectKey { namespace: within.into(), name: name.into() })
}

fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the continue token after the object `ns/NAME` in a list of all namespaces.
    fn token(version: u64, name: &str) -> Option<String> {
        encode_continue_token(Some(&version.into()), &after("ns", name), None)
    }

    fn at(version: u64, after: ObjectKey) -> VersionMatch {
        VersionMatch::Continue { version: Some(version.into()), after }
    }

    fn refusal(json: &str, namespace: Option<&str>) -> String {
        let token = base64::encode(json.as_bytes());
        let failure = decode(&token, namespace).unwrap_err();
        assert_eq!(failure.code(), 400, "{json}");
        failure.message().to_owned()
    }

    #[test]
    fn tokens_match_the_api_server() {
        for (version, key, namespace, json) in [
            (
                Some(12345),
                after("ns", "a"),
                None,
                r#"{"v":"meta.k8s.io/v1","rv":12345,"start":"ns/a\u0000"}"#,
            ),
            (
                Some(12345),
                after("ns", "a"),
                Some("ns"),
                r#"{"v":"meta.k8s.io/v1","rv":12345,"start":"a\u0000"}"#,
            ),
            (
                Some(7),
                after("", "node"),
                None,
                r#"{"v":"meta.k8s.io/v1","rv":7,"start":"node\u0000"}"#,
            ),
            (
                None,
                after("ns", "a"),
                None,
                r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"ns/a\u0000"}"#,
            ),
        ] {
            let version = version.map(ResourceVersion::from);
            let token = encode_continue_token(version.as_ref(), &key, namespace).unwrap();
            assert_eq!(String::from_utf8(base64::decode(&token).unwrap()).unwrap(), json);
            assert_eq!(
                decode(&token, namespace),
                Ok(VersionMatch::Continue { version, after: key })
            );
        }
        let expected = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJucy9hXHUwMDAwIn0";
        assert_eq!(token(5, "a").unwrap(), expected);
    }

    #[test]
    fn a_version_that_a_token_cannot_hold_gives_no_token() {
        let opaque = ResourceVersion::parse("abc").unwrap();
        assert_eq!(encode_continue_token(Some(&opaque), &after("ns", "a"), None), None);
        assert_eq!(token(u64::MAX, "a"), None);
        assert_eq!(token(0, "a"), None);
    }

    #[test]
    fn errors_have_the_messages_of_the_api_server() {
        let start = "invalid continue token: continue key is not valid";
        for (json, expected) in [
            (
                r#"{"v":"v2","rv":1,"start":"a"}"#,
                ": server does not recognize this encoded version v2",
            ),
            ("{}", ": server does not recognize this encoded version "),
            (
                r#"{"v":"meta.k8s.io/v1","start":"a\u0000"}"#,
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":1}"#,
                ": encoded start key empty (version meta.k8s.io/v1)",
            ),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../a\u0000"}"#, r": ../a\0"),
            ("[", ": not the JSON of a token"),
        ] {
            assert_eq!(refusal(json, None), format!("{start}{expected}"), "{json}");
        }
        let failure = decode("a.b", None).unwrap_err();
        assert_eq!(failure.message(), format!("{start}: illegal base64 data at input byte 1"));
    }

    #[test]
    fn a_token_cannot_continue_after_an_object_outside_the_list() {
        for start in [
            "a",
            "ns/a",
            "ns//a\\u0000",
            "ns/../b\\u0000",
            "ns/\\u0000",
            "/\\u0000",
            "..\\u0000",
            "ns/a/b\\u0000",
            "ns/a\\u0000\\u0000",
            "//ns/a\\u0000",
            "./a\\u0000",
        ] {
            let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}"#);
            refusal(&json, None);
            refusal(&json, Some("ns"));
        }
        let other = |namespace| {
            encode_continue_token(Some(&1.into()), &after("other", "a"), namespace).unwrap()
        };
        assert_eq!(decode(&other(None), Some("ns")).unwrap_err().code(), 400);
        assert_eq!(decode(&other(Some("other")), Some("ns")), Ok(at(1, after("ns", "a"))));
    }

    proptest! {
        #[test]
        fn no_token_causes_a_panic(any in ".{0,80}", json in r#"\{("(v|rv|start)":("meta.k8s.io/v1"|-?[0-9]{1,20}|"[a./]*"),?){0,4}\}"#) {
            for namespace in [None, Some("ns")] {
                let _ = decode(&any, namespace);
                let _ = decode(&base64::encode(json.as_bytes()), namespace);
            }
        }

        #[test]
        fn decoding_reverses_encoding(version in 1..=u64::MAX / 2, name in "[a-z.:-]{1,20}") {
            prop_assume!(!matches!(&*name, "." | ".."));
            for namespace in [None, Some("ns")] {
                let place = after("ns", &name);
                let token = encode_continue_token(Some(&version.into()), &place, namespace).unwrap();
                prop_assert_eq!(decode(&token, namespace), Ok(at(version, place)));
            }
        }
    }
}
