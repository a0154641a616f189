//! Connects to one cluster: loads the API server's URL and credentials, and creates the API clients
//! of each identity.

use super::{
    ConnectionOptions, NamespaceBuckets,
    account::{AccountClients, AnonymousConfig},
    caller::CallerReviewer,
    config_source::{ConfigEnvironment, ConfigSource, choose, from_kubeconfig, merged},
    context_user::ContextUser,
    kubeconfig::{kubeconfig_cluster, single_context_kubeconfig},
    proxy,
    stream_connector::StreamConnector,
    transport,
    upstream_proxy::UpstreamProxy,
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

/// The configuration (URL, TLS and credentials) of a connection to one API server, and the clients
/// that use this configuration.
#[derive(Clone)]
pub struct ApiServerConnection {
    patient: Client,
    plain: Client,
    /// The configuration with the operator's credentials. The field `anonymous` contains this
    /// configuration without credentials.
    config: Config,
    anonymous: AnonymousConfig,
    source: ConfigSource,
}

/// The reason why kubewarm cannot create a client of the API server. Each error message contains a
/// fix.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Flags, `KUBECONFIG`, the pod and the home directory contain no configuration of an API
    /// server.
    #[error(
        "no cluster is configured: no --kubeconfig, KUBECONFIG is not set, this is not a pod with \
         a ServiceAccount token, and {home} does not exist; pass --kubeconfig FILE"
    )]
    Nothing {
        /// Path of the default kubeconfig, or `$HOME/.kube/config` if the home directory is
        /// unknown.
        home: String,
    },
    /// kubewarm cannot read a kubeconfig, or a required field of the kubeconfig is missing.
    #[error("cannot use the kubeconfig from {origin}; see `kubectl config view`")]
    Kubeconfig {
        /// The flag or environment variable that selects the kubeconfig, with the paths of its
        /// files.
        origin: String,
        /// The error from the crate `kube`.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// A flag names a cluster or a user that none of the selected kubeconfig files contains.
    #[error("the kubeconfig from {origin} has no {kind} {name:?}; see `kubectl config view`")]
    NoEntry {
        /// The flag or environment variable that selects the kubeconfig, with the paths of its
        /// files.
        origin: String,
        /// The kind of the missing entry: `cluster` or `user`.
        kind: &'static str,
        /// The name of the cluster or the user in the flag.
        name: String,
    },
    /// The ServiceAccount files that the kubelet mounts into the pod are missing or not readable.
    #[error("cannot use the pod's ServiceAccount; is automountServiceAccountToken off?")]
    InCluster(#[source] InClusterError),
    /// The kubeconfig disables TLS verification. kubewarm always verifies TLS certificates.
    #[error(
        "the kubeconfig from {origin} sets insecure-skip-tls-verify for {server}, which kubewarm \
         refuses; set certificate-authority (and tls-server-name if the name differs) instead"
    )]
    Insecure {
        /// The flag or environment variable that selects the kubeconfig, with the paths of its
        /// files.
        origin: String,
        /// The URL of the API server.
        server: Uri,
    },
    /// The kubeconfig's `proxy-url` is not a URL.
    #[error("the kubeconfig from {origin} has a proxy-url that is not a URL")]
    ProxyUrl {
        /// The flag or environment variable that selects the kubeconfig, with the paths of its
        /// files.
        origin: String,
    },
    /// The proxy is not a URL, or its scheme is not supported.
    #[error(
        "the proxy {url:?} is not a URL with the scheme http, https or socks5, such as \
         http://proxy.example:3128; correct proxy-url of the kubeconfig, or HTTPS_PROXY, HTTP_PROXY or \
         ALL_PROXY"
    )]
    InvalidProxy {
        /// The URL without user and password.
        url: String,
    },
    /// kubewarm read the configuration, but cannot create a client from it.
    #[error(
        "cannot connect with the configuration from {origin}: the credentials, certificates or the \
         proxy cannot be used"
    )]
    Client {
        /// The flag or environment variable that selects the kubeconfig, with the paths of its
        /// files.
        origin: String,
        /// kube's error about certificates, tokens, exec plugins or the proxy's scheme.
        #[source]
        source: Box<kube::Error>,
    },
}

