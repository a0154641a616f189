//! What a caller shows of itself, out of the headers of its request.

use crate::cluster::Presented;
use http::{HeaderName, HeaderValue};
use std::{fmt, sync::Arc};
use zeroize::Zeroizing;

/// The longest token, in bytes: those of clusters have some 2 KiB.
const MAX_TOKEN: usize = 16 * 1024;

/// A bearer token, and whom its owner wants to act as.
#[derive(Clone)]
pub struct Credentials(Arc<Presented>);

/// Why a request has no credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCredentials {
    /// Nobody is let in who does not say who it is.
    #[error("one header Authorization is needed")]
    Missing,
    /// Which of them counts, others on the way may have seen otherwise.
    #[error("one header Authorization is needed")]
    Repeated,
    /// `Authorization` is of another kind.
    #[error("Authorization has no bearer token")]
    NoBearer,
    /// `Bearer` and nothing else.
    #[error("the token is empty")]
    Empty,
    /// No cluster's token is so long.
    #[error("the token is longer than 16 KiB")]
    TooLong,
    /// A header that asks for impersonation holds what no header may.
    #[error("a header Impersonate-* cannot be read")]
    Impersonation,
}

impl Credentials {
    /// Those of a request with these `headers`, the names in lower case.
    ///
    /// # Errors
    ///
    /// [`NoCredentials`].
    pub fn of<'h>(
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    ) -> Result<Self, NoCredentials> {
        let mut authorization = None;
        let mut impersonation = Vec::new();
        for (name, value) in headers {
            if name == "authorization" {
                if authorization.replace(value).is_some() {
                    return Err(NoCredentials::Repeated);
                }
            } else if name.starts_with("impersonate-") {
                let name = name.parse::<HeaderName>();
                let value = HeaderValue::from_bytes(value);
                let (Ok(name), Ok(value)) = (name, value) else {
                    return Err(NoCredentials::Impersonation);
                };
                impersonation.push((name, value));
            }
        }
        let token = token(authorization.ok_or(NoCredentials::Missing)?)?;
        Ok(Self(Arc::new(Presented { token, impersonation })))
    }

    /// Whether the token's owner wants to act as somebody else.
    #[must_use]
    pub fn impersonates(&self) -> bool {
        !self.0.impersonation.is_empty()
    }

    pub(super) fn presented(&self) -> &Arc<Presented> {
        &self.0
    }
}

/// The token of an `Authorization` header, or what is wrong with it.
fn token(value: &[u8]) -> Result<Zeroizing<String>, NoCredentials> {
    let text = str::from_utf8(value).ok().filter(|text| text.is_ascii());
    let (scheme, token) =
        text.and_then(|text| text.split_once(' ')).ok_or(NoCredentials::NoBearer)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(NoCredentials::NoBearer);
    }
    match token.trim() {
        "" => Err(NoCredentials::Empty),
        token if token.len() > MAX_TOKEN => Err(NoCredentials::TooLong),
        token => Ok(Zeroizing::new(token.to_owned())),
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("impersonates", &self.impersonates())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&str, &str)]) -> Result<Credentials, NoCredentials> {
        Credentials::of(headers.iter().map(|(name, value)| (*name, value.as_bytes())))
    }

    #[test]
    fn one_bearer_token_of_at_most_16_kib_is_taken() {
        let (longest, longer) = ("x".repeat(MAX_TOKEN), "x".repeat(MAX_TOKEN + 1));
        for (value, expected) in [
            ("Bearer t0k3n", Ok("t0k3n")),
            ("bEARER  t0k3n ", Ok("t0k3n")),
            (&format!("Bearer {longest}"), Ok(longest.as_str())),
            (&format!("Bearer {longer}"), Err(NoCredentials::TooLong)),
            ("Bearer ", Err(NoCredentials::Empty)),
            ("Bearer", Err(NoCredentials::NoBearer)),
            ("Basic Z29vZA==", Err(NoCredentials::NoBearer)),
            ("Bearer tök", Err(NoCredentials::NoBearer)),
        ] {
            let found = of(&[("authorization", value)]);
            let found = found.as_ref().map(|found| found.0.token.as_str()).map_err(|error| *error);
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn none_and_two_headers_are_told_apart() {
        let bearer = ("authorization", "Bearer t0k3n");
        assert_eq!(of(&[("accept", "*/*")]).unwrap_err(), NoCredentials::Missing);
        assert_eq!(of(&[bearer, bearer]).unwrap_err(), NoCredentials::Repeated);
    }

    #[test]
    fn whoever_wants_to_act_as_another_says_so_and_no_token_is_shown() {
        let bearer = ("authorization", "Bearer t0k3n");
        assert!(!of(&[bearer]).unwrap().impersonates());
        for name in ["impersonate-user", "impersonate-extra-scopes", "impersonate-new"] {
            let found = of(&[(name, "jane"), bearer]).unwrap();
            assert!(found.impersonates());
            assert!(!format!("{found:?} {:?}", found.0).contains("t0k3n"));
        }
        let broken = of(&[bearer, ("impersonate-user", "a\nb")]);
        assert_eq!(broken.unwrap_err(), NoCredentials::Impersonation);
    }
}
