//! A scripted API server: it answers each request with the response that the test's script returns,
//! byte by byte, and records all requests.

use crate::reply::{BodyStep, Reply};
use futures::StreamExt as _;
use parking_lot::Mutex;
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::Instant,
};

/// `timeoutSeconds` of a probe, by which the server recognizes probes. No other watch in these
/// tests has such a short timeout.
pub(crate) const PROBE_SECONDS: u64 = 1;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `/version`.
    Version,
    /// One namespace.
    Namespace,
    /// A complete list.
    List,
    /// The first page of a list.
    First,
    /// A later page.
    Next,
    /// A consistent read of the newest version with `limit=1`, as rollback checks, access checks
    /// and freshness checks send it.
    Newest,
    /// A watch from a version.
    Watch,
    /// A probe: a short watch from a version, with which kubewarm checks a quiet watch.
    Probe,
    /// A streaming list: a watch that begins with all objects.
    Stream,
    /// An access review.
    Review,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedQuery {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) kind: Kind,
    pub(crate) accepts_protobuf: bool,
    /// The identity that sent the request.
    pub(crate) by: String,
    /// The number of earlier requests of this kind for this path.
    pub(crate) nth: usize,
}

type Script = dyn Fn(&ReceivedQuery) -> Reply + Send + Sync;

/// The server. It runs until it is dropped.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    log: Arc<Log>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct Log {
    requests: Mutex<Vec<ReceivedQuery>>,
    open: Mutex<Open>,
}

/// The number of lists in progress.
#[derive(Default)]
struct Open {
    lists: usize,
    most: usize,
}

impl ScriptedServer {
    /// Starts a server that answers with `script`, and supports only JSON. Before the first list of
    /// a resource, an informer requests one object in protobuf; the script does not receive this
    /// request. Call this function within a runtime.
    pub(crate) async fn start(
        script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::listen(script, |asked| asked.kind == Kind::Newest && asked.accepts_protobuf).await
    }

    /// Starts a server that may support protobuf: its script receives every request.
    pub(crate) async fn with_protobuf(
        script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::listen(script, |_| false).await
    }

    async fn listen(
        script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
        is_comparison: fn(&ReceivedQuery) -> bool,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let (script, noted): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&log));
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (script, noted) = (Arc::clone(&script), Arc::clone(&noted));
                tokio::spawn(serve(socket, script, noted, is_comparison));
            }
        });
        Self { address, log, accepting: accepting.abort_handle() }
    }

    /// All requests so far, in order.
    pub(crate) fn asked(&self) -> Vec<ReceivedQuery> {
        self.log.requests.lock().clone()
    }

    /// The requests of one kind.
    pub(crate) fn of(&self, kind: Kind) -> Vec<ReceivedQuery> {
        self.asked().into_iter().filter(|asked| asked.kind == kind).collect()
    }

    /// The number of requests of one kind.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.of(kind).len()
    }

    /// The largest number of concurrent lists, complete lists and pages.
    pub(crate) fn most_lists(&self) -> usize {
        self.log.open.lock().most
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl ReceivedQuery {
    fn parse(head: &str, log: &[Self]) -> Self {
        let target = head.split(' ').nth(1).unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: BTreeMap<String, String> =
            form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let is =
            |key: &str, value: &str| query.get(key).is_some_and(|parameter| parameter == value);
        let kind = match () {
            () if path == "/version" => Kind::Version,
            () if path.starts_with("/apis/authorization.k8s.io/") => Kind::Review,
            () if path.starts_with("/api/v1/namespaces/") && path.matches('/').count() == 4 => {
                Kind::Namespace
            }
            () if is("sendInitialEvents", "true") => Kind::Stream,
            () if is("timeoutSeconds", &PROBE_SECONDS.to_string()) => Kind::Probe,
            () if is("watch", "1") => Kind::Watch,
            () if is("limit", "1") => Kind::Newest,
            () if query.contains_key("continue") => Kind::Next,
            () if query.contains_key("limit") => Kind::First,
            () => Kind::List,
        };
        let by = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap();
        let nth = log.iter().filter(|asked| asked.kind == kind && asked.path == path).count();
        let accepts_protobuf = head.contains("\r\naccept: application/vnd.kubernetes.protobuf");
        let (path, by) = (path.to_owned(), by.to_owned());
        Self { at: Instant::now(), path, query, kind, accepts_protobuf, by, nth }
    }

    /// A query parameter; empty if it is missing.
    pub(crate) fn query(&self, key: &str) -> &str {
        self.query.get(key).map_or("", String::as_str)
    }

    fn is_list(&self) -> bool {
        matches!(self.kind, Kind::List | Kind::First | Kind::Next)
    }
}

/// Answers one request and closes the connection, so that each request has its own connection.
async fn serve(
    mut socket: TcpStream,
    script: Arc<Script>,
    log: Arc<Log>,
    is_comparison: fn(&ReceivedQuery) -> bool,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    if socket.read_exact(&mut body).await.is_err() {
        return;
    }
    let asked = ReceivedQuery::parse(&head, &log.requests.lock());
    if is_comparison(&asked) {
        let _client_gone = answer(&mut socket, Reply::json("{}")).await;
        return;
    }
    let asked = {
        let mut requests = log.requests.lock();
        let asked = ReceivedQuery::parse(&head, &requests);
        requests.push(asked.clone());
        asked
    };
    if asked.is_list() {
        let mut open = log.open.lock();
        open.lists += 1;
        open.most = open.most.max(open.lists);
    }
    let reply = script(&asked);
    // An error here means that the client closed the connection early, which is no failure of the
    // server.
    let _client_gone = answer(&mut socket, reply).await;
    if asked.is_list() {
        log.open.lock().lists -= 1;
    }
}

async fn answer(socket: &mut TcpStream, reply: Reply) -> std::io::Result<()> {
    let Reply { head, is_chunked, mut body } = reply;
    socket.write_all(head.as_bytes()).await?;
    let (mut from, mut to) = socket.split();
    let mut byte = [0];
    loop {
        let step = tokio::select! {
            step = body.next() => step,
            // A client sends nothing while it waits for the response. So the end of its stream
            // means that it closed the connection.
            _closed = from.read(&mut byte) => return Ok(()),
        };
        match step {
            // An empty chunk would end the body in HTTP, so the server skips it.
            Some(BodyStep::Bytes(bytes)) if bytes.is_empty() => {}
            Some(BodyStep::Bytes(bytes)) if is_chunked => {
                to.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
                to.write_all(&bytes).await?;
                to.write_all(b"\r\n").await?;
            }
            Some(BodyStep::Bytes(bytes)) => to.write_all(&bytes).await?,
            None if is_chunked => return to.write_all(b"0\r\n\r\n").await,
            Some(BodyStep::Cut) | None => return Ok(()),
        }
    }
}
