//! What replicas tell each other: each renews a Lease of its own that says how warm it is, and the
//! leader reads the others'.
//!
//! So only one process ever writes a lease, and a follower costs one small PUT every 30 s.

mod roll;
mod share;
#[cfg(test)]
mod tests;

pub use self::{roll::Peer, share::WarmTargets};

use self::{
    roll::{Abandoned, Roll},
    share::encode,
};
use super::{
    answer::{Answer, Bounds, ask},
    lease::{Leadership, LeaseState},
};
use crate::model::{Fault, ProfileRef, Reason};
use http::{HeaderValue, Method, Request, StatusCode, header};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{
        DeleteOptions, ListMeta, MicroTime, ObjectMeta, Preconditions,
    },
};
use kube::{Client, client::Body};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// Between two renewals, and between two looks at the others; with a tenth of jitter.
const PERIOD: Duration = Duration::from_secs(30);
/// What names of leases begin with; the name of the pod follows.
const PREFIX: &str = "kubewarm-replica-";
/// The label by which they are listed.
const LABEL: &str = "kubewarm.io/replica";
/// The annotation that holds warm targets by profile.
const WARM_TARGETS: &str = "kubewarm.io/warm-targets";
/// Leases in a list: twice as many as a status names, for those that died.
const MAX_LEASES: usize = 32;
/// Abandoned leases deleted after one look.
const MAX_DELETIONS: usize = 8;
/// The longest name of a lease, in bytes.
const MAX_NAME: usize = 253;
/// What one may take of the time to terminate to delete the own lease.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// A list of leases with all the annotations that the API server takes: 256 KiB each.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), body_bytes: 9 << 20 };

/// Which replicas there are, as far as this one knows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// The name of this one: that of its pod.
    pub own: Arc<str>,
    /// The others that are alive, by name; `None` while nobody has looked, as only the leader does.
    pub others: Option<Arc<[Peer]>>,
    /// Why this one is not known to the others, or they are not to it.
    pub trouble: Option<Fault>,
}

/// Tells the others about this replica, and learns about them while it leads.
pub struct Announcer {
    client: Client,
    namespace: Arc<str>,
    identity: Arc<str>,
    leadership: Leadership,
    replicas: Arc<watch::Sender<Replicas>>,
    shares: SharesSource,
    roll: Roll,
    /// The resource version of our lease as we wrote it last.
    version: Option<String>,
    said_too_large: bool,
    said_too_many: bool,
}

/// How warm the profiles are on this replica. Called every 30 s; must not block.
pub type SharesSource = Box<dyn Fn() -> Vec<(ProfileRef, WarmTargets)> + Send + Sync>;

#[derive(Deserialize)]
struct LeaseList {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<Lease>,
}

impl Replicas {
    /// Knows only itself. `identity` is the name of the pod, `_`, and what makes it unique.
    #[must_use]
    pub fn alone(identity: &str) -> Self {
        let host = identity.rsplit_once('_').map_or(identity, |(host, _)| host);
        Self { own: dns_name(host).into(), others: None, trouble: None }
    }
}

impl Announcer {
    /// Prepares; nothing is sent before [`run`](Self::run). What is learned goes to `replicas`,
    /// which already names this one.
    #[must_use]
    pub fn new(
        client: Client,
        (namespace, identity): (Arc<str>, Arc<str>),
        leadership: Leadership,
        replicas: Arc<watch::Sender<Replicas>>,
        shares: SharesSource,
    ) -> Self {
        Self {
            client,
            namespace,
            identity,
            leadership,
            replicas,
            shares,
            roll: Roll::default(),
            version: None,
            said_too_large: false,
            said_too_many: false,
        }
    }

