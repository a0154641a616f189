//! Selects the headers to keep in a forwarded request and in its response, and finds the caller's
//! token.

use crate::{
    callers::{CallerCredentials, CredentialsError, is_impersonation_header},
    server::rejection::no_credentials,
};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST,
        PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE,
    },
};
use kubewarm_wire::{StatusError, parse_websocket_bearer};
use std::net::IpAddr;
use zeroize::Zeroizing;

/// Headers that apply to only one connection, so kubewarm must not forward them (RFC 9110, section
/// 7.6.1).
const OF_ONE_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// The prefix of headers in which a front proxy names its user. An API server trusts these headers
/// from configured proxies. So kubewarm must not forward a client's headers with this prefix.
const FRONT_PROXY: &str = "x-remote-";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The bearer token of a forwarded request.
pub(super) struct ForwardCredentials {
    token: Zeroizing<String>,
    /// The values of the header `Sec-WebSocket-Protocol` without the token, so that the API server
    /// receives the token only in `Authorization`. `None` if this header contains no token.
    protocols: Option<String>,
}

impl ForwardCredentials {
    /// Takes the token from the header `Authorization`, or else from a WebSocket's
    /// `Sec-WebSocket-Protocol`.
    ///
    /// # Errors
    ///
    /// - 403 `CannotForward` if the request has no token
    /// - 400 if the request has several tokens
    pub(super) fn from_headers(
        request_headers: &HeaderMap,
        is_upgrade: bool,
    ) -> Result<Self, StatusError> {
        let headers = request_headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let bearer = if is_upgrade && is_websocket(request_headers) {
            bearer(request_headers)?
        } else {
            None
        };
        match CallerCredentials::from_headers(headers) {
            // `Authorization` has priority over a token in `Sec-WebSocket-Protocol`, as in the API
            // server.
            Ok(credentials) => {
                let token = credentials.token().cloned().ok_or_else(StatusError::cannot_forward)?;
                Ok(Self { token, protocols: bearer.map(|(_, others)| others) })
            }
            // A proxy in front of kubewarm can require an `Authorization` header with a scheme such
            // as `Basic`. kubewarm then uses the token in `Sec-WebSocket-Protocol`.
            Err(
                CredentialsError::Missing | CredentialsError::NoBearer | CredentialsError::Empty,
            ) => {
                let (token, others) = bearer.ok_or_else(StatusError::cannot_forward)?;
                Ok(Self { token, protocols: Some(others) })
            }
            Err(problem) => Err(no_credentials(problem)),
        }
    }

    /// The caller's token, without impersonation headers, because the API server itself authorizes
    /// the impersonation of a forwarded request.
    pub(super) fn credentials(&self) -> CallerCredentials {
        CallerCredentials::bearer(self.token.clone())
    }
}

/// The token among the values of a WebSocket's `Sec-WebSocket-Protocol`, and all other values of
/// this header.
fn bearer(request_headers: &HeaderMap) -> Result<Option<(Zeroizing<String>, String)>, StatusError> {
    let values = request_headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().map(|value| value.to_str());
    let values: Result<Vec<_>, _> = values.collect();
    let unreadable = |_| StatusError::bad_request("Sec-WebSocket-Protocol cannot be read");
    Ok(parse_websocket_bearer(values.map_err(unreadable)?))
}

/// Whether the API server treats the request as a WebSocket request. In any other request, the API
/// server ignores a token in `Sec-WebSocket-Protocol`.
fn is_websocket(request_headers: &HeaderMap) -> bool {
    let protocol = request_headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

/// Which optional headers a forwarded request keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardHeaderOptions {
    /// Whether to keep the `Upgrade` header, because the request switches protocols.
    pub(super) has_upgrade: bool,
    /// Whether to keep `Accept-Encoding`. kubewarm removes this header from writes, so that the
    /// response is uncompressed: kubewarm reads the object's resource version in the response.
    pub(super) has_accept_encoding: bool,
}

