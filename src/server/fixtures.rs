//! Informers, admin servers and requests for the tests of the admin server. Times are Unix times in
//! seconds; the current time is 1,000.

use super::{
    admin::{AdminState, CachedExposition, MetricsAccess, routes},
    readiness::DeclaredInformers,
};
use crate::metrics::{BuildInfo, MetricsRegistry};
use actix_web::{App, http::StatusCode, test, web};
use jiff::Timestamp;
use kubewarm_api::model::{
    FaultReason, GroupResource, InformerKey, InformerScope, ManagedFieldsPolicy, Projection,
    Resource, ResourceVersion,
};
use kubewarm_cache::{
    informer::{FirstSync, FirstSyncMethod, InformerFault, InformerPhase, InformerReport, Verb},
    store::StoreUsage,
};
use kubewarm_serve::{ApplierRegistry, UserReads, WatcherRegistry};
use std::{sync::Arc, time::Duration};

pub(super) const LOCAL: [&str; 3] = ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"];
pub(super) const REMOTE: [&str; 3] = ["10.0.0.7:9", "[fd00::1]:9", "[::ffff:10.0.0.7]:9"];

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn key(resource: &str, namespace: &str) -> InformerKey {
    InformerKey::all(
        Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        InformerScope::Namespace(namespace.into()),
        Projection::Full(ManagedFieldsPolicy::Drop),
    )
}

pub(super) fn snapshot(key: InformerKey, report: InformerReport) -> (InformerKey, InformerReport) {
    (key, InformerReport { usage: StoreUsage { objects: 3, bytes: 4096 }, ..report })
}

pub(super) fn listing() -> InformerReport {
    InformerReport { phase: InformerPhase::Listing, ..InformerReport::queued(at(900)) }
}

pub(super) fn synced() -> InformerReport {
    InformerReport {
        phase: InformerPhase::Watching,
        warmed: Some(FirstSync {
            started: at(900),
            synced: at(902),
            took: Duration::from_secs(2),
            strategy: FirstSyncMethod::List,
        }),
        synced_at: Some(at(902)),
        version: Some(ResourceVersion::from(42)),
        ..listing()
    }
}

/// A report of an informer that failed three times, first at second `since` and last at second 999.
/// The next attempt is at second 1,004.
pub(super) fn failing(reason: FaultReason, since: i64) -> InformerReport {
    InformerReport {
        phase: InformerPhase::Failing,
        fault: Some(InformerFault {
            reason,
            verb: Verb::List,
            message: "no \"list\" for you".into(),
            at: at(999),
            since: at(since),
            attempts: 3,
            next_retry: Some(at(1_004)),
        }),
        ..listing()
    }
}

pub(super) fn all(informers: Vec<InformerKey>) -> DeclaredInformers {
    DeclaredInformers { informers: informers.into(), is_complete: true }
}

/// Returns an admin server with two running informers. The informer of namespace `a` has synced,
/// and the informer of namespace `b` runs its first list. `declared` are the informers that
/// profiles declare.
pub(super) fn admin(declared: Option<Vec<InformerKey>>) -> Arc<AdminState> {
    Arc::new(AdminState {
        metrics: Arc::new(MetricsRegistry::new(&BuildInfo::current()).unwrap()),
        informers: Box::new(|| {
            vec![snapshot(key("pods", "a"), synced()), snapshot(key("pods", "b"), listing())]
        }),
        declared: Box::new(move || declared.clone().map(all)),
        failing_watches: Box::new(Vec::new),
        readiness: Arc::default(),
        scrapers: MetricsAccess::Unrestricted,
        set_log_filter: Box::new(|filter| {
            if filter == "debug" { Ok(()) } else { Err(format!("no filter: {filter}")) }
        }),
        watchers: WatcherRegistry::default(),
        user_reads: UserReads::default(),
        appliers: ApplierRegistry::default(),
        now: || at(1_000),
    })
}

pub(super) async fn ask(
    admin: &Arc<AdminState>,
    peer: &str,
    request: test::TestRequest,
) -> (StatusCode, String) {
    ask_again(admin, &Arc::default(), peer, request).await
}

/// Returns the status and the body of the response to `request`. Several calls can share
/// `exposition`, the cache of the metrics response.
pub(super) async fn ask_again(
    admin: &Arc<AdminState>,
    exposition: &Arc<CachedExposition>,
    peer: &str,
    request: test::TestRequest,
) -> (StatusCode, String) {
    let app = App::new()
        .app_data(web::Data::from(Arc::clone(admin)))
        .app_data(web::Data::from(Arc::clone(exposition)))
        .configure(routes);
    let app = test::init_service(app).await;
    let request = request.peer_addr(peer.parse().unwrap()).insert_header(("host", "localhost"));
    let request = request.to_request();
    let response = test::call_service(&app, request).await;
    let code = response.status();
    let body = test::read_body(response).await;
    (code, String::from_utf8(body.to_vec()).unwrap())
}

pub(super) fn get(path: &str) -> test::TestRequest {
    test::TestRequest::get().uri(path)
}
