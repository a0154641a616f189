//! Reads facts about the operator from the API server: its identity, and the admission policy for
//! authors.

use kubewarm_api::model::{AccountPolicyEnforcement, Subject};
use kubewarm_client::{fetch_account_policy_enforcement, fetch_own_subject};
use std::time::Duration;
use tokio::sync::watch;

/// Delay before the next request for the operator's identity.
const RETRY: Duration = Duration::from_secs(5);
/// Interval between two reads of the admission policy, which take two small requests.
const POLICY_PERIOD: Duration = Duration::from_secs(30);

/// Requests the operator's identity until the API server returns it. It becomes the subject of the
/// manifests. Never returns.
pub(super) async fn learn_subject(client: kube::Client, sender: watch::Sender<Option<Subject>>) {
    loop {
        match fetch_own_subject(&client).await {
            Ok(subject) => {
                tracing::info!(%subject, "reading as");
                sender.send_replace(Some(subject));
                std::future::pending::<()>().await;
            }
            Err(fault) => {
                tracing::warn!(%fault, "cannot read the operator's identity; no manifests yet");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Reads the admission policy for authors every 30 s. The last result stays valid while requests
/// fail. Never returns.
pub(super) async fn watch_authors(
    client: kube::Client,
    sender: watch::Sender<AccountPolicyEnforcement>,
) {
    loop {
        if let Ok(found) = fetch_account_policy_enforcement(&client).await {
            sender.send_replace(found);
        }
        tokio::time::sleep(POLICY_PERIOD).await;
    }
}
