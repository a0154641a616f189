//! Which headers go from one side to the other, and what a caller shows of itself in them.

use crate::{
    callers::{Credentials, NoCredentials},
    wire::Failure,
};
use actix_web::http::header::HeaderMap as Asked;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST,
        PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE,
    },
};
use std::net::IpAddr;

/// Of one connection, and so of nobody beyond it (RFC 9110, 7.6.1).
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
/// Who a front proxy says its caller is: an API server believes those that it knows.
const FRONT_PROXY: &str = "x-remote-";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// What browsers show a token as, which cannot set `Authorization`.
const WEBSOCKET_BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// The bearer token of a request, without what it is written with: the same of any spelling.
///
/// # Errors
///
/// 403 `CannotForward` where there is none; 400 where there are several.
pub(super) fn bearer(asked: &Asked, is_upgrade: bool) -> Result<Vec<u8>, Failure> {
    let headers = asked.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    match Credentials::of(headers) {
        Ok(_) => {
            let value = asked.get(AUTHORIZATION.as_str()).map(|it| it.as_bytes().trim_ascii());
            let token = value.and_then(|value| value.split(|byte| *byte == b' ').next_back());
            token.map(<[u8]>::to_vec).ok_or_else(Failure::cannot_forward)
        }
        Err(NoCredentials::Missing) if is_upgrade => {
            websocket_bearer(asked).ok_or_else(Failure::cannot_forward)
        }
        Err(NoCredentials::Repeated) => Err(Failure::bad_request("Authorization is repeated")),
        Err(NoCredentials::Impersonation) => {
            Err(Failure::bad_request("Impersonate-* cannot be read"))
        }
        Err(NoCredentials::TooLong) => Err(Failure::unauthorized()),
        Err(NoCredentials::Missing | NoCredentials::NoBearer | NoCredentials::Empty) => {
            Err(Failure::cannot_forward())
        }
    }
}

fn websocket_bearer(asked: &Asked) -> Option<Vec<u8>> {
    let values = asked.get_all(SEC_WEBSOCKET_PROTOCOL.as_str());
    let mut protocols = values.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(','));
    let bearer = protocols.find_map(|it| it.trim().strip_prefix(WEBSOCKET_BEARER))?;
    (!bearer.is_empty()).then(|| bearer.as_bytes().to_vec())
}

/// What the API server is sent of `asked`: all but what is of the connection, of a front proxy, or of the
/// server that was asked. Where the version in the answer is wanted, the answer must be readable.
pub(super) fn onward(
    asked: &Asked,
    peer: IpAddr,
    (upgrade, must_be_readable): (bool, bool),
) -> Result<HeaderMap, Failure> {
    let unreadable = || Failure::bad_request("a header cannot be read");
    let mut headers = HeaderMap::new();
    for (name, value) in asked {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).map_err(|_| unreadable())?;
        let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| unreadable())?;
        value.set_sensitive(name == AUTHORIZATION || name == SEC_WEBSOCKET_PROTOCOL);
        headers.append(name, value);
    }
    let protocol = headers.get(UPGRADE).filter(|_| upgrade).cloned();
    without_connection(&mut headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
    let is_of_proxy = |name: &&HeaderName| name.as_str().starts_with(FRONT_PROXY);
    let of_proxy: Vec<_> = headers.keys().filter(is_of_proxy).cloned().collect();
    for name in of_proxy {
        headers.remove(name);
    }
    if must_be_readable {
        headers.remove(ACCEPT_ENCODING);
    }
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    // For the API server's audit log, which would know of this process alone.
    let peer = peer.to_canonical().to_string();
    if let Ok(peer) = HeaderValue::from_str(&peer) {
        headers.append(FORWARDED_FOR, peer);
    }
    Ok(headers)
}

/// Takes away what says something of one connection only.
pub(super) fn without_connection(headers: &mut HeaderMap) {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(','));
    let named: Vec<_> = named.filter_map(|it| it.trim().parse::<HeaderName>().ok()).collect();
    // Nobody may take away by that what the API server decides by.
    let is_free =
        |name: &HeaderName| *name != AUTHORIZATION && !name.as_str().starts_with("impersonate-");
    for name in named.into_iter().filter(is_free).chain(OF_ONE_CONNECTION) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName as Name, HeaderValue as Value};
    use std::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
    const TOKEN: (&str, &str) = ("authorization", "Bearer t0k3n");

    fn asked(headers: &[(&'static str, &'static str)]) -> Asked {
        let mut asked = Asked::new();
        for (name, value) in headers {
            asked.append(Name::from_static(name), Value::from_static(value));
        }
        asked
    }

    fn sent(
        headers: &[(&'static str, &'static str)],
        upgrade: bool,
        readable: bool,
    ) -> Vec<String> {
        let sent = onward(&asked(headers), PEER, (upgrade, readable)).unwrap();
        let mut sent: Vec<_> = sent
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        sent.sort();
        sent
    }

    #[test]
    fn what_is_of_a_connection_or_a_front_proxy_stays_and_the_rest_goes_on() {
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
            "x-forwarded-for: 10.0.0.7",
            "x-forwarded-for: 192.0.2.1",
        ];
        assert_eq!(sent(&headers, false, false), expected);
        assert_eq!(sent(&headers, false, true), expected[1..], "the answer must be readable");
    }

    #[test]
    fn an_upgrade_goes_on_as_one() {
        let headers = [TOKEN, ("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")];
        let sent = sent(&headers, true, false);
        assert!(sent.contains(&"connection: Upgrade".to_owned()), "{sent:?}");
        assert!(sent.contains(&"upgrade: SPDY/3.1".to_owned()), "{sent:?}");
    }

    #[test]
    fn nothing_is_sent_on_without_one_bearer_token() {
        let in_protocol = (
            "sec-websocket-protocol",
            "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dDBrM24",
        );
        for (headers, upgrade, expected) in [
            (&[TOKEN] as &[_], false, Ok("t0k3n")),
            (&[("authorization", "bEARER   t0k3n ")], false, Ok("t0k3n")),
            (&[("authorization", "Bearer t0k3n again")], false, Err("CannotForward")),
            (&[], false, Err("CannotForward")),
            (&[("authorization", "Basic Z29vZA==")], false, Err("CannotForward")),
            (&[("authorization", "Bearer ")], false, Err("CannotForward")),
            (&[("x-remote-user", "admin")], false, Err("CannotForward")),
            (&[TOKEN, TOKEN], false, Err("BadRequest")),
            (&[in_protocol], true, Ok("dDBrM24")),
            (&[in_protocol], false, Err("CannotForward")),
            (&[("sec-websocket-protocol", "v5.channel.k8s.io")], true, Err("CannotForward")),
        ] {
            let found = bearer(&asked(headers), upgrade);
            let found = found.as_ref().map(|it| str::from_utf8(it).unwrap());
            assert_eq!(found.map_err(Failure::reason), expected, "{headers:?}");
        }
    }

    #[test]
    fn tokens_are_not_shown() {
        let headers =
            [TOKEN, ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.x")];
        let sent = onward(&asked(&headers), PEER, (true, false)).unwrap();
        let shown = format!("{sent:?}");
        assert!(!shown.contains("t0k3n") && !shown.contains("bearer."), "{shown}");
    }
}
