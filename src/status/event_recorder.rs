//! Sends Events about profiles to the API server.

use super::{events::ProfileEvent, sentence::bounded};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::{api::events::v1::Event, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{Client, Resource as _};
use kubewarm_api::{
    model::{ProfileRef, RequestFault},
    v1alpha1::CacheProfile,
};
use kubewarm_client::{ApiClient, ApiResponse, ExpiringCache, NamespaceBuckets};
use serde_json::{Value, json};
use std::{
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
/// How long kubewarm sends no Events to a namespace after the API server rejected an Event and its
/// retry with 403. Further Events would be rejected too, and only load the API server.
const REFUSED: Duration = Duration::from_mins(10);
/// Maximum number of namespaces for which kubewarm remembers that the API server rejected an Event,
/// which bounds memory. In further namespaces, each Event costs two rejected requests.
const MAX_REFUSED: u64 = 4_096;
/// Timeout of the request that sends one Event, including the client's own retries.
const TIME: Duration = Duration::from_secs(30);
/// Maximum length of `reportingInstance` that the API server accepts, in bytes.
const MAX_INSTANCE: usize = 128;

#[derive(Clone)]
pub struct EventRecorder {
    client: ApiClient,
    /// Rate limits of Event requests, one per namespace.
    buckets: NamespaceBuckets,
    /// Value of the field `reportingInstance` in Events, for instance the pod's name.
    instance: Arc<str>,
    /// Namespaces to which kubewarm sends no Events for 10 minutes, because the API server rejected
    /// an Event and its retry with 403.
    refused: ExpiringCache<Arc<str>, ()>,
    warned: Arc<AtomicBool>,
}

impl EventRecorder {
    /// `instance` identifies this process in Events; `new` truncates it to 128 bytes, the API
    /// server's limit of `reportingInstance`. `buckets` contains the rate limit of Event requests
    /// for each namespace.
    pub fn new(client: &Client, instance: &str, buckets: NamespaceBuckets) -> Self {
        let instance = bounded(instance.to_owned(), MAX_INSTANCE).into();
        let client = ApiClient::new(client);
        let refused = ExpiringCache::new(MAX_REFUSED, REFUSED);
        Self { client, buckets, instance, refused, warned: Arc::default() }
    }

    /// Waits for the rate limit of the profile's namespace, and then sends an Event. Logs failures
    /// and does not return them.
    pub async fn send(&self, event: &ProfileEvent, at: Timestamp) {
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

    async fn create(
        &self,
        event: &ProfileEvent,
        at: Timestamp,
    ) -> Result<ApiResponse, RequestFault> {
        let collection = Event::url_path(&(), Some(&event.profile.namespace));
        let event = self.event(event, at).to_string();
        self.client.post(collection, event).within(TIME).send().await
    }

    fn event(&self, event: &ProfileEvent, at: Timestamp) -> Value {
        let ProfileEvent {
            profile: ProfileRef { namespace, name }, uid, type_, reason, note, ..
        } = event;
        let regarding = json!({
            "apiVersion": CacheProfile::api_version(&()),
            "kind": CacheProfile::kind(&()),
            "namespace": &**namespace,
            "name": &**name,
            "uid": &**uid,
        });
        event_body(&regarding, (type_, reason, note), "Warming", at, &self.instance)
    }
}

/// An Event about the object `regarding`, which has a namespace and a name. `text` is the Event's
/// `type`, `reason` and `note`.
pub(super) fn event_body(
    regarding: &Value,
    text: (&str, &str, &str),
    action: &str,
    at: Timestamp,
    instance: &str,
) -> Value {
    let (type_, reason, note) = text;
    let name = regarding["name"].as_str().unwrap_or_default();
    json!({
        "apiVersion": Event::api_version(&()),
        "kind": Event::kind(&()),
        // The API server truncates `generateName` before it appends a random suffix, so a long name
        // needs no truncation.
        "metadata": { "namespace": regarding["namespace"], "generateName": format!("{name}-") },
        "eventTime": MicroTime(at),
        "action": action,
        "reason": reason,
        "note": note,
        "type": type_,
        "regarding": regarding,
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
    })
}

fn is_forbidden(answer: &Result<ApiResponse, RequestFault>) -> bool {
    answer.as_ref().is_ok_and(|answer| answer.status == StatusCode::FORBIDDEN)
}
