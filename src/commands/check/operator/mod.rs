//! Checks the operator: its replicas, its Lease and its permissions.

use super::super::{
    advice::program,
    operator_installation::{OperatorInstallation, deployments, features, version_of},
    profile_source::OperatorArgs,
    report::{ReportRow, RowMark},
    text::{length, place},
};
use http::header::DATE;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::Deployment, authorization::v1::ResourceAttributes, coordination::v1::Lease,
};
use kube::Client;
use kubewarm_api::{
    manifests::{self, Grant, GrantResource, LEASE, OperatorFeature, RbacObject, list_grants},
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
    let (mut findings, settings) = replicas(client, args).await;
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

/// Returns a row for each Deployment of the operator, and the operator's settings and features.
/// Without a Deployment the settings are the defaults. The error explains why a setting is unknown,
/// for instance because the container runs a shell command that sets the flags.
async fn replicas(
    client: &Client,
    args: &OperatorArgs,
) -> (Vec<ReportRow>, Result<(OperatorInstallation, Vec<OperatorFeature>), String>) {
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
    (rows, settings)
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
