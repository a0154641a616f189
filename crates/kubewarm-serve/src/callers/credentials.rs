//! Reads the credentials of a request from its headers and from the client certificates of its
//! connection.

use super::identity::ClientCertChain;
use kubewarm_client::BearerCredentials;
use std::{fmt, sync::Arc};
use zeroize::Zeroizing;

/// The maximum length of a bearer token in bytes. Usual tokens have about 2 KiB.
const MAX_TOKEN: usize = 16 * 1024;

/// A bearer token, a client certificate, or both.
#[derive(Clone)]
pub struct CallerCredentials {
    pub(super) token: Option<Arc<BearerCredentials>>,
    pub(super) chain: Option<Arc<ClientCertChain>>,
    /// Whether the request has `Impersonate-*` headers. Their values do not matter, because
    /// kubewarm answers no such request from a store.
    pub(super) is_impersonating: bool,
}

/// Why a request has no valid credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The request has no `Authorization` header.
    #[error("one header Authorization is needed")]
    Missing,
    /// The request has several `Authorization` headers. kubewarm and a proxy in front of kubewarm
    /// could each read a different one of these headers.
    #[error("one header Authorization is needed")]
    Repeated,
    /// `Authorization` has a scheme other than `Bearer`, or its token contains spaces.
    #[error("Authorization has no bearer token")]
    NoBearer,
    /// `Authorization` contains no token after `Bearer`.
    #[error("the token is empty")]
    Empty,
    /// The token is longer than 16 KiB.
    #[error("the token is longer than 16 KiB")]
    TooLong,
}

impl CallerCredentials {
    /// Reads the credentials from the `headers` of a request. Header names must be in lower case.
    ///
    /// # Errors
    ///
    /// [`CredentialsError`] if the headers contain no valid bearer token.
    pub fn from_headers<'h>(
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    ) -> Result<Self, CredentialsError> {
        Self::with_chain(None, headers)
    }

    /// Reads the credentials of a request whose client presented the certificates `chain` on its
    /// connection. Without `chain`, the request needs a token.
    ///
    /// # Errors
    ///
    /// [`CredentialsError`] if the request has no valid credentials.
    pub(crate) fn with_chain<'h>(
        chain: Option<Arc<ClientCertChain>>,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    ) -> Result<Self, CredentialsError> {
        let mut authorization = None;
        let mut is_impersonating = false;
        for (name, value) in headers {
            if name == "authorization" {
                if authorization.replace(value).is_some() {
                    return Err(CredentialsError::Repeated);
                }
            } else {
                is_impersonating |= is_impersonation_header(name);
            }
        }
        let token = match (authorization.ok_or(CredentialsError::Missing).and_then(token), &chain) {
            (Ok(token), _) => Some(Arc::new(BearerCredentials { token })),
            // A request without a valid token is accepted here, because the client certificate can
            // authenticate the caller.
            (Err(_), Some(_)) => None,
            (Err(problem), None) => return Err(problem),
        };
        Ok(Self { token, chain, is_impersonating })
    }

    /// Creates credentials with this bearer token and without impersonation headers.
    pub fn bearer(token: Zeroizing<String>) -> Self {
        let presented = Arc::new(BearerCredentials { token });
        Self { token: Some(presented), chain: None, is_impersonating: false }
    }

    /// The token of the request, even if a certificate authenticates the caller.
    pub fn token(&self) -> Option<&Zeroizing<String>> {
        self.token.as_deref().map(|presented| &presented.token)
    }
}

/// Whether a header with this lower-case name can make the API server act as another user. This
/// applies to each `Impersonate-*` header, because a later API server can evaluate headers that
/// today's API server ignores.
pub(crate) fn is_impersonation_header(name: &str) -> bool {
    name.starts_with("impersonate-")
}

/// Parses the token of an `Authorization` header.
fn token(value: &[u8]) -> Result<Zeroizing<String>, CredentialsError> {
    let text = str::from_utf8(value).ok().filter(|text| text.is_ascii());
    let (scheme, token) =
        text.and_then(|text| text.split_once(' ')).ok_or(CredentialsError::NoBearer)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(CredentialsError::NoBearer);
    }
    match token.trim_end() {
        "" => Err(CredentialsError::Empty),
        token if token.len() > MAX_TOKEN => Err(CredentialsError::TooLong),
        // The API server takes only the first word after `Bearer` as the token, and finds no token
        // after two spaces. kubewarm must not accept a token that the API server reads differently.
        token if token.bytes().any(|byte| char::from(byte).is_whitespace()) => {
            Err(CredentialsError::NoBearer)
        }
        token => Ok(Zeroizing::new(token.to_owned())),
    }
}

