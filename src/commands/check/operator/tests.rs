use super::*;
use http::{Request, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::client::Body;
use serde_json::json;
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tower::service_fn;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn lease(holder: &str, renewed: &str) -> Lease {
    let renewed = MicroTime(renewed.parse().unwrap());
    let mut lease = Lease::default();
    let spec = lease.spec.get_or_insert_default();
    (spec.holder_identity, spec.renew_time) = (Some(holder.to_owned()), Some(renewed));
    spec.lease_duration_seconds = Some(15);
    lease
}

#[test]
fn an_expired_lease_has_no_leader() {
    let mark = |lease: &Lease| of_lease(lease, now(), String::new()).mark;
    assert_eq!(mark(&lease("a", "2026-03-01T11:59:50Z")), RowMark::Good);
    assert_eq!(mark(&lease("a", "2026-03-01T11:59:44Z")), RowMark::Bad);
    assert_eq!(mark(&lease("", "2026-03-01T11:59:59Z")), RowMark::Bad);
    assert_eq!(mark(&Lease::default()), RowMark::Bad);
    // The clock of the replica that renews the lease is ahead of the API server's clock, so the
    // lease seems to be renewed 9 s in the future.
    assert_eq!(mark(&lease("a", "2026-03-01T12:00:09Z")), RowMark::Good);
}

#[test]
fn the_time_comes_from_the_api_server() {
    let mut headers = http::HeaderMap::new();
    headers.insert(DATE, "Sun, 01 Mar 2026 12:00:00 GMT".parse().unwrap());
    let answer = ApiResponse { headers, ..ApiResponse::default() };
    assert_eq!(server_time(&answer), Some(now()));
}

#[test]
fn each_permission_of_the_operator_is_reviewed() {
    let line = |attributes: &ResourceAttributes| {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        format!(
            "{} {}/{} {} in {}",
            text(&attributes.verb),
            text(&attributes.resource),
            text(&attributes.subresource),
            text(&attributes.name),
            text(&attributes.namespace)
        )
    };
    let permissions = |watched: &[String], features: &[OperatorFeature]| -> Vec<String> {
        let needed = needed("ops", watched, features).unwrap();
        needed.iter().map(|grant| line(&attributes(grant).unwrap())).collect()
    };
    let all = permissions(&[], &[]);
    assert!(all.contains(&"patch cacheprofiles/status  in ".to_owned()), "{all:?}");
    assert!(all.contains(&"get leases/ kubewarm in ops".to_owned()), "{all:?}");
    let review = "create tokenreviews/  in ".to_owned();
    assert!(!all.contains(&review), "{all:?}");
    for feature in [OperatorFeature::ReadApi, OperatorFeature::MetricsAuth] {
        let lines = permissions(&[], &[feature]);
        assert!(lines.contains(&review), "{lines:?}");
    }
    let some = permissions(&["shop".to_owned()], &[]);
    assert!(some.contains(&"list cacheprofiles/  in shop".to_owned()), "{some:?}");
    assert!(!some.iter().any(|line| line.ends_with(" in ")), "{some:?}");
}

#[test]
fn a_missing_optional_permission_is_only_a_remark() {
    let subject = Subject::from_username("system:serviceaccount:ops:kubewarm");
    let row = |group: &str, resource: &str| {
        let (group, resource) = (group.to_owned(), resource.to_owned());
        let lacked = Grant {
            subject: subject.clone(),
            namespace: None,
            object: GrantResource::Resource { group, resource, name: None },
            verb: "get".to_owned(),
        };
        of_lack(&subject, &lacked, "kubewarm rbac --operator")
    };
    let events = row("events.k8s.io", "events");
    assert_eq!(
        (events.mark, &*events.text()),
        (
            RowMark::Bad,
            "system:serviceaccount:ops:kubewarm may not get events.events.k8s.io in the whole cluster"
        )
    );
    assert_eq!(events.next, ["kubewarm rbac --operator | kubectl apply -f -"]);
    assert_eq!(row("admissionregistration.k8s.io", "x").mark, RowMark::Note);
}

#[test]
fn replicas_that_are_not_ready_fail() {
    let deployment = |ready: i32, version: &str| {
        serde_json::from_value::<Deployment>(json!({
            "metadata": {"name": "kubewarm", "labels": {"app.kubernetes.io/version": version}},
            "spec": {"replicas": 2, "selector": {}, "template": {}},
            "status": {"readyReplicas": ready},
        }))
        .unwrap()
    };
    let current = env!("CARGO_PKG_VERSION");
    let mark = |ready, version| of_deployment(&deployment(ready, version), "ops").mark;
    assert_eq!(mark(2, current), RowMark::Good);
    assert_eq!(mark(2, "0.0.1"), RowMark::Note);
    assert_eq!(mark(1, current), RowMark::Bad);
}

#[tokio::test(start_paused = true)]
async fn if_replicas_are_ready_the_command_waits_for_a_leader() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let service = service_fn(move |_: Request<Body>| {
        let holder = if counted.fetch_add(1, Ordering::Relaxed) < 3 { "" } else { "a" };
        let lease = serde_json::to_vec(&lease(holder, "2026-03-01T11:59:59Z")).unwrap();
        async { Ok::<_, Infallible>(Response::new(Body::from(lease))) }
    });
    let client = Client::new(service, "default");
    let look = async |wait| await_leader(&client, "kubewarm-system", now(), wait).await.mark;
    assert_eq!(look(Duration::ZERO).await, RowMark::Bad);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(look(LEADER_WAIT).await, RowMark::Good);
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}
