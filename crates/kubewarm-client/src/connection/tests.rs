use super::*;
use crate::{BearerCredentials, config_source::sample::KUBECONFIG};
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use std::{fs, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
    time::{sleep, timeout},
};

fn load(text: &str, context: Option<&str>) -> Result<ApiServerConnection, ConnectError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    fs::write(&path, text).unwrap();
    let context = context.map(str::to_owned);
    ApiServerConnection::load(&ConnectionOptions { context, ..ConnectionOptions::of_file(path) })
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
async fn an_impersonated_user_has_neither_uid_nor_extra_fields_of_the_kubeconfig() {
    let user = "{token: t, as: old, as-uid: '7', as-groups: [a], as-user-extra: {scope: [all]}}";
    let file = tempfile::NamedTempFile::new().unwrap();
    let users = format!("users:\n- {{name: '', user: {user}}}\n");
    fs::write(file.path(), KUBECONFIG.to_owned() + &users).unwrap();
    let auth_info = |name: Option<&str>| {
        let impersonated_user = name.map(str::to_owned);
        let options =
            ConnectionOptions { impersonated_user, ..ConnectionOptions::of_file(file.path()) };
        ApiServerConnection::load(&options).unwrap().config.auth_info
    };
    let auth = auth_info(None);
    assert_eq!(auth.impersonate.as_deref(), Some("old"));
    assert!(auth.impersonate_uid.is_some() && auth.impersonate_user_extra.is_some());
    let auth = auth_info(Some("jane"));
    assert_eq!(auth.impersonate.as_deref(), Some("jane"));
    assert_eq!((auth.impersonate_uid, auth.impersonate_groups), (None, None));
    assert_eq!(auth.impersonate_user_extra, None);
}

#[tokio::test]
async fn a_review_is_sent_with_the_token_of_the_operator_or_of_the_caller_but_never_both() {
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
    let presented = BearerCredentials { token };
    for (reviewer, shown, other) in [
        (connection.new_reviewer(&[]).unwrap(), "of-the-operator", "bearer of-the-caller"),
        (connection.new_caller_token_reviewer().unwrap(), "of-the-caller", "of-the-operator"),
    ] {
        let review = tokio::spawn({
            let presented = BearerCredentials { token: presented.token.clone() };
            async move { reviewer.authenticate(&presented).await }
        });
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
        }
        let head = String::from_utf8_lossy(&bytes).to_lowercase();
        assert!(head.contains(&format!("authorization: bearer {shown}\r\n")), "{head}");
        assert!(!head.contains(other), "{head}");
        review.abort();
        assert!(review.await.is_err());
        drop(stream);
    }
}

