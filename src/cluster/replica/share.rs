//! What a replica says of its own tables: warm targets by profile, as JSON of bounded size.

use crate::model::ProfileRef;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

/// The largest text, in bytes. All annotations of an object may have 256 KiB together, and this
/// leaves others half of that.
pub(super) const MAX_BYTES: usize = 128 << 10;
/// As many targets as a profile may have.
const MAX_TARGETS: u8 = 32;

/// How many targets of a profile are warm, out of all of them: `2/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarmTargets {
    warm: u8,
    total: u8,
}

/// Warm targets by profile.
pub(super) type Shares = HashMap<ProfileRef, WarmTargets>;

/// Shares as a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Encoded {
    /// A JSON object, such as `{"shop/checkout":"2/3"}`; at most [`MAX_BYTES`].
    pub(super) json: String,
    /// Profiles that found no room.
    pub(super) left_out: usize,
}

/// What a text of another replica, or of anybody who may write leases, came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decoded {
    /// What makes sense.
    pub(super) shares: Shares,
    /// What does not, without a word of the text.
    pub(super) junk: Option<String>,
}

impl WarmTargets {
    /// Reads `2/3` as it is written in a status, in no other form; `None` if it is not that, or says
    /// more than 32 targets, or more warm ones than there are.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (warm, total) = text.split_once('/')?;
        let parsed = Self { warm: warm.parse().ok()?, total: total.parse().ok()? };
        let sound = parsed.warm <= parsed.total && parsed.total <= MAX_TARGETS;
        (sound && parsed.to_string() == text).then_some(parsed)
    }
}

impl fmt::Display for WarmTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.warm, self.total)
    }
}

/// Writes the shares down. Namespaces take turns, so that one with thousands of profiles does not
/// take the room of the others.
///
/// # Cost
///
/// One pass and one sort; about a millisecond for 1,000 profiles.
pub(super) fn encode(shares: &[(ProfileRef, WarmTargets)]) -> Encoded {
    let mut turns = HashMap::<&Arc<str>, usize>::new();
    let mut queue: Vec<_> = shares.iter().collect();
    queue.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut queue: Vec<_> = queue
        .into_iter()
        .map(|(profile, warm)| {
            let turn = turns.entry(&profile.namespace).or_default();
            *turn += 1;
            (*turn, profile, warm)
        })
        .collect();
    queue.sort_by_key(|(turn, ..)| *turn);
    let mut encoded = Encoded { json: String::from("{"), left_out: 0 };
    for (_, profile, warm) in queue {
        let key = format!("{}/{}", profile.namespace, profile.name);
        let entry = format!("{}:\"{warm}\"", serde_json::Value::from(key));
        // A comma before it and the brace at the end.
        if encoded.json.len() + entry.len() + 2 > MAX_BYTES {
            encoded.left_out += 1;
            continue;
        }
        if encoded.json.len() > 1 {
            encoded.json.push(',');
        }
        encoded.json.push_str(&entry);
    }
    encoded.json.push('}');
    encoded
}

/// Reads a text that anybody may have written.
pub(super) fn decode(text: &str) -> Decoded {
    let junk = |what: String| Decoded { shares: Shares::new(), junk: Some(what) };
    if text.len() > MAX_BYTES {
        return junk(format!("more than {MAX_BYTES} bytes"));
    }
    let Ok(entries) = serde_json::from_str::<BTreeMap<String, String>>(text) else {
        return junk("not a JSON object of strings".to_owned());
    };
    let mut decoded = Decoded::default();
    let mut refused = 0_usize;
    for (key, value) in entries {
        let profile = key.split_once('/').filter(|(namespace, name)| {
            !namespace.is_empty() && !name.is_empty() && !name.contains('/')
        });
        if let (Some((namespace, name)), Some(warm)) = (profile, WarmTargets::parse(&value)) {
            let profile = ProfileRef { namespace: namespace.into(), name: name.into() };
            decoded.shares.insert(profile, warm);
        } else {
            refused += 1;
        }
    }
    if refused > 0 {
        decoded.junk =
            Some(format!("{refused} entries that are not of the form \"namespace/name\": \"2/3\""));
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(namespace: &str, name: &str) -> ProfileRef {
        ProfileRef { namespace: namespace.into(), name: name.into() }
    }

    fn warm(text: &str) -> WarmTargets {
        WarmTargets::parse(text).unwrap()
    }

    #[test]
    fn shares_survive_the_way_through_text() {
        let shares = vec![
            (profile("shop", "checkout"), warm("2/3")),
            (profile("shop", "cart"), warm("0/32")),
            (profile("a", "b"), warm("0/0")),
        ];
        let encoded = encode(&shares);
        assert_eq!(encoded.left_out, 0);
        assert_eq!(encoded.json, r#"{"a/b":"0/0","shop/cart":"0/32","shop/checkout":"2/3"}"#);
        let decoded = decode(&encoded.json);
        assert_eq!(decoded, Decoded { shares: shares.into_iter().collect(), junk: None });
        assert_eq!(encode(&[]).json, "{}");
    }

    #[test]
    fn what_finds_no_room_is_left_out_and_no_namespace_takes_all_of_it() {
        let mut shares: Vec<_> = (0..5_000)
            .map(|number| (profile("greedy", &format!("profile-{number:0>40}")), warm("1/1")))
            .collect();
        shares.push((profile("modest", "only"), warm("1/2")));
        let encoded = encode(&shares);
        assert!(encoded.json.len() <= MAX_BYTES && encoded.json.len() > MAX_BYTES - 100);
        let decoded = decode(&encoded.json);
        assert_eq!(decoded.junk, None);
        assert_eq!(decoded.shares.len() + encoded.left_out, shares.len());
        assert_eq!(decoded.shares.get(&profile("modest", "only")), Some(&warm("1/2")));
    }

    #[test]
    fn only_counts_that_a_profile_can_have_are_read() {
        for text in ["", "1", "2/1", "1/33", "01/2", "+1/2", "1/2/3", " 1/2", "-1/2", "1/999"] {
            assert_eq!(WarmTargets::parse(text), None, "{text:?}");
        }
        assert_eq!(warm("32/32").to_string(), "32/32");
    }

    #[test]
    fn junk_is_ignored_and_the_rest_kept() {
        let decoded = decode(r#"{"a/b":"1/1","a":"1/1","a/b/c":"1/1","/x":"1/1","c/d":"hello"}"#);
        assert_eq!(decoded.shares, Shares::from([(profile("a", "b"), warm("1/1"))]));
        let junk = decoded.junk.unwrap();
        assert!(junk.starts_with("4 entries") && !junk.contains("hello"), "{junk}");
        for text in ["", "secret", "[]", r#"{"a/b":1}"#, &"x".repeat(MAX_BYTES + 1)] {
            let decoded = decode(text);
            assert!(decoded.shares.is_empty());
            let junk = decoded.junk.unwrap();
            assert!(!junk.contains("secret"), "{junk}");
        }
    }
}
