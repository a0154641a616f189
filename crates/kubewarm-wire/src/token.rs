//! Continue tokens in the API server's own format, which is public and does not change.

use super::{Failure, base64};
use kubewarm_api::model::{ObjectKey, ResourceVersion};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, sync::Arc};

/// Where a list goes on. It says where and of which version, and nothing of what is listed: that
/// stands in the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continue {
    /// The version of the pages before; `None`: whatever is newest.
    pub version: Option<ResourceVersion>,
    /// The last object of the page before.
    pub after: ObjectKey,
    /// The namespace of the path, which places are relative to.
    pub namespace: Option<Arc<str>>,
}

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

impl Continue {
    /// The token; `None` where the version is not a number that one can say, so that a list cannot
    /// be cut into pages.
    #[must_use]
    pub fn encode(&self) -> Option<String> {
        let version = match &self.version {
            None => NEWEST,
            Some(version) => {
                version.as_u64().and_then(|it| i64::try_from(it).ok()).filter(|it| *it > 0)?
            }
        };
        let ObjectKey { namespace, name } = &self.after;
        // The place right behind the object: its key and the smallest byte.
        let start = if self.namespace.is_some() || namespace.is_empty() {
            format!("{name}\0")
        } else {
            format!("{namespace}/{name}\0")
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
    pub(super) fn decode(token: &str, namespace: Option<Arc<str>>) -> Result<Self, Failure> {
        let invalid = |why: &str| {
            Failure::bad_request(format!("invalid continue token: continue key is not valid{why}"))
        };
        let bytes = base64::decode(token)
            .map_err(|at| invalid(&format!(": illegal base64 data at input byte {at}")))?;
        let Ok(Token { format, version, start }) = serde_json::from_slice(&bytes) else {
            return Err(invalid(": not the JSON of a token"));
        };
        if format != FORMAT {
            return Err(invalid(&format!(
                ": server does not recognize this encoded version {format}"
            )));
        }
        if version == 0 {
            return Err(invalid(
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        if start.is_empty() {
            return Err(invalid(": encoded start key empty (version meta.k8s.io/v1)"));
        }
        let after = place(&start, namespace.as_deref())
            .ok_or_else(|| invalid(&format!(": {}", start.escape_debug())))?;
        let version = u64::try_from(version).ok().map(ResourceVersion::from);
        Ok(Self { version, after, namespace })
    }
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

    fn at(version: u64, namespace: &str, name: &str, of_path: Option<&str>) -> Continue {
        Continue {
            version: (version > 0).then(|| version.into()),
            after: ObjectKey { namespace: namespace.into(), name: name.into() },
            namespace: of_path.map(Arc::from),
        }
    }

    fn refusal(json: &str, namespace: Option<&str>) -> String {
        let token = base64::encode(json.as_bytes());
        let failure = Continue::decode(&token, namespace.map(Arc::from)).unwrap_err();
        assert_eq!(failure.code(), 400, "{json}");
        failure.message().to_owned()
    }

    #[test]
    fn tokens_are_those_of_the_api_server() {
        for (place, json) in [
            (
                at(12345, "ns", "a", None),
                r#"{"v":"meta.k8s.io/v1","rv":12345,"start":"ns/a\u0000"}"#,
            ),
            (
                at(12345, "ns", "a", Some("ns")),
                r#"{"v":"meta.k8s.io/v1","rv":12345,"start":"a\u0000"}"#,
            ),
            (at(7, "", "node", None), r#"{"v":"meta.k8s.io/v1","rv":7,"start":"node\u0000"}"#),
            (at(0, "ns", "a", None), r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"ns/a\u0000"}"#),
        ] {
            let token = place.encode().unwrap();
            assert_eq!(String::from_utf8(base64::decode(&token).unwrap()).unwrap(), json);
            assert_eq!(Continue::decode(&token, place.namespace.clone()), Ok(place));
        }
        let token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJucy9hXHUwMDAwIn0";
        assert_eq!(at(5, "ns", "a", None).encode().unwrap(), token);
    }

    #[test]
    fn a_version_that_no_token_can_say_gives_none() {
        let opaque = ResourceVersion::parse("abc");
        let opaque = Continue { version: opaque, ..at(0, "ns", "a", None) };
        assert_eq!(opaque.encode(), None);
        assert_eq!(at(u64::MAX, "ns", "a", None).encode(), None);
        let zero = Continue { version: Some(0.into()), ..at(0, "ns", "a", None) };
        assert_eq!(zero.encode(), None);
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
        let failure = Continue::decode("a.b", None).unwrap_err();
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
        let of_all = at(1, "other", "a", None).encode().unwrap();
        assert_eq!(Continue::decode(&of_all, Some("ns".into())).unwrap_err().code(), 400);
        let of_one = at(1, "other", "a", Some("other")).encode().unwrap();
        assert_eq!(Continue::decode(&of_one, Some("ns".into())), Ok(at(1, "ns", "a", Some("ns"))));
    }

    proptest! {
        #[test]
        fn no_token_makes_it_panic(any in ".{0,80}", json in r#"\{("(v|rv|start)":("meta.k8s.io/v1"|-?[0-9]{1,20}|"[a./]*"),?){0,4}\}"#) {
            for namespace in [None, Some(Arc::from("ns"))] {
                let _ = Continue::decode(&any, namespace.clone());
                let _ = Continue::decode(&base64::encode(json.as_bytes()), namespace);
            }
        }

        #[test]
        fn every_place_comes_back(version in 0..=u64::MAX / 2, name in "[a-z.:-]{1,20}") {
            prop_assume!(!matches!(&*name, "." | ".."));
            for place in [at(version, "ns", &name, None), at(version, "ns", &name, Some("ns"))] {
                let token = place.encode().unwrap();
                prop_assert_eq!(Continue::decode(&token, place.namespace.clone()), Ok(place));
            }
        }
    }
}
