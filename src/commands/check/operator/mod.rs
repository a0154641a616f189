//! Checks the operator: its replicas, its Lease and its permissions.

use super::super::{
    advice::program,
    ca_readers::{CaReaders, fetch_ca_readers},
    operator_installation::{
        OperatorInstallation, certificate_secret, deployments, features, version_of,
    },
    profile_source::OperatorArgs,
    report::{ReportRow, RowMark},
    text::{length, place},
};
use http::header::DATE;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    List,
    api::{
        apps::v1::Deployment, authorization::v1::ResourceAttributes, coordination::v1::Lease,
        core::v1::Service,
    },
};
use kube::Client;
use kubewarm_api::{
    manifests::{
        self, Grant, GrantResource, INJECT_DISABLED, INJECT_LABEL, INJECT_PARAMETERS, INJECT_PODS,
        LEASE, OperatorFeature, RbacObject, list_grants,
    },
    model::{AccountPolicyEnforcement, FaultReason, RequestFault, Subject},
};
use kubewarm_client::{ApiResponse, fetch_account_policy_enforcement, get, is_permitted};
use std::{fmt::Write as _, time::Duration};
use tokio::time::{Instant, sleep};

/// Maximum number of access reviews for the operator's permissions. The operator needs about 12
/// permissions.
const REVIEWS: usize = 128;
/// How long the command waits for a leader if replicas are ready. After an installation, one of
/// them leads within some seconds, and `helm test` must not fail meanwhile.
const LEADER_WAIT: Duration = Duration::from_secs(15);
const LEADER_PAUSE: Duration = Duration::from_secs(1);

/// Returns rows for the replicas, the leader, the permissions and the admission policy that
/// restricts which ServiceAccounts authors can name in profiles. `now` is the current time if the
/// API server sends no `Date` header.
pub(super) async fn works(
    client: &Client,
    args: &OperatorArgs,
    now: Timestamp,
) -> Result<Vec<ReportRow>, manifests::ManifestError> {
    let namespace = args.operator_namespace.name();
    let (mut findings, settings, secret) = replicas(client, args).await;
    let has_ready_replicas = findings.iter().any(|row| row.mark == RowMark::Good);
    let wait = if has_ready_replicas { LEADER_WAIT } else { Duration::ZERO };
    findings.push(await_leader(client, namespace, now, wait).await);
    match settings {
        Ok((settings, features)) => {
            let operator = args.operator_namespace.shown();
            findings.extend(rights(client, &settings, &features, operator).await?);
        }
        Err(reason) => {
            let fault = RequestFault::new(FaultReason::Malformed, reason);
            findings.push(ReportRow::unseen("what the operator may do", &fault));
        }
    }
    findings.extend(authorities(client, namespace, &secret).await);
    findings.push(match fetch_account_policy_enforcement(client).await {
        Ok(AccountPolicyEnforcement::Enforced) => ReportRow::good(
            "an admission policy limits profiles to ServiceAccounts that their authors may use",
        ),
        Ok(AccountPolicyEnforcement::Missing) => ReportRow::note(
            "no admission policy limits profiles to ServiceAccounts that their authors may use: the \
             ValidatingAdmissionPolicy kubewarm-accounts is not in force",
        )
        .next("kubectl apply -f deploy/account-policy.yaml"),
        Ok(AccountPolicyEnforcement::Unknown) => ReportRow::unseen(
            "the admission policy for spec.serviceAccountName",
            &RequestFault::new(
                FaultReason::Forbidden,
                "you may not get ValidatingAdmissionPolicies",
            ),
        ),
        Err(fault) => ReportRow::unseen("the admission policy for spec.serviceAccountName", &fault),
    });
    Ok(findings)
}

