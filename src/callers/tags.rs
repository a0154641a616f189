//! What is remembered is told apart by keyed hashes: no token is kept.

use crate::cluster::{Action, Presented, User};
use aws_lc_rs::{
    error::Unspecified,
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};

/// Of a question, or of a user: a keyed hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tag([u8; 32]);

/// What tags are made with, of this process alone.
pub(super) struct Key(hmac::Key);

impl Key {
    /// A new one.
    pub(super) fn generate() -> Result<Self, Unspecified> {
        hmac::Key::generate(HMAC_SHA256, &SystemRandom::new()).map(Self)
    }

    /// Of the question whose credentials these are.
    pub(super) fn of_credentials(&self, presented: &Presented) -> Tag {
        self.tag(|parts| parts.credentials(presented))
    }

    /// Of the question whether they may do `action`: of the whole identity, as two users may have one
    /// name, and of the token, as it may end; whose certificate it is, is known anew each time.
    pub(super) fn of_action(&self, token: Option<&Presented>, user: &User, action: &Action) -> Tag {
        self.tag(|parts| {
            parts.count(token.iter().count());
            if let Some(token) = token {
                parts.credentials(token);
            }
            parts.user(user);
            parts.action(action);
        })
    }

    /// Of the token `bearer`, as it is written.
    pub(super) fn of_bearer(&self, bearer: &[u8]) -> Tag {
        self.tag(|parts| parts.part(bearer))
    }

    /// Of the token `bearer`, however it is written: of a JWT what it says, without its signature. In each of its parts
    /// the last digit may have bits that nobody looks at, so that there are up to 16 ways to write it.
    pub(super) fn of_claims(&self, bearer: &[u8]) -> Tag {
        let mut words = bearer.split(|byte| *byte == b'.');
        let (header, claims) = (words.next(), words.next());
        let is_jwt = words.next().is_some() && words.next().is_none();
        self.tag(|parts| match (header, claims) {
            (Some(header), Some(claims)) if is_jwt => {
                // No other token is written alike: it has one part.
                parts.digits(header);
                parts.digits(claims);
            }
            _ => parts.part(bearer),
        })
    }

    /// Of whom requests, and what is remembered, are counted by: the name alone. Each token of an account makes
    /// another identity of it, by its `credential-id`, and whoever has several must have one share all the same.
    pub(super) fn of_name(&self, user: &User) -> Tag {
        self.tag(|parts| {
            // No token is written alike.
            parts.part("user");
            parts.part(&user.name);
        })
    }

    fn tag(&self, write: impl FnOnce(&mut Parts)) -> Tag {
        let mut parts = Parts(hmac::Context::with_key(&self.0));
        write(&mut parts);
        let mut tag = Tag([0; 32]);
        // As long as the hash is.
        tag.0.iter_mut().zip(parts.0.sign().as_ref()).for_each(|(to, from)| *to = *from);
        tag
    }
}

/// What a tag is made of, piece by piece.
struct Parts(hmac::Context);

impl Parts {
    /// The length first: no other parts come to the same bytes.
    fn part(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.count(part.len());
        self.0.update(part);
    }

    /// Digits of base64, as they are read: the last one without what it has beyond the last byte.
    fn digits(&mut self, digits: &[u8]) {
        let beyond = match digits.len() % 4 {
            2 => 4,
            3 => 2,
            _ => 0,
        };
        let (last, before) = digits.split_last().unwrap_or((&0, &[]));
        self.part(before);
        self.part(value(*last).map_or([*last; 2], |value| [0, value >> beyond << beyond]));
    }

    fn count(&mut self, count: usize) {
        self.0.update(&count.to_le_bytes());
    }

    fn parts<P: AsRef<[u8]>>(&mut self, parts: &[P]) {
        self.count(parts.len());
        for part in parts {
            self.part(part);
        }
    }

    fn optional(&mut self, part: Option<&str>) {
        self.parts(part.as_slice());
    }

    fn credentials(&mut self, Presented { token, impersonation }: &Presented) {
        self.part(token.as_str());
        self.count(impersonation.len());
        for (name, value) in impersonation {
            self.part(name.as_str());
            self.part(value);
        }
    }

    fn user(&mut self, User { name, uid, groups, extra }: &User) {
        self.part(name);
        self.part(uid);
        self.parts(groups);
        self.count(extra.len());
        for (key, values) in extra {
            self.part(key);
            self.parts(values);
        }
    }

    fn action(&mut self, action: &Action) {
        match action {
            Action::Path { verb, path } => {
                self.part("path");
                self.part(verb);
                self.part(path);
            }
            Action::Resource {
                verb,
                group,
                version,
                resource,
                namespace,
                name,
                labels,
                fields,
            } => {
                self.part("resource");
                self.part(verb);
                self.part(group.as_ref());
                self.part(version.as_ref());
                self.part(resource.as_ref());
                // A name is not the same as none: who may read all may be refused one by a webhook.
                self.optional(namespace.as_deref());
                self.optional(name.as_deref());
                // Canonical: what is asked alike is written alike.
                self.part(labels.to_string());
                self.part(fields.to_string());
            }
        }
    }
}

/// Of a digit of the URL-safe base64 that JWTs are written in.
fn value(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    })
}

#[cfg(test)]
pub(super) mod sample {
    use super::Tag;

