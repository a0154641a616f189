//! The API server as the place where statuses and Events go.

use super::{events::Notice, sentence::bounded};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::{api::events::v1::Event, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{Client, Resource as _, core::PartialObjectMeta};
use kubewarm_api::{
    model::{Fault, ProfileRef},
    v1alpha1::{CacheProfile, CacheProfileStatus, Completeness, FIELD_MANAGER},
};
use kubewarm_client::{Answer, ApiClient, Buckets, Expiring};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// `reportingController` of our Events.
const CONTROLLER: &str = "kubewarm.io/kubewarm";
/// Wait after a 403 on an Event. An API server that has just started refuses for some seconds what RBAC allows.
const CONFIRM: Duration = Duration::from_secs(4);
/// After a second 403, the namespace gets no Event for this time.
const REFUSED: Duration = Duration::from_mins(10);
/// Namespaces that are remembered to refuse Events. One that is forgotten early costs two more requests.
const MAX_REFUSED: u64 = 4_096;
/// For a request; the client tries some of them again.
const TIME: Duration = Duration::from_secs(30);
/// The longest `reportingInstance`, in bytes.
const MAX_INSTANCE: usize = 128;
/// The largest status, in bytes of JSON: etcd takes objects of 1.5 MiB, with spec and managed fields.
const MAX_STATUS: usize = 1 << 20;
/// The largest profile that is answered, in bytes of JSON: managed fields name each field once more.
const MAX_ANSWER: usize = 4 << 20;

/// A status to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Which profile.
    pub profile: ProfileRef,
    /// Its `metadata.uid`: one of the same name with another UID has a status of its own.
    pub uid: Arc<str>,
    /// What to write.
    pub status: Arc<CacheProfileStatus>,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The API server has it.
    Written,
    /// 404, or the profile of that name is another one by now.
    Gone,
    /// Anything else; tried again with backoff.
    Failed,
}

/// Writes with the operator's own client.
#[derive(Clone)]
pub struct ApiServer {
    client: ApiClient,
    /// What Events are charged to.
    buckets: Buckets,
    /// `reportingInstance` of Events, such as the name of the pod.
    instance: Arc<str>,
    /// Namespaces that get no Events for now, because they refused some.
    refused: Expiring<Arc<str>, ()>,
    warned: Arc<AtomicBool>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// `instance` names this process in Events, which are charged to `buckets`; it is cut at 128 bytes.
    #[must_use]
    pub fn new(client: &Client, instance: &str, buckets: Buckets) -> Self {
        let instance = bounded(instance.to_owned(), MAX_INSTANCE).into();
        let client = ApiClient::new(client);
        let refused = Expiring::new(MAX_REFUSED, REFUSED);
        Self { client, buckets, instance, refused, warned: Arc::default() }
    }

    async fn apply(&self, write: &Write) -> Result<Answer, Fault> {
        let ProfileRef { namespace, name } = &write.profile;
        let collection = CacheProfile::url_path(&(), Some(namespace));
        let path = format!("{collection}/{name}/status?fieldManager={FIELD_MANAGER}&force=true");
        let request = self.client.apply(path, body(write).to_string());
        request.within(TIME).at_most(MAX_ANSWER).send().await
    }

    async fn create(&self, notice: &Notice, at: Timestamp) -> Result<Answer, Fault> {
        let collection = Event::url_path(&(), Some(&notice.profile.namespace));
        let event = self.event(notice, at).to_string();
        self.client.post(collection, event).within(TIME).send().await
    }

    /// Writes the status. [`Outcome::Gone`] if it went to a profile with another UID: the API server
    /// cannot be made to refuse that.
    pub async fn publish(&self, write: &Write) -> Outcome {
        let profile = &write.profile;
        let fault = match self.apply(write).await {
            // The API server holds no patch of a status to a UID (seen on 1.36), so this is how it is
            // noticed. The one that was created anew is given its own status in the next round.
            Ok(answer) if answer.status.is_success() => {
                let applied = answer.json::<PartialObjectMeta<CacheProfile>>();
                let uid = applied.ok().and_then(|applied| applied.metadata.uid);
                let is_same = uid.is_none_or(|uid| *uid == *write.uid);
                return if is_same { Outcome::Written } else { Outcome::Gone };
            }
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => {
                tracing::debug!(%profile, "status not written, the profile is gone");
                return Outcome::Gone;
            }
            Ok(answer) => answer.fault(),
            Err(fault) => fault,
        };
        tracing::warn!(%profile, error = %fault, "status not written, trying again");
        Outcome::Failed
    }

