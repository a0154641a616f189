//! The operator: its replicas, its lease, and what it may do.

use super::super::{
    advice::{program, variable},
    report::ReportRow,
    specs::OperatorArgs,
    text::{length, place},
};
use http::header::DATE;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::Deployment, authorization::v1::ResourceAttributes, coordination::v1::Lease,
    core::v1::Container,
};
use kube::{Client, api::ObjectList};
use kubewarm_api::{
    manifests::{self, Document, Grant, LEASE, More, Object, grants},
    model::{AuthorCheck, Fault, Reason, Subject},
};
use kubewarm_client::{Answer, author_check, get, may};
use std::fmt::Write as _;

/// What the chart calls the pods, whatever the release is called.
const DEPLOYMENTS: &str = "deployments?labelSelector=app.kubernetes.io%2Fname%3Dkubewarm";
/// The operator's ServiceAccount, if no pod names another one.
const ACCOUNT: &str = "kubewarm";
/// Reviews of what the operator may do: it needs a dozen.
const REVIEWS: usize = 128;

/// Its replicas, who leads, what it may do, and whether authors are held to their accounts. `now` counts where the
/// server does not tell the time.
pub(super) async fn works(
    client: &Client,
    args: &OperatorArgs,
    now: Timestamp,
) -> Result<Vec<ReportRow>, manifests::Unwritable> {
    let namespace = args.home.operator_namespace.as_str();
    let (mut findings, run) = replicas(client, namespace).await;
    findings.push(leader(client, namespace, now).await);
    findings.extend(rights(client, args, &run).await?);
    findings.push(match author_check(client).await {
        Ok(AuthorCheck::Enforced) => ReportRow::good(
            "authors of profiles are held to the ServiceAccounts that they may act as",
        ),
        Ok(AuthorCheck::Missing) => ReportRow::note(
            "nothing holds authors of profiles to the ServiceAccounts that they may act as: the \
             ValidatingAdmissionPolicy kubewarm-accounts is not in force",
        )
        .next("kubectl apply -f deploy/account-policy.yaml"),
        Ok(AuthorCheck::Unknown) => ReportRow::unseen(
            "whether authors are held to the ServiceAccounts that they may act as",
            &Fault::new(Reason::Forbidden, "you may not get ValidatingAdmissionPolicies"),
        ),
        Err(fault) => ReportRow::unseen("whether authors are held to their accounts", &fault),
    });
    Ok(findings)
}

/// The Deployments, and how the operator runs in the first.
async fn replicas(client: &Client, namespace: &str) -> (Vec<ReportRow>, Run) {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/{DEPLOYMENTS}");
    let listed = get(client, &path).await;
    match listed.and_then(|answer| answer.json::<ObjectList<Deployment>>()) {
        Ok(list) if list.items.is_empty() => {
            let text = format!(
                "there is no Deployment with the label app.kubernetes.io/name=kubewarm in namespace \
                 {namespace}; whether its replicas are ready is not known"
            );
            (vec![ReportRow::note(text)], Run::unseen())
        }
        Ok(list) => {
            let findings = list.items.iter().map(|one| of_deployment(one, namespace)).collect();
            (findings, list.items.first().map_or_else(Run::unseen, Run::of))
        }
        Err(fault) => {
            (vec![ReportRow::unseen("whether its replicas are ready", &fault)], Run::unseen())
        }
    }
}

async fn leader(client: &Client, namespace: &str, now: Timestamp) -> ReportRow {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE}");
    let look = format!("kubectl -n {namespace} get pods -l app.kubernetes.io/name=kubewarm");
    let found = get(client, &path).await.and_then(|answer| {
        if answer.status == 404 {
            let text = format!(
                "no replica has led yet: there is no Lease {LEASE} in namespace {namespace}; if kubewarm \
                 runs elsewhere, say so with --operator-namespace"
            );
            return Ok(ReportRow::bad(text).next(look));
        }
        let lease = answer.json::<Lease>()?;
        Ok(of_lease(&lease, server_time(&answer).unwrap_or(now), look))
    });
    ReportRow::or_unseen(found, "who leads")
}

/// What the shipped roles allow, held against what reviews say of the account.
async fn rights(
    client: &Client,
    args: &OperatorArgs,
    run: &Run,
) -> Result<Vec<ReportRow>, manifests::Unwritable> {
    let OperatorArgs { home, watch_namespaces: watched } = args;
    let namespace = home.operator_namespace.as_str();
    let name = run.account.as_str().into();
    let subject = Subject::ServiceAccount { namespace: namespace.into(), name };
    // With namespaces of its own it can be granted no more, and asks as the caller.
    let more = if watched.is_empty() { &*run.more } else { &[] };
    let (mut missing, mut allowed) = (Vec::new(), 0_usize);
    for needed in needed(namespace, watched, more)?.into_iter().take(REVIEWS) {
        let Some(attributes) = attributes(&needed) else { continue };
        match may(client, &subject, attributes).await {
            Ok(true) => allowed += 1,
            Ok(false) => missing.push(needed),
            Err(fault) => {
                return Ok(vec![ReportRow::unseen(&format!("what {subject} may do"), &fault)]);
            }
        }
    }
    if missing.is_empty() {
        let text = format!("{subject} may do the {allowed} things it must");
        return Ok(vec![ReportRow::good(text)]);
    }
    let mut grant = format!("{} rbac --operator", program());
    if namespace != "kubewarm-system" {
        let _infallible = write!(grant, " --operator-namespace {namespace}");
    }
    if !watched.is_empty() {
        let _infallible = write!(grant, " --watch-namespaces {}", watched.join(","));
    }
    for more in more {
        grant.push_str(match more {
            More::MetricsAuth => " --metrics-auth",
            More::ReadApi => " --read-api",
        });
    }
    Ok(missing.iter().map(|lacked| of_lack(&subject, lacked, &grant)).collect())
}

