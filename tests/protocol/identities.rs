//! Tests informers that differ only in the identity that reads.

use crate::{
    engine::{informer, quick, run},
    reply::{Reply, list, object, quiet, status},
    server::Kind,
};
use kubewarm_api::model::{FaultReason, Identity, InformerKey, InformerSpec, NamespaceCheckPolicy};
use kubewarm_cache::informer::{InformerPhase, Verb};
use std::time::Duration;

fn read_by(name: &str) -> InformerSpec {
    let mut spec = informer("pods");
    spec.settings.namespace_check = NamespaceCheckPolicy::Require;
    spec.settings.max_staleness = Duration::from_millis(200);
    let identity = Identity::ServiceAccount { namespace: "ns".into(), name: name.into() };
    InformerSpec { key: InformerKey { identity, ..spec.key }, ..spec }
}

#[tokio::test]
async fn each_identity_reads_for_itself_and_its_refusal_is_its_own() {
    let (blind, seeing) = (read_by("blind"), read_by("seeing"));
    let (server, engine) = run(quick(), &[&blind, &seeing], |asked| match asked.kind {
        Kind::Version | Kind::Namespace => quiet(asked),
        _ if asked.by.ends_with("/blind") => Reply::status(403, "", status(403, "Forbidden")),
        // The first watch of each informer breaks, so that the informer also sends a rollback
        // check.
        Kind::Watch if asked.nth == 0 => Reply::status(500, "", status(500, "InternalError")),
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    })
    .await;
    engine.until_shown(&seeing.key, &["a@3"]).await;
    let refused = engine.until(&blind.key, |report| report.fault.is_some()).await;
    let fault = refused.fault.unwrap();
    assert_eq!((fault.reason, fault.verb), (FaultReason::Forbidden, Verb::List));
    assert_eq!((refused.phase, engine.shown(&blind.key).len()), (InformerPhase::Failing, 0));
    engine.until_watching(&seeing.key).await;
    let _report = engine.reports.get_summary_for_read(&seeing.key);
    while server.count(Kind::Probe) == 0 || server.count(Kind::Namespace) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for asked in server.asked() {
        let by_operator = asked.by == "the operator";
        assert_eq!(by_operator, asked.kind == Kind::Version, "{asked:?}");
    }
}