    /// One of 256.
    pub(in crate::callers) fn tag(number: u8) -> Tag {
        Tag([number; 32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        FieldRequirement, FieldSelector, LabelRequirement, LabelSelector, Operator,
    };
    use http::{HeaderName, HeaderValue};

    fn of_token(token: &str) -> Presented {
        Presented { token: token.to_owned().into(), impersonation: Vec::new() }
    }

    fn path(verb: &str, path: &str) -> Action {
        Action::Path { verb: verb.to_owned(), path: path.to_owned() }
    }

    #[test]
    fn whatever_differs_is_another_question() {
        let key = Key::generate().unwrap();
        let (token, user) = (of_token("a"), User { name: "jane".to_owned(), ..User::default() });
        let acting = |name: &'static str, value: &'static str| Presented {
            impersonation: vec![(HeaderName::from_static(name), HeaderValue::from_static(value))],
            ..of_token("a")
        };
        let user_with = |change: fn(&mut User)| {
            let mut other = user.clone();
            change(&mut other);
            key.of_action(Some(&token), &other, &path("get", "/m"))
        };
        let resource = |change: fn(&mut Action)| {
            let mut action = Action::Resource {
                verb: "get",
                group: "apps".into(),
                version: "v1".into(),
                resource: "deployments".into(),
                namespace: Some("shop".into()),
                name: None,
                labels: LabelSelector::default(),
                fields: FieldSelector::default(),
            };
            change(&mut action);
            key.of_action(Some(&token), &user, &action)
        };
        let mut tags = vec![
            key.of_credentials(&token),
            key.of_credentials(&of_token("b")),
            key.of_credentials(&acting("impersonate-user", "jane")),
            key.of_credentials(&acting("impersonate-user", "john")),
            key.of_credentials(&acting("impersonate-group", "jane")),
            key.of_action(Some(&token), &user, &path("get", "/m")),
            key.of_action(Some(&of_token("b")), &user, &path("get", "/m")),
            key.of_action(Some(&acting("impersonate-user", "jane")), &user, &path("get", "/m")),
            key.of_action(None, &user, &path("get", "/m")),
            key.of_action(Some(&token), &user, &path("put", "/m")),
            key.of_action(Some(&token), &user, &path("get", "/debug")),
            key.of_action(Some(&token), &user, &path("get/", "m")),
            user_with(|user| user.name = "john".to_owned()),
            user_with(|user| user.uid = "1".to_owned()),
            user_with(|user| user.groups = vec!["a".to_owned(), "b".to_owned()]),
            user_with(|user| user.groups = vec!["ab".to_owned()]),
            user_with(|user| user.extra = [("a".to_owned(), vec!["b".to_owned()])].into()),
            user_with(|user| {
                user.extra = [("a".to_owned(), vec![]), ("b".to_owned(), vec![])].into();
            }),
            resource(|_| ()),
            resource(|action| {
                if let Action::Resource { verb, .. } = action {
                    *verb = "list";
                }
            }),
            resource(|action| {
                if let Action::Resource { name, .. } = action {
                    *name = Some("".into());
                }
            }),
            resource(|action| {
                if let Action::Resource { name, .. } = action {
                    *name = Some("web".into());
                }
            }),
            resource(|action| {
                if let Action::Resource { namespace, .. } = action {
                    *namespace = None;
                }
            }),
            resource(|action| {
                if let Action::Resource { labels, .. } = action {
                    let wanted = LabelRequirement::new("a", Operator::Exists, []);
                    *labels = LabelSelector::new(wanted);
                }
            }),
            resource(|action| {
                if let Action::Resource { fields, .. } = action {
                    *fields = FieldSelector::new(FieldRequirement::new("a", true, ""));
                }
            }),
        ];
        let all = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), all);
        let named = |change: fn(&mut User)| {
            let mut other = user.clone();
            change(&mut other);
            key.of_name(&other) == key.of_name(&user)
        };
        assert!(named(|user| {
            let of_a_token = ("authentication.kubernetes.io/credential-id", "JTI=1");
            user.extra = [(of_a_token.0.to_owned(), vec![of_a_token.1.to_owned()])].into();
            user.uid = "1".to_owned();
        }));
        assert!(!named(|user| user.name = "john".to_owned()));
        let other = Key::generate().unwrap();
        assert_ne!(
            key.of_credentials(&token),
            other.of_credentials(&token),
            "of this process alone"
        );
    }

    #[test]
    fn a_jwt_is_one_token_however_it_is_written() {
        let key = Key::generate().unwrap();
        let same = |one: &str, other: &str| {
            key.of_claims(one.as_bytes()) == key.of_claims(other.as_bytes())
        };
        for (one, other, expected) in [
            ("aGV4.Y2xh.c2ln", "aGV4.Y2xh.other", true),
            // "h" and "he" leave four and two bits of the last digit.
            ("aA.aGU.c", "aB.aGU.c", true),
            ("aA.aGU.c", "aP.aGX.c", true),
            ("aA.aGU.c", "aQ.aGU.c", false),
            ("aA.aGU.c", "aA.aGY.c", false),
            ("aGVs.aGU.c", "aGVt.aGU.c", false),
            ("aA.aGU.c", "aGU.aA.c", false),
            ("a.b", "a.c", false),
            ("a.b.c.d", "a.b.c.e", false),
            ("aA", "aB", false),
        ] {
            assert_eq!(same(one, other), expected, "{one} {other}");
        }
        let whole = |token: &str| key.of_bearer(token.as_bytes());
        assert!(whole("aA.aGU.c") != whole("aB.aGU.c") && whole("a.b.c") != whole("a.b.d"));
    }
}
