//! Clients of the read API for tests: HTTP requests by path, to kubewarm and to the API server, and
//! an unmodified kubectl.

use std::convert::Infallible;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flate2::read::GzDecoder;
use futures::stream;
use http::{HeaderMap, Request, Response, request};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::AuthInfo;
use kube::{Client, Config};
use kubewarm_wire::PROTOBUF;
use kubewarm_wire::protobuf::{self, JsonEncoder, Unknown, message_of_kind};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::operator::{Operator, SERVING};
use crate::world::{Failure, SOON, World, eventually, file};

/// The DNS name of the read API's Service inside the cluster.
const SERVICE: &str = "kubewarm.kubewarm-system.svc";

/// An operator that serves reads with a certificate of the test.
pub(crate) struct Served {
    pub(crate) operator: Operator,
    authority: PathBuf,
    pem: String,
}

/// A client for requests by path to one server.
pub(crate) struct Server {
    client: Client,
    /// For connections without the client.
    config: Config,
}

/// The answer to one request.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) bytes: Vec<u8>,
}

/// A watch with the events that it has received.
pub(crate) struct Watch {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    brought: Arc<Mutex<Brought>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Brought {
    /// The bytes of each event.
    frames: Vec<Vec<u8>>,
    is_over: bool,
}

impl Watch {
    /// The events so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        let is_protobuf = is_protobuf(&self.headers);
        let parse = |frame: &Vec<u8>| parse_event(frame, is_protobuf).unwrap_or_default();
        self.brought.lock().frames.iter().map(parse).collect()
    }

