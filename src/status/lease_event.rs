//! Sends Events about kubewarm itself.

use super::{
    event_recorder::CONTROLLER,
    events::WARNING,
    sentence::{MAX_MESSAGE, bounded},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{coordination::v1::Lease, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
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
    let event = json!({
        "apiVersion": Event::api_version(&()),
        "kind": Event::kind(&()),
        "metadata": { "namespace": namespace, "generateName": format!("{name}-") },
        "eventTime": MicroTime(Timestamp::now()),
        "action": "Authorizing",
        "reason": reason,
        "note": bounded(note.to_owned(), MAX_MESSAGE),
        "type": WARNING,
        "regarding": {
            "apiVersion": Lease::api_version(&()),
            "kind": Lease::kind(&()),
            "namespace": namespace,
            "name": name,
        },
        "reportingController": CONTROLLER,
        "reportingInstance": name,
    });
    let collection = Event::url_path(&(), Some(namespace));
    let answer = ApiClient::new(client).post(collection, event.to_string()).send().await;
    let fault = match answer {
        Ok(answer) if answer.status.is_success() => return,
        Ok(answer) => answer.fault(),
        Err(fault) => fault,
    };
    tracing::warn!(%namespace, %reason, error = %fault, "event not sent");
}
