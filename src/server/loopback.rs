//! Decides whether a request comes from this host, without a proxy in between.

use actix_web::{HttpRequest, http::header};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether `request` comes through a port-forward, which RBAC protects, or from the pod itself.
/// Such a request meets three conditions:
///
/// - The peer is 127.0.0.1 or `::1`, as for every port-forward. A service mesh's sidecar forwards
///   network requests from other addresses, such as 127.0.0.6.
/// - `Host` is `localhost`, in 127.0.0.0/8 or `::1`, with or without a port. A web page that points
///   its own host name to a port-forward (DNS rebinding) sends that name in `Host`.
/// - No header shows that a proxy forwarded the request.
pub(super) fn is_local(request: &HttpRequest) -> bool {
    request.peer_addr().is_some_and(|peer| is_own(peer.ip().to_canonical()))
        && is_for_this_host(request)
        && !is_forwarded_by_proxy(request)
}

fn is_own(peer: IpAddr) -> bool {
    peer == Ipv4Addr::LOCALHOST || peer == Ipv6Addr::LOCALHOST
}

/// Whether every host name in the request names this host. Host names are in the `Host` header,
/// which must exist, and in an absolute URI.
fn is_for_this_host(request: &HttpRequest) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).peekable();
    hosts.peek().is_some()
        && hosts.all(|host| host.to_str().is_ok_and(is_this_host_name))
        && request.uri().authority().is_none_or(|named| is_this_host_name(named.as_str()))
}

/// Whether `host` is `localhost` or a loopback address; IPv6 addresses need brackets.
fn is_this_host_name(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        // Without a port, the last colon is part of the IPv6 address.
        Some(_) if host.ends_with(']') => (host, None),
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return false;
    }
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok_and(|ip| ip.to_canonical().is_loopback()),
        None => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

fn is_forwarded_by_proxy(request: &HttpRequest) -> bool {
    // Every `X-Forwarded-*` header counts, because proxies send different headers. Envoy sends
    // `X-Forwarded-Proto`, and other proxies send `X-Forwarded-For`.
    request.headers().keys().any(|name| {
        name == header::FORWARDED
            || name == header::VIA
            || name.as_str().starts_with("x-forwarded-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    fn local(peer: &str, headers: &[(&str, &str)]) -> bool {
        let request = TestRequest::get().uri("/debug/informers").peer_addr(peer.parse().unwrap());
        let request =
            headers.iter().fold(request, |request, header| request.append_header(*header));
        is_local(&request.to_http_request())
    }

    #[test]
    fn a_port_forward_is_local() {
        for peer in ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
            for host in [
                "localhost",
                "LocalHost:9090",
                "127.0.0.1",
                "127.0.0.1:9090",
                "[::1]",
                "[::1]:9090",
            ] {
                assert!(local(peer, &[("host", host)]), "{peer} requests {host}");
            }
        }
    }

    #[test]
    fn remote_peers_and_sidecars_are_not_local() {
        for peer in ["10.0.0.7:9", "[fd00::1]:9", "[::ffff:10.0.0.7]:9", "127.0.0.6:9"] {
            assert!(!local(peer, &[("host", "localhost")]), "{peer}");
        }
    }

    #[test]
    fn a_rebound_dns_name_is_not_local() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.7",
            "[fd00::1]:9090",
            "::1",
            "localhost:x",
            "localhost@evil",
            "[::1",
            "",
        ] {
            assert!(!local("127.0.0.1:9", &[("host", host)]), "{host:?}");
        }
        assert!(!local("127.0.0.1:9", &[]), "no Host at all");
        assert!(!local("127.0.0.1:9", &[("host", "localhost"), ("host", "evil.example")]));
        let absolute = TestRequest::get()
            .uri("http://evil.example/debug/informers")
            .peer_addr("127.0.0.1:9".parse().unwrap())
            .append_header(("host", "localhost"));
        assert!(!is_local(&absolute.to_http_request()));
    }

    #[test]
    fn a_request_through_a_proxy_is_not_local() {
        for name in ["X-Forwarded-For", "x-forwarded-proto", "Forwarded", "Via"] {
            assert!(!local("127.0.0.1:9", &[("host", "localhost"), (name, "10.0.0.7")]), "{name}");
        }
    }
}
