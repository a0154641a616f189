//! `/livez`, `/readyz`, `/metrics` and `/debug`.

use super::{
    debug,
    hold::Hold,
    local::is_local,
    readiness::{DeclaredCells, Gate, Readiness},
};
use crate::metrics::{CellSnapshot, Metrics};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, Version, header::ContentType},
    web,
};
use bytes::Bytes;
use futures::stream;
use jiff::Timestamp;
use std::{convert::Infallible, fmt, fmt::Write as _, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// The largest request body, in bytes: a log filter.
const MAX_BODY: usize = 4 * 1024;
/// How long a body may take from the end of the head.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// What Prometheus expects of its text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Puts another log filter in force, or says what is wrong with it.
pub type SetLogFilter = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// What is answered from. The functions must not block; they are called once in a second at most, but
/// for the details that only a loopback peer gets.
pub struct Admin {
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
    /// What the informers of the declared cells say.
    pub cells: Box<dyn Fn() -> Vec<CellSnapshot> + Send + Sync>,
    /// The cells of all profiles; `None` before the profiles have been listed.
    pub declared: Box<dyn Fn() -> Option<DeclaredCells> + Send + Sync>,
    /// Shared with whoever begins the shutdown.
    pub gate: Arc<Gate>,
    /// For `PUT /debug/log-level`.
    pub set_log_filter: SetLogFilter,
    /// The clock.
    pub now: fn() -> Timestamp,
}

/// What anybody may ask for, so that asking must not cost: made once in a second for all.
#[derive(Debug, Default)]
pub(super) struct Held {
    exposition: Hold<Option<Bytes>>,
    readiness: Hold<Arc<Readiness>>,
}

/// All routes of the admin address.
pub(super) fn routes(app: &mut web::ServiceConfig) {
    app.service(web::resource("/livez").get(livez))
        .service(web::resource("/readyz").get(readyz))
        .service(web::resource("/metrics").get(metrics))
        .service(web::resource("/debug/cells").get(cells))
        .service(web::resource("/debug/log-level").put(log_level))
        .service(web::resource("/debug{rest:.*}").to(elsewhere));
}

/// About the process, so it asks nobody: an outage of the API server must not throw away a cache.
async fn livez() -> HttpResponse {
    text(StatusCode::OK, "ok\n")
}

async fn readyz(
    request: HttpRequest,
    admin: web::Data<Admin>,
    held: web::Data<Held>,
) -> HttpResponse {
    let look = || {
        let declared = (admin.declared)();
        Arc::new(admin.gate.look(declared.as_ref(), &(admin.cells)(), (admin.now)()))
    };
    let mut readiness = held.readiness.get(Instant::now(), look);
    // News that cannot wait a second.
    if admin.gate.is_stopping() {
        readiness = Arc::new(Readiness { ready: false, stopping: true, ..(*readiness).clone() });
    }
    let code = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if !is_verbose(request.query_string()) {
        return text(code, format!("{readiness}\n"));
    }
    let names = if is_local(&request) { Names::Shown } else { Names::Hidden };
    text(code, in_full(&readiness, names))
}

async fn metrics(admin: web::Data<Admin>, held: web::Data<Held>) -> HttpResponse {
    let render = || {
        let rendered = admin.metrics.render();
        rendered
            .inspect_err(|error| tracing::error!(%error, "metrics not rendered"))
            .ok()
            .map(Bytes::from)
    };
    match held.exposition.get(Instant::now(), render) {
        Some(exposition) => HttpResponse::Ok().content_type(EXPOSITION).body(exposition),
        None => text(StatusCode::INTERNAL_SERVER_ERROR, "metrics not rendered; see the log\n"),
    }
}

async fn cells(request: HttpRequest, admin: web::Data<Admin>) -> HttpResponse {
    if !is_local(&request) {
        return forbidden();
    }
    let pieces = debug::cells((admin.cells)()).map(Ok::<_, Infallible>);
    let mut response = HttpResponse::Ok();
    response.content_type(ContentType::json());
    if request.version() < Version::HTTP_11 {
        // It knows no chunks: the end of the connection ends the body.
        response.force_close();
        let mut response = response.streaming(stream::iter(pieces));
        response.head_mut().no_chunking(true);
        return response;
    }
    response.streaming(stream::iter(pieces))
}

async fn log_level(
    request: HttpRequest,
    admin: web::Data<Admin>,
    body: web::Payload,
) -> HttpResponse {
    if !is_local(&request) {
        return forbidden();
    }
    let body = match read(body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let Ok(filter) = std::str::from_utf8(&body).map(str::trim) else {
        return text(StatusCode::BAD_REQUEST, "the log filter is not UTF-8\n");
    };
    match (admin.set_log_filter)(filter) {
        Ok(()) => {
            tracing::info!(filter, "log filter changed");
            text(StatusCode::OK, "ok\n")
        }
        Err(problem) => text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
    }
}

/// The body, or what to answer where it is too long, too slow or broken off.
async fn read(body: web::Payload) -> Result<Bytes, HttpResponse> {
    match timeout(BODY_TIMEOUT, body.to_bytes_limited(MAX_BODY)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(_broken))) => Err(text(StatusCode::BAD_REQUEST, "the body broke off\n")),
        Ok(Err(_longer)) => {
            let most = format!("a log filter has {MAX_BODY} bytes at most\n");
            Err(text(StatusCode::PAYLOAD_TOO_LARGE, most))
        }
        Err(_elapsed) => {
            Err(text(StatusCode::REQUEST_TIMEOUT, "the body did not come within 5 s\n"))
        }
    }
}

