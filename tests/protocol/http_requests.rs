//! Tests of paths, parameters and headers over HTTP. kubewarm answers like the API server, or
//! forwards the request with `--forward`.

use crate::{
    read_engine::ReadEngine,
    read_server::ReadApiServer,
    reply::{Reply, large_list, list, object, quiet},
    server::{Kind, ReceivedQuery},
};
use futures::stream;
use kubewarm_wire::{AGGREGATED_DISCOVERY, JSON, JsonIndenter};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The headers of a browser's WebSocket.
const WEBSOCKET: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// Whether kubewarm forwarded this request: it has the token of the client of [`ReadApiServer`].
fn is_forwarded(asked: &ReceivedQuery) -> bool {
    asked.by == "token"
}

/// Answers forwarded requests with a text that the stores cannot contain.
fn one_pod(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::Watch if is_forwarded(asked) => Reply {
            head: "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                   upgrade: websocket\r\n\r\n"
                .to_owned(),
            is_chunked: false,
            body: Box::pin(stream::empty()),
        },
        _ if is_forwarded(asked) => Reply::json("forwarded"),
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    }
}

/// The answer to a request: whether a store has answered, and else the status code of the error or
/// of the API server's response.
fn answer((code, body): &(u16, String)) -> String {
    match &**body {
        "forwarded" => body.clone(),
        text if text.contains(r#""resourceVersion":"3""#) => "store".to_owned(),
        _ => code.to_string(),
    }
}

#[tokio::test]
async fn with_forward_the_api_server_answers_what_kubewarm_rejects() {
    let world = ReadEngine::start(one_pod).await;
    let (alone, forwarding) = (ReadApiServer::start(&world), ReadApiServer::forwarding(&world));
    let values = (0..1_025).map(|n| format!("v{n}")).collect::<Vec<_>>().join(",");
    let many_values = format!("/api/v1/pods?labelSelector=a+notin+({values})");
    for (path, accept, expected, forwarded) in [
        ("/api/v1/pods", JSON, "store", "store"),
        // An empty namespace means all namespaces.
        ("/api/v1/namespaces//pods", JSON, "store", "store"),
        ("/api/v1/namespaces//pods?timeout=30s", JSON, "store", "store"),
        ("/api/v1/pods?timeout=30", JSON, "400", "forwarded"),
        ("/api?timeout=30", JSON, "400", "forwarded"),
        ("/api/v1/namespaces/ns/pods/a%09b%0A", JSON, "404", "404"),
        ("/api/v1/pods", "application/*", "406", "forwarded"),
        ("/api/v1/watch/pods", JSON, "421", "forwarded"),
        ("/api/v1/namespaces/ns/pods/x/../a", JSON, "400", "forwarded"),
        ("/api/v1//pods", JSON, "400", "forwarded"),
        ("/api/v1/pods?labelSelector=%zz", JSON, "400", "forwarded"),
        (&many_values, JSON, "400", "forwarded"),
    ] {
        assert_eq!(answer(&alone.get(path, accept).await), expected, "{path:.60} {accept}");
        let before = world.server.asked().len();
        assert_eq!(answer(&forwarding.get(path, accept).await), forwarded, "{path:.60} {accept}");
        let asked = world.server.asked();
        let mut sent = asked.iter().skip(before).filter(|asked| is_forwarded(asked));
        let sent = sent.next().map(|asked| &*asked.path);
        let (same, _) = path.split_once('?').unwrap_or((path, ""));
        assert_eq!(sent, (forwarded == "forwarded").then_some(same), "{path:.60} {accept}");
    }
}

#[tokio::test]
async fn a_watch_by_websocket_is_an_ordinary_watch_or_is_forwarded() {
    let world = ReadEngine::start(one_pod).await;
    let path = "/api/v1/pods?watch=1&timeoutSeconds=2";
    let (code, body) = ReadApiServer::start(&world).get_with(path, &WEBSOCKET).await;
    assert_eq!((code, body.starts_with(r#"{"type":"ADDED""#)), (200, true), "{body}");
    let (code, body) = ReadApiServer::forwarding(&world).get_with(path, &WEBSOCKET).await;
    assert_eq!(code, 101, "{body}");
}

/// The list has more than 128 KiB, so kubewarm sends it in several pieces.
#[tokio::test]
async fn people_get_indented_json_and_programs_get_one_line() {
    let world = ReadEngine::start(|asked| match asked.kind {
        Kind::List => Reply::json(large_list(7)),
        _ => quiet(asked),
    });
    let world = world.await;
    let reads = ReadApiServer::start(&world);
    for (path, accept, expected) in [
        ("/api/v1/namespaces/ns/pods/a0000", JSON, 200),
        ("/api/v1/namespaces/ns/pods/none", JSON, 404),
        ("/api/v1/pods", JSON, 200),
        ("/api/v1/pods?limit=2", TABLE, 200),
        ("/api", JSON, 200),
        ("/apis", AGGREGATED_DISCOVERY, 200),
        ("/apis/apps", JSON, 404),
    ] {
        let ask = async |path: &str, agent| {
            let (code, body) =
                reads.get_with(path, &[("accept", accept), ("user-agent", agent)]).await;
            assert_eq!(code, expected, "{path} {agent}: {body:.300}");
            body
        };
        let line = ask(path, "kubectl/v1.36.0").await;
        assert!(!line.trim_end().contains('\n'), "{path}: {line:.300}");
        let indented = JsonIndenter::default().indent(line.as_bytes(), usize::MAX).0;
        let indented = String::from_utf8(indented).unwrap();
        let pretty = format!("{path}{}pretty=true", if path.contains('?') { '&' } else { '?' });
        for (path, agent) in [
            (&*pretty, "kubectl/v1.36.0"),
            (path, "curl/8.5.0"),
            (path, "Wget/1.21"),
            (path, "Mozilla/5.0 (X11)"),
        ] {
            let body = ask(path, agent).await;
            assert!(body == indented, "{path} {agent}: {body:.300}, not {indented:.300}");
        }
    }
}
