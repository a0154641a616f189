//! The API server as the place where statuses and Events go.

use super::{
    events::Notice,
    pacer::{Outcome, Write},
    publish::StatusSink,
    sentence::bounded,
};
use crate::{
    api::{CacheProfile, FIELD_MANAGER},
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
/// After a 403 on an Event: for so long its namespace gets none.
const REFUSED: Duration = Duration::from_mins(10);
/// Bounds of the Event's fields, in bytes.
const MAX_INSTANCE: usize = 128;

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

    async fn apply(&self, write: &Write) -> Result<(), kube::Error> {
        let ProfileRef { namespace, name } = &write.profile;
        let collection = CacheProfile::url_path(&(), Some(namespace));
        let how = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(body(write));
        let request = Request::new(collection)
            .patch_subresource("status", name, &how, &patch)
            .map_err(kube::Error::BuildRequest)?;
        // What comes back is the whole profile, which the reflector will bring anyway.
        self.client.request_text(request).await.map(drop)
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
        let Err(error) = self.apply(write).await else { return Outcome::Written };
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
        let Err(error) = self.create(notice, at).await else { return };
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

/// The UID makes the API server refuse a profile that was deleted and created again.
fn body(write: &Write) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": CacheProfile::api_version(&()),
        "kind": CacheProfile::kind(&()),
        "metadata": {
            "namespace": &*write.profile.namespace,
            "name": &*write.profile.name,
            "uid": &*write.uid,
        },
        "status": &*write.status,
    })
}

fn code(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error { Some(status.code) } else { None }
}