/// The rest of `/debug`: others do not even learn what is not there.
async fn elsewhere(request: HttpRequest) -> HttpResponse {
    if !is_local(&request) {
        return forbidden();
    }
    text(StatusCode::NOT_FOUND, "there are GET /debug/cells and PUT /debug/log-level\n")
}

/// Whether names of cells may be told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Shown,
    Hidden,
}

fn in_full(readiness: &Readiness, names: Names) -> String {
    let mark = |good| if good { "[+]" } else { "[-]" };
    let Readiness { listed, declared, synced, refused, failing_long, pending, .. } = readiness;
    let mut page = format!(
        "{} profiles listed\n\
         {} cells: {declared} declared, {synced} synced, {refused} refused, \
         {failing_long} failing for 60 s, {pending} pending\n",
        mark(*listed),
        mark(*pending == 0),
    );
    // A String takes everything, so that the results below say nothing.
    if names == Names::Shown {
        for cell in &readiness.pending_cells {
            let _written = writeln!(page, "    {cell}");
        }
        let unnamed = pending.saturating_sub(readiness.pending_cells.len());
        if unnamed > 0 {
            let _written = writeln!(page, "    and {unnamed} more: see /debug/cells");
        }
    }
    if readiness.selecting {
        let _written = writeln!(page, "[-] namespaces of some selectors not listed yet");
    }
    if let Some(deadline) = readiness.deadline {
        let _written = writeln!(page, "    waiting until {deadline} at the longest");
    }
    if readiness.gave_up {
        let _written = writeln!(page, "    waiting ended after 10 minutes, without some cells");
    }
    let _written = writeln!(page, "{readiness}");
    page
}

/// `?verbose`, also as `?verbose=true` or among others.
fn is_verbose(query: &str) -> bool {
    query.split('&').any(|part| part.split('=').next() == Some("verbose"))
}

fn forbidden() -> HttpResponse {
    text(
        StatusCode::FORBIDDEN,
        "only for a loopback peer that asks for localhost, without a proxy; use kubectl port-forward \
         to the pod\n",
    )
}