impl fmt::Debug for CallerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerCredentials")
            .field("impersonates", &self.is_impersonating)
            .field("shows_certificate", &self.chain.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::identity::fixtures::chain;

    fn from_headers(headers: &[(&str, &str)]) -> Result<CallerCredentials, CredentialsError> {
        CallerCredentials::from_headers(
            headers.iter().map(|(name, value)| (*name, value.as_bytes())),
        )
    }

    #[test]
    fn one_bearer_token_of_at_most_16_kib_is_accepted() {
        let (longest, longer) = ("x".repeat(MAX_TOKEN), "x".repeat(MAX_TOKEN + 1));
        for (value, expected) in [
            ("Bearer t0k3n", Ok("t0k3n")),
            ("bEARER t0k3n ", Ok("t0k3n")),
            ("Bearer  t0k3n", Err(CredentialsError::NoBearer)),
            ("Bearer \tt0k3n", Err(CredentialsError::NoBearer)),
            ("Bearer\tt0k3n", Err(CredentialsError::NoBearer)),
            ("Bearer   ", Err(CredentialsError::Empty)),
            (&format!("Bearer {longest}"), Ok(longest.as_str())),
            (&format!("Bearer {longer}"), Err(CredentialsError::TooLong)),
            ("Bearer t0k3n again", Err(CredentialsError::NoBearer)),
            ("Bearer ", Err(CredentialsError::Empty)),
            ("Bearer", Err(CredentialsError::NoBearer)),
            ("Basic Z29vZA==", Err(CredentialsError::NoBearer)),
            ("Bearer tök", Err(CredentialsError::NoBearer)),
        ] {
            let credentials = from_headers(&[("authorization", value)]);
            let token = credentials
                .as_ref()
                .map(|credentials| credentials.token.as_ref().unwrap().token.as_str())
                .map_err(|error| *error);
            assert_eq!(token, expected, "{value}");
        }
    }

    #[test]
    fn with_a_certificate_the_token_is_optional_but_not_repeatable() {
        let shown = chain("jane");
        let chain = || Some(Arc::clone(&shown));
        for (headers, has_token) in [
            (&[] as &[(&str, &[u8])], false),
            (&[("authorization", b"Basic Z29vZA==")], false),
            (&[("authorization", b"Bearer t0k3n"), ("impersonate-user", b"jane")], true),
        ] {
            let credentials =
                CallerCredentials::with_chain(chain(), headers.iter().copied()).unwrap();
            assert_eq!(credentials.token.is_some(), has_token);
            assert_eq!(credentials.is_impersonating, headers.len() > 1);
        }
        let twice = [("authorization", &b"Bearer t0k3n"[..]); 2];
        let credentials = CallerCredentials::with_chain(chain(), twice);
        assert_eq!(credentials.unwrap_err(), CredentialsError::Repeated);
        let acting = [("impersonate-user", &b"jane"[..])];
        assert!(CallerCredentials::with_chain(chain(), acting).unwrap().is_impersonating);
    }

    #[test]
    fn a_missing_and_a_repeated_header_are_different_errors() {
        let bearer = ("authorization", "Bearer t0k3n");
        assert_eq!(from_headers(&[("accept", "*/*")]).unwrap_err(), CredentialsError::Missing);
        assert_eq!(from_headers(&[bearer, bearer]).unwrap_err(), CredentialsError::Repeated);
    }

    #[test]
    fn impersonation_is_reported_and_debug_output_hides_the_token() {
        let bearer = ("authorization", "Bearer t0k3n");
        assert!(!from_headers(&[bearer]).unwrap().is_impersonating);
        for name in ["impersonate-user", "impersonate-extra-scopes", "impersonate-new"] {
            let credentials = from_headers(&[(name, "jane"), bearer]).unwrap();
            assert!(credentials.is_impersonating);
            assert!(!format!("{credentials:?} {:?}", credentials.token).contains("t0k3n"));
        }
    }
}