    /// The bytes of the events so far.
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        self.brought.lock().frames.clone()
    }

    /// Returns whether the server has ended the watch.
    pub(crate) fn is_over(&self) -> bool {
        self.brought.lock().is_over
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HttpReply {
    /// The body as JSON, or null if it is neither JSON nor protobuf.
    pub(crate) fn json(&self) -> Value {
        if self.is_protobuf() {
            return protobuf_json(&self.bytes).unwrap_or_default();
        }
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    fn is_protobuf(&self) -> bool {
        is_protobuf(&self.headers)
    }

    /// The events of a watch.
    pub(crate) fn events(&self) -> Result<Vec<Value>, Failure> {
        if !self.is_protobuf() || self.code != 200 {
            let lines = self.text.lines().map(serde_json::from_str::<Value>);
            return Ok(lines.collect::<Result<_, _>>()?);
        }
        let (mut events, mut rest) = (Vec::new(), self.bytes.clone());
        while let Some(frame) = take_frame(&mut rest, true) {
            events.push(parse_event(&frame, true)?);
        }
        if rest.is_empty() { Ok(events) } else { Err("a cut event".into()) }
    }

    /// The value of a header, or an empty string.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(PROTOBUF.as_bytes()))
}

/// Removes the first event from the bytes of a watch. `None` if the event is not complete yet.
fn take_frame(rest: &mut Vec<u8>, is_protobuf: bool) -> Option<Vec<u8>> {
    if !is_protobuf {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        return Some(rest.drain(..=end).collect());
    }
    let end = 4 + u32::from_be_bytes(*rest.first_chunk()?) as usize;
    (rest.len() >= end).then(|| rest.drain(..end).skip(4).collect())
}

fn parse_event(frame: &[u8], is_protobuf: bool) -> Result<Value, Failure> {
    if !is_protobuf {
        return Ok(serde_json::from_slice(frame)?);
    }
    let (kind, object) = protobuf::parse_watch_event(frame)?;
    let object = protobuf_json(object).ok_or("an unknown object")?;
    Ok(json!({"type": String::from_utf8_lossy(kind), "object": object}))
}

/// Converts a response in protobuf to JSON with the field tables.
pub(crate) fn protobuf_json(bytes: &[u8]) -> Option<Value> {
    let Unknown { api_version, kind, raw } = Unknown::parse(bytes).ok()?;
    let mut json = Vec::new();
    let message = message_of_kind(api_version, kind)?;
    JsonEncoder::default().write_object(message, raw, &mut json).ok()?;
    let mut object: Value = serde_json::from_slice(&json).ok()?;
    object["kind"] = kind.into();
    object["apiVersion"] = api_version.into();
    Some(object)
}

/// The runtime that drives all connections.
fn runtime() -> Result<&'static Runtime, Failure> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| Runtime::new().map_err(|error| error.to_string()));
    made.as_ref().map_err(|error| error.as_str().into())
}

impl Server {
    fn new(url: &str, authority: &str) -> Result<Self, Failure> {
        Self::showing(url, authority, AuthInfo::default())
    }

    /// A client that shows a client certificate.
    fn showing(url: &str, authority: &str, auth_info: AuthInfo) -> Result<Self, Failure> {
        let _runtime = runtime()?.enter();
        let mut config = Config::new(url.parse()?);
        // Tests check refused requests, so the client must not retry them.
        config.default_retry = false;
        config.auth_info = auth_info;
        config.root_cert = Some(vec![pem::der(authority)?]);
        Ok(Self { client: Client::try_from(config.clone())?, config })
    }

    pub(crate) fn api(world: &World) -> Result<Self, Failure> {
        let authority = std::fs::read_to_string(world.cluster.authority())?;
        Self::new(&world.cluster.server_url(), &authority)
    }

    /// Sends a GET request with a bearer token.
    pub(crate) fn get(&self, token: &str, path: &str) -> Result<HttpReply, Failure> {
        self.ask("GET", path, &[("authorization", &format!("Bearer {token}"))])
    }

    /// The same, with another `Accept` header.
    pub(crate) fn get_as(
        &self,
        token: &str,
        path: &str,
        accept: &str,
    ) -> Result<HttpReply, Failure> {
        let bearer = format!("Bearer {token}");
        self.ask("GET", path, &[("authorization", &bearer), ("accept", accept)])
    }

    /// Sends a request without a body, with exactly these headers. With the header
    /// `Transfer-Encoding: chunked`, the body has an end but no bytes.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<HttpReply, Failure> {
        if headers.iter().all(|(name, _)| *name != "transfer-encoding") {
            return self.send((method, path), headers, Body::empty());
        }
        // `Client` removes this header from a request whose body is known to be empty.
        let body = StreamBody::new(stream::empty::<Result<Frame<Bytes>, Infallible>>());
        let url = self.config.cluster_url.to_string();
        let uri = format!("{}{path}", url.trim_end_matches('/'));
        let request = with_headers(method, &uri, headers).body(body)?;
        let connector = self.config.rustls_https_connector()?;
        let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
        runtime()?.block_on(async { received(client.request(request).await?).await })
    }

    /// Sends a request with a JSON body and a bearer token.
    pub(crate) fn write(
        &self,
        token: &str,
        (method, path): (&str, &str),
        body: &Value,
    ) -> Result<HttpReply, Failure> {
        let kind =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("content-type", kind)];
        self.send((method, path), &headers, Body::from(body.to_string().into_bytes()))
    }

    /// Creates an object in protobuf with a bearer token.
    pub(crate) fn post_protobuf(
        &self,
        token: &str,
        path: &str,
        body: Vec<u8>,
    ) -> Result<HttpReply, Failure> {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("content-type", PROTOBUF)];
        self.send(("POST", path), &headers, Body::from(body))
    }

    /// Sends a request with exactly these headers.
    pub(crate) fn send(
        &self,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: Body,
    ) -> Result<HttpReply, Failure> {
        let request = with_headers(method, path, headers).body(body)?;
        runtime()?.block_on(async { received(self.client.send(request).await?).await })
    }
}