    /// Tells people, once the bucket of the namespace has a turn for it. A failure is only logged.
    pub async fn tell(&self, notice: &Notice, at: Timestamp) {
        let namespace = &notice.profile.namespace;
        if self.refused.get(namespace).is_some() {
            return;
        }
        self.buckets.pass(namespace, 1).await;
        let mut answer = self.create(notice, at).await;
        if is_forbidden(&answer) {
            tokio::time::sleep(CONFIRM).await;
            answer = self.create(notice, at).await;
        }
        let fault = match &answer {
            Ok(answer) if answer.status.is_success() => return,
            Ok(answer) => answer.fault(),
            Err(fault) => fault.clone(),
        };
        if is_forbidden(&answer) {
            self.refused.insert(Arc::clone(namespace), (), Instant::now());
            if !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(%namespace, error = %fault, "not allowed to create events, going on without");
                return;
            }
        }
        tracing::debug!(profile = %notice.profile, error = %fault, "event not sent");
    }

    fn event(&self, notice: &Notice, at: Timestamp) -> Value {
        let Notice { profile: ProfileRef { namespace, name }, uid, type_, reason, note, .. } =
            notice;
        json!({
            "apiVersion": Event::api_version(&()),
            "kind": Event::kind(&()),
            // The server cuts the base to what leaves space for its random suffix.
            "metadata": { "namespace": &**namespace, "generateName": format!("{name}-") },
            "eventTime": MicroTime(at),
            "action": "Warming",
            "reason": reason,
            "note": note,
            "type": type_,
            "regarding": {
                "apiVersion": CacheProfile::api_version(&()),
                "kind": CacheProfile::kind(&()),
                "namespace": &**namespace,
                "name": &**name,
                "uid": &**uid,
            },
            "reportingController": CONTROLLER,
            "reportingInstance": &*self.instance,
        })
    }
}

fn body(write: &Write) -> Value {
    json!({
        "apiVersion": CacheProfile::api_version(&()),
        "kind": CacheProfile::kind(&()),
        "metadata": {
            "namespace": &*write.profile.namespace,
            "name": &*write.profile.name,
        },
        "status": &*fitting(&write.status),
    })
}

/// `status`, or, if it is larger than an object may be, one without the parts that commands print.
fn fitting(status: &CacheProfileStatus) -> Cow<'_, CacheProfileStatus> {
    let size = |status: &CacheProfileStatus| {
        serde_json::to_vec(status).map_or(usize::MAX, |json| json.len())
    };
    if size(status) <= MAX_STATUS {
        return Cow::Borrowed(status);
    }
    let mut smaller = status.clone();
    for leave_out in [leave_out_manifests, leave_out_missing, leave_out_problems] {
        leave_out(&mut smaller);
        if size(&smaller) <= MAX_STATUS {
            break;
        }
    }
    Cow::Owned(smaller)
}

fn leave_out_manifests(status: &mut CacheProfileStatus) {
    let Some(access) = &mut status.access else { return };
    (access.manifests, access.manifests_elevated) = (None, None);
    if !std::mem::take(&mut access.excess).is_empty() {
        access.excess_completeness = Some(Completeness::Incomplete);
    }
}

fn leave_out_missing(status: &mut CacheProfileStatus) {
    status.access.iter_mut().for_each(|access| access.missing.clear());
}

fn leave_out_problems(status: &mut CacheProfileStatus) {
    status.targets.iter_mut().for_each(|target| target.problems.clear());
}

fn is_forbidden(answer: &Result<Answer, Fault>) -> bool {
    answer.as_ref().is_ok_and(|answer| answer.status == StatusCode::FORBIDDEN)
}
