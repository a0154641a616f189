//! Clients of one cluster, as one identity each, and why there are none.

use super::{
    Buckets,
    account::{Accounts, Anonymous},
    caller::Reviewer,
    source::{Source, Surroundings, choose, from_kubeconfig, merged},
    transport::{self, TransportError},
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
use std::{fmt, path::Path};
use tokio::runtime::Handle;

/// A connection to one API server, as one identity.
#[derive(Clone)]
pub struct Connection {
    patient: Client,
    plain: Client,
    /// What the clients were made of: the operator's credentials are in it.
    config: Config,
    explicit_proxy: Option<Uri>,
    anonymous: Anonymous,
    server: Uri,
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
    /// No client could be made from a readable configuration.
    #[error("cannot connect with the configuration from {origin}")]
    Client {
        /// Where it comes from.
        origin: String,
        /// What is wrong: credentials, certificates, the proxy.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Connection {
    /// Takes the first configuration there is: `--kubeconfig` and `--context` (the latter in the
    /// files of `KUBECONFIG` or `~/.kube/config`), `KUBECONFIG`, the pod's ServiceAccount,
    /// `~/.kube/config`. A source that is there but broken is an error, not a reason to take the
    /// next: it might be another cluster.
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
    pub fn load(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, ConnectError> {
        let source = choose(kubeconfig, context, &Surroundings::of_process())?;
        let (config, explicit_proxy) = match &source {
            Source::Pod => (Config::incluster().map_err(ConnectError::InCluster)?, None),
            Source::Files { paths, .. } => {
                from_kubeconfig(&source, merged(&source, paths, context)?)?
            }
        };
        Self::new(config, explicit_proxy, source)
    }

    /// The connection that the current context of `kubeconfig` describes, which is in no file.
    ///
    /// # Errors
    ///
    /// # Cost
    ///
    /// As for [`Connection::load`].
    pub fn described(kubeconfig: Kubeconfig) -> Result<Self, ConnectError> {
        let source = Source::Files { flag: "the flags for the cache", paths: Vec::new() };
        let (config, explicit_proxy) = from_kubeconfig(&source, kubeconfig)?;
        Self::new(config, explicit_proxy, source)
    }

    fn new(
        mut config: Config,
        explicit_proxy: Option<Uri>,
        source: Source,
    ) -> Result<Self, ConnectError> {
        let origin = source.to_string();
        let server = config.cluster_url.clone();
        if config.accept_invalid_certs {
            return Err(ConnectError::Insecure { origin, server });
        }
        config.headers.push(agent());
        let anonymous = Anonymous::of(&config, explicit_proxy.as_ref());
        let plain = transport::plain(config.clone(), explicit_proxy.clone()).map_err(
            |source: TransportError| ConnectError::Client { origin, source: source.into() },
        )?;
        let patient = transport::patient(&plain);
        Ok(Self { patient, plain, config, explicit_proxy, anonymous, server, source })
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
        let plain = transport::plain(self.config.clone(), self.explicit_proxy.clone())
            .map_err(|source| self.unusable(source))?;
        Ok(Reviewer::operator(transport::patient(&plain), audiences))
    }

    /// Asks about callers with their own tokens, over connections of its own: its client knows the
    /// server's URL and CA and nothing of the operator's credentials.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Client`].
    pub fn callers_reviewer(&self) -> Result<Reviewer, ConnectError> {
        let client = self.anonymous.connect().map_err(|source| self.unusable(source))?;
        Ok(Reviewer::callers(client))
    }

    /// The API server for requests of callers, over connections of its own: with the server's URL and CA, and
    /// nothing of the operator's credentials. They are made on `runtime`, which must outlive the callers'.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Client`].
    pub fn upstream(&self, runtime: Handle) -> Result<Upstream, ConnectError> {
        let pipe = self.anonymous.pipe().map_err(|source| self.unusable(source))?;
        Ok(Upstream::new(pipe, &self.server, runtime))
    }

    fn unusable(&self, source: TransportError) -> ConnectError {
        ConnectError::Client { origin: self.source.to_string(), source: source.into() }
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
        &self.server
    }
}

/// How every client names itself.
pub(super) fn agent() -> (HeaderName, HeaderValue) {
    (USER_AGENT, HeaderValue::from_static(concat!("kubewarm/", env!("CARGO_PKG_VERSION"))))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The clients hold credentials.
        f.debug_struct("Connection")
            .field("server", &self.server)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Presented, source::sample::KUBECONFIG};
    use http::Request;
    use http_body_util::{BodyExt as _, Empty};
    use std::{fs, net::SocketAddr, time::Duration};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        task::JoinHandle,
        time::{sleep, timeout},
    };

    fn load(text: &str, context: Option<&str>) -> Result<Connection, ConnectError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, text).unwrap();
        Connection::load(Some(&path), context)
    }

    #[tokio::test]
    async fn a_context_selects_server_and_namespace() {
        let connection = load(KUBECONFIG, None).unwrap();
        assert_eq!(connection.server(), "https://one.example:6443/");
        assert_eq!(connection.namespace(), "shop");
        assert_eq!(connection.service_account_namespace(), None);
        let connection = load(KUBECONFIG, Some("two")).unwrap();
        assert_eq!(connection.server(), "https://two.example/");
        assert_eq!(connection.namespace(), "default");
    }

    #[tokio::test]
    async fn callers_are_asked_about_with_their_own_token_and_nothing_of_the_operators() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let kubeconfig = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             clusters: [{{name: c, cluster: {{server: 'http://{server}'}}}}], \
             users: [{{name: o, user: {{token: of-the-operator}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: o}}}}]}}"
        );
        let connection = load(&kubeconfig, None).unwrap();
        let token = "of-the-caller".to_owned().into();
        let presented = Presented { token, impersonation: Vec::new() };
        for (reviewer, shown, other) in [
            (connection.reviewer(&[]).unwrap(), "of-the-operator", "bearer of-the-caller"),
            (connection.callers_reviewer().unwrap(), "of-the-caller", "of-the-operator"),
        ] {
            let asking = tokio::spawn({
                let presented = Presented {
                    token: presented.token.clone(),
                    impersonation: presented.impersonation.clone(),
                };
                async move { reviewer.who(&presented).await }
            });
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut asked).await.unwrap(), 0);
            }
            let head = String::from_utf8_lossy(&asked).to_lowercase();
            assert!(head.contains(&format!("authorization: bearer {shown}\r\n")), "{head}");
            assert!(!head.contains(other), "{head}");
            asking.abort();
            assert!(asking.await.is_err());
            drop(stream);
        }
    }

    /// Answers until nobody comes any more, and how many connections came.
    fn counting(listener: TcpListener) -> JoinHandle<usize> {
        tokio::spawn(async move {
            let mut connections = 0;
            while let Ok(Ok((mut stream, _))) =
                timeout(Duration::from_millis(500), listener.accept()).await
            {
                connections += 1;
                tokio::spawn(async move {
                    let mut asked = Vec::new();
                    while stream.read_buf(&mut asked).await.is_ok_and(|read| read > 0) {
                        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"status\":{}}";
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            break;
                        }
                    }
                });
            }
            connections
        })
    }

    /// Without credentials and TLS.
    fn plain(server: SocketAddr) -> Connection {
        let kubeconfig = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             clusters: [{{name: c, cluster: {{server: 'http://{server}'}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: ''}}}}]}}"
        );
        load(&kubeconfig, None).unwrap()
    }

    #[tokio::test]
    async fn reviews_share_no_connection_with_the_operators_own_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let answering = counting(listener);
        let connection = plain(server);
        let reviewer = connection.reviewer(&[]).unwrap();
        assert!(crate::get(&connection.client(), "/version").await.is_ok());
        // So that its connection is there to be used again.
        sleep(Duration::from_millis(100)).await;
        let token = "of-the-caller".to_owned().into();
        let presented = Presented { token, impersonation: Vec::new() };
        assert!(reviewer.who(&presented).await.is_ok());
        assert_eq!(answering.await.unwrap(), 2);
    }

    #[tokio::test]
    async fn forwarded_requests_share_no_connection_with_accounts_or_reviews() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let answering = counting(listener);
        let connection = plain(server);
        let token = "of-the-caller".to_owned().into();
        let presented = Presented { token, impersonation: Vec::new() };
        let reviewers = [connection.reviewer(&[]), connection.callers_reviewer()];
        for reviewer in &reviewers {
            let _answered = reviewer.as_ref().unwrap().who(&presented).await;
        }
        // As those of accounts are made.
        let account = connection.anonymous.connect().unwrap();
        assert!(crate::get(&account, "/version").await.is_ok());
        // So that their connections are there to be used again.
        sleep(Duration::from_millis(100)).await;
        let upstream = connection.upstream(Handle::current()).unwrap();
        let mut sent = Request::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
        *sent.uri_mut() = "/version".parse().unwrap();
        assert!(upstream.send(sent).await.is_ok());
        assert_eq!(answering.await.unwrap(), 4);
        drop((reviewers, account));
    }

    #[tokio::test]
    async fn a_kubeconfig_that_skips_tls_verification_is_refused() {
        let message = load(KUBECONFIG, Some("three")).unwrap_err().to_string();
        assert!(message.contains("insecure-skip-tls-verify"), "{message}");
        assert!(message.contains("https://three.example/"), "{message}");
    }

    #[tokio::test]
    async fn a_broken_kubeconfig_is_an_error_that_names_it() {
        for (text, context) in [("{", None), (KUBECONFIG, Some("four"))] {
            let message = load(text, context).unwrap_err().to_string();
            assert!(message.contains("--kubeconfig (/"), "{message}");
        }
        let missing = Connection::load(Some(Path::new("/nowhere/config")), None).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/config"));
    }
}
