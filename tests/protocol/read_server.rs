//! The HTTP server of the read API for the stores of a [`ReadEngine`]. It authorizes each request.

use crate::read_engine::{ReadEngine, operator_client};
use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use http::header::AUTHORIZATION;
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use kube::config::Kubeconfig;
use kubewarm_api::model::RequestFault;
use kubewarm_client::{
    ApiServerConnection, AuthenticationResult, AuthorizationResult, BearerCredentials, CallerInfo,
    ServerVersionCache,
};
use kubewarm_serve::{
    ApplierRegistry, UserReads, WatcherRegistry,
    callers::{CallerGate, ListenerLimits, ReaderLimits, ReviewClient},
    certificate::{ServingCertificate, names},
    metrics::ReadMetrics,
    server::{ReadApi, RequestForwarder, bind},
};
use rustls::{
    ClientConfig, RootCertStore, crypto::aws_lc_rs::default_provider, pki_types::ServerName,
};
use std::{hash::RandomState, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpStream, runtime::Handle};
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The server. It runs until it is dropped.
pub(crate) struct ReadApiServer {
    address: SocketAddr,
    connector: TlsConnector,
    _stop: DropGuard,
}

/// Accepts each token and permits each access.
struct PermissiveReviews;

impl ReviewClient for PermissiveReviews {
    fn sends_callers_token(&self) -> bool {
        false
    }

    fn authenticate(
        &self,
        _: Arc<BearerCredentials>,
    ) -> BoxFuture<'static, Result<AuthenticationResult, RequestFault>> {
        let user = CallerInfo { name: "reader".to_owned(), ..CallerInfo::default() };
        Box::pin(ready(Ok(AuthenticationResult::Known(Arc::new(user)))))
    }

    fn authorize(
        &self,
        _: Option<Arc<BearerCredentials>>,
        _: SubjectAccessReviewSpec,
    ) -> BoxFuture<'static, Result<AuthorizationResult, RequestFault>> {
        Box::pin(ready(Ok(AuthorizationResult::Allowed)))
    }
}

impl ReadApiServer {
    /// Serves the stores of `world` without `--forward`.
    pub(crate) fn start(world: &ReadEngine) -> Self {
        Self::start_with(world, None)
    }

    /// Serves the stores of `world` with `--forward` to the scripted API server.
    pub(crate) fn forwarding(world: &ReadEngine) -> Self {
        let kubeconfig = Kubeconfig::from_yaml(&format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}], \
             users: [{{name: o, user: {{token: of-the-operator}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: o}}}}]}}",
            world.server.address
        ));
        let connection = ApiServerConnection::from_kubeconfig(kubeconfig.unwrap(), None, None);
        let upstream = connection.unwrap().new_upstream_proxy(Handle::current()).unwrap();
        Self::start_with(world, Some(RequestForwarder::new(upstream, Box::new(|_, _| ()))))
    }

    fn start_with(world: &ReadEngine, forward: Option<RequestForwarder>) -> Self {
        let stop = CancellationToken::new();
        let limits = ListenerLimits::for_reads(ReaderLimits::default());
        let (reviews, runtime) = (Arc::new(PermissiveReviews), Handle::current());
        let callers = CallerGate::new(reviews, &limits, runtime.clone(), Box::new(|_, _, _| ()));
        let api = ReadApi {
            reads: Arc::clone(&world.reads),
            callers: Arc::new(callers.unwrap()),
            version: ServerVersionCache::new(&operator_client(&world.server), Duration::MAX),
            runtime,
            peers: None,
            forward,
            metrics: ReadMetrics::register(&prometheus::Registry::new()).unwrap(),
            tag_key: RandomState::new(),
            user_reads: UserReads::default(),
            watchers: WatcherRegistry::default(),
            appliers: ApplierRegistry::default(),
            stop: stop.clone(),
        };
        let certificate = Arc::new(ServingCertificate::self_signed(names("here", "ops")).unwrap());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = bind("127.0.0.1:0".parse().unwrap(), ReaderLimits::default()).unwrap();
        let address = listener.address();
        tokio::spawn(listener.serve(certificate, None, Arc::new(api), stop.clone()));
        let connector = TlsConnector::from(Arc::new(config));
        Self { address, connector, _stop: stop.drop_guard() }
    }

    /// Sends a GET request over a connection of its own. Returns the status code and the body.
    pub(crate) async fn get(&self, path: &str, accept: &str) -> (u16, String) {
        self.get_with(path, &[("accept", accept)]).await
    }

    /// Sends a GET request with these headers over a connection of its own. Returns the status code
    /// and the body.
    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let response = self.open(path, headers).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Sends a GET request with these headers over a connection of its own. Returns the response,
    /// whose body is not read.
    pub(crate) async fn open(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> http::Response<Incoming> {
        let name = ServerName::try_from("kubewarm.ops.svc").unwrap();
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let io = TokioIo::new(self.connector.connect(name, tcp).await.unwrap());
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = hyper::Request::get(path)
            .header("host", "kubewarm.ops.svc")
            .header(AUTHORIZATION, "Bearer token");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(request).await.unwrap()
    }
}
