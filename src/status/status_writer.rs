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

/// The field `reportingController` of kubewarm's Events.
const CONTROLLER: &str = "kubewarm.io/kubewarm";
/// Delay before kubewarm sends an Event again that the API server rejected with 403. For some
/// seconds after its start, an API server rejects requests that RBAC permits.
const CONFIRM: Duration = Duration::from_secs(4);
/// How long kubewarm sends no Events to a namespace after the second 403 in a row.
const REFUSED: Duration = Duration::from_mins(10);
/// Maximum number of remembered namespaces that rejected Events. A namespace that is forgotten
/// early costs two rejected requests for its next Event.
const MAX_REFUSED: u64 = 4_096;
/// Timeout of one request, including the client's own retries.
const TIME: Duration = Duration::from_secs(30);
/// Maximum length of `reportingInstance`, in bytes.
const MAX_INSTANCE: usize = 128;
/// Maximum size of a status, in bytes of JSON. etcd accepts objects up to 1.5 MiB, so 0.5 MiB
/// remains for the spec and the managed fields.
const MAX_STATUS: usize = 1 << 20;
/// Maximum size of a response, in bytes of JSON. A response contains the complete profile,
/// including managed fields, which repeat the name of each field.
const MAX_ANSWER: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    pub profile: ProfileRef,
    /// `metadata.uid` of the profile. A profile that was created again under the same name has
    /// another UID and needs its own status.
    pub uid: Arc<str>,
    pub status: Arc<CacheProfileStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusWriteOutcome {
    Written,
    /// The API server returned 404, or the name now belongs to a profile with another UID.
    NotFound,
    /// Any error except 404 and a changed UID. The reporter retries the write with backoff.
    Failed,
}

/// Client for status writes and Events, with the operator's identity.
#[derive(Clone)]
pub struct StatusWriter {
    client: ApiClient,
    /// Rate limits per namespace. Each Event takes one request from its namespace's limit.
    buckets: NamespaceBuckets,
    /// The field `reportingInstance` of Events, for instance the pod's name.
    instance: Arc<str>,
    /// Namespaces that get no Events for 10 minutes, because the API server rejected an Event twice
    /// with 403.
    refused: ExpiringCache<Arc<str>, ()>,
    warned: Arc<AtomicBool>,
}

impl std::fmt::Debug for StatusWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusWriter").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl StatusWriter {
    /// Creates a status writer. `instance` identifies this process in Events and is truncated to
    /// 128 bytes. Each Event waits for its namespace's rate limit in `buckets`.
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

    /// Writes the status. The write can reach a profile that was created again under the same name,
    /// because the API server does not compare UIDs. The result is then
    /// [`StatusWriteOutcome::NotFound`].
    pub async fn publish(&self, write: &StatusWrite) -> StatusWriteOutcome {
        let profile = &write.profile;
        let fault = match self.apply(write).await {
            // The API server ignores a UID in a status patch (seen with 1.36), so the writer
            // compares the UID in the response. kubewarm later replaces a status that reached a
            // profile with another UID.
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

    /// Waits for the namespace's rate limit, and then sends an Event. Failures are only logged.
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
                tracing::warn!(%namespace, error = %fault, "cannot create Events: forbidden; grant create on events");
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
            // A long name needs no truncation, because the API server truncates this prefix before
            // it appends its random suffix.
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

/// Returns `status`. If `status` exceeds [`MAX_STATUS`], returns a copy without manifests, missing
/// permissions or problems, removed in this order until the copy fits. `kubectl warm` can print the
/// removed fields.
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
