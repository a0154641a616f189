//! Reads a browser's bearer token from the header `Sec-WebSocket-Protocol`, because a browser
//! cannot set the header `Authorization` of a WebSocket.

use super::base64;
use zeroize::Zeroizing;

/// Prefix of the WebSocket subprotocol that contains the bearer token in base64url.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Returns the bearer token in the values of `Sec-WebSocket-Protocol`, and all other subprotocols,
/// joined with commas.
///
/// The function requires exactly one token in valid UTF-8, and at least one more subprotocol.
/// Otherwise it returns `None`, because the API server rejects or ignores such values. The API
/// server's rules are in `k8s.io/apiserver/pkg/authentication/request/websocket`.
pub fn parse_websocket_bearer<'v>(
    values: impl IntoIterator<Item = &'v str>,
) -> Option<(Zeroizing<String>, String)> {
    let protocols = values.into_iter().flat_map(|value| value.split(',')).map(str::trim);
    let (tokens, others): (Vec<_>, Vec<_>) =
        protocols.partition(|protocol| protocol.starts_with(PREFIX));
    let [tokens] = *tokens else { return None };
    let token = base64::decode(tokens.strip_prefix(PREFIX)?).ok()?;
    let token = String::from_utf8(token).ok().filter(|token| is_token(token))?;
    (!others.is_empty()).then(|| (Zeroizing::new(token), others.join(", ")))
}

/// Returns whether the header `Authorization` can contain the token: one or more visible ASCII
/// characters.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_accepted_only_next_to_another_subprotocol() {
        let tokens = |token: &str| format!("{PREFIX}{}", base64::encode(token.as_bytes()));
        let t0k3n = tokens("t0k3n");
        let bearer = |others: &str| Some((Zeroizing::new("t0k3n".to_owned()), others.to_owned()));
        for (values, expected) in [
            (&[] as &[&str], None),
            (&["v5.channel.k8s.io"], None),
            (&[&format!("v5.channel.k8s.io, {t0k3n},v4")], bearer("v5.channel.k8s.io, v4")),
            (&[&t0k3n, "v5", "v4"], bearer("v5, v4")),
            (&[&t0k3n], None),
            (&[&t0k3n, &t0k3n, "v5"], None),
            (&[&t0k3n, PREFIX, "v5"], None),
            (&[PREFIX, "v5"], None),
            (&[&format!("{t0k3n}="), "v5"], None),
            (&[&tokens("two words"), "v5"], None),
            (&[&tokens("tök"), "v5"], None),
            (&[&format!("{PREFIX}_w"), "v5"], None),
        ] {
            assert_eq!(parse_websocket_bearer(values.iter().copied()), expected, "{values:?}");
        }
    }
}
