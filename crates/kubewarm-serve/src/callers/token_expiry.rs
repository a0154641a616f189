//! Reads when a bearer token expires.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::Deserialize;
use std::time::Duration;

/// The claims of a JSON Web Token that kubewarm reads.
#[derive(Deserialize)]
struct TokenClaims {
    /// The time of expiry in seconds since 1970 (RFC 7519, section 4.1.4). It can have a fraction.
    exp: f64,
}

/// Returns the time from `now` until `token` expires, zero if it has expired. `None` if the token
/// is no JSON Web Token or has no expiry.
///
/// The function does not verify the signature: use it only for a token that the API server has
/// accepted.
pub(super) fn time_to_expiry(token: &str, now: Timestamp) -> Option<Duration> {
    let mut parts = token.split('.');
    let (Some(_header), Some(claims), Some(_signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let TokenClaims { exp } = serde_json::from_slice(&claims).ok()?;
    let seconds = exp - now.as_duration().as_secs_f64();
    // An error means infinity or centuries. Such a token never expires while a watch is open.
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn the_expiry_of_a_json_web_token_is_read() {
        let now = Timestamp::from_second(1_000).unwrap();
        let left = |claims: &str| time_to_expiry(&token(claims), now);
        let seconds = |count| Some(Duration::from_secs(count));
        assert_eq!(left(r#"{"exp": 1060, "sub": "jane"}"#), seconds(60));
        assert_eq!(left(r#"{"exp": 1060.5}"#), Some(Duration::from_millis(60_500)));
        assert_eq!(left(r#"{"exp": 940}"#), seconds(0));
        assert_eq!(left(r#"{"exp": 1e300}"#), None);
    }

    #[test]
    fn other_tokens_have_no_known_expiry() {
        let now = Timestamp::from_second(1_000).unwrap();
        let claims = [r#"{"sub": "jane"}"#, r#"{"exp": "1060"}"#, "[]", "no JSON"];
        let mut tokens: Vec<_> = claims.map(token).into();
        let texts = ["", "opaque", "a.b", "..", "a.b.c.d", "e30.%.c2ln", "e30.e30=.c2ln"];
        tokens.extend(texts.map(str::to_owned));
        for token in tokens {
            assert_eq!(time_to_expiry(&token, now), None, "{token:?}");
        }
    }
}
