//! The bearer token of a browser, which cannot set `Authorization`: one of the subprotocols of its WebSocket.

use super::base64;
use zeroize::Zeroizing;

/// What stands before the token.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The token among the values of `Sec-WebSocket-Protocol`, and the subprotocols that are left without it.
///
/// Reads the values as the API server does (`k8s.io/apiserver/pkg/authentication/request/websocket`): one token, of
/// text, and a protocol next to it. `None` for anything else, which the API server refuses or ignores.
pub fn websocket_bearer<'v>(
    values: impl IntoIterator<Item = &'v str>,
) -> Option<(Zeroizing<String>, String)> {
    let protocols = values.into_iter().flat_map(|value| value.split(',')).map(str::trim);
    let (shown, others): (Vec<_>, Vec<_>) = protocols.partition(|it| it.starts_with(PREFIX));
    let [shown] = *shown else { return None };
    let token = base64::decode(shown.strip_prefix(PREFIX)?).ok()?;
    let token = String::from_utf8(token).ok().filter(|token| is_token(token))?;
    (!others.is_empty()).then(|| (Zeroizing::new(token), others.join(", ")))
}

/// Whether it can stand in `Authorization`, as one word.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_beside_another_protocol_is_one() {
        let shown = |token: &str| format!("{PREFIX}{}", base64::encode(token.as_bytes()));
        let t0k3n = shown("t0k3n");
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
            (&[&shown("two words"), "v5"], None),
            (&[&shown("tök"), "v5"], None),
            (&[&format!("{PREFIX}_w"), "v5"], None),
        ] {
            assert_eq!(websocket_bearer(values.iter().copied()), expected, "{values:?}");
        }
    }
}
