//! Sends Events about kubewarm itself.

use super::{
    event_recorder::event_body,
    events::WARNING,
    sentence::{MAX_MESSAGE, bounded},
};
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, events::v1::Event};
use kube::{Client, Resource as _};
use kubewarm_client::ApiClient;
use serde_json::json;

/// Sends a warning Event about kubewarm's Lease, given by namespace and name. Logs a failure and
/// does not return it, because the log contains the Event's text, too.
///
/// # Cost
///
/// One request of at most 10 s.
pub(crate) async fn send_lease_event(
    client: &Client,
    (namespace, name): (&str, &str),
    reason: &str,
    note: &str,
) {
    let regarding = json!({
        "apiVersion": Lease::api_version(&()),
        "kind": Lease::kind(&()),
        "namespace": namespace,
        "name": name,
    });
    let note = bounded(note.to_owned(), MAX_MESSAGE);
    let text = (WARNING, reason, &*note);
    let event = event_body(&regarding, text, "Authorizing", Timestamp::now(), name);
    let collection = Event::url_path(&(), Some(namespace));
    let answer = ApiClient::new(client).post(collection, event.to_string()).send().await;
    let fault = match answer {
        Ok(answer) if answer.status.is_success() => return,
        Ok(answer) => answer.fault(),
        Err(fault) => fault,
    };
    tracing::warn!(%namespace, %reason, error = %fault, "event not sent");
}