/// The headers of the request to the API server. The function removes headers of the client's
/// connection and of front proxies, and also `Host`, `Content-Length` and `Expect`. It replaces
/// `Authorization`, so that the API server uses the token that kubewarm has authenticated.
pub(super) fn forwarded_headers(
    request_headers: &HeaderMap,
    ForwardCredentials { token, protocols }: &ForwardCredentials,
    peer: IpAddr,
    kept: ForwardHeaderOptions,
) -> Result<HeaderMap, StatusError> {
    let unreadable = || StatusError::bad_request("a header cannot be read");
    let mut headers = request_headers.clone();
    let protocol = headers.get(UPGRADE).filter(|_| kept.has_upgrade).cloned();
    without_connection(&mut headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
    let is_of_proxy = |name: &&HeaderName| name.as_str().starts_with(FRONT_PROXY);
    let of_proxy: Vec<_> = headers.keys().filter(is_of_proxy).cloned().collect();
    for name in of_proxy {
        headers.remove(name);
    }
    if !kept.has_accept_encoding {
        headers.remove(ACCEPT_ENCODING);
    }
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    let bearer = Zeroizing::new(format!("Bearer {}", **token));
    let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| unreadable())?;
    bearer.set_sensitive(true);
    headers.insert(AUTHORIZATION, bearer);
    if let Some(protocols) = protocols {
        let protocols = HeaderValue::from_str(protocols).map_err(|_| unreadable())?;
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
    }
    // The API server writes the addresses of `X-Forwarded-For` to its audit log. The API server
    // reads only the first header of this name, so kubewarm writes all addresses into one header.
    let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let peer = peer.to_canonical().to_string();
    let addresses: Vec<_> = before.chain([&*peer]).collect();
    if let Ok(addresses) = HeaderValue::from_str(&addresses.join(", ")) {
        headers.insert(FORWARDED_FOR, addresses);
    }
    Ok(headers)
}