/// Starts a server that responds to every request until no new connection arrives for 500 ms. The
/// task returns the number of connections.
fn counting(listener: TcpListener) -> JoinHandle<usize> {
    tokio::spawn(async move {
        let mut connections = 0;
        while let Ok(Ok((mut stream, _))) =
            timeout(Duration::from_millis(500), listener.accept()).await
        {
            connections += 1;
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
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

fn plain(server: SocketAddr) -> ApiServerConnection {
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
    let reviewer = connection.new_reviewer(&[]).unwrap();
    assert!(crate::get(&connection.client(), "/version").await.is_ok());
    // During this pause, the client returns its connection to its pool. A reviewer with the same
    // pool would then reuse this connection.
    sleep(Duration::from_millis(100)).await;
    let token = "of-the-caller".to_owned().into();
    let presented = BearerCredentials { token };
    assert!(reviewer.authenticate(&presented).await.is_ok());
    assert_eq!(answering.await.unwrap(), 2);
}

#[tokio::test]
async fn forwarded_requests_share_no_connection_with_accounts_or_reviews() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let answering = counting(listener);
    let connection = plain(server);
    let token = "of-the-caller".to_owned().into();
    let presented = BearerCredentials { token };
    let reviewers = [connection.new_reviewer(&[]), connection.new_caller_token_reviewer()];
    for reviewer in &reviewers {
        let _answered = reviewer.as_ref().unwrap().authenticate(&presented).await;
    }
    let account = connection.anonymous.connect().unwrap();
    assert!(crate::get(&account, "/version").await.is_ok());
    // During this pause, the clients return their connections to their pools. An `UpstreamProxy`
    // with one of these pools would then reuse a connection.
    sleep(Duration::from_millis(100)).await;
    let upstream = connection.new_upstream_proxy(Handle::current()).unwrap();
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
async fn a_proxy_with_an_unsupported_scheme_is_rejected_and_its_password_is_not_shown() {
    let text = KUBECONFIG.replace("http://proxy.example", "socks5h://jane:s3cret@proxy.example");
    let error = load(&text, Some("two")).unwrap_err();
    assert!(matches!(error, ConnectError::InvalidProxy { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("proxy.example:3128") && message.contains("socks5"), "{message}");
    assert!(!format!("{error:?}{message}").contains("s3cret"), "{message}");
}

#[tokio::test]
async fn the_error_about_a_broken_kubeconfig_contains_its_path() {
    for (text, context) in [("{", None), (KUBECONFIG, Some("four"))] {
        let message = load(text, context).unwrap_err().to_string();
        assert!(message.contains("--kubeconfig (/"), "{message}");
    }
    let missing =
        ApiServerConnection::load(&ConnectionOptions::of_file("/nowhere/config")).unwrap_err();
    assert!(missing.to_string().contains("/nowhere/config"));
}

/// Starts a server that responds to each request with headers and `body`, but never completes the
/// response. Returns its address and a channel with the headers of each request.
async fn unfinished(body: &'static str) -> (SocketAddr, tokio::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let (sender, heads) = tokio::sync::mpsc::channel(8);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = Vec::new();
            while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut asked).await.unwrap(), 0);
            }
            let head = String::from_utf8_lossy(&asked).to_lowercase();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            open.push(stream);
            let _ = sender.send(head).await;
        }
    });
    (server, heads)
}

fn options(server: SocketAddr) -> (tempfile::NamedTempFile, ConnectionOptions) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, \
         clusters: [{{name: c, cluster: {{server: 'http://{server}'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: ''}}}}]}}"
    );
    fs::write(file.path(), kubeconfig).unwrap();
    let options = ConnectionOptions::of_file(file.path());
    (file, options)
}

#[tokio::test]
async fn an_impersonated_user_is_named_to_the_api_server_with_its_groups() {
    let (server, mut heads) = unfinished("").await;
    let (_file, options) = options(server);
    let connection = ApiServerConnection::load(&ConnectionOptions {
        impersonated_user: Some("jane".to_owned()),
        impersonated_groups: vec!["a".to_owned(), "b".to_owned()],
        request_timeout: Some(Duration::from_millis(200)),
        ..options
    })
    .unwrap();
    assert!(crate::get(&connection.client(), "/version").await.is_err());
    let head = heads.recv().await.unwrap();
    for line in ["impersonate-user: jane", "impersonate-group: a", "impersonate-group: b"] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "no {line} in {head}");
    }
}

#[tokio::test]
async fn a_request_ends_at_its_time_limit_and_a_watch_does_not() {
    let (server, _heads) = unfinished("{").await;
    let (_file, options) = options(server);
    let request_timeout = Some(Duration::from_millis(200));
    let connection =
        ApiServerConnection::load(&ConnectionOptions { request_timeout, ..options }).unwrap();
    let fault = crate::get(&connection.client(), "/api/v1/pods").await.unwrap_err();
    assert!(fault.to_string().contains("no complete answer within 200ms"), "{fault}");

    let client = connection.client();
    let watch = crate::get_all(&client, "/api/v1/pods?watch=true", "*/*");
    assert!(timeout(Duration::from_millis(600), watch).await.is_err(), "the watch has ended");
}