fn with_headers(method: &str, uri: &str, headers: &[(&str, &str)]) -> request::Builder {
    let request = Request::builder().method(method).uri(uri);
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

/// Reads a complete response.
async fn received<B>(answer: Response<B>) -> Result<HttpReply, Failure>
where
    B: hyper::body::Body,
    Failure: From<B::Error>,
{
    let (head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    let is_packed = head.headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip");
    let mut unpacked = Vec::new();
    if is_packed {
        GzDecoder::new(&*body).read_to_end(&mut unpacked)?;
    }
    let body = if is_packed { &*unpacked } else { &*body };
    let text = String::from_utf8_lossy(body).into_owned();
    let bytes = body.to_vec();
    Ok(HttpReply { code: head.status.as_u16(), headers: head.headers, text, bytes })
}

impl Server {
    pub(crate) fn watch(&self, token: &str, path: &str, accept: &str) -> Result<Watch, Failure> {
        self.watch_slowly(token, path, accept, Duration::ZERO)
    }

    /// Opens a watch whose client reads nothing for the time `pause`.
    pub(crate) fn watch_slowly(
        &self,
        token: &str,
        path: &str,
        accept: &str,
        pause: Duration,
    ) -> Result<Watch, Failure> {
        let bearer = format!("Bearer {token}");
        let request = Request::builder().uri(path);
        let request = request.header("authorization", bearer).header("accept", accept);
        let request = request.body(Body::empty())?;
        runtime()?.block_on(async {
            let (head, mut body) = self.client.send(request).await?.into_parts();
            let brought: Arc<Mutex<Brought>> = Arc::default();
            let shared = Arc::clone(&brought);
            let is_protobuf = is_protobuf(&head.headers);
            let task = tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let mut rest = Vec::new();
                while let Some(Ok(frame)) = body.frame().await {
                    rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                    while let Some(frame) = take_frame(&mut rest, is_protobuf) {
                        shared.lock().frames.push(frame);
                    }
                }
                shared.lock().is_over = true;
            });
            Ok(Watch { code: head.status.as_u16(), headers: head.headers, brought, task })
        })
    }
}

impl Served {
    /// Starts an operator with the shipped permissions, including the permissions for reads.
    pub(crate) fn start(world: &World, more: &[&str]) -> Result<Self, Failure> {
        let rights = file("deploy/read-api.yaml");
        let served =
            Self::launch(world, "reads", more, |arguments| Operator::start_with(world, arguments))?;
        world.cluster.run(["apply", "-f", &rights.to_string_lossy()])?;
        Ok(served)
    }

    /// Starts an operator with the administrator's client certificate. If kubewarm used it for
    /// callers' requests, every caller could do everything.
    pub(crate) fn start_as_administrator(world: &World, more: &[&str]) -> Result<Self, Failure> {
        Operator::grant_rights(world)?;
        Self::launch(world, "reads", more, |arguments| {
            Operator::run(world, "kubewarm", world.cluster.kubeconfig(), arguments)
        })
    }

    /// Starts an operator that connects to the API server with this kubeconfig.
    pub(crate) fn start_through(
        world: &World,
        kubeconfig: &Path,
        more: &[&str],
    ) -> Result<Self, Failure> {
        Self::start_replica(world, "kubewarm", kubeconfig, more)
    }

    /// The same, as the pod `pod`, with a certificate of its own.
    pub(crate) fn start_replica(
        world: &World,
        pod: &str,
        kubeconfig: &Path,
        more: &[&str],
    ) -> Result<Self, Failure> {
        Self::start_replica_at(world, pod, kubeconfig, &free_address()?, more)
    }

    /// The same at this address, which other replicas can know before the start.
    pub(crate) fn start_replica_at(
        world: &World,
        pod: &str,
        kubeconfig: &Path,
        address: &str,
        more: &[&str],
    ) -> Result<Self, Failure> {
        world.cluster.run(["apply", "-f", &file("deploy/read-api.yaml").to_string_lossy()])?;
        let start = |arguments: &[&str]| Operator::run(world, pod, kubeconfig, arguments);
        Self::launch_at(world, pod, address, more, start)
    }

    /// Starts an operator with only the permissions that its `ServiceAccount` has at the moment.
    pub(crate) fn start_as_granted(
        world: &World,
        pod: &str,
        more: &[&str],
    ) -> Result<Self, Failure> {
        Self::launch(world, "reads", more, |arguments| Operator::launch(world, pod, arguments))
    }

    fn launch(
        world: &World,
        certificate: &str,
        more: &[&str],
        start: impl FnOnce(&[&str]) -> Result<Operator, Failure>,
    ) -> Result<Self, Failure> {
        Self::launch_at(world, certificate, &free_address()?, more, start)
    }

    fn launch_at(
        world: &World,
        certificate: &str,
        address: &str,
        more: &[&str],
        start: impl FnOnce(&[&str]) -> Result<Operator, Failure>,
    ) -> Result<Self, Failure> {
        let authority = world.cluster.folder().join(format!("{certificate}.crt"));
        let pem = certify(&authority)?;
        let key = authority.with_extension("key");
        let (certificate, key) = (authority.to_string_lossy(), key.to_string_lossy());
        // The port is fixed, so that clients can reconnect after a restart of the operator.
        let mut arguments = vec!["--api-addr", address];
        arguments.extend(["--tls-cert-file", &*certificate, "--tls-private-key-file", &*key]);
        arguments.extend(more);
        let operator = start(&arguments)?;
        Ok(Self { operator, authority, pem })
    }

