//! Selects the proxy between kubewarm and the API server from environment variables.
//!
//! kubewarm does not let kube select the proxy: kube compares `NO_PROXY` with the name of the proxy
//! instead of the server. Inside a cluster, kube also ignores the environment variables.

use super::connection::ConnectError;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use std::{env, net::IpAddr};

/// Returns the proxy for `server`. Returns `None` if no proxy variable is set, or if `NO_PROXY`
/// matches the server.
///
/// `HTTPS_PROXY` applies to an HTTPS server and `HTTP_PROXY` to an HTTP server. `ALL_PROXY` applies
/// if the variable for the scheme is not set. The name of each variable can also be in lower case.
///
/// # Errors
///
/// [`ConnectError::InvalidProxy`] if the value of the variable is not a URL.
pub(super) fn of_environment(server: &Uri) -> Result<Option<Uri>, ConnectError> {
    let names: &[&str] = if server.scheme_str() == Some("http") {
        &["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
    } else {
        &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
    };
    proxy_for(server, &first_of(names), &first_of(&["NO_PROXY", "no_proxy"]))
}

/// Parses `proxy`; returns `None` if `server` needs no proxy. `no_proxy` lists the names, addresses
/// and networks that need no proxy. As in Go's clients, `localhost` and loopback addresses never
/// use a proxy.
fn proxy_for(server: &Uri, proxy: &str, no_proxy: &str) -> Result<Option<Uri>, ConnectError> {
    if proxy.is_empty() || is_loopback(server) {
        return Ok(None);
    }
    // A proxy variable often contains no scheme, such as `proxy.example:3128`.
    // `ApiServerConnection` requires a scheme, so `http` is the default.
    let url = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    let proxy: Uri =
        url.parse().map_err(|_| ConnectError::InvalidProxy { url: without_userinfo(&url) })?;
    let matcher = Matcher::builder().all("http://any.proxy").no(no_proxy).build();
    Ok(matcher.intercept(server).map(|_| proxy))
}

fn first_of(names: &[&str]) -> String {
    names
        .iter()
        .filter_map(|name| env::var(name).ok())
        .find(|value| !value.is_empty())
        .unwrap_or_default()
}

fn is_loopback(server: &Uri) -> bool {
    let Some(host) = server.host() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Removes user and password from a URL, so that a message can contain the URL.
pub(super) fn without_userinfo(url: &str) -> String {
    url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, rest)| rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(server: &'static str, proxy: &str, no_proxy: &str) -> Option<String> {
        let proxy_uri = proxy_for(&Uri::from_static(server), proxy, no_proxy).unwrap();
        proxy_uri.map(|uri| uri.to_string())
    }

    #[test]
    fn no_proxy_is_compared_with_the_server_and_not_with_the_proxy() {
        let proxy = "http://proxy.corp:3128";
        let used = Some("http://proxy.corp:3128/".to_owned());
        assert_eq!(found("https://api.example:6443", proxy, ""), used);
        assert_eq!(found("https://api.example:6443", proxy, "proxy.corp"), used);
        assert_eq!(found("https://api.example:6443", proxy, "other,.example"), None);
        assert_eq!(found("https://10.96.0.1:443", proxy, "10.96.0.0/12,"), None);
        assert_eq!(found("https://10.1.0.1", proxy, "10.96.0.0/12"), used);
        assert_eq!(found("https://api.example", proxy, "*"), None);
    }

    #[test]
    fn loopback_addresses_use_no_proxy() {
        for server in ["https://127.0.0.1:6443", "https://localhost:6443", "http://[::1]:8001"] {
            assert_eq!(found(server, "http://proxy:3128", ""), None, "{server}");
        }
    }

    #[test]
    fn a_proxy_without_a_scheme_uses_http() {
        let uri = found("https://api.example", "proxy:3128", "");
        assert_eq!(uri.as_deref(), Some("http://proxy:3128/"));
    }

    #[test]
    fn an_invalid_proxy_url_is_rejected_and_its_password_is_not_shown() {
        let server = Uri::from_static("https://x");
        let message = proxy_for(&server, "http://a:secret@b c", "").unwrap_err().to_string();
        assert!(message.contains("b c") && !message.contains("secret"), "{message}");
    }
}
