//! Continue tokens in the API server's own format, which is public and does not change.

use super::{At, Failure, base64};
use kubewarm_api::model::{ObjectKey, ResourceVersion};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The only version of the format there is.
const FORMAT: &str = "meta.k8s.io/v1";
/// In place of a version: whatever is newest.
const NEWEST: i64 = -1;

#[derive(Deserialize, Serialize)]
struct Token<'a> {
    #[serde(rename = "v", default)]
    format: Cow<'a, str>,
    #[serde(rename = "rv", default)]
    version: i64,
    #[serde(rename = "start", default)]
    start: Cow<'a, str>,
}

/// The token with which a list in `namespace`, or in all of them, goes on behind the object `after`, at the
/// version of the pages before; `None` as version: at the newest one. The path says what is listed, so the token
/// does not.
///
/// `None` where the version is not a number that a token can hold, so that a list cannot be cut into pages.
#[must_use]
pub fn continue_token(
    version: Option<&ResourceVersion>,
    after: &ObjectKey,
    namespace: Option<&str>,
) -> Option<String> {
    let version = match version {
        None => NEWEST,
        Some(version) => {
            version.as_u64().and_then(|it| i64::try_from(it).ok()).filter(|it| *it > 0)?
        }
    };
    // The place right behind the object: its key and the smallest byte.
    let start = match (namespace, &*after.namespace) {
        (Some(_), _) | (None, "") => format!("{}\0", after.name),
        (None, within) => format!("{within}/{}\0", after.name),
    };
    let token = Token { format: FORMAT.into(), version, start: start.into() };
    Some(base64::encode(&serde_json::to_vec(&token).ok()?))
}

/// Reads a token of a list in `namespace`, or of all of them.
///
/// # Errors
///
/// 400 with the server's text. Only what one of its tokens says is taken: a place behind an object
/// within what is listed.
pub(super) fn decode(token: &str, namespace: Option<&str>) -> Result<At, Failure> {
    let invalid = |why: &str| {
        Failure::bad_request(format!("invalid continue token: continue key is not valid{why}"))
    };
    let bytes = base64::decode(token)
        .map_err(|at| invalid(&format!(": illegal base64 data at input byte {at}")))?;
    let Ok(Token { format, version, start }) = serde_json::from_slice(&bytes) else {
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
    let after =
        place(&start, namespace).ok_or_else(|| invalid(&format!(": {}", start.escape_debug())))?;
    let version = u64::try_from(version).ok().map(ResourceVersion::from);
    Ok(At::Continue { version, after })
}

/// The object that `start` stands right behind. The namespace of the path wins over any other.
fn place(start: &str, namespace: Option<&str>) -> Option<ObjectKey> {
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

    /// The token behind `ns/NAME` of a list of all namespaces.
    fn token(version: u64, name: &str) -> Option<String> {
        continue_token(Some(&version.into()), &after("ns", name), None)
    }

    fn at(version: u64, after: ObjectKey) -> At {
        At::Continue { version: Some(version.into()), after }
    }

    fn refusal(json: &str, namespace: Option<&str>) -> String {
        let token = base64::encode(json.as_bytes());
        let failure = decode(&token, namespace).unwrap_err();
        assert_eq!(failure.code(), 400, "{json}");
        failure.message().to_owned()
    }

    #[test]
    fn tokens_are_those_of_the_api_server() {
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
            let token = continue_token(version.as_ref(), &key, namespace).unwrap();
            assert_eq!(String::from_utf8(base64::decode(&token).unwrap()).unwrap(), json);
            assert_eq!(decode(&token, namespace), Ok(At::Continue { version, after: key }));
        }
        let expected = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJucy9hXHUwMDAwIn0";
        assert_eq!(token(5, "a").unwrap(), expected);
    }

    #[test]
    fn a_version_that_no_token_can_say_gives_none() {
        let opaque = ResourceVersion::parse("abc").unwrap();
        assert_eq!(continue_token(Some(&opaque), &after("ns", "a"), None), None);
        assert_eq!(token(u64::MAX, "a"), None);
        assert_eq!(token(0, "a"), None);
    }

    #[test]
    fn refusals_are_worded_as_the_server_words_them() {
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
    fn a_token_says_a_place_within_what_is_listed_and_nothing_else() {
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
        let other =
            |namespace| continue_token(Some(&1.into()), &after("other", "a"), namespace).unwrap();
        assert_eq!(decode(&other(None), Some("ns")).unwrap_err().code(), 400);
        assert_eq!(decode(&other(Some("other")), Some("ns")), Ok(at(1, after("ns", "a"))));
    }

    proptest! {
        #[test]
        fn no_token_makes_it_panic(any in ".{0,80}", json in r#"\{("(v|rv|start)":("meta.k8s.io/v1"|-?[0-9]{1,20}|"[a./]*"),?){0,4}\}"#) {
            for namespace in [None, Some("ns")] {
                let _ = decode(&any, namespace);
                let _ = decode(&base64::encode(json.as_bytes()), namespace);
            }
        }

        #[test]
        fn every_place_comes_back(version in 1..=u64::MAX / 2, name in "[a-z.:-]{1,20}") {
            prop_assume!(!matches!(&*name, "." | ".."));
            for namespace in [None, Some("ns")] {
                let place = after("ns", &name);
                let token = continue_token(Some(&version.into()), &place, namespace).unwrap();
                prop_assert_eq!(decode(&token, namespace), Ok(at(version, place)));
            }
        }
    }
}