    /// Replaces the certificate files. Clients made afterwards trust only the new certificate.
    pub(crate) fn renew_certificate(&mut self) -> Result<(), Failure> {
        self.pem = certify(&self.authority)?;
        Ok(())
    }

    pub(crate) fn url(&self) -> Result<String, Failure> {
        Ok(format!("https://{}", self.address()?))
    }

    /// The path of the server's certificate.
    pub(crate) fn authority(&self) -> &Path {
        &self.authority
    }

    pub(crate) fn address(&self) -> Result<String, Failure> {
        eventually(SOON, || {
            let log = self.operator.process.log();
            let line = log.lines().rev().find(|line| line.contains(SERVING));
            let line = line.ok_or_else(|| format!("no read address in the log: {log}"))?;
            let (_, rest) = line.split_once(r#""address":""#).ok_or("no address in the line")?;
            Ok(rest.split('"').next().unwrap_or_default().to_owned())
        })
    }

    pub(crate) fn server(&self) -> Result<Server, Failure> {
        Server::new(&self.url()?, &self.pem)
    }

    /// A client that authenticates by client certificate. `pair` contains the paths of the
    /// certificate and its key.
    pub(crate) fn server_for(&self, pair: &(PathBuf, PathBuf)) -> Result<Server, Failure> {
        let text = |path: &Path| path.to_str().map(str::to_owned);
        let (client_certificate, client_key) = (text(&pair.0), text(&pair.1));
        let shown = AuthInfo { client_certificate, client_key, ..AuthInfo::default() };
        Server::showing(&self.url()?, &self.pem, shown)
    }

    /// A `kube` client of the read API with this token.
    pub(crate) fn client(&self, token: &str) -> Result<Client, Failure> {
        Ok(Client::try_from(self.config(token)?)?)
    }

    /// The configuration of such a client.
    pub(crate) fn config(&self, token: &str) -> Result<Config, Failure> {
        let mut config = Config::new(self.url()?.parse()?);
        config.root_cert = Some(vec![pem::der(&self.pem)?]);
        config.auth_info.token = Some(token.to_owned().into());
        Ok(config)
    }

    /// Returns kubectl, configured for the read API with only this token.
    pub(crate) fn kubectl(&self, world: &World, token: &str) -> Result<Command, Failure> {
        kubectl(world, &self.url()?, &self.authority, token)
    }
}

/// An address with a port that is free now. No other process gets it before the operator binds it,
/// which can be seconds later.
pub(crate) fn free_address() -> Result<String, Failure> {
    Ok(format!("127.0.0.1:{}", testbed::free_port()?))
}

/// The flags of a replica that copies stores from the one at `peer`, whose certificate is in the
/// file `authority`. `token` is a file with a token of kubewarm's ServiceAccount for its peers.
pub(crate) fn peer_flags(peer: &str, authority: &Path, token: &Path) -> [String; 4] {
    [
        format!("--peer-address={peer}"),
        "--peer-server-name=localhost".to_owned(),
        format!("--peer-ca-file={}", authority.display()),
        format!("--peer-token-file={}", token.display()),
    ]
}

/// Writes a token of this ServiceAccount for its peers to a file.
pub(crate) fn write_peer_token(
    world: &World,
    namespace: &str,
    name: &str,
) -> Result<PathBuf, Failure> {
    let options = ["-n", namespace, "--audience=kubewarm-peer"];
    let token = world.cluster.run([&["create", "token", name], &options[..]].concat())?;
    let path = world.cluster.folder().join(format!("{namespace}-{name}.peer-token"));
    std::fs::write(&path, token)?;
    Ok(path)
}

/// Writes a self-signed certificate for the read API and its key next to it, and returns the
/// certificate.
fn certify(certificate: &Path) -> Result<String, Failure> {
    let names = ["localhost", "127.0.0.1", SERVICE].map(str::to_owned);
    let pair = rcgen::generate_simple_self_signed(names)?;
    let pem = pair.cert.pem();
    let key = certificate.with_extension("key");
    for (path, text) in [(key.as_path(), &pair.signing_key.serialize_pem()), (certificate, &pem)] {
        // Renames the file into place, so that a reader never sees half of it.
        let next = path.with_extension("next");
        std::fs::write(&next, text)?;
        std::fs::rename(next, path)?;
    }
    Ok(pem)
}

/// Returns kubectl, configured for the API server with only this token.
pub(crate) fn api_kubectl(world: &World, token: &str) -> Result<Command, Failure> {
    kubectl(world, &world.cluster.server_url(), &world.cluster.authority(), token)
}

fn kubectl(world: &World, url: &str, authority: &Path, token: &str) -> Result<Command, Failure> {
    let mut kubectl = Command::new(world.cluster.kubectl_program());
    kubectl.arg("--kubeconfig").arg(kubeconfig(world, url, authority, token)?);
    // Each server has its own discovery cache, because kubewarm's discovery contains other kinds.
    kubectl
        .arg("--cache-dir")
        .arg(world.cluster.folder().join(format!("cache-{}", file_name(url))));
    Ok(kubectl)
}

/// Writes a kubeconfig for the server with only this token.
pub(crate) fn kubeconfig(
    world: &World,
    url: &str,
    authority: &Path,
    token: &str,
) -> Result<PathBuf, Failure> {
    let path = world.cluster.folder().join(format!("kubeconfig-{}", file_name(url)));
    let authority = authority.display();
    std::fs::write(
        &path,
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c,
clusters: [{{name: c, cluster: {{server: '{url}', certificate-authority: '{authority}'}}}}],
users: [{{name: c, user: {{token: '{token}'}}}}],
contexts: [{{name: c, context: {{cluster: c, user: c}}}}]}}
"
        ),
    )?;
    Ok(path)
}