fn text(code: StatusCode, body: impl Into<String>) -> HttpResponse {
    HttpResponse::build(code).content_type(ContentType::plaintext()).body(body.into())
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("gate", &self.gate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        metrics::BuildInfo,
        model::CellKey,
        server::sample::{at, key, listing, snapshot, synced},
    };
    use actix_web::{App, FromRequest as _, dev, error::PayloadError, test};
    use futures::{Stream, StreamExt as _};
    use std::{
        pin::Pin,
        sync::atomic::{AtomicUsize, Ordering},
    };

    fn all(cells: Vec<CellKey>) -> DeclaredCells {
        DeclaredCells { cells, complete: true }
    }

    fn admin(declared: Option<Vec<CellKey>>) -> Arc<Admin> {
        Arc::new(Admin {
            metrics: Arc::new(Metrics::new(&BuildInfo::current()).unwrap()),
            cells: Box::new(|| {
                vec![snapshot(key("pods", "a"), synced()), snapshot(key("pods", "b"), listing())]
            }),
            declared: Box::new(move || declared.clone().map(all)),
            gate: Arc::default(),
            set_log_filter: Box::new(|filter| {
                if filter == "debug" { Ok(()) } else { Err(format!("no filter: {filter}")) }
            }),
            now: || at(1_000),
        })
    }

    async fn ask(
        admin: &Arc<Admin>,
        peer: &str,
        request: test::TestRequest,
    ) -> (StatusCode, String) {
        ask_again(admin, &Arc::default(), peer, request).await
    }

    async fn ask_again(
        admin: &Arc<Admin>,
        held: &Arc<Held>,
        peer: &str,
        request: test::TestRequest,
    ) -> (StatusCode, String) {
        let app = App::new()
            .app_data(web::Data::from(Arc::clone(admin)))
            .app_data(web::Data::from(Arc::clone(held)))
            .configure(routes);
        let app = test::init_service(app).await;
        let request = request.peer_addr(peer.parse().unwrap()).insert_header(("host", "localhost"));
        let request = request.to_request();
        let response = test::call_service(&app, request).await;
        let code = response.status();
        let body = test::read_body(response).await;
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    fn get(path: &str) -> test::TestRequest {
        test::TestRequest::get().uri(path)
    }

    const LOCAL: [&str; 3] = ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"];
    const REMOTE: [&str; 3] = ["10.0.0.7:9", "[fd00::1]:9", "[::ffff:10.0.0.7]:9"];

    #[actix_web::test]
    async fn liveness_and_metrics_answer_everybody() {
        let admin = admin(None);
        for peer in LOCAL.iter().chain(&REMOTE) {
            assert_eq!(ask(&admin, peer, get("/livez")).await, (StatusCode::OK, "ok\n".into()));
            let (code, body) = ask(&admin, peer, get("/metrics")).await;
            assert_eq!(code, StatusCode::OK);
            assert!(body.contains("kubewarm_build_info{"), "{body}");
        }
    }

    #[actix_web::test]
    async fn only_a_loopback_peer_looks_inside() {
        let admin = admin(None);
        let put = || test::TestRequest::put().uri("/debug/log-level").set_payload("debug\n");
        for peer in LOCAL {
            let (code, body) = ask(&admin, peer, get("/debug/cells")).await;
            assert_eq!(code, StatusCode::OK);
            assert!(body.contains(r#""namespace":"b""#), "{body}");
            assert_eq!(ask(&admin, peer, put()).await.0, StatusCode::OK);
            assert_eq!(ask(&admin, peer, get("/debug/pprof")).await.0, StatusCode::NOT_FOUND);
        }
        for peer in REMOTE {
            assert_eq!(ask(&admin, peer, get("/debug/cells")).await.0, StatusCode::FORBIDDEN);
            assert_eq!(ask(&admin, peer, put()).await.0, StatusCode::FORBIDDEN);
            assert_eq!(ask(&admin, peer, get("/debug/pprof")).await.0, StatusCode::FORBIDDEN);
        }
    }

    #[actix_web::test]
    async fn a_rebound_name_or_a_proxy_sees_no_more_than_a_remote_peer() {
        let admin = admin(Some(vec![key("pods", "b")]));
        for header in [("x-forwarded-for", "10.0.0.7"), ("x-forwarded-host", "evil.example")] {
            let put = test::TestRequest::put().uri("/debug/log-level").set_payload("debug");
            for request in [get("/debug/cells"), get("/debug/pprof"), put] {
                let (code, _) = ask(&admin, "127.0.0.1:9", request.insert_header(header)).await;
                assert_eq!(code, StatusCode::FORBIDDEN);
            }
            let request = get("/readyz?verbose").insert_header(header);
            let (_, body) = ask(&admin, "127.0.0.1:9", request).await;
            assert!(body.contains("1 pending") && !body.contains("namespace b"), "{body}");
        }
    }

    #[actix_web::test]
    async fn readiness_names_the_missing_cells_to_a_loopback_peer_only() {
        let admin = admin(Some(vec![key("pods", "a"), key("pods", "b")]));
        let (code, body) = ask(&admin, "127.0.0.1:9", get("/readyz?verbose")).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            body,
            "[+] profiles listed\n\
             [-] cells: 2 declared, 1 synced, 0 refused, 0 failing for 60 s, 1 pending\n    \
             pods.v1 in namespace b: Listing\n    \
             waiting until 1970-01-01T00:26:40Z at the longest\n\
             not ready: 1 of 2 cells pending\n"
        );
        let (code, body) = ask(&admin, "10.0.0.7:9", get("/readyz?verbose=1")).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("1 pending") && !body.contains("namespace b"), "{body}");
    }

    #[actix_web::test]
    async fn a_wrong_or_long_log_filter_is_refused() {
        let admin = admin(None);
        let put = |body: String| test::TestRequest::put().uri("/debug/log-level").set_payload(body);
        let (code, body) = ask(&admin, "[::1]:9", put("loud".into())).await;
        assert_eq!((code, body.as_str()), (StatusCode::BAD_REQUEST, "no filter: loud\n"));
        let (code, _) = ask(&admin, "[::1]:9", put("x".repeat(MAX_BODY + 1))).await;
        assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_waited_for_five_seconds() {
        let request = test::TestRequest::default().to_http_request();
        let never: Pin<Box<dyn Stream<Item = Result<Bytes, PayloadError>>>> =
            stream::iter([Ok(Bytes::from_static(b"deb"))]).chain(stream::pending()).boxed_local();
        let mut never = dev::Payload::Stream { payload: never };
        let body = web::Payload::from_request(&request, &mut never).await.unwrap();
        let began = tokio::time::Instant::now();
        let refusal = read(body).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(began.elapsed(), BODY_TIMEOUT);
    }

    #[actix_web::test]
    async fn however_often_it_is_asked_the_cells_are_copied_once_in_a_second() {
        let copies = Arc::new(AtomicUsize::new(0));
        let (scraped, probed) = (Arc::clone(&copies), Arc::clone(&copies));
        let Admin { metrics, gate, set_log_filter, now, .. } =
            Arc::into_inner(admin(None)).unwrap();
        let scrape = move || {
            scraped.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        };
        metrics.observe_cells(scrape).unwrap();
        let cells = Box::new(move || {
            probed.fetch_add(1, Ordering::Relaxed);
            vec![snapshot(key("pods", "a"), synced())]
        });
        let declared = Box::new(|| Some(all(vec![key("pods", "a")])));
        let admin = Arc::new(Admin { metrics, cells, declared, gate, set_log_filter, now });
        tokio::time::pause();
        let held = Arc::default();
        for second in 1..=3 {
            for _ in 0..10 {
                for path in ["/metrics", "/readyz", "/readyz?verbose"] {
                    let (code, _) = ask_again(&admin, &held, "10.0.0.7:9", get(path)).await;
                    assert_eq!(code, StatusCode::OK);
                }
            }
            assert_eq!(copies.load(Ordering::Relaxed), 2 * second);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let ready = ask_again(&admin, &held, "10.0.0.7:9", get("/readyz")).await;
        assert_eq!(ready.0, StatusCode::OK);
        admin.gate.begin_shutdown();
        let stopping = ask_again(&admin, &held, "10.0.0.7:9", get("/readyz")).await;
        let said = "not ready: shutting down\n".to_owned();
        assert_eq!(stopping, (StatusCode::SERVICE_UNAVAILABLE, said), "at once");
    }
}
