//! Sends statuses and Events to the API server.

use super::{events::ProfileEvent, sentence::bounded};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::{api::events::v1::Event, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{Client, Resource as _, core::PartialObjectMeta};
use kubewarm_api::{
    model::{ProfileRef, RequestFault},
    v1alpha1::{CacheProfile, CacheProfileStatus, FIELD_MANAGER, RulesCompleteness},
};
use kubewarm_client::{ApiClient, ApiResponse, ExpiringCache, NamespaceBuckets};
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

/// `reportingController` of kubewarm's Events.
const CONTROLLER: &str = "kubewarm.io/kubewarm";
/// Delay before an Event that got a 403 is sent again. An API server refuses RBAC requests for some
/// seconds after its start.
const CONFIRM: Duration = Duration::from_secs(4);
/// How long a namespace gets no Events after a second 403.
const REFUSED: Duration = Duration::from_mins(10);
/// Maximum number of namespaces that are remembered as refusing Events. Forgetting one early costs
/// two requests.
const MAX_REFUSED: u64 = 4_096;
/// Timeout of a request, including the client's own retries.
const TIME: Duration = Duration::from_secs(30);
/// Maximum length of `reportingInstance`, in bytes.
const MAX_INSTANCE: usize = 128;
/// Maximum size of a status, in bytes of JSON. etcd accepts objects of 1.5 MiB, including the spec
/// and managed fields.
const MAX_STATUS: usize = 1 << 20;
/// Maximum size of a response, in bytes of JSON. It contains the profile with managed fields, which
/// repeat each field name.
const MAX_ANSWER: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    pub profile: ProfileRef,
    /// `metadata.uid` of the profile. A profile with the same name and another UID has its own
    /// status.
    pub uid: Arc<str>,
    pub status: Arc<CacheProfileStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusWriteOutcome {
    Written,
    /// The API server returned 404, or the name now belongs to a profile with another UID.
    NotFound,
    /// Every other error. The write is retried with backoff.
    Failed,
}

/// Client for status writes and Events, with the operator's identity.
#[derive(Clone)]
pub struct StatusWriter {
    client: ApiClient,
    /// Rate limits per namespace, which Events are charged to.
    buckets: NamespaceBuckets,
    /// `reportingInstance` of Events, such as the pod's name.
    instance: Arc<str>,
    /// Namespaces that get no Events for now, because they returned 403 twice.
    refused: ExpiringCache<Arc<str>, ()>,
    warned: Arc<AtomicBool>,
}

impl std::fmt::Debug for StatusWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusWriter").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl StatusWriter {
    /// `instance` identifies this process in Events and is truncated to 128 bytes. Events are
    /// charged to `buckets`.
    #[must_use]
    pub fn new(client: &Client, instance: &str, buckets: NamespaceBuckets) -> Self {
        let instance = bounded(instance.to_owned(), MAX_INSTANCE).into();
        let client = ApiClient::new(client);
        let refused = ExpiringCache::new(MAX_REFUSED, REFUSED);
        Self { client, buckets, instance, refused, warned: Arc::default() }
    }

    async fn apply(&self, write: &StatusWrite) -> Result<ApiResponse, RequestFault> {
        let ProfileRef { namespace, name } = &write.profile;
        let collection = CacheProfile::url_path(&(), Some(namespace));
        let path = format!("{collection}/{name}/status?fieldManager={FIELD_MANAGER}&force=true");
        let request = self.client.apply(path, body(write).to_string());
        request.within(TIME).at_most(MAX_ANSWER).send().await
    }

    async fn create(
        &self,
        event: &ProfileEvent,
        at: Timestamp,
    ) -> Result<ApiResponse, RequestFault> {
        let collection = Event::url_path(&(), Some(&event.profile.namespace));
        let event = self.event(event, at).to_string();
        self.client.post(collection, event).within(TIME).send().await
    }

    /// Writes the status. Returns [`StatusWriteOutcome::NotFound`] if the write reached a profile with another
    /// UID; the API server has no precondition against that.
    pub async fn publish(&self, write: &StatusWrite) -> StatusWriteOutcome {
        let profile = &write.profile;
        let fault = match self.apply(write).await {
            // The API server ignores a UID in a status patch (seen with 1.36), so the response is
            // compared.
            // The next round writes the new profile's own status.
            Ok(answer) if answer.status.is_success() => {
                let applied = answer.json::<PartialObjectMeta<CacheProfile>>();
                let uid = applied.ok().and_then(|applied| applied.metadata.uid);
                let is_same = uid.is_none_or(|uid| *uid == *write.uid);
                return if is_same {
                    StatusWriteOutcome::Written
                } else {
                    StatusWriteOutcome::NotFound
                };
            }
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => {
                tracing::debug!(%profile, "status not written, the profile is gone");
                return StatusWriteOutcome::NotFound;
            }
            Ok(answer) => answer.fault(),
            Err(fault) => fault,
        };
        tracing::warn!(%profile, error = %fault, "status not written, trying again");
        StatusWriteOutcome::Failed
    }

    /// Sends an Event, after waiting for the namespace's rate limit. Failures are only logged.
    pub async fn send_event(&self, event: &ProfileEvent, at: Timestamp) {
        let namespace = &event.profile.namespace;
        if self.refused.get(namespace).is_some() {
            return;
        }
        self.buckets.take(namespace, 1).await;
        let mut answer = self.create(event, at).await;
        if is_forbidden(&answer) {
            tokio::time::sleep(CONFIRM).await;
            answer = self.create(event, at).await;
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
        tracing::debug!(profile = %event.profile, error = %fault, "event not sent");
    }

    fn event(&self, event: &ProfileEvent, at: Timestamp) -> Value {
        let ProfileEvent {
            profile: ProfileRef { namespace, name }, uid, type_, reason, note, ..
        } = event;
        json!({
            "apiVersion": Event::api_version(&()),
            "kind": Event::kind(&()),
            // The API server truncates the name to leave space for its random suffix.
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

fn body(write: &StatusWrite) -> Value {
    json!({
        "apiVersion": CacheProfile::api_version(&()),
        "kind": CacheProfile::kind(&()),
        "metadata": {
            "namespace": &*write.profile.namespace,
            "name": &*write.profile.name,
        },
        "status": &*shrink_to_limit(&write.status),
    })
}

/// Returns `status`, or a copy without optional parts if it is too large. The command line can
/// print those parts.
fn shrink_to_limit(status: &CacheProfileStatus) -> Cow<'_, CacheProfileStatus> {
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
        access.excess_completeness = Some(RulesCompleteness::Incomplete);
    }
}

fn leave_out_missing(status: &mut CacheProfileStatus) {
    status.access.iter_mut().for_each(|access| access.missing.clear());
}

fn leave_out_problems(status: &mut CacheProfileStatus) {
    status.targets.iter_mut().for_each(|target| target.problems.clear());
}

fn is_forbidden(answer: &Result<ApiResponse, RequestFault>) -> bool {
    answer.as_ref().is_ok_and(|answer| answer.status == StatusCode::FORBIDDEN)
}