/// Removes the headers that apply to only one connection, and the headers that the header
/// `Connection` names.
pub(super) fn without_connection(headers: &mut HeaderMap) {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(','));
    let names: Vec<_> = names.filter_map(|name| name.trim().parse::<HeaderName>().ok()).collect();
    // A client's `Connection` header must not remove `Authorization` and `Impersonate-*`, because
    // these headers determine the caller's permissions.
    let is_free =
        |name: &HeaderName| *name != AUTHORIZATION && !is_impersonation_header(name.as_str());
    for name in names.into_iter().filter(is_free).chain(OF_ONE_CONNECTION) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
    const TOKEN: (&str, &str) = ("authorization", "Bearer t0k3n");

    const PLAIN: ForwardHeaderOptions =
        ForwardHeaderOptions { has_upgrade: false, has_accept_encoding: true };
    const WRITE: ForwardHeaderOptions =
        ForwardHeaderOptions { has_upgrade: false, has_accept_encoding: false };
    const SWITCH: ForwardHeaderOptions =
        ForwardHeaderOptions { has_upgrade: true, has_accept_encoding: true };

    fn header_map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut request_headers = HeaderMap::new();
        for (name, value) in headers {
            request_headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        request_headers
    }

    fn sent(headers: &[(&'static str, &'static str)], kept: ForwardHeaderOptions) -> Vec<String> {
        let request_headers = header_map(headers);
        let sender = ForwardCredentials::from_headers(&request_headers, kept.has_upgrade).unwrap();
        let sent = forwarded_headers(&request_headers, &sender, PEER, kept).unwrap();
        let mut sent: Vec<_> = sent
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        sent.sort();
        sent
    }

    #[test]
    fn headers_of_the_connection_and_of_front_proxies_are_not_forwarded() {
        let headers = [
            TOKEN,
            ("connection", "keep-alive, X-Hop, Authorization, Impersonate-User"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "Basic x"),
            ("proxy-connection", "close"),
            ("expect", "100-continue"),
            ("host", "kubewarm.ops.svc"),
            ("content-length", "4"),
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("impersonate-user", "jane"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("accept-encoding", "gzip"),
            ("user-agent", "kubectl"),
            ("x-forwarded-for", "192.0.2.1"),
        ];
        let expected = [
            "accept-encoding: gzip",
            "authorization: Bearer t0k3n",
            "impersonate-group: a",
            "impersonate-group: b",
            "impersonate-user: jane",
            "user-agent: kubectl",
            "x-forwarded-for: 192.0.2.1, 10.0.0.7",
        ];
        assert_eq!(sent(&headers, PLAIN), expected);
        assert_eq!(sent(&headers, WRITE), expected[1..], "`Accept-Encoding` is removed");
    }

    #[test]
    fn an_upgrade_is_forwarded_as_an_upgrade() {
        let headers = [TOKEN, ("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")];
        let sent = sent(&headers, SWITCH);
        assert!(sent.contains(&"connection: Upgrade".to_owned()), "{sent:?}");
        assert!(sent.contains(&"upgrade: SPDY/3.1".to_owned()), "{sent:?}");
    }

    const PROTOCOL: &str = "sec-websocket-protocol";
    const IN_PROTOCOL: (&str, &str) =
        (PROTOCOL, "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dDBrM24");
    const WEBSOCKET: (&str, &str) = ("upgrade", "websocket");

    #[test]
    fn a_request_without_exactly_one_bearer_token_is_not_forwarded() {
        let cannot = Err("CannotForward");
        for (headers, is_upgrade, expected) in [
            (&[TOKEN] as &[_], false, Ok("t0k3n")),
            (&[("authorization", "bEARER t0k3n ")], false, Ok("t0k3n")),
            (&[("authorization", "Bearer  t0k3n")], false, cannot),
            (&[("authorization", "Bearer t0k3n again")], false, cannot),
            (&[], false, cannot),
            (&[("authorization", "Basic Z29vZA==")], false, cannot),
            (&[("authorization", "Bearer ")], false, cannot),
            (&[("x-remote-user", "admin")], false, cannot),
            (&[TOKEN, TOKEN], false, Err("BadRequest")),
            (&[WEBSOCKET, IN_PROTOCOL], true, Ok("t0k3n")),
            (&[("upgrade", "WebSocket"), IN_PROTOCOL], true, Ok("t0k3n")),
            (&[WEBSOCKET, IN_PROTOCOL], false, cannot),
            (&[("upgrade", "SPDY/3.1"), IN_PROTOCOL], true, cannot),
            (&[("upgrade", "websocket, x"), IN_PROTOCOL], true, cannot),
            (&[WEBSOCKET, IN_PROTOCOL, IN_PROTOCOL], true, cannot),
            (&[WEBSOCKET, ("authorization", "Basic x"), IN_PROTOCOL], true, Ok("t0k3n")),
            (&[WEBSOCKET, ("authorization", "Bearer other"), IN_PROTOCOL], true, Ok("other")),
            (&[TOKEN, (PROTOCOL, "base64url.bearer.authorization.k8s.io.x")], false, Ok("t0k3n")),
            (&[WEBSOCKET, (PROTOCOL, "v5.channel.k8s.io")], true, cannot),
        ] {
            let credentials = ForwardCredentials::from_headers(&header_map(headers), is_upgrade);
            let token = credentials.as_ref().map(|sender| sender.token.as_str());
            assert_eq!(token.map_err(StatusError::reason), expected, "{headers:?}");
        }
    }

    #[test]
    fn the_api_server_receives_only_the_token_that_kubewarm_has_read() {
        let spelled = sent(&[("authorization", "bEARER t0k3n ")], PLAIN);
        assert_eq!(spelled[0], "authorization: Bearer t0k3n");
        let upgrade = ("connection", "Upgrade");
        let browser = sent(&[upgrade, WEBSOCKET, IN_PROTOCOL], SWITCH);
        let expected = [
            "authorization: Bearer t0k3n",
            "connection: Upgrade",
            "sec-websocket-protocol: v5.channel.k8s.io",
            "upgrade: websocket",
            "x-forwarded-for: 10.0.0.7",
        ];
        assert_eq!(browser, expected);
        for header in [TOKEN, ("authorization", "Basic x")] {
            assert_eq!(sent(&[upgrade, WEBSOCKET, header, IN_PROTOCOL], SWITCH), expected);
        }
    }

    #[test]
    fn debug_output_hides_tokens() {
        for headers in [&[TOKEN] as &[_], &[WEBSOCKET, IN_PROTOCOL]] {
            let request_headers = header_map(headers);
            let sender = ForwardCredentials::from_headers(&request_headers, true).unwrap();
            let shown = format!(
                "{:?}",
                forwarded_headers(&request_headers, &sender, PEER, SWITCH).unwrap()
            );
            assert!(!shown.contains("t0k3n") && !shown.contains("bearer."), "{shown}");
        }
    }
}
