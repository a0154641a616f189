//! What can be typed after `run` about the read API.

use clap::{Args, ValueEnum};
use kubewarm_serve::callers::ReaderLimits;
use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf};

/// The read API.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Read API")]
pub struct ApiArgs {
    /// Where get, list and watch of what profiles keep warm are served in the Kubernetes API's own shape, over TLS;
    /// '' is nowhere. It takes more permissions (`kubewarm rbac --operator --read-api`).
    #[arg(long, default_value = "[::]:8443", value_name = "ADDRESS", value_parser = api_addr)]
    pub api_addr: ApiAddr,

    /// How callers are told apart, each by a bearer token [default: delegated, and caller-token with
    /// --watch-namespaces].
    #[arg(long, value_name = "HOW")]
    pub auth: Option<Auth>,

    /// Whom callers' tokens have to be for, separated by commas: one of these is enough. Such a token is of
    /// no use to whoever takes it from here, but clients must be given one (`kubectl create token
    /// --audience`). Not with --auth=caller-token, nor with --forward [default: the API server].
    #[arg(long, value_name = "AUDIENCES", value_delimiter = ',')]
    pub audience: Vec<String>,

    /// Send on to the API server, with the caller's own bearer token, what is not served from the cache:
    /// kinds that no profile keeps warm, writes, logs, exec, discovery. A whole client can then be pointed
    /// at --api-addr.
    #[arg(long)]
    pub forward: bool,

    /// The certificate that the read API shows, with its chain, as PEM; read again when it changes. Without
    /// one kubewarm makes its own for as long as it runs, and logs its fingerprint.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,

    /// Its key, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,

    /// CAs of client certificates, as PEM; read again when the file changes. A client with a certificate of
    /// theirs is the user of its common name, in the groups of its organizations, and needs no token. As the
    /// API server's flag. Not with --auth=caller-token [default: no certificate counts].
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// API groups that are served though another API server serves them, separated by commas. Such a
    /// server may hide some objects from some callers; of these groups you say that it does not. Without
    /// permission to get CustomResourceDefinitions, every group but Kubernetes' own counts as such.
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    pub serve_aggregated_groups: Vec<String>,

    /// How many requests may be under way at once, except watches and forwarded requests; beyond that callers get
    /// 429.
    #[arg(long, default_value_t = ReaderLimits::default().requests, value_name = "COUNT")]
    pub max_requests_inflight: NonZeroUsize,

    /// How many watches may be open at once; beyond that callers get 429.
    #[arg(long, default_value_t = ReaderLimits::default().watches, value_name = "COUNT")]
    pub max_watches: NonZeroUsize,

    /// How many connections may be open at once; beyond that they are closed.
    #[arg(long, default_value_t = ReaderLimits::default().connections, value_name = "COUNT")]
    pub max_connections: NonZeroUsize,

    /// How many connections one address (of IPv6: one /64 network) may have open that have not carried an accepted
    /// request.
    #[arg(
        long,
        default_value_t = ReaderLimits::default().address_connections,
        value_name = "COUNT"
    )]
    pub address_connections: NonZeroUsize,

    /// Percent of the requests, watches, connections and forwarded requests that one user may have. The pods of one
    /// ServiceAccount are one user.
    #[arg(
        long,
        default_value_t = ReaderLimits::default().user_share,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    pub user_share: u8,
}

impl ApiArgs {
    /// How much readers can have at once, with as many bytes of answers as without a memory limit.
    #[must_use]
    pub fn limits(&self) -> ReaderLimits {
        ReaderLimits {
            requests: self.max_requests_inflight,
            watches: self.max_watches,
            connections: self.max_connections,
            address_connections: self.address_connections,
            user_share: self.user_share,
            ..ReaderLimits::default()
        }
    }
}

/// Where the read API is served, if anywhere.
type ApiAddr = Option<SocketAddr>;

fn api_addr(text: &str) -> Result<ApiAddr, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let expected = "expected an address and a port such as [::]:8443, or '' for nowhere";
    text.parse().map(Some).map_err(|_| expected.to_owned())
}

/// How callers of the read API are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// By TokenReview and SubjectAccessReview, with kubewarm's permissions; not with --watch-namespaces.
    Delegated,
    /// By SelfSubjectReview and SelfSubjectAccessReview with the caller's own token, which takes no
    /// permission.
    CallerToken,
}
