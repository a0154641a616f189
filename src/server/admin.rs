//! The routes of the admin server (the HTTP server for probes, metrics and debug information), and
//! the state that these routes share.

use super::{
    cached_response::CachedResponse,
    debug, guard,
    loopback::is_local,
    readiness::{DeclaredInformers, ReadinessTracker},
    readyz::readyz,
};
use crate::metrics::MetricsRegistry;
use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header::ContentType},
    web,
};
use bytes::Bytes;
use jiff::Timestamp;
use kubewarm_api::model::InformerKey;
use kubewarm_cache::informer::InformerReport;
use kubewarm_serve::{ApplierRegistry, UserReads, WatcherRegistry, callers::CallerGate};
use std::sync::Arc;
use tokio::time::Instant;

/// Content type of Prometheus' text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Response to a client on another host that reads `/metrics` with `--metrics-auth=loopback`.
const LOCAL_ONLY: &str = "metrics are only for loopback addresses: use kubectl port-forward, or run kubewarm with \
     --metrics-auth=delegated (see docs/monitoring.md)\n";

/// Response to a client on another host, or behind a proxy, that requests a `/debug` route.
pub(super) const INSIDE_ONLY: &str = "only for requests to localhost from a loopback address, without a proxy; use \
     kubectl port-forward to the pod\n";

/// A function that replaces the log filter. The function returns an error message for an invalid
/// filter.
pub type LogFilterSetter = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// State of the admin server.
///
/// The functions in its fields must not block, because the server calls them while it handles a
/// request.
pub struct AdminState {
    pub metrics: Arc<MetricsRegistry>,
    /// Returns the reports of all running informers.
    pub informers: Box<dyn Fn() -> Vec<(InformerKey, InformerReport)> + Send + Sync>,
    /// Returns the informers that the profiles declare, or `None` before kubewarm has listed the
    /// profiles.
    pub declared: Box<dyn Fn() -> Option<DeclaredInformers> + Send + Sync>,
    /// Returns a text with the reason for each informer that cannot watch CacheProfiles.
    pub failing_watches: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Decides whether `/readyz` succeeds. When the shutdown begins, `/readyz` fails, so that
    /// clients' new connections go to other replicas.
    pub readiness: Arc<ReadinessTracker>,
    /// Clients that can read `/metrics`.
    pub scrapers: MetricsAccess,
    pub set_log_filter: LogFilterSetter,
    /// Open watches of clients, for `/debug/watchers`.
    pub watchers: WatcherRegistry,
    /// Reads that kubewarm forwarded to the API server because no profile declares the objects, for
    /// `/debug/forwarded`.
    pub user_reads: UserReads,
    /// Users who read objects without managedFields and can apply these objects, which removes the
    /// users' own fields. `/debug/appliers` names these users.
    pub appliers: ApplierRegistry,
    pub now: fn() -> Timestamp,
}

#[derive(Debug)]
pub enum MetricsAccess {
    /// Only clients that connect from this host, for instance through `kubectl port-forward`.
    Loopback,
    /// Clients with a bearer token that permits `get` on the route's path, according to the API
    /// server. With such a token, remote clients can use `/debug` too.
    Reviewed(Box<CallerGate>),
    Unrestricted,
}

pub(super) type CachedExposition = CachedResponse<Option<Bytes>>;

impl MetricsAccess {
    /// Checks whether `request` may use `path`: clients on this host may, and authorized clients
    /// may. For others, returns the error response to send.
    pub(super) async fn admit_inside(
        &self,
        request: &HttpRequest,
        path: &'static str,
    ) -> Result<(), HttpResponse> {
        match self {
            _ if is_local(request) => Ok(()),
            Self::Reviewed(callers) => guard::admit(callers, request, path).await,
            Self::Loopback | Self::Unrestricted => Err(text(StatusCode::FORBIDDEN, INSIDE_ONLY)),
        }
    }

    /// Checks whether `request` may read `/metrics`. Returns an error response if not.
    async fn admit(&self, request: &HttpRequest) -> Result<(), HttpResponse> {
        match self {
            // If the API server authenticates bearer tokens, requests from this host need a bearer
            // token too.
            Self::Reviewed(callers) => guard::admit(callers, request, "/metrics").await,
            Self::Loopback if !is_local(request) => Err(text(StatusCode::FORBIDDEN, LOCAL_ONLY)),
            Self::Loopback | Self::Unrestricted => Ok(()),
        }
    }
}