/// How the operator runs, as far as that decides what it needs.
#[derive(Debug, PartialEq)]
struct Run {
    /// Its ServiceAccount.
    account: String,
    /// What it does that takes more.
    more: Vec<More>,
}

impl Run {
    /// Of which nothing is known.
    fn unseen() -> Self {
        Self { account: ACCOUNT.to_owned(), more: Vec::new() }
    }

    fn of(deployment: &Deployment) -> Self {
        let Some(pod) = &deployment.spec.template.spec else { return Self::unseen() };
        let Some(container) = pod.containers.first() else { return Self::unseen() };
        let account = pod.service_account_name.clone().unwrap_or_else(|| ACCOUNT.to_owned());
        let metrics_auth =
            told(container, "metrics-auth").is_some_and(|said| matches!(said, "" | "delegated"));
        // It serves reads unless it is told that it shall not.
        let reads = told(container, "api-addr").is_none_or(|address| !address.is_empty());
        let more = [(metrics_auth, More::MetricsAuth), (reads, More::ReadApi)];
        let more = more.into_iter().filter_map(|(is_done, more)| is_done.then_some(more)).collect();
        Self { account, more }
    }
}

/// What a flag of `run` is set to, which counts, or the environment variable of its name.
fn told<'a>(container: &'a Container, flag: &str) -> Option<&'a str> {
    let mut arguments = container.args.iter().flatten();
    let by_flag = arguments.find_map(|one| {
        let value = one.strip_prefix("--")?.strip_prefix(flag)?;
        if value.is_empty() { Some(value) } else { value.strip_prefix('=') }
    });
    by_flag.or_else(|| {
        let name = variable(flag);
        let variable = container.env.iter().flatten().find(|one| one.name == name)?;
        // The API server leaves out what is empty.
        Some(variable.value.as_deref().unwrap_or_default())
    })
}

/// What the operator needs, one verb on one resource each.
fn needed(
    namespace: &str,
    watched: &[String],
    more: &[More],
) -> Result<Vec<Grant>, manifests::Unwritable> {
    let text = manifests::operator(namespace, watched, more)?;
    // The other documents are neither roles nor bindings.
    let roles = text.split("---\n").filter_map(|text| Document::parse(text).ok());
    Ok(grants(&roles.flatten().collect::<Vec<_>>()).into_keys().collect())
}

/// What to ask about a grant; `None` if it is not about a resource.
fn attributes(grant: &Grant) -> Option<ResourceAttributes> {
    let Object::Resource { group, resource, name } = &grant.object else { return None };
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
        Object::Resource { group, resource, .. } if group.is_empty() => ("", resource.clone()),
        Object::Resource { group, resource, .. } => (&**group, format!("{resource}.{group}")),
        Object::Url(what) | Object::Role(what) | Object::Rules(what) => ("", what.clone()),
    };
    let place = place(lacked.namespace.as_deref());
    let found = format!("{subject} may not {} {what} in {place}", lacked.verb);
    // It only looks whether that policy is there.
    let is_needed = group != "admissionregistration.k8s.io";
    let row = if is_needed { ReportRow::bad(found) } else { ReportRow::note(found) };
    row.next(format!("{grant} | kubectl apply -f -"))
}

fn of_deployment(deployment: &Deployment, namespace: &str) -> ReportRow {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
    let said = format!("{ready} of {wanted} replicas of Deployment {namespace}/{name} are ready");
    if ready < wanted || wanted == 0 {
        return ReportRow::bad(said)
            .next(format!(
                "kubectl -n {namespace} describe pods -l app.kubernetes.io/name=kubewarm"
            ))
            .next(format!(
                "kubectl -n {namespace} logs -l app.kubernetes.io/name=kubewarm --tail=20"
            ));
    }
    let labels = deployment.metadata.labels.as_ref();
    let version = labels.and_then(|labels| labels.get("app.kubernetes.io/version"));
    match version.filter(|version| *version != env!("CARGO_PKG_VERSION")) {
        Some(version) => ReportRow::note(format!(
            "{said}; it is of version {version}, this command of {}",
            env!("CARGO_PKG_VERSION")
        )),
        None => ReportRow::good(said),
    }
}

fn of_lease(lease: &Lease, now: Timestamp, look: String) -> ReportRow {
    let spec = lease.spec.clone().unwrap_or_default();
    let Some(holder) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
        return ReportRow::bad("no replica leads: the last one gave the lease back").next(look);
    };
    // What follows the pod's name tells it from its predecessor.
    let holder = holder.rsplit_once('_').map_or(&*holder, |(pod, _)| pod);
    let renewed = spec.renew_time.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let age = now.duration_since(renewed).max(SignedDuration::ZERO);
    let term = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(15).into());
    let ago = length(age.unsigned_abs());
    if age > term {
        return ReportRow::bad(format!("no replica leads: {holder} did last, {ago} ago"))
            .next(look);
    }
    ReportRow::good(format!("{holder} leads, and said so {ago} ago"))
}

/// The clock of the API server: whoever asks may have another.
fn server_time(answer: &Answer) -> Option<Timestamp> {
    let text = answer.headers.get(DATE)?.to_str().ok()?;
    httpdate::parse_http_date(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests;
