//! The API server as the place where statuses and Events go.

use super::{
    events::Notice,
    pacer::{Outcome, Write},
    publish::StatusSink,
    sentence::bounded,
};
use crate::{
    api::{CacheProfile, CacheProfileStatus, ExcessCompleteness, FIELD_MANAGER},
    model::ProfileRef,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Client, Resource as _,
    api::{Patch, PatchParams, PostParams},
    core::Request,
};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::HashMap,
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
/// The longest `reportingInstance`, in bytes.
const MAX_INSTANCE: usize = 128;
/// The largest status, in bytes of JSON: etcd takes objects of 1.5 MiB, with spec and managed fields.
const MAX_STATUS: usize = 1 << 20;

/// Writes with the operator's own client.
#[derive(Clone)]
pub struct ApiServer {
    client: Client,
    /// `reportingInstance` of Events, such as the name of the pod.
    instance: Arc<str>,
    /// Namespaces that refused Events, and until when they get none. Bounded: what has expired
    /// goes before anything is added.
    refused: Arc<Mutex<HashMap<Arc<str>, Instant>>>,
    warned: Arc<AtomicBool>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// `instance` names this process in Events; it is cut at 128 bytes.
    #[must_use]
    pub fn new(client: Client, instance: &str) -> Self {
        let instance = bounded(instance.to_owned(), MAX_INSTANCE).into();
        Self { client, instance, refused: Arc::default(), warned: Arc::default() }
    }

    async fn apply(&self, write: &Write) -> Result<Outcome, kube::Error> {
        let ProfileRef { namespace, name } = &write.profile;
        let collection = CacheProfile::url_path(&(), Some(namespace));
        let how = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(body(write));
        let request = Request::new(collection)
            .patch_subresource("status", name, &how, &patch)
            .map_err(kube::Error::BuildRequest)?;
        let answer = self.client.request_text(request).await?;
        // The API server holds no patch of a status to a UID (seen on 1.36), so this is how it is
        // noticed. The one that was created anew is given its own status in the next round.
        let applied: Applied = serde_json::from_str(&answer).unwrap_or_default();
        Ok(if applied.metadata.uid.is_none_or(|uid| *uid == *write.uid) {
            Outcome::Written
        } else {
            Outcome::Gone
        })
    }

    async fn create(&self, notice: &Notice, at: Timestamp) -> Result<(), kube::Error> {
        let collection = Event::url_path(&(), Some(&notice.profile.namespace));
        let event = serde_json::to_vec(&self.event(notice, at)).map_err(kube::Error::SerdeError)?;
        let request = Request::new(collection)
            .create(&PostParams::default(), event)
            .map_err(kube::Error::BuildRequest)?;
        self.client.request_text(request).await.map(drop)
    }

    fn event(&self, notice: &Notice, at: Timestamp) -> Event {
        let ProfileRef { namespace, name } = &notice.profile;
        let regarding = ObjectReference {
            api_version: Some(CacheProfile::api_version(&()).into_owned()),
            kind: Some(CacheProfile::kind(&()).into_owned()),
            namespace: Some(namespace.to_string()),
            name: Some(name.to_string()),
            uid: Some(notice.uid.to_string()),
            ..ObjectReference::default()
        };
        let kind = if notice.cause.is_warning() { "Warning" } else { "Normal" };
        Event {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_string()),
                // The server cuts the base to what leaves room for its random suffix.
                generate_name: Some(format!("{name}-")),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(at)),
            action: Some("Warming".to_owned()),
            reason: Some(notice.cause.as_str().to_owned()),
            note: Some(notice.note.clone()),
            type_: Some(kind.to_owned()),
            regarding: Some(regarding),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.to_string()),
            ..Event::default()
        }
    }
}

impl StatusSink for ApiServer {
    async fn publish(&self, write: &Write) -> Outcome {
        let profile = &write.profile;
        let error = match self.apply(write).await {
            Ok(outcome) => return outcome,
            Err(error) => error,
        };
        if code(&error) == Some(404) {
            tracing::debug!(%profile, "status not written, the profile is gone");
            return Outcome::Gone;
        }
        tracing::warn!(%profile, %error, "status not written, trying again");
        Outcome::Failed
    }

    async fn tell(&self, notice: &Notice, at: Timestamp) {
        let namespace = &notice.profile.namespace;
        if self.refused.lock().get(namespace).is_some_and(|until| Instant::now() < *until) {
            return;
        }
        let mut answer = self.create(notice, at).await;
        if answer.as_ref().is_err_and(|error| code(error) == Some(403)) {
            tokio::time::sleep(CONFIRM).await;
            answer = self.create(notice, at).await;
        }
        let Err(error) = answer else { return };
        if code(&error) == Some(403) {
            let now = Instant::now();
            let mut refused = self.refused.lock();
            refused.retain(|_, until| now < *until);
            refused.insert(Arc::clone(namespace), now + REFUSED);
            if !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(%namespace, %error, "not allowed to create events, going on without");
                return;
            }
        }
        tracing::debug!(profile = %notice.profile, %error, "event not sent");
    }
}

/// The part of the answer that is looked at: the rest the reflector will bring anyway.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Applied {
    metadata: AppliedMeta,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct AppliedMeta {
    uid: Option<String>,
}

fn body(write: &Write) -> serde_json::Value {
    serde_json::json!({
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
    if let Some(access) = &mut smaller.access {
        access.roles.clear();
        if !access.excess.is_empty() {
            access.excess.clear();
            access.excess_completeness = Some(ExcessCompleteness::Incomplete);
        }
        access.manifests = None;
        access.manifests_elevated = None;
    }
    if size(&smaller) > MAX_STATUS
        && let Some(access) = &mut smaller.access
    {
        access.missing.clear();
    }
    if size(&smaller) > MAX_STATUS {
        smaller.targets.iter_mut().for_each(|target| target.problems.clear());
    }
    Cow::Owned(smaller)
}

fn code(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error { Some(status.code) } else { None }
}
