//! Handles `/readyz`, which succeeds once the informers have synced. With `?verbose` the response
//! lists the informers that have not synced.

use super::{
    admin::{AdminState, text},
    readiness::{ReadinessReport, StartupOutcome},
};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use std::{fmt::Write as _, sync::Arc};
use tokio::time::Instant;

pub(super) async fn readyz(request: HttpRequest, admin: web::Data<AdminState>) -> HttpResponse {
    let look = || {
        let declared = (admin.declared)();
        Arc::new(admin.readiness.compute(declared.as_ref(), &(admin.informers)(), (admin.now)()))
    };
    // Before kubewarm has listed the profiles, the readiness report costs little, so kubewarm does
    // not cache it. `/readyz` therefore shows the end of that first list immediately.
    let mut readiness = admin.readiness.answer.get(Instant::now(), |report| report.is_listed, look);
    // `/readyz` must show a shutdown before the cached report expires.
    if admin.readiness.is_stopping() {
        readiness =
            Arc::new(ReadinessReport { end: StartupOutcome::Stopping, ..(*readiness).clone() });
    }
    let code = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if !is_verbose(request.query_string()) {
        return text(code, format!("{readiness}\n"));
    }
    // A remote caller without a permitted token gets the number of informers, but not their names.
    let can_show_names = admin.scrapers.admit_inside(&request, "/readyz").await.is_ok();
    text(code, render_verbose(&readiness, &(admin.failing_watches)(), can_show_names))
}

fn render_verbose(
    readiness: &ReadinessReport,
    unlisted: &[String],
    can_show_names: bool,
) -> String {
    let mark = |good| if good { "[+]" } else { "[-]" };
    let ReadinessReport { is_listed, declared, synced, refused, failing_long, pending, .. } =
        readiness;
    let mut page = format!(
        "{} profiles listed\n\
         {} informers: {declared} declared, {synced} synced, {refused} refused, \
         {failing_long} failing for 60 s, {pending} pending\n",
        mark(*is_listed),
        mark(*pending == 0),
    );
    // Writing to a `String` cannot fail, so this function ignores the results of `writeln!`.
    if !unlisted.is_empty() {
        let _written = writeln!(page, "[-] profiles not listed: {} watches fail", unlisted.len());
        for line in unlisted.iter().filter(|_| can_show_names) {
            let _written = writeln!(page, "    {line}");
        }
    }
    if can_show_names {
        for informer in &readiness.pending_informers {
            let _written = writeln!(page, "    {informer}");
        }
        let unnamed = pending.saturating_sub(readiness.pending_informers.len());
        if unnamed > 0 {
            let _written = writeln!(page, "    and {unnamed} more: see /debug/informers");
        }
    }
    if readiness.is_selecting {
        let _written = writeln!(page, "[-] namespaces of some selectors not listed yet");
    }
    if let Some(deadline) = readiness.deadline {
        let _written = writeln!(page, "    waiting until {deadline} at the longest");
    }
    if readiness.end == StartupOutcome::TimedOut {
        let _written = writeln!(page, "    waiting ended after 10 minutes, without some informers");
    }
    let _written = writeln!(page, "{readiness}");
    page
}

/// Whether the query contains `verbose`, with or without a value.
fn is_verbose(query: &str) -> bool {
    query.split('&').any(|part| part.split('=').next() == Some("verbose"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fixtures::{admin, all, ask, get, key};
    use parking_lot::Mutex;

    #[actix_web::test]
    async fn only_a_loopback_peer_sees_the_missing_informers() {
        let admin = admin(Some(vec![key("pods", "a"), key("pods", "b")]));
        let (code, body) = ask(&admin, "127.0.0.1:9", get("/readyz?verbose")).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            body,
            "[+] profiles listed\n\
             [-] informers: 2 declared, 1 synced, 0 refused, 0 failing for 60 s, 1 pending\n    \
             pods.v1 in namespace b: Listing\n    \
             waiting until 1970-01-01T00:26:40Z at the longest\n\
             not ready: 1 of 2 informers pending\n"
        );
        let (code, body) = ask(&admin, "10.0.0.7:9", get("/readyz?verbose=1")).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("1 pending") && !body.contains("namespace b"), "{body}");
    }

    #[actix_web::test]
    async fn readiness_reports_at_once_that_the_profiles_are_listed() {
        let declared = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&declared);
        let before = Arc::into_inner(admin(None)).unwrap();
        let admin =
            Arc::new(AdminState { declared: Box::new(move || shared.lock().clone()), ..before });
        let probe = async || ask(&admin, "10.0.0.7:9", get("/readyz")).await.0;
        assert_eq!(probe().await, StatusCode::SERVICE_UNAVAILABLE);
        *declared.lock() = Some(all(Vec::new()));
        assert_eq!(probe().await, StatusCode::OK);
    }

    #[actix_web::test]
    async fn namespaces_whose_profiles_are_not_listed_are_named() {
        let ready = Arc::into_inner(admin(Some(vec![key("pods", "a")]))).unwrap();
        let words = || vec!["cacheprofiles in namespace b: Forbidden: denied".to_owned()];
        let admin = Arc::new(AdminState { failing_watches: Box::new(words), ..ready });
        let (code, body) = ask(&admin, "127.0.0.1:9", get("/readyz?verbose")).await;
        assert_eq!(code, StatusCode::OK);
        let line =
            "[-] profiles not listed: 1 watches fail\n    cacheprofiles in namespace b: Forbidden";
        assert!(body.contains(line), "{body}");
        let (_, body) = ask(&admin, "10.0.0.7:9", get("/readyz?verbose")).await;
        assert!(body.contains("1 watches fail") && !body.contains("namespace b"), "{body}");
    }
}
