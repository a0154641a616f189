//! Flags of `run` for the read API.

use crate::commands;
use clap::{Args, ValueEnum};
use kubewarm_client::PeerOptions;
use kubewarm_serve::callers::{AgentAccount, ReaderLimits};
use std::{
    collections::BTreeSet, net::SocketAddr, num::NonZeroUsize, path::PathBuf, str::FromStr,
    sync::Arc, time::Duration,
};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Read API")]
pub struct ReadApiArgs {
    /// Address of the read API, which serves get, list and watch over TLS; '' disables it. For the
    /// read API, the operator needs additional permissions
    /// (`kubewarm rbac --operator --operator-namespace NAMESPACE --read-api`).
    #[arg(long, default_value = "[::]:8443", value_name = "ADDRESS", value_parser = api_addr)]
    pub api_addr: ReadApiAddress,

    /// Authentication and authorization of clients of the read API [default: delegated, or
    /// caller-token with --watch-namespaces].
    #[arg(long, value_name = "HOW")]
    pub auth: Option<CallerAuthMode>,

    /// Audiences of the tokens that clients send to the read API, separated by commas. A token
    /// needs one of these audiences (`kubectl create token --audience`). Not with
    /// --auth=caller-token or --forward [default: the API server].
    #[arg(long, value_name = "AUDIENCES", value_delimiter = ',')]
    pub audience: Vec<String>,

    /// Forward requests that the cache cannot answer, such as writes, logs, exec and discovery, to
    /// the API server with the caller's token. kubewarm also forwards reads of resources that no
    /// profile contains, and Strict reads of stores that it has not confirmed after 25 ms.
    #[arg(long)]
    pub forward: bool,

    /// PEM certificate chain of the read API, reloaded after changes [default: a new self-signed
    /// certificate, whose fingerprint is logged].
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,

    /// PEM private key of --tls-cert-file.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Address of the other replicas, as HOST:PORT of their read API. HOST is a headless Service of
    /// all ready replicas. A starting replica copies its stores from them instead of listing. Not
    /// with --auth=caller-token [default: a starting replica lists].
    #[arg(long, value_name = "HOST:PORT", requires_all = ["peer_ca_file", "peer_token_file"])]
    pub peer_address: Option<PeerAddress>,

    /// Name in the certificate of the other replicas [default: the host of --peer-address].
    #[arg(long, value_name = "NAME", requires = "peer_address")]
    pub peer_server_name: Option<String>,

    /// PEM bundle of the CAs of the other replicas' certificate, reloaded after changes.
    #[arg(long, value_name = "FILE", requires = "peer_address")]
    pub peer_ca_file: Option<PathBuf>,

    /// File with a token of this process for the audience kubewarm-peer, reloaded after changes.
    /// With such a token of the same ServiceAccount, another replica copies stores from this one.
    #[arg(long, value_name = "FILE", requires = "peer_address")]
    pub peer_token_file: Option<PathBuf>,

    /// PEM bundle of CAs for client certificates, reloaded after changes. The common name is the
    /// user, the organizations are the groups. Not with --auth=caller-token [default: no client
    /// certificates].
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// API groups of aggregated API servers to serve, separated by commas. Name only groups whose
    /// server shows every user the same objects. If kubewarm cannot get CustomResourceDefinitions,
    /// it treats all groups except Kubernetes' own as aggregated.
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    pub serve_aggregated_groups: Vec<String>,

    /// Authorization of clients' requests. `kubectl warm check` shows the authorizers of the API
    /// server, on which the choice depends.
    #[arg(long, default_value = "reviews", value_name = "HOW")]
    pub authorization: CallerAuthorizationMode,

    /// How long clients can read while the API server does not answer, up to 1h: callers that it
    /// has accepted before, and what it permitted them when the outage began. A revocation takes
    /// effect only after the outage, or after this time.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = outage_grace_period)]
    pub outage_grace_period: Duration,

    /// Maximum number of concurrent requests to the read API, without watches and forwarded
    /// requests. Further requests wait up to 15 s, then get 429.
    #[arg(long, default_value_t = ReaderLimits::default().requests, value_name = "COUNT")]
    pub max_requests_inflight: NonZeroUsize,

    /// Maximum number of open watches of the read API's clients. Further watches get 429 [default:
    /// one for each 480Ki of the memory limit; without a memory limit 4096].
    #[arg(long, value_name = "COUNT")]
    pub max_watches: Option<NonZeroUsize>,

    /// Maximum number of open connections to the read API. kubewarm closes further connections. As
    /// many requests can wait, and the caches of reviews grow with this number [default: one for
    /// each 480Ki of the memory limit; without a memory limit 1024].
    #[arg(long, value_name = "COUNT")]
    pub max_connections: Option<NonZeroUsize>,