/// Returns rows for the running pods that mount kubewarm's CAs. Returns none if kubewarm issues no
/// certificate.
async fn authorities(client: &Client, namespace: &str, secret: &str) -> Vec<ReportRow> {
    let readers = match fetch_ca_readers(client, namespace, secret).await {
        Ok(Some(readers)) => readers,
        Ok(None) => return Vec::new(),
        Err(fault) => return vec![ReportRow::unseen("the pods that read kubewarm's CAs", &fault)],
    };
    let restart = "kubectl rollout restart deployment NAME -n NAMESPACE";
    let mut rows = Vec::new();
    match addresses(client, namespace).await {
        Ok(addresses) => rows.extend(readers.astray(&addresses).map(|pods| {
            let text = format!(
                "injected pods lead to an address that neither kubewarm's Services nor the API server has: {pods}"
            );
            ReportRow::bad(text)
                .next("kubectl warm inject KIND/NAME -n NAMESPACE --apply")
                .next(format!("{restart}    # pods injected by label"))
        })),
        Err(fault) => rows.push(ReportRow::unseen("the addresses of injected pods", &fault)),
    }
    if let Some(pods) = readers.broken() {
        let text = format!(
            "pods started before kubewarm published its current CA; restart them, unless they read the CAs again: {pods}"
        );
        rows.push(ReportRow::bad(text).next(restart));
    }
    if let Some((pods, date)) = readers.outdated() {
        let text = format!(
            "pods started before the next CA was published; restart them before {date}: {pods}"
        );
        rows.push(ReportRow::note(text).next(restart));
    }
    let count = readers.count();
    if rows.is_empty() && count > 0 {
        rows.push(ReportRow::good(format!(
            "all {count} running pods that mount kubewarm's CAs started after their publication"
        )));
    }
    rows.extend(uninjected(&readers, namespace));
    rows
}

/// Rows for the pods that the API server should inject by their namespace's label, and did not.
fn uninjected(readers: &CaReaders, namespace: &str) -> Vec<ReportRow> {
    let label = format!("{INJECT_LABEL}={INJECT_PODS}");
    let unpublished = readers.unpublished().map(|names| {
        let text = format!(
            "the API server injects no pods of namespaces that ConfigMap {namespace}/{INJECT_PARAMETERS} does not name, \
             although they have the label {label}; set the chart value inject.policy.enabled=true, or read why the leader \
             cannot write: {names}"
        );
        ReportRow::bad(text)
            .next(format!("kubectl -n {namespace} logs -l app.kubernetes.io/name=kubewarm --tail=20"))
    });
    let missed = readers.missed().map(|pods| {
        let text = format!(
            "pods in namespaces with the label {label} are not injected; restart them, unless their ServiceAccount is \
             privileged: {pods}"
        );
        ReportRow::note(text).next("kubectl rollout restart deployment NAME -n NAMESPACE")
    });
    let refused = readers.refused().map(|pods| {
        ReportRow::note(format!(
            "pods in namespaces with the label {label} cannot be injected; to accept this, set their label \
             {INJECT_LABEL}={INJECT_DISABLED}: {pods}"
        ))
    });
    [unpublished, missed, refused].into_iter().flatten().collect()
}

/// The cluster IPs of the API server's Service, and of the Services in the operator namespace.
async fn addresses(client: &Client, namespace: &str) -> Result<Vec<String>, RequestFault> {
    let path = format!("/api/v1/namespaces/{namespace}/services");
    let mut services = get(client, &path).await?.json::<List<Service>>()?.items;
    services.push(get(client, "/api/v1/namespaces/default/services/kubernetes").await?.json()?);
    let ips = services.into_iter().filter_map(|service| service.spec?.cluster_ips);
    Ok(ips.flatten().collect())
}