fn file_name(url: &str) -> String {
    url.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// Creates a `ServiceAccount` and returns a token for it.
pub(crate) fn account(world: &World, namespace: &str, name: &str) -> Result<String, Failure> {
    world.cluster.run(["create", "serviceaccount", name, "-n", namespace])?;
    let token = world.cluster.run(["create", "token", name, "-n", namespace])?;
    Ok(token.trim().to_owned())
}

/// Lets an account write most objects in a namespace, or in all namespaces if `place` is `None`.
pub(crate) fn let_write(
    world: &World,
    (namespace, account): (&str, &str),
    place: Option<&str>,
) -> Result<(), Failure> {
    bind(world, "edit", (namespace, account), place)
}

/// Binds an account to a ClusterRole in a namespace, or in all namespaces if `place` is `None`.
pub(crate) fn bind(
    world: &World,
    role: &str,
    (namespace, account): (&str, &str),
    place: Option<&str>,
) -> Result<(), Failure> {
    let account = format!("--serviceaccount={namespace}:{account}");
    let role = format!("--clusterrole={role}");
    let kind = if place.is_some() { "rolebinding" } else { "clusterrolebinding" };
    let mut arguments = vec!["create", kind, "writer", &role, &account];
    arguments.extend(place.into_iter().flat_map(|place| ["-n", place]));
    world.cluster.run(arguments)?;
    Ok(())
}

/// Lets an account read everything in a namespace, or in all namespaces if `place` is `None`.
pub(crate) fn let_read(
    world: &World,
    (namespace, account): (&str, &str),
    place: Option<&str>,
) -> Result<(), Failure> {
    let (role, binding, field) = match place {
        Some(place) => ("Role", "RoleBinding", format!(", namespace: {place}")),
        None => ("ClusterRole", "ClusterRoleBinding", String::new()),
    };
    let name = format!("read-{namespace}-{account}");
    world.cluster.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: {role}
metadata: {{name: {name}{field}}}
rules: [{{apiGroups: ['*'], resources: ['*'], verbs: [get, list, watch]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {binding}
metadata: {{name: {name}{field}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {role}, name: {name}}}
subjects: [{{kind: ServiceAccount, name: {account}, namespace: {namespace}}}]
"
    ))?;
    Ok(())
}

mod pem {
    //! Decodes a certificate from PEM.

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use crate::world::Failure;

    pub(super) fn der(text: &str) -> Result<Vec<u8>, Failure> {
        let certificate = CertificateDer::from_pem_slice(text.as_bytes())?;
        Ok(certificate.as_ref().to_vec())
    }
}