pub(super) fn routes(app: &mut web::ServiceConfig) {
    app.service(web::resource("/livez").get(livez))
        .service(web::resource("/readyz").get(readyz))
        .service(web::resource("/metrics").get(metrics))
        .configure(debug::routes);
}

/// Handles `/livez`, which always succeeds. `/livez` does not depend on the API server, because a
/// restart while the API server is down would lose all stores.
async fn livez() -> HttpResponse {
    text(StatusCode::OK, "ok\n")
}

async fn metrics(
    request: HttpRequest,
    admin: web::Data<AdminState>,
    exposition: web::Data<CachedExposition>,
) -> HttpResponse {
    if let Err(refusal) = admin.scrapers.admit(&request).await {
        return refusal;
    }
    let render = || {
        let rendered = admin.metrics.render();
        rendered
            .inspect_err(|error| tracing::error!(%error, "metrics not rendered"))
            .ok()
            .map(Bytes::from)
    };
    match exposition.get(Instant::now(), |_| true, render) {
        Some(body) => HttpResponse::Ok().content_type(EXPOSITION).body(body),
        None => text(StatusCode::INTERNAL_SERVER_ERROR, "metrics not rendered; see the log\n"),
    }
}

pub(super) fn text(code: StatusCode, body: impl Into<String>) -> HttpResponse {
    HttpResponse::build(code).content_type(ContentType::plaintext()).body(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fixtures::{
        LOCAL, REMOTE, admin, all, ask, ask_again, get, key, snapshot, synced,
    };
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    #[actix_web::test]
    async fn liveness_and_unguarded_metrics_answer_every_client() {
        let admin = admin(None);
        for peer in LOCAL.iter().chain(&REMOTE) {
            assert_eq!(ask(&admin, peer, get("/livez")).await, (StatusCode::OK, "ok\n".into()));
            let (code, body) = ask(&admin, peer, get("/metrics")).await;
            assert_eq!(code, StatusCode::OK);
            assert!(body.contains("kubewarm_build_info{"), "{body}");
        }
    }

    #[actix_web::test]
    async fn without_reviews_only_loopback_peers_read_metrics() {
        let plain = Arc::into_inner(admin(None)).unwrap();
        let admin = Arc::new(AdminState { scrapers: MetricsAccess::Loopback, ..plain });
        for peer in LOCAL {
            assert_eq!(ask(&admin, peer, get("/metrics")).await.0, StatusCode::OK, "{peer}");
        }
        for peer in REMOTE {
            let (code, body) = ask(&admin, peer, get("/metrics")).await;
            assert_eq!((code, body.as_str()), (StatusCode::FORBIDDEN, LOCAL_ONLY), "{peer}");
            assert_eq!(ask(&admin, peer, get("/livez")).await.0, StatusCode::OK, "{peer}");
        }
    }

    #[actix_web::test]
    async fn informers_are_copied_at_most_once_a_second() {
        let copies = Arc::new(AtomicUsize::new(0));
        let (scraped, probed) = (Arc::clone(&copies), Arc::clone(&copies));
        let plain = Arc::into_inner(admin(None)).unwrap();
        let scrape = move || {
            scraped.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        };
        plain.metrics.observe_informers(scrape).unwrap();
        let informers = Box::new(move || {
            probed.fetch_add(1, Ordering::Relaxed);
            vec![snapshot(key("pods", "a"), synced())]
        });
        let declared = Box::new(|| Some(all(vec![key("pods", "a")])));
        let admin = Arc::new(AdminState { informers, declared, ..plain });
        tokio::time::pause();
        let exposition = Arc::default();
        for second in 1..=3 {
            for _ in 0..10 {
                for path in ["/metrics", "/readyz", "/readyz?verbose"] {
                    let (code, _) = ask_again(&admin, &exposition, "10.0.0.7:9", get(path)).await;
                    assert_eq!(code, StatusCode::OK);
                }
            }
            assert_eq!(copies.load(Ordering::Relaxed), 2 * second);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let ready = ask_again(&admin, &exposition, "10.0.0.7:9", get("/readyz")).await;
        assert_eq!(ready.0, StatusCode::OK);
        admin.readiness.begin_shutdown();
        let stopping = ask_again(&admin, &exposition, "10.0.0.7:9", get("/readyz")).await;
        let body = "not ready: shutting down\n".to_owned();
        assert_eq!(
            stopping,
            (StatusCode::SERVICE_UNAVAILABLE, body),
            "the shutdown is visible immediately"
        );
    }
}