/// Returns a row for each Deployment of the operator, the operator's settings and features, and the
/// name of its certificate's Secret.
/// Without a Deployment the settings are the defaults. The error explains why a setting is unknown,
/// for instance because the container runs a shell command that sets the flags.
async fn replicas(
    client: &Client,
    args: &OperatorArgs,
) -> (Vec<ReportRow>, Result<(OperatorInstallation, Vec<OperatorFeature>), String>, String) {
    let namespace = args.operator_namespace.name();
    let (rows, deployments) = match deployments(client, namespace).await {
        Ok(deployments) if deployments.is_empty() => {
            let text = format!(
                "there is no Deployment with the label app.kubernetes.io/name=kubewarm in namespace \
                 {namespace}; whether its replicas are ready is not known"
            );
            (vec![ReportRow::note(text)], deployments)
        }
        Ok(deployments) => (
            deployments.iter().map(|deployment| of_deployment(deployment, namespace)).collect(),
            deployments,
        ),
        Err(fault) => {
            (vec![ReportRow::unseen("whether its replicas are ready", &fault)], Vec::new())
        }
    };
    let settings = OperatorInstallation::of(&deployments, args).and_then(|settings| {
        // With `--watch-namespaces`, optional features need no additional permissions: the operator
        // sends access reviews with the tokens of the read API's clients.
        let features =
            if settings.watched.is_empty() { features(&deployments)? } else { Vec::new() };
        Ok((settings, features))
    });
    (rows, settings, certificate_secret(&deployments))
}

/// Returns the row about the leader. If no replica leads, looks again for the time `wait`.
async fn await_leader(
    client: &Client,
    namespace: &str,
    now: Timestamp,
    wait: Duration,
) -> ReportRow {
    let until = Instant::now() + wait;
    loop {
        let row = leader(client, namespace, now).await;
        if row.mark != RowMark::Bad || Instant::now() >= until {
            return row;
        }
        sleep(LEADER_PAUSE).await;
    }
}

async fn leader(client: &Client, namespace: &str, now: Timestamp) -> ReportRow {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE}");
    let look = format!("kubectl -n {namespace} get pods -l app.kubernetes.io/name=kubewarm");
    let row = get(client, &path).await.and_then(|answer| {
        if answer.status == 404 {
            let text = format!(
                "no replica has led yet: there is no Lease {LEASE} in namespace {namespace}; if kubewarm \
                 runs in another namespace, pass --operator-namespace"
            );
            return Ok(ReportRow::bad(text).next(look));
        }
        let lease = answer.json::<Lease>()?;
        Ok(of_lease(&lease, server_time(&answer).unwrap_or(now), look))
    });
    ReportRow::or_unseen(row, "who leads")
}

/// Returns a row for each permission that the operator's roles contain but access reviews deny to
/// the operator's ServiceAccount. If the ServiceAccount has all permissions, returns one row.
/// `operator` is the operator namespace in printed commands.
async fn rights(
    client: &Client,
    settings: &OperatorInstallation,
    features: &[OperatorFeature],
    operator: &str,
) -> Result<Vec<ReportRow>, manifests::ManifestError> {
    let OperatorInstallation { namespace, watched, .. } = settings;
    let subject = settings.subject();
    let (mut missing, mut allowed) = (Vec::new(), 0_usize);
    for needed in needed(namespace, watched, features)?.into_iter().take(REVIEWS) {
        let Some(attributes) = attributes(&needed) else { continue };
        match is_permitted(client, &subject, attributes).await {
            Ok(true) => allowed += 1,
            Ok(false) => missing.push(needed),
            Err(fault) => {
                return Ok(vec![ReportRow::unseen(&format!("what {subject} may do"), &fault)]);
            }
        }
    }
    if missing.is_empty() {
        let text = format!("{subject} has all {allowed} permissions that the operator needs");
        return Ok(vec![ReportRow::good(text)]);
    }
    let mut grant = format!("{} rbac --operator --operator-namespace {operator}", program());
    if !watched.is_empty() {
        let _infallible = write!(grant, " --watch-namespaces {}", watched.join(","));
    }
    for feature in features {
        grant.push_str(match feature {
            OperatorFeature::MetricsAuth => " --metrics-auth",
            OperatorFeature::ReadApi => " --read-api",
            OperatorFeature::RbacAuthorization => " --rbac-authorization",
            OperatorFeature::Certificate => " --certificate",
            OperatorFeature::Inject => " --inject",
            OperatorFeature::InjectPolicy => " --inject-policy",
        });
    }
    Ok(missing.iter().map(|lacked| of_lack(&subject, lacked, &grant)).collect())
}