impl ApiServerConnection {
    /// Loads the first configuration that exists: the kubeconfig of `options`, `KUBECONFIG`, the
    /// pod's ServiceAccount, `~/.kube/config`.
    ///
    /// If `options` name a context, a cluster or a user, the function skips the pod's
    /// ServiceAccount. An invalid source is an error, because the next source might configure
    /// another cluster.
    ///
    /// Must be called within a tokio runtime. Sends no request.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], whose message names the source and a fix.
    ///
    /// # Cost
    ///
    /// Reads files, and runs the kubeconfig's exec plugin if the kubeconfig has one.
    pub fn load(options: &ConnectionOptions) -> Result<Self, ConnectError> {
        let source = choose(options, &ConfigEnvironment::of_process())?;
        let mut config = match &source {
            ConfigSource::Pod => Config::incluster().map_err(ConnectError::InCluster)?,
            ConfigSource::Files { paths, .. } => {
                from_kubeconfig(&source, merged(&source, paths, options)?)?
            }
        };
        impersonate(&mut config, options);
        Self::new(config, source, options.request_timeout, None)
    }

    /// Creates a connection from the current context of `kubeconfig`, which exists in memory only.
    /// `kubewarm get` connects to the operator's HTTP server in this way. If `streams` is given,
    /// the clients of [`Self::client`] and [`Self::informer_client`] connect through these streams
    /// instead of TCP, and use no proxy.
    ///
    /// # Errors
    ///
    /// The same as for [`ApiServerConnection::load`].
    ///
    /// # Cost
    ///
    /// The same as for [`ApiServerConnection::load`].
    pub fn from_kubeconfig(
        kubeconfig: Kubeconfig,
        request_timeout: Option<Duration>,
        streams: Option<StreamConnector>,
    ) -> Result<Self, ConnectError> {
        let source = ConfigSource::Files { flag: "the flags for the cache", paths: Vec::new() };
        let config = from_kubeconfig(&source, kubeconfig)?;
        Self::new(config, source, request_timeout, streams)
    }

    /// Creates a connection without credentials to `server`, whose certificate must contain `name`.
    /// `certificates` is PEM that verifies it. `streams` is as for [`Self::from_kubeconfig`].
    ///
    /// # Errors
    ///
    /// The same as for [`ApiServerConnection::load`].
    ///
    /// # Cost
    ///
    /// The same as for [`ApiServerConnection::load`].
    pub fn without_credentials(
        server: &str,
        name: &str,
        certificates: &str,
        request_timeout: Option<Duration>,
        streams: Option<StreamConnector>,
    ) -> Result<Self, ConnectError> {
        let (name, certificates) = (Some(name.to_owned()), Some(certificates.to_owned()));
        let cluster = kubeconfig_cluster(server.to_owned(), name, certificates);
        let kubeconfig = single_context_kubeconfig(cluster, ContextUser::default());
        Self::from_kubeconfig(kubeconfig, request_timeout, streams)
    }

    fn new(
        mut config: Config,
        source: ConfigSource,
        request_timeout: Option<Duration>,
        streams: Option<StreamConnector>,
    ) -> Result<Self, ConnectError> {
        if config.accept_invalid_certs {
            let (origin, server) = (source.to_string(), config.cluster_url);
            return Err(ConnectError::Insecure { origin, server });
        }
        // As for kubectl, a `proxy-url` in the kubeconfig overrides all proxy variables of the
        // environment, `NO_PROXY` included.
        if config.proxy_url.is_none() {
            config.proxy_url = proxy::of_environment(&config.cluster_url)?;
        }
        // kubewarm checks the scheme here, because kube's error would contain the password of the
        // proxy.
        if let Some(url) = &config.proxy_url
            && !matches!(url.scheme_str(), Some("http" | "https" | "socks5"))
        {
            let url = proxy::without_userinfo(&url.to_string());
            return Err(ConnectError::InvalidProxy { url });
        }
        config.headers.push(agent());
        let anonymous = AnonymousConfig::of(&config);
        let plain = match streams {
            Some(StreamConnector(streams)) => transport::direct(streams, &config),
            None => transport::plain(config.clone()),
        };
        let plain = plain.map_err(|error| unusable(&source, error))?;
        let plain = anonymous.reachability.observe(plain);
        let plain = match request_timeout {
            Some(limit) => transport::limited(&plain, limit),
            None => plain,
        };
        let patient = transport::patient(&plain);
        Ok(Self { patient, plain, config, anonymous, source })
    }

    /// Returns the client for short requests of kubewarm itself, such as Leases, Kubernetes Events
    /// and access reviews.
    ///
    /// The client retries up to five times after 429, 503 and 504. A request fails if its response
    /// headers do not arrive within 30 s, retries included.
    pub fn client(&self) -> Client {
        self.patient.clone()
    }

    /// Returns the client for list and watch, which does not retry.
    ///
    /// The only timeout of the client is 10 s for the TCP connect, so callers must limit each
    /// request. TCP keepalive detects a dead peer within 60 s. Through a proxy, the keepalive
    /// defaults of the system apply.
    pub fn informer_client(&self) -> Client {
        self.plain.clone()
    }

