//! Reads two facts from the API server: the operator's own identity, and whether an admission
//! policy restricts the authors of profiles.

use kubewarm_api::model::{AccountPolicyEnforcement, Subject};
use kubewarm_client::{fetch_account_policy_enforcement, fetch_own_subject};
use std::time::Duration;
use tokio::sync::watch;

/// Delay from a failed request for the operator's identity to the next request.
const RETRY: Duration = Duration::from_secs(5);
/// Interval between two reads of the admission policy. A read takes two small requests.
const POLICY_PERIOD: Duration = Duration::from_secs(30);

/// Requests the operator's identity until the API server returns the identity, and sends it to
/// `sender`. The RBAC manifests in profiles' statuses grant permissions to this identity. Never
/// returns.
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

/// Every 30 s reads whether an admission policy restricts the authors of profiles, and sends the
/// result to `sender`. A failed read keeps the last result. Never returns.
pub(super) async fn watch_authors(
    client: kube::Client,
    sender: watch::Sender<AccountPolicyEnforcement>,
) {
    loop {
        if let Ok(enforcement) = fetch_account_policy_enforcement(&client).await {
            sender.send_replace(enforcement);
        }
        tokio::time::sleep(POLICY_PERIOD).await;
    }
}