    /// Maximum number of read API connections on which no request was authorized yet, per client
    /// address [default: an eighth of --max-connections].
    #[arg(long, value_name = "COUNT")]
    pub address_connections: Option<NonZeroUsize>,

    /// Limit of one user of the read API, in percent of the maximum number of requests, watches,
    /// connections and forwarded requests, of concurrent reviews, and of response memory. The pods
    /// of a ServiceAccount are one user, unless --agents names it.
    #[arg(
        long,
        default_value_t = ReaderLimits::default().user_quota,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    pub user_quota: u8,

    /// ServiceAccounts whose pods count as one user each, such as monitoring/node-agent, separated
    /// by commas. All pods of one entry together can use 100 minus --user-quota percent of each
    /// limit, divided by the number of entries, but not less than one user.
    #[arg(long, value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    pub agents: Vec<AgentAccount>,
}

/// Host and port of other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    host: String,
    port: u16,
}

impl FromStr for PeerAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected HOST:PORT, such as kubewarm-peers:8443";
        let (host, port) = text.rsplit_once(':').ok_or(expected)?;
        let port = port.parse().map_err(|_| expected)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() { Err(expected) } else { Ok(Self { host, port }) }
    }
}

impl ReadApiArgs {
    /// Returns where the other replicas are. `None` without `--peer-address`.
    pub fn peers(&self) -> Option<PeerOptions> {
        let PeerAddress { host, port } = self.peer_address.clone()?;
        Some(PeerOptions {
            server_name: self.peer_server_name.clone().unwrap_or_else(|| host.clone()),
            host,
            port,
            ca_file: self.peer_ca_file.clone()?,
            token_file: self.peer_token_file.clone()?,
        })
    }

    /// Returns the read API's limits from the flags. Without a flag, the limit comes from
    /// `defaults`.
    pub fn limits(&self, defaults: ReaderLimits) -> ReaderLimits {
        let connections = self.max_connections.unwrap_or(defaults.connections);
        // One client address must not use up the connections, however few they are.
        let eighth = NonZeroUsize::new(connections.get() / 8).unwrap_or(NonZeroUsize::MIN);
        ReaderLimits {
            requests: self.max_requests_inflight,
            watches: self.max_watches.unwrap_or(defaults.watches),
            connections,
            address_connections: self.address_connections.unwrap_or(eighth),
            user_quota: self.user_quota,
            unwritten_bytes: defaults.unwritten_bytes,
            large_object_bytes: defaults.large_object_bytes,
            change_cache_bytes: defaults.change_cache_bytes,
        }
    }

    /// Returns the entries of `--agents` without duplicates, because each entry has its own part of
    /// the limits.
    pub fn agent_accounts(&self) -> Arc<[AgentAccount]> {
        self.agents.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// `None` disables the read API. This is an alias because clap treats a field of type `Option` as
/// an optional flag.
type ReadApiAddress = Option<SocketAddr>;

fn outage_grace_period(text: &str) -> Result<Duration, String> {
    let period = commands::duration(text)?;
    if period <= Duration::from_hours(1) { Ok(period) } else { Err("expected 0s to 1h".to_owned()) }
}

fn api_addr(text: &str) -> Result<ReadApiAddress, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let expected = "expected an address and a port such as [::]:8443, or '' for nowhere";
    text.parse().map(Some).map_err(|_| expected.to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CallerAuthMode {
    /// TokenReview and SubjectAccessReview with kubewarm's permissions; not with
    /// --watch-namespaces.
    Delegated,
    /// SelfSubjectReview and SelfSubjectAccessReview with the client's token. kubewarm needs no
    /// permission for these reviews.
    CallerToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CallerAuthorizationMode {
    /// Each user, object name and selector has its own access review.
    Reviews,
    /// First an access review without the user's extra fields, the object's name and the selectors.
    /// The pods of a ServiceAccount share it. If it is denied, the exact access review follows. Not
    /// with webhook authorizers that decide by these, or with empty strings in resourceNames of
    /// RBAC rules.
    SharedReviews,
    /// By the cluster's RBAC rules, which kubewarm watches; access reviews only for requests that
    /// no rule allows, and as samples. Needs the permissions of `kubewarm rbac --operator
    /// --rbac-authorization`. Not with authorizers that deny what RBAC allows, --auth=caller-token
    /// or --watch-namespaces.
    Rbac,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_peers_has_a_host_and_a_port() {
        let parsed = |text: &str| PeerAddress::from_str(text).map(|at| (at.host, at.port)).ok();
        for (text, host) in
            [("kubewarm-peers.ops.svc:8443", "kubewarm-peers.ops.svc"), ("[::1]:8443", "::1")]
        {
            assert_eq!(parsed(text), Some((host.to_owned(), 8_443)), "{text}");
        }
        for text in ["", "host", ":8443", "host:", "host:99999", "https://host"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
