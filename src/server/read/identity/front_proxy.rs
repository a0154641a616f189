//! Whom a front proxy says that it speaks for, in headers that count from nobody else.

use super::authority::Authority;
use crate::callers::{Claim, User};
use http::{HeaderMap, HeaderName};
use std::{collections::BTreeMap, sync::Arc};

/// Who may say in headers who somebody is, and in which.
#[derive(Debug)]
pub struct FrontProxy {
    /// Whose certificates they show.
    pub authority: Authority,
    /// The common names of these; nobody else of that CA counts.
    pub names: Vec<String>,
    /// What they say it in.
    pub headers: ProxyHeaders,
}

/// The headers of a front proxy, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// With the name.
    pub user: Vec<HeaderName>,
    /// With the UID.
    pub uid: Vec<HeaderName>,
    /// With one group each.
    pub group: Vec<HeaderName>,
    /// What the others begin with, in lower case; a key follows.
    pub extra: Vec<String>,
}

impl ProxyHeaders {
    /// Whether the header `name` is one of them.
    pub(in crate::server::read) fn has(&self, name: &str) -> bool {
        let named = |names: &[HeaderName]| names.iter().any(|it| *it == name);
        named(&self.user)
            || named(&self.uid)
            || named(&self.group)
            || self.extra.iter().any(|prefix| name.starts_with(&**prefix))
    }

    /// What `headers` claim. A name or UID that is there twice is nonsense: one of them may be of whoever
    /// asked the proxy.
    pub(in crate::server::read) fn claim(&self, headers: &HeaderMap) -> Claim {
        match self.read(headers) {
            Ok(Some(user)) => Claim::User(Arc::new(user.authenticated())),
            Ok(None) => Claim::Nobody,
            Err(Nonsense) => Claim::Nonsense,
        }
    }

    fn read(&self, headers: &HeaderMap) -> Result<Option<User>, Nonsense> {
        let one = |names: &[HeaderName]| -> Result<String, Nonsense> {
            for name in names {
                let mut values = headers.get_all(name).iter();
                let (first, more) = (values.next(), values.next());
                if more.is_some() {
                    return Err(Nonsense);
                }
                let value = first.map_or(Ok(""), |value| text(value.as_bytes()))?;
                if !value.is_empty() {
                    return Ok(value.to_owned());
                }
            }
            Ok(String::new())
        };
        let (name, uid) = (one(&self.user)?, one(&self.uid)?);
        if name.is_empty() {
            return Ok(None);
        }
        let groups = self.group.iter().flat_map(|name| headers.get_all(name));
        let groups = groups.map(|value| text(value.as_bytes()).map(str::to_owned));
        let mut groups = groups.collect::<Result<Vec<_>, _>>()?;
        groups.retain(|group| !group.is_empty());
        let mut extra = BTreeMap::<_, Vec<_>>::new();
        for prefix in &self.extra {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(&**prefix) {
                    let value = text(value.as_bytes())?.to_owned();
                    extra.entry(unescaped(key)).or_default().push(value);
                }
            }
        }
        Ok(Some(User { name, uid, groups, extra }))
    }
}

/// What no proxy says.
struct Nonsense;

fn text(value: &[u8]) -> Result<&str, Nonsense> {
    str::from_utf8(value).map_err(|_| Nonsense)
}

/// `key` with what is behind each `%` decoded; as it is where that makes no text.
fn unescaped(key: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), key.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.split_at_checked(2);
        let code = digits.and_then(|(digits, _)| str::from_utf8(digits).ok());
        let code = code.filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(Ok(code)) = code.map(|code| u8::from_str_radix(code, 16)) else {
            return key.to_owned();
        };
        bytes.push(code);
        rest = rest.get(2..).unwrap_or_default();
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn usual() -> ProxyHeaders {
        let name = HeaderName::from_static;
        ProxyHeaders {
            user: vec![name("x-remote-user"), name("x-user")],
            uid: vec![name("x-remote-uid")],
            group: vec![name("x-remote-group")],
            extra: vec!["x-remote-extra-".to_owned()],
        }
    }

    fn claim(headers: &[(&str, &str)]) -> Claim {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            map.append(name.parse::<HeaderName>().unwrap(), value);
        }
        usual().claim(&map)
    }

    #[test]
    fn a_proxy_says_name_uid_groups_and_more() {
        let found = claim(&[
            ("X-Remote-User", "jané"),
            ("X-User", "john"),
            ("X-Remote-Uid", "u-1"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", ""),
            ("X-Remote-Group", "b,c"),
            ("X-Remote-Extra-Acme.com%2FScope", "read"),
            ("X-Remote-Extra-Acme.com%2FScope", "write"),
            ("X-Remote-Extra-50%", "x"),
            ("X-Remote-Extra-%ff", "y"),
            ("Impersonate-User", "root"),
        ]);
        let Claim::User(user) = found else { panic!("{found:?}") };
        assert_eq!((&*user.name, &*user.uid), ("jané", "u-1"));
        assert_eq!(user.groups, ["a", "b,c", "system:authenticated"]);
        let extra: Vec<_> = user.extra.iter().map(|(key, values)| (&**key, values.len())).collect();
        assert_eq!(extra, [("%ff", 1), ("50%", 1), ("acme.com/scope", 2)]);
    }

    #[test]
    fn without_a_name_nobody_is_meant_and_of_two_neither() {
        assert!(matches!(claim(&[("x-remote-group", "a")]), Claim::Nobody));
        assert!(matches!(claim(&[("x-remote-user", "")]), Claim::Nobody));
        assert!(matches!(claim(&[("x-remote-user", ""), ("x-user", "jane")]), Claim::User(_)));
        let twice = [("x-remote-user", "root"), ("x-remote-user", "jane")];
        assert!(matches!(claim(&twice), Claim::Nonsense));
        let twice = [("x-remote-user", "jane"), ("x-remote-uid", "1"), ("x-remote-uid", "2")];
        assert!(matches!(claim(&twice), Claim::Nonsense));
    }

    #[test]
    fn its_headers_are_told_from_others() {
        for (name, is_of_proxy) in [
            ("x-remote-user", true),
            ("x-user", true),
            ("x-remote-extra-", true),
            ("x-remote-extra-scopes", true),
            ("x-remote-users", false),
            ("authorization", false),
        ] {
            assert_eq!(usual().has(name), is_of_proxy, "{name}");
        }
    }
}
