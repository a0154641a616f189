//! The `/debug` routes, for clients on this host and for authorized callers.

mod informers;

use super::{
    admin::{AdminState, INSIDE_ONLY, text},
    loopback::is_local,
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, Version, header::ContentType},
    web,
};
use bytes::Bytes;
use futures::stream;
use std::{convert::Infallible, time::Duration};
use tokio::time::timeout;

/// Maximum size of a request body, in bytes. The only body is a log filter.
const MAX_BODY: usize = 4 * 1024;
/// Timeout until the complete request body has arrived, from the end of the request head.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn routes(app: &mut web::ServiceConfig) {
    app.service(web::resource("/debug/informers").get(informers))
        .service(web::resource("/debug/watchers").get(watchers))
        .service(web::resource("/debug/forwarded").get(forwarded))
        .service(web::resource("/debug/appliers").get(appliers))
        .service(web::resource("/debug/log-level").put(log_level))
        .service(web::resource("/debug{rest:.*}").to(not_found));
}

async fn informers(request: HttpRequest, admin: web::Data<AdminState>) -> HttpResponse {
    if let Err(refusal) = admin.scrapers.admit_inside(&request, "/debug/informers").await {
        return refusal;
    }
    let pieces = informers::pieces((admin.informers)()).map(Ok::<_, Infallible>);
    let mut response = HttpResponse::Ok();
    response.content_type(ContentType::json());
    if request.version() < Version::HTTP_11 {
        // HTTP/1.0 has no chunked encoding, so the server closes the connection to end the body.
        response.force_close();
        let mut response = response.streaming(stream::iter(pieces));
        response.head_mut().no_chunking(true);
        return response;
    }
    response.streaming(stream::iter(pieces))
}

async fn watchers(request: HttpRequest, admin: web::Data<AdminState>) -> HttpResponse {
    if let Err(refusal) = admin.scrapers.admit_inside(&request, "/debug/watchers").await {
        return refusal;
    }
    HttpResponse::Ok().content_type(ContentType::json()).body(admin.watchers.to_json())
}

async fn forwarded(request: HttpRequest, admin: web::Data<AdminState>) -> HttpResponse {
    if let Err(refusal) = admin.scrapers.admit_inside(&request, "/debug/forwarded").await {
        return refusal;
    }
    HttpResponse::Ok().content_type(ContentType::json()).body(admin.user_reads.to_json())
}

async fn appliers(request: HttpRequest, admin: web::Data<AdminState>) -> HttpResponse {
    if let Err(refusal) = admin.scrapers.admit_inside(&request, "/debug/appliers").await {
        return refusal;
    }
    HttpResponse::Ok().content_type(ContentType::json()).body(admin.appliers.to_json())
}

async fn log_level(
    request: HttpRequest,
    admin: web::Data<AdminState>,
    body: web::Payload,
) -> HttpResponse {
    if let Err(refusal) = admin.scrapers.admit_inside(&request, "/debug/log-level").await {
        return refusal;
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

/// Reads the request body. Returns the response to send if the body is too long, too slow or
/// incomplete.
async fn read(body: web::Payload) -> Result<Bytes, HttpResponse> {
    match timeout(BODY_TIMEOUT, body.to_bytes_limited(MAX_BODY)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(_broken))) => {
            Err(text(StatusCode::BAD_REQUEST, "the request body is incomplete\n"))
        }
        Ok(Err(_longer)) => {
            let most = format!("a log filter has {MAX_BODY} bytes at most\n");
            Err(text(StatusCode::PAYLOAD_TOO_LARGE, most))
        }
        Err(_elapsed) => {
            Err(text(StatusCode::REQUEST_TIMEOUT, "the body did not come within 5 s\n"))
        }
    }
}

/// Handles all paths below `/debug` that have no route. Remote clients get 403, so that they do not
/// learn which paths exist.
async fn not_found(request: HttpRequest) -> HttpResponse {
    if !is_local(&request) {
        return text(StatusCode::FORBIDDEN, INSIDE_ONLY);
    }
    text(
        StatusCode::NOT_FOUND,
        "there are GET /debug/informers, GET /debug/watchers, GET /debug/forwarded, GET /debug/appliers and PUT \
         /debug/log-level\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fixtures::{LOCAL, REMOTE, admin, ask, get, key};
    use actix_web::{FromRequest as _, dev, error::PayloadError, test};
    use futures::{Stream, StreamExt as _};
    use std::pin::Pin;

    #[actix_web::test]
    async fn only_loopback_peers_can_use_debug_routes() {
        let admin = admin(None);
        let put = || test::TestRequest::put().uri("/debug/log-level").set_payload("debug\n");
        for peer in LOCAL {
            let (code, body) = ask(&admin, peer, get("/debug/informers")).await;
            assert_eq!(code, StatusCode::OK);
            assert!(body.contains(r#""namespace":"b""#), "{body}");
            let (code, body) = ask(&admin, peer, get("/debug/watchers")).await;
            assert_eq!((code, &*body), (StatusCode::OK, "{\"watchers\":[]}\n"));
            let (code, body) = ask(&admin, peer, get("/debug/forwarded")).await;
            assert_eq!((code, &*body), (StatusCode::OK, "{\"forwarded\":[],\"served\":[]}\n"));
            let (code, body) = ask(&admin, peer, get("/debug/appliers")).await;
            assert_eq!((code, &*body), (StatusCode::OK, "{\"appliers\":[]}\n"));
            assert_eq!(ask(&admin, peer, put()).await.0, StatusCode::OK);
            assert_eq!(ask(&admin, peer, get("/debug/pprof")).await.0, StatusCode::NOT_FOUND);
        }
        for peer in REMOTE {
            assert_eq!(ask(&admin, peer, get("/debug/informers")).await.0, StatusCode::FORBIDDEN);
            assert_eq!(ask(&admin, peer, get("/debug/watchers")).await.0, StatusCode::FORBIDDEN);
            assert_eq!(ask(&admin, peer, get("/debug/forwarded")).await.0, StatusCode::FORBIDDEN);
            assert_eq!(ask(&admin, peer, get("/debug/appliers")).await.0, StatusCode::FORBIDDEN);
            assert_eq!(ask(&admin, peer, put()).await.0, StatusCode::FORBIDDEN);
            assert_eq!(ask(&admin, peer, get("/debug/pprof")).await.0, StatusCode::FORBIDDEN);
        }
    }

    #[actix_web::test]
    async fn a_rebound_name_or_a_proxy_is_treated_as_a_remote_peer() {
        let admin = admin(Some(vec![key("pods", "b")]));
        for header in [("x-forwarded-for", "10.0.0.7"), ("x-forwarded-host", "evil.example")] {
            let put = test::TestRequest::put().uri("/debug/log-level").set_payload("debug");
            for request in [get("/debug/informers"), get("/debug/pprof"), put] {
                let (code, _) = ask(&admin, "127.0.0.1:9", request.insert_header(header)).await;
                assert_eq!(code, StatusCode::FORBIDDEN);
            }
            let request = get("/readyz?verbose").insert_header(header);
            let (_, body) = ask(&admin, "127.0.0.1:9", request).await;
            assert!(body.contains("1 pending") && !body.contains("namespace b"), "{body}");
        }
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
    async fn a_missing_body_times_out_after_five_seconds() {
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
}