/// Returns the permissions that the operator needs, one per verb and resource.
fn needed(
    namespace: &str,
    watched: &[String],
    features: &[OperatorFeature],
) -> Result<Vec<Grant>, manifests::ManifestError> {
    let text = manifests::render_operator(namespace, watched, features)?;
    // Documents that do not parse are neither roles nor bindings, but a Namespace or a
    // ServiceAccount.
    let roles = text.split("---\n").filter_map(|text| RbacObject::parse(text).ok());
    Ok(list_grants(&roles.flatten().collect::<Vec<_>>()).into_keys().collect())
}

/// Returns the attributes of an access review for `grant`. Returns `None` for a URL path or a role,
/// because `rights` reviews only permissions on resources.
fn attributes(grant: &Grant) -> Option<ResourceAttributes> {
    let GrantResource::Resource { group, resource, name } = &grant.object else { return None };
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource)),
        None => (&**resource, None),
    };
    Some(ResourceAttributes {
        group: Some(group.clone()),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        verb: Some(grant.verb.clone()),
        name: name.clone(),
        namespace: grant.namespace.as_deref().map(str::to_owned),
        ..ResourceAttributes::default()
    })
}

fn of_lack(subject: &Subject, lacked: &Grant, grant: &str) -> ReportRow {
    let (group, what) = match &lacked.object {
        GrantResource::Resource { group, resource, .. } if group.is_empty() => {
            ("", resource.clone())
        }
        GrantResource::Resource { group, resource, .. } => {
            (&**group, format!("{resource}.{group}"))
        }
        GrantResource::Url(what) | GrantResource::Role(what) | GrantResource::Rules(what) => {
            ("", what.clone())
        }
    };
    let place = place(lacked.namespace.as_deref());
    let text = format!("{subject} may not {} {what} in {place}", lacked.verb);
    // The operator also works without permissions on admission policies. It reads admission
    // policies only to report whether one restricts the ServiceAccounts in profiles.
    let is_needed = group != "admissionregistration.k8s.io";
    let row = if is_needed { ReportRow::bad(text) } else { ReportRow::note(text) };
    row.next(format!("{grant} | kubectl apply -f -"))
}

fn of_deployment(deployment: &Deployment, namespace: &str) -> ReportRow {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
    let text = format!("{ready} of {wanted} replicas of Deployment {namespace}/{name} are ready");
    if ready < wanted || wanted == 0 {
        return ReportRow::bad(text)
            .next(format!(
                "kubectl -n {namespace} describe pods -l app.kubernetes.io/name=kubewarm"
            ))
            .next(format!(
                "kubectl -n {namespace} logs -l app.kubernetes.io/name=kubewarm --tail=20"
            ));
    }
    match version_of(deployment).filter(|version| *version != env!("CARGO_PKG_VERSION")) {
        Some(version) => ReportRow::note(format!(
            "{text}; it is of version {version}, this command of {}",
            env!("CARGO_PKG_VERSION")
        )),
        None => ReportRow::good(text),
    }
}

fn of_lease(lease: &Lease, now: Timestamp, look: String) -> ReportRow {
    let spec = lease.spec.clone().unwrap_or_default();
    let Some(holder) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
        return ReportRow::bad("no replica leads: the last leader released the Lease").next(look);
    };
    // The Lease's `holderIdentity` is the pod's name, `_` and a number that distinguishes restarts
    // of the pod.
    let holder = holder.rsplit_once('_').map_or(&*holder, |(pod, _)| pod);
    let renewed = spec.renew_time.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let age = now.duration_since(renewed).max(SignedDuration::ZERO);
    let term = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(15).into());
    let ago = length(age.unsigned_abs());
    if age > term {
        return ReportRow::bad(format!(
            "no replica leads: {holder} last renewed the Lease {ago} ago"
        ))
        .next(look);
    }
    ReportRow::good(format!("{holder} leads, and renewed the Lease {ago} ago"))
}

/// Returns the time in the `Date` header of the response. The clock of the user's machine can
/// differ from the API server's clock.
fn server_time(answer: &ApiResponse) -> Option<Timestamp> {
    let text = answer.headers.get(DATE)?.to_str().ok()?;
    httpdate::parse_http_date(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests;
