use super::*;
use crate::fault::of_transport;
use futures::future::join_all;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tokio::time::{advance, sleep};

const HOUR: u64 = 3_600;

/// A fake API server that issues the tokens `t1`, `t2` and so on. The server rejects tokens with a
/// number below `accepts_from`.
#[derive(Default)]
struct TokenServer {
    minted: AtomicU32,
    refusals: Mutex<VecDeque<(u16, &'static str)>>,
    life: Mutex<Option<u64>>,
    accepts_from: AtomicU32,
    seen: Mutex<Vec<String>>,
}

impl TokenServer {
    fn count(&self) -> u32 {
        self.minted.load(Ordering::SeqCst)
    }

    fn mint(&self, request: &Request<Body>) -> Response<Body> {
        assert_eq!(request.uri().path(), "/api/v1/namespaces/shop/serviceaccounts/reader/token");
        let number = self.minted.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some((code, body)) = self.refusals.lock().pop_front() {
            return answer(code, body.to_owned());
        }
        let life = self.life.lock().unwrap_or(HOUR);
        answer(
            201,
            format!(
                r#"{{"spec":{{"expirationSeconds":{life}}},"status":{{"token":"t{number}"}}}}"#
            ),
        )
    }

    fn read(&self, request: &Request<Body>) -> Response<Body> {
        let shown = request.headers()[AUTHORIZATION].to_str().unwrap().to_owned();
        let number: u32 = shown.trim_start_matches("Bearer t").parse().unwrap();
        self.seen.lock().push(shown);
        let accepted = number >= self.accepts_from.load(Ordering::SeqCst);
        answer(if accepted { 200 } else { 401 }, "{}".to_owned())
    }
}

fn answer(code: u16, body: String) -> Response<Body> {
    Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap()
}

fn client(respond: impl Fn(&Request<Body>) -> Response<Body> + Send + Sync + 'static) -> Client {
    let respond = Arc::new(respond);
    let service = service_fn(move |request: Request<Body>| {
        let respond = Arc::clone(&respond);
        async move {
            // As with an API server over a network, other tasks can run before the response
            // arrives.
            sleep(Duration::from_millis(1)).await;
            Ok::<_, std::convert::Infallible>(respond(&request))
        }
    });
    Client::new(service, "default")
}

fn reader() -> (Arc<TokenServer>, Client) {
    let server = Arc::new(TokenServer::default());
    let account = ServiceAccountRef { namespace: "shop".into(), name: "reader".into() };
    let (mints, reads) = (Arc::clone(&server), Arc::clone(&server));
    let operator = Arc::new(client(move |request| mints.mint(request)));
    let keeper = TokenCache::new(account, operator, NamespaceBuckets::default());
    (server, acting_as(keeper, client(move |request| reads.read(request))))
}

async fn read(client: &Client) -> Result<u16, RequestFault> {
    // The client must replace the operator's credentials with the token of the ServiceAccount.
    let request = Request::get("/api/v1/pods").header(AUTHORIZATION, "Bearer operator");
    let sent = client.send(request.body(Body::empty()).unwrap()).await;
    sent.map(|answer| answer.status().as_u16()).map_err(|error| of_transport(&error))
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_wait_for_one_token_request() {
    let (server, client) = reader();
    let answers = join_all((0..100).map(|_| read(&client))).await;
    assert!(answers.iter().all(|answer| *answer == Ok(200)));
    assert_eq!(server.count(), 1);
    assert!(server.seen.lock().iter().all(|shown| shown == "Bearer t1"));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_used_until_its_renewal_is_due() {
    let (server, client) = reader();
    assert_eq!(read(&client).await, Ok(200));
    advance(Duration::from_secs(2_510)).await;
    assert_eq!((read(&client).await, server.count()), (Ok(200), 1));
    advance(Duration::from_secs(390)).await;
    join_all((0..100).map(|_| read(&client))).await;
    assert_eq!(server.count(), 2);
    assert_eq!((read(&client).await, server.count()), (Ok(200), 2));
    assert_eq!(server.seen.lock().last().unwrap(), "Bearer t2");
}

#[tokio::test(start_paused = true)]
async fn a_token_with_a_shorter_life_is_renewed_earlier() {
    let (server, client) = reader();
    *server.life.lock() = Some(600);
    assert_eq!(read(&client).await, Ok(200));
    advance(Duration::from_secs(500)).await;
    assert_eq!((read(&client).await, server.count()), (Ok(200), 2));
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_keeps_the_old_token_until_it_expires() {
    let (server, client) = reader();
    assert_eq!(read(&client).await, Ok(200));
    *server.refusals.lock() = vec![(403, "{}"); 1_000].into();
    advance(Duration::from_secs(2_900)).await;
    assert_eq!(read(&client).await, Ok(200));
    advance(Duration::from_secs(691)).await;
    let fault = read(&client).await.unwrap_err();
    assert_eq!(fault.reason(), FaultReason::TokenRequestDenied);
    assert!(fault.retry_after().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_replaced_at_once_unless_it_was_new() {
    let (server, client) = reader();
    assert_eq!(read(&client).await, Ok(200));
    // From now on the server rejects the first token, as after the ServiceAccount was deleted and
    // created again.
    server.accepts_from.store(2, Ordering::SeqCst);
    assert_eq!((read(&client).await, server.count()), (Ok(200), 2));
    server.accepts_from.store(u32::MAX, Ordering::SeqCst);
    assert_eq!((read(&client).await, server.count()), (Ok(401), 3));
    for _ in 0..100 {
        let fault = read(&client).await.unwrap_err();
        assert_eq!(fault.reason(), FaultReason::Unauthorized);
    }
    assert_eq!(server.count(), 3);
    server.accepts_from.store(0, Ordering::SeqCst);
    advance(Duration::from_millis(1_300)).await;
    assert_eq!((read(&client).await, server.count()), (Ok(200), 4));
}

#[tokio::test(start_paused = true)]
async fn failed_token_requests_are_retried_with_growing_pauses() {
    let (server, client) = reader();
    *server.refusals.lock() = vec![(404, "{}"); 1_000].into();
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_mins(10) {
        let fault = read(&client).await.unwrap_err();
        assert_eq!(fault.reason(), FaultReason::ServiceAccountNotFound);
        assert_eq!(fault.message(), "ServiceAccount shop/reader does not exist");
        sleep(Duration::from_millis(500)).await;
    }
    // The pauses between token requests are 1, 2, 4, 8 and 16 s, and then 30 to 38 s each. So ten
    // minutes have time for 19 to 25 token requests.
    assert!((19..=25).contains(&server.count()), "{}", server.count());
    server.refusals.lock().clear();
    sleep(Duration::from_secs(38)).await;
    assert_eq!(read(&client).await, Ok(200));
}

#[tokio::test(start_paused = true)]
async fn the_fault_of_a_token_request_contains_no_token_and_no_reason_of_the_resource() {
    for (code, body, reason) in [
        (403, r#"{"kind":"Status","message":"no"}"#, FaultReason::TokenRequestDenied),
        (401, "{}", FaultReason::ServerError),
        (400, "{}", FaultReason::ServerError),
        (429, "{}", FaultReason::Throttled),
        (201, r#"{"spec":{},"status":{"token":"hush","x"}}"#, FaultReason::Malformed),
        (201, "{\"spec\":{},\"status\":{\"token\":\"hush\\n\"}}", FaultReason::Malformed),
    ] {
        let (server, client) = reader();
        server.refusals.lock().push_back((code, body));
        let fault = read(&client).await.unwrap_err();
        assert_eq!(fault.reason(), reason, "{code} {body}");
        assert!(!fault.message().contains("hush"), "{fault}");
    }
}

#[tokio::test]
async fn an_invalid_account_name_sends_no_request() {
    for name in ["", "..", "a/b", "a?b", "A", "%2e", "a\n"] {
        let account = ServiceAccountRef { namespace: "shop".into(), name: name.into() };
        let operator = client(|request| panic!("requested {}", request.uri()));
        let fault = account.mint(&operator).await.unwrap_err();
        assert_eq!(fault.reason(), FaultReason::ServiceAccountNotFound, "{name:?}");
    }
}

#[test]
fn a_client_without_credentials_contains_none_of_the_operators() {
    let mut config = Config::new("https://api.example:6443".parse().unwrap());
    config.root_cert = Some(vec![b"ca".to_vec()]);
    config.tls_server_name = Some("api".to_owned());
    config.auth_info.token = Some("operator".to_owned().into());
    config.auth_info.client_certificate = Some("operator.crt".to_owned());
    config.auth_info.impersonate = Some("operator".to_owned());
    config.headers.push((AUTHORIZATION, http::HeaderValue::from_static("Bearer operator")));
    config.proxy_url = Some("http://proxy.example:3128".parse().unwrap());
    let bare = AnonymousConfig::of(&config);
    assert_eq!(bare.config.root_cert, config.root_cert);
    assert_eq!(bare.config.tls_server_name, config.tls_server_name);
    assert_eq!(bare.config.proxy_url, config.proxy_url);
    assert!(!format!("{:?}", bare.config).contains("operator"), "{:?}", bare.config);
    assert!(bare.config.auth_info.token.is_none());
    assert_eq!(bare.config.headers.len(), 1, "only `User-Agent` is left");
}

#[tokio::test]
async fn an_account_has_one_client_until_its_last_handle_is_dropped() {
    let config = Config::new("http://127.0.0.1:1".parse().unwrap());
    let (operator, server) = (client(|_| answer(200, String::new())), AnonymousConfig::of(&config));
    let clients = AccountClients::new(operator, server, NamespaceBuckets::default());
    let account =
        |name: &str| Identity::ServiceAccount { namespace: "shop".into(), name: name.into() };
    let (first, same) = (clients.client_for(&account("a")), clients.client_for(&account("a")));
    let other = clients.client_for(&account("b"));
    let operator = clients.client_for(&Identity::Operator);
    assert!(
        Arc::ptr_eq(&first, &same)
            && !Arc::ptr_eq(&first, &other)
            && !Arc::ptr_eq(&first, &operator)
    );
    drop((first, same));
    let again = clients.client_for(&account("c"));
    assert_eq!(clients.handed_out.lock().len(), 2, "only b and c have an entry");
    drop((again, other));
}
