//! Checks of an injected workload: whether its pods reach kubewarm, and what they read there.

use super::{
    super::{
        CommandError,
        forwarded::fetch_user_reads,
        output::OutputArgs,
        port_forward,
        print::show,
        report::{CommandExitCode, CommandReport, ReportRow, ReportSection},
        text::causes,
    },
    InjectArgs,
    apply::LiveWorkload,
    installation::InjectedInstallation,
    plan::{InjectionReviewer, account_of},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kubewarm_api::manifests::API_CA;
use kubewarm_client::{ApiServerConnection, ConnectError, get};
use kubewarm_inject::{
    API_SERVER_HOST, ChangedField, Injection, WorkloadOrigin, remarks, undo_object,
};
use kubewarm_serve::certificate::BUNDLE;
use serde_json::Value;
use std::{error::Error, net::IpAddr};

/// Prints a row for each check of the workload.
///
/// # Errors
///
/// [`CommandError`] if the workload or kubewarm's Service cannot be read.
pub(super) async fn check(
    args: &InjectArgs,
    connection: &ApiServerConnection,
    live: &LiveWorkload,
) -> Result<CommandExitCode, CommandError> {
    let LiveWorkload { object, kind, namespace, title, .. } = live;
    let mut reviewer = InjectionReviewer::discover(args, connection).await?;
    let restored = undo_object(object, *kind);
    let mut rows = vec![injection(live, &restored, &reviewer.installation, args)];
    let plain = restored.ok().flatten().unwrap_or_else(|| object.clone());
    let reasons = reviewer.reasons(&plain, *kind, namespace, WorkloadOrigin::Cluster).await?;
    let installation = &reviewer.installation;
    rows.extend(reasons.into_iter().map(ReportRow::bad));
    rows.extend(installation.remark(args, *kind).map(ReportRow::note));
    rows.extend(remarks(&plain, *kind).into_iter().map(ReportRow::note));
    rows.extend(handshakes(args, connection, installation, namespace).await);
    let user = account_of(object, *kind, namespace).user();
    let timeout = args.connection.request_timeout();
    let reads = fetch_user_reads(args.connection.connect()?, &args.service(), timeout).await;
    match reads {
        Ok(reads) => {
            let (served, forwarded) = reads.share(&user);
            let all = served.saturating_add(forwarded);
            rows.push(ReportRow::good(format!(
                "kubewarm served {served} of {all} lists and watches of {user} from its stores"
            )));
            rows.extend(reads.kinds_of(&user).into_iter().map(|kind| {
                ReportRow::note(format!("no profile keeps {kind} warm, which it reads"))
            }));
        }
        Err(error) => {
            rows.push(ReportRow::note(format!("what it reads is not known: {}", causes(&error))));
        }
    }
    let sections = vec![ReportSection::new(title.clone(), rows)];
    show(&CommandReport::judged(sections), OutputArgs::default().format)
}

/// Whether the workload is injected with the addresses of the Service. `restored` is the workload
/// without the injection.
fn injection(
    live: &LiveWorkload,
    restored: &Result<Option<Value>, ChangedField>,
    installation: &InjectedInstallation,
    args: &InjectArgs,
) -> ReportRow {
    let again = format!(
        "kubectl warm inject {} -n {} --operator-namespace {} --apply",
        live.word,
        live.namespace,
        args.operator.operator_namespace.shown()
    );
    if let Err(error) = restored {
        return ReportRow::bad(error.to_string()).next(again);
    }
    match Injection::of_object(&live.object, live.kind) {
        Err(error) => ReportRow::bad(error.to_string()),
        Ok(None) => ReportRow::bad("it is not injected").next(again),
        Ok(Some(injection)) => {
            let text =
                |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let all = installation.addresses();
            if all.iter().any(|address| address.ips == injection.ips) {
                return ReportRow::good(format!(
                    "it is injected by version {}, with the Service's address",
                    injection.version
                ));
            }
            let all: Vec<_> = all.iter().map(|address| text(&address.ips)).collect();
            ReportRow::bad(format!(
                "its alias leads to {}, but the Services have {}",
                text(&injection.ips),
                all.join(" and ")
            ))
            .next(again)
        }
    }
}

/// A TLS handshake with kubewarm and one with the API server, with the CAs that the pods read.
async fn handshakes(
    args: &InjectArgs,
    connection: &ApiServerConnection,
    installation: &InjectedInstallation,
    namespace: &str,
) -> Vec<ReportRow> {
    let config_maps = Api::<ConfigMap>::namespaced(connection.client(), namespace);
    let bundle = match config_maps.get(API_CA).await {
        Ok(found) => found.data.unwrap_or_default().remove(BUNDLE).unwrap_or_default(),
        Err(error) => {
            let error = CommandError::of_request(format!("ConfigMap {namespace}/{API_CA}"), error);
            return vec![
                ReportRow::bad(causes(&error))
                    .next(format!("kubectl label namespace {namespace} kubewarm.io/inject=")),
            ];
        }
    };
    let timeout = args.connection.request_timeout();
    let verify = |server: &str, streams| {
        ApiServerConnection::without_credentials(server, API_SERVER_HOST, &bundle, timeout, streams)
    };
    let (operator, name) = (&installation.operator.namespace, &args.cache_service);
    let kubewarm = match port_forward::open(connection, operator, name).await {
        Ok(streams) => handshake("kubewarm", verify("https://localhost", Some(streams))).await,
        Err(error) => {
            ReportRow::note(format!("kubewarm's certificate was not verified: {}", causes(&error)))
        }
    };
    let server = verify(&connection.server().to_string(), None);
    vec![kubewarm, handshake("the API server", server).await]
}

async fn handshake(what: &str, connection: Result<ApiServerConnection, ConnectError>) -> ReportRow {
    let failed = |error: &dyn Error| {
        ReportRow::bad(format!(
            "the CAs of the pods do not verify {what} as {API_SERVER_HOST}: {}",
            causes(error)
        ))
    };
    match connection {
        // Any response proves the handshake, also one that rejects a request without credentials.
        Ok(connection) => match get(&connection.client(), "/version").await {
            Ok(_) => {
                ReportRow::good(format!("the CAs of the pods verify {what} as {API_SERVER_HOST}"))
            }
            Err(fault) => failed(&fault),
        },
        Err(error) => failed(&error),
    }
}