    /// Returns the API clients of all identities, for list and watch requests.
    ///
    /// The operator's client is [`ApiServerConnection::informer_client`]. Clients of
    /// ServiceAccounts use neither the operator's connections nor the operator's credentials.
    /// `buckets` limits the rate of token requests in each namespace.
    pub fn new_account_clients(&self, buckets: NamespaceBuckets) -> AccountClients {
        AccountClients::new(self.informer_client(), self.anonymous.clone(), buckets)
    }

    /// Returns when the API server last answered a request of this connection's clients.
    pub fn reachability(&self) -> crate::ServerReachability {
        self.anonymous.reachability.clone()
    }

    /// Returns a reviewer that authenticates and authorizes callers with the operator's
    /// credentials.
    ///
    /// The reviewer has its own connections, so that TokenReviews and access reviews do not wait
    /// for other requests of the operator. The reviewer accepts a token only for one of
    /// `audiences`. If `audiences` is empty, a token must be for the API server.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Client`] if kubewarm cannot create a client from the configuration.
    ///
    /// # Cost
    ///
    /// The same as for [`Self::load`].
    pub fn new_reviewer(&self, audiences: &[String]) -> Result<CallerReviewer, ConnectError> {
        let plain = transport::plain(self.config.clone());
        let plain = plain.map_err(|error| unusable(&self.source, error))?;
        let client = transport::patient(&self.anonymous.reachability.observe(plain));
        Ok(CallerReviewer::Operator { client, audiences: audiences.into() })
    }

    /// Returns a reviewer that authenticates and authorizes each caller with the caller's own
    /// token.
    ///
    /// The reviewer has the API server's URL and CA, but no credentials of the operator, so that no
    /// review can succeed by the operator's permissions. It has its own connections, because the
    /// operator's connections can be authenticated by its client certificate.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Client`] if kubewarm cannot create a client from the configuration.
    pub fn new_caller_token_reviewer(&self) -> Result<CallerReviewer, ConnectError> {
        let client = self.anonymous.connect().map_err(|error| unusable(&self.source, error))?;
        Ok(CallerReviewer::Caller(client))
    }

    /// Returns the client that forwards requests of callers to the API server.
    ///
    /// The client has its own connections, the API server's URL and CA, and no credentials of the
    /// operator. Requests run on `runtime`, which must outlive the callers' runtimes.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Client`] if kubewarm cannot create a client from the configuration.
    pub fn new_upstream_proxy(&self, runtime: Handle) -> Result<UpstreamProxy, ConnectError> {
        let pipe = self.anonymous.pipe().map_err(|error| unusable(&self.source, error))?;
        Ok(UpstreamProxy::new(pipe, self.server(), runtime))
    }

    /// Returns the namespace of the kubeconfig's context, or `default` if the context sets none. In
    /// a pod, returns the pod's namespace.
    pub fn namespace(&self) -> &str {
        self.plain.default_namespace()
    }

    /// Returns the pod's namespace; `None` if the connection does not use the pod's ServiceAccount.
    pub fn service_account_namespace(&self) -> Option<&str> {
        match self.source {
            ConfigSource::Pod => Some(self.namespace()),
            ConfigSource::Files { .. } => None,
        }
    }

    /// Returns the URL of the API server.
    pub fn server(&self) -> &Uri {
        &self.config.cluster_url
    }
}

/// Replaces the impersonated user of `config` by the impersonated user and groups in `options`. The
/// UID and the extra fields belong to the replaced user, so the function removes them.
fn impersonate(config: &mut Config, options: &ConnectionOptions) {
    let Some(user) = &options.impersonated_user else { return };
    let groups = &options.impersonated_groups;
    let auth = &mut config.auth_info;
    auth.impersonate = Some(user.clone());
    auth.impersonate_groups = (!groups.is_empty()).then(|| groups.clone());
    auth.impersonate_uid = None;
    auth.impersonate_user_extra = None;
}

fn unusable(source: &ConfigSource, error: kube::Error) -> ConnectError {
    ConnectError::Client { origin: source.to_string(), source: Box::new(error) }
}

pub(super) fn agent() -> (HeaderName, HeaderValue) {
    (USER_AGENT, HeaderValue::from_static(concat!("kubewarm/", env!("CARGO_PKG_VERSION"))))
}

impl fmt::Debug for ApiServerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output omits the clients, because they contain credentials.
        f.debug_struct("ApiServerConnection")
            .field("server", self.server())
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
