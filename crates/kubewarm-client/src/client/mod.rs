//! Clients of one cluster, as one identity each, and why there are none.

use super::{
    Buckets, ConnectionOptions,
    account::{Accounts, Anonymous},
    caller::Reviewer,
    proxy,
    source::{Source, Surroundings, choose, from_kubeconfig, merged},
    transport,
    upstream::Upstream,
};
use http::{
    Uri,
    header::{HeaderName, HeaderValue, USER_AGENT},
};
use kube::{
    Client, Config,
    config::{InClusterError, Kubeconfig, KubeconfigError},
};
use std::{fmt, time::Duration};
use tokio::runtime::Handle;

/// A connection to one API server, as one identity.
#[derive(Clone)]
pub struct Connection {
    patient: Client,
    plain: Client,
    /// What the clients were made of: the operator's credentials are in it.
    config: Config,
    anonymous: Anonymous,
    source: Source,
}

/// Why there is no connection, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nowhere is there a configuration.
    #[error(
        "no cluster is configured: no --kubeconfig, KUBECONFIG is not set, this is not a pod with \
         a ServiceAccount token, and {home} does not exist; pass --kubeconfig FILE"
    )]
    Nothing {
        /// The default file, or `$HOME/.kube/config` if there is no home either.
        home: String,
    },
    /// A kubeconfig cannot be read, or lacks something.
    #[error("cannot use the kubeconfig from {origin}; see `kubectl config view`")]
    Kubeconfig {
        /// Where it comes from.
        origin: String,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// A flag names an entry that is in no file.
    #[error("the kubeconfig from {origin} has no {kind} {name:?}; see `kubectl config view`")]
    NoEntry {
        /// Where it comes from.
        origin: String,
        /// `cluster` or `user`.
        kind: &'static str,
        /// The name in the flag.
        name: String,
    },
    /// The files that the kubelet mounts are incomplete.
    #[error("cannot use the pod's ServiceAccount; is automountServiceAccountToken off?")]
    InCluster(#[source] InClusterError),
    /// Rule: TLS is always verified.
    #[error(
        "the kubeconfig from {origin} sets insecure-skip-tls-verify for {server}, which kubewarm \
         refuses; set certificate-authority (and tls-server-name if the name differs) instead"
    )]
    Insecure {
        /// Where it comes from.
        origin: String,
        /// The server's URL.
        server: Uri,
    },
    /// The kubeconfig's `proxy-url` is none.
    #[error("the kubeconfig from {origin} has a proxy-url that is not a URL")]
    ProxyUrl {
        /// Where it comes from.
        origin: String,
    },
    /// A proxy is not a URL, or has a scheme that is not supported.
    #[error(
        "the proxy {url:?} is not a URL with the scheme http, https or socks5, such as \
         http://proxy.example:3128; correct proxy-url of the kubeconfig, or HTTPS_PROXY, HTTP_PROXY or \
         ALL_PROXY"
    )]
    InvalidProxy {
        /// The URL, without a user and a password.
        url: String,
    },
    /// No client could be made from a readable configuration.
    #[error(
        "cannot connect with the configuration from {origin}: the credentials, certificates or the \
         proxy cannot be used"
    )]
    Client {
        /// Where it comes from.
        origin: String,
        /// What is wrong with certificates, tokens, exec plugins, or the proxy's scheme.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Connection {
    /// Takes the first configuration there is: the kubeconfig of `options`, `KUBECONFIG`, the pod's
    /// ServiceAccount unless `options` name a context, cluster or user, `~/.kube/config`. A source that is
    /// there but broken is an error, because the next source might be another cluster.
    ///
    /// Must be called within a tokio runtime. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] says which sources were tried, and what to do.
    ///
    /// # Cost
    ///
    /// Reads files, and runs the kubeconfig's exec plugin if it has one.
    pub fn load(options: &ConnectionOptions) -> Result<Self, ConnectError> {
        let source = choose(options, &Surroundings::of_process())?;
        let mut config = match &source {
            Source::Pod => Config::incluster().map_err(ConnectError::InCluster)?,
            Source::Files { paths, .. } => {
                from_kubeconfig(&source, merged(&source, paths, options)?)?
            }
        };
        if let Some(user) = &options.impersonated_user {
            let groups = &options.impersonated_groups;
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = (!groups.is_empty()).then(|| groups.clone());
        }
        Self::new(config, source, options.request_timeout)
    }

    /// The connection that the current context of `kubeconfig` describes, which is in no file.
    ///
    /// # Errors
    ///
    /// # Cost
    ///
    /// As for [`Connection::load`].
    pub fn described(
        kubeconfig: Kubeconfig,
        request_timeout: Option<Duration>,
    ) -> Result<Self, ConnectError> {
        let source = Source::Files { flag: "the flags for the cache", paths: Vec::new() };
        let config = from_kubeconfig(&source, kubeconfig)?;
        Self::new(config, source, request_timeout)
    }

    fn new(
        mut config: Config,
        source: Source,
        request_timeout: Option<Duration>,
    ) -> Result<Self, ConnectError> {
        if config.accept_invalid_certs {
            let (origin, server) = (source.to_string(), config.cluster_url);
            return Err(ConnectError::Insecure { origin, server });
        }
        // `NO_PROXY` does not override the kubeconfig's `proxy-url`.
        if config.proxy_url.is_none() {
            config.proxy_url = proxy::of_environment(&config.cluster_url)?;
        }
        // kube's error would print the password of the proxy.
        if let Some(url) = &config.proxy_url
            && !matches!(url.scheme_str(), Some("http" | "https" | "socks5"))
        {
            let url = proxy::without_userinfo(&url.to_string());
            return Err(ConnectError::InvalidProxy { url });
        }
        config.headers.push(agent());
        let anonymous = Anonymous::of(&config);
        let plain = transport::plain(config.clone()).map_err(|error| unusable(&source, error))?;
        let plain = match request_timeout {
            Some(limit) => transport::limited(&plain, limit),
            None => plain,
        };
        let patient = transport::patient(&plain);
        Ok(Self { patient, plain, config, anonymous, source })
    }

    /// For our own resources, leases, events and reviews: an answer begins within 30 s, after at
    /// most a few retries of 429, 503 and 504, or the request fails.
    #[must_use]
    pub fn client(&self) -> Client {
        self.patient.clone()
    }

    /// For list and watch: no retries and no time-outs but 10 s for the TCP connection; whoever
    /// sends a request bounds it. Connections are kept alive, so that a dead peer is noticed within
    /// 60 s (through a proxy the system's defaults apply).
    #[must_use]
    pub fn informer_client(&self) -> Client {
        self.plain.clone()
    }

    /// The clients of all identities, for list and watch: the operator's is
    /// [`Connection::informer_client`], those of `ServiceAccounts` share nothing with it. Requests for
    /// tokens are charged to `buckets`.
    #[must_use]
    pub fn clients(&self, buckets: Buckets) -> Accounts {
        Accounts::new(self.informer_client(), self.anonymous.clone(), buckets)
    }

    /// Asks about callers with the operator's permissions, over connections of its own: however many callers
    /// there are, none of them waits for, or is waited for by, what the operator asks for itself. Of a token
    /// that is meant for none of `audiences` it says that nobody knows it; without any, tokens for the API
    /// server itself count.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Client`].
    ///
    /// # Cost
    ///
    /// As for [`Self::load`].
    pub fn reviewer(&self, audiences: &[String]) -> Result<Reviewer, ConnectError> {
        let plain = transport::plain(self.config.clone());
        let plain = plain.map_err(|error| unusable(&self.source, error))?;
        let client = transport::patient(&plain);
        Ok(Reviewer::Operator { client, audiences: audiences.into() })
    }

    /// Asks about callers with their own tokens, over connections of its own: its client knows the
    /// server's URL and CA and nothing of the operator's credentials.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Client`].
    pub fn callers_reviewer(&self) -> Result<Reviewer, ConnectError> {
        let client = self.anonymous.connect().map_err(|error| unusable(&self.source, error))?;
        Ok(Reviewer::Caller(client))
    }

    /// The API server for requests of callers, over connections of its own: with the server's URL and CA, and
    /// nothing of the operator's credentials. They are made on `runtime`, which must outlive the callers'.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Client`].
    pub fn upstream(&self, runtime: Handle) -> Result<Upstream, ConnectError> {
        let pipe = self.anonymous.pipe().map_err(|error| unusable(&self.source, error))?;
        Ok(Upstream::new(pipe, self.server(), runtime))
    }

    /// The namespace of the context, else `default`; in a pod, the pod's.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.plain.default_namespace()
    }

    /// The namespace of the pod's ServiceAccount, if that is what the connection uses.
    #[must_use]
    pub fn service_account_namespace(&self) -> Option<&str> {
        match self.source {
            Source::Pod => Some(self.namespace()),
            Source::Files { .. } => None,
        }
    }

    /// The server's URL, for messages.
    #[must_use]
    pub fn server(&self) -> &Uri {
        &self.config.cluster_url
    }
}

fn unusable(source: &Source, error: kube::Error) -> ConnectError {
    ConnectError::Client { origin: source.to_string(), source: Box::new(error) }
}

/// How every client names itself.
pub(super) fn agent() -> (HeaderName, HeaderValue) {
    (USER_AGENT, HeaderValue::from_static(concat!("kubewarm/", env!("CARGO_PKG_VERSION"))))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The clients hold credentials.
        f.debug_struct("Connection")
            .field("server", self.server())
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