    /// Announces and learns until `stop`, then deletes the lease of this replica (within 2 s).
    /// Failures, 403 among them, are told by [`Replicas::trouble`] and tried again.
    ///
    /// # Cost
    ///
    /// One PUT of at most 128 KiB every 30 s; on the leader also a list of at most 32 leases.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut state = self.leadership.state();
        loop {
            state.borrow_and_update();
            if stop.run_until_cancelled(self.turn()).await.is_none() {
                break;
            }
            let pause = PERIOD.mul_f64(0.9 + fastrand::f64() / 5.0);
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(pause) => {}
                () = won(&mut state) => {}
            }
        }
        match timeout(RETIRE_TIMEOUT, self.delete(&self.lease_name(), None)).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => tracing::warn!(error = %fault, "lease of this replica not deleted"),
            Err(_) => tracing::warn!("lease of this replica not deleted in time"),
        }
    }

    async fn turn(&mut self) {
        // First, as a new leader's statuses wait for it.
        let learned = if self.leadership.is_leader() {
            self.learn().await
        } else {
            self.roll = Roll::default();
            self.replicas.send_modify(|replicas| replicas.others = None);
            Ok(())
        };
        let announced = self.announce().await;
        self.tell_trouble(learned.and(announced).err());
    }

    /// Writes our lease.
    async fn announce(&mut self) -> Result<(), Fault> {
        let encoded = encode(&(self.shares)());
        if encoded.left_out > 0 && !self.said_too_large {
            self.said_too_large = true;
            let profiles = encoded.left_out;
            tracing::warn!(
                profiles,
                "the lease of this replica has no room for all profiles; \
                 status.replicas of the rest does not say how warm they are here"
            );
        }
        let name = self.lease_name();
        // A PUT of a lease that is not as we left it, a POST where one of our predecessor's is, and
        // then one that finds none.
        for _ in 0..3 {
            let lease = self.lease(&name, &encoded.json, Timestamp::now());
            let answer = match self.version.take() {
                Some(_) => self.send(Method::PUT, &format!("/{name}"), Some(&lease)).await?,
                None => self.send(Method::POST, "", Some(&lease)).await?,
            };
            let was_known = lease.metadata.resource_version.is_some();
            match answer.status {
                StatusCode::CONFLICT | StatusCode::NOT_FOUND if was_known => {}
                StatusCode::CONFLICT => self.delete(&name, None).await?,
                _ => {
                    self.version = answer.json::<Lease>()?.metadata.resource_version;
                    return Ok(());
                }
            }
        }
        Err(Fault::new(Reason::ServerError, "the lease changes faster than it can be written"))
    }

    /// Reads the leases of the others, and deletes those of the dead.
    async fn learn(&mut self) -> Result<(), Fault> {
        let query = format!("?labelSelector={LABEL}&limit={MAX_LEASES}").replace('/', "%2F");
        let listed = self.send::<()>(Method::GET, &query, None).await;
        let list: LeaseList = match listed.and_then(|answer| answer.json()) {
            Ok(list) => list,
            Err(fault) => {
                // What was known stays, unless asking again will not help.
                if lasts(fault.reason()) {
                    self.replicas.send_modify(|replicas| replicas.others = Some(Arc::default()));
                }
                return Err(fault);
            }
        };
        let more = list.metadata.continue_.is_some_and(|token| !token.is_empty());
        if more && !self.said_too_many {
            self.said_too_many = true;
            tracing::warn!("more than {MAX_LEASES} leases have label {LABEL}; the rest is ignored");
        }
        let now = Instant::now();
        self.roll.note(list.items, &self.lease_name(), now, Timestamp::now());
        let peers = self.roll.peers();
        self.replicas.send_modify(|replicas| replicas.others = Some(peers));
        for Abandoned { lease, version } in self.roll.abandoned(now).into_iter().take(MAX_DELETIONS)
        {
            self.delete(&lease, Some(version)).await?;
        }
        Ok(())
    }

    /// Deletes a lease; one that is gone, or not of this version any more, is left alone.
    async fn delete(&self, name: &str, version: Option<String>) -> Result<(), Fault> {
        let preconditions =
            version.map(|version| Preconditions { resource_version: Some(version), uid: None });
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        let answer = self.send(Method::DELETE, &format!("/{name}"), Some(&options)).await?;
        let settled = matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::CONFLICT);
        if settled || answer.status.is_success() { Ok(()) } else { Err(answer.fault()) }
    }

    fn tell_trouble(&self, trouble: Option<Fault>) {
        self.replicas.send_if_modified(|replicas| {
            let before = replicas.trouble.as_ref().map(Fault::reason);
            let after = trouble.as_ref().map(Fault::reason);
            match &trouble {
                Some(fault) if before != after => {
                    let reason = fault.reason();
                    let forbidden = reason == Reason::Forbidden;
                    let next = if forbidden { "apply deploy/operator-rbac.yaml" } else { "retrying" };
                    tracing::warn!(
                        reason = reason.as_str(), error = %fault, next,
                        "leases of replicas not usable; statuses may lack replicas, the rest goes on"
                    );
                }
                None if before.is_some() => tracing::info!("leases of replicas usable again"),
                Some(_) | None => {}
            }
            replicas.trouble = trouble;
            before != after
        });
    }

    fn lease_name(&self) -> String {
        format!("{PREFIX}{}", self.replicas.borrow().own)
    }

    fn lease(&self, name: &str, warm_targets: &str, clock: Timestamp) -> Lease {
        let text = |text: &str| text.to_owned();
        Lease {
            metadata: ObjectMeta {
                name: Some(text(name)),
                labels: Some([(text(LABEL), text("true"))].into()),
                annotations: Some([(text(WARM_TARGETS), text(warm_targets))].into()),
                resource_version: self.version.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.to_string()),
                lease_duration_seconds: i32::try_from(3 * PERIOD.as_secs()).ok(),
                renew_time: Some(MicroTime(clock)),
                ..LeaseSpec::default()
            }),
        }
    }

    /// `rest` is what follows the collection in the path.
    async fn send<T: Serialize>(
        &self,
        method: Method,
        rest: &str,
        body: Option<&T>,
    ) -> Result<Answer, Fault> {
        let malformed = |error: &dyn fmt::Display| Fault::new(Reason::Malformed, error.to_string());
        let body = body.map(serde_json::to_vec).transpose().map_err(|error| malformed(&error))?;
        let namespace = &self.namespace;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{rest}"))
            .body(Body::from(body.unwrap_or_default()))
            .map_err(|error| malformed(&error))?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
        request.headers_mut().insert(header::ACCEPT, json);
        ask(&self.client, request, BOUNDS).await
    }
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcer")
            .field("namespace", &self.namespace)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Whether a list that failed so will fail again until somebody does something.
const fn lasts(reason: Reason) -> bool {
    matches!(reason, Reason::Forbidden | Reason::TooLarge | Reason::Malformed)
}

/// Completes when leadership is won.
async fn won(state: &mut watch::Receiver<LeaseState>) {
    while state.changed().await.is_ok() {
        if *state.borrow_and_update() == LeaseState::Leader {
            return;
        }
    }
    // The election has ended; the process is about to.
    std::future::pending::<()>().await;
}

/// `host` as the end of the name of a lease: pods' names are, but a host may be called anything.
fn dns_name(host: &str) -> String {
    let allowed = |c: char| {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' { c } else { '-' }
    };
    let name: String = host.chars().take(MAX_NAME - PREFIX.len()).map(allowed).collect();
    // A dot may stand between letters only; what is left of it does not matter.
    let parts: Vec<_> = name.split('.').map(|part| part.trim_matches('-')).collect();
    let name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
    if name.is_empty() { "kubewarm".to_owned() } else { name }
}
