//! What the operator learns of itself from the API server: who it is, and who is held to what.

use kubewarm_api::model::{AuthorCheck, Subject};
use kubewarm_client::{author_check, whoami};
use std::time::Duration;
use tokio::sync::watch;

/// Between two attempts to ask the API server who we are.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Between two looks at the admission policy: two small requests.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Asks the API server who we are until it says so: the subject of the manifests. Never ends.
pub(super) async fn learn_subject(client: kube::Client, tell: watch::Sender<Option<Subject>>) {
    loop {
        match whoami(&client).await {
            Ok(subject) => {
                tracing::info!(%subject, "reading as");
                tell.send_replace(Some(subject));
                std::future::pending::<()>().await;
            }
            Err(fault) => {
                tracing::warn!(%fault, "the API server does not say who we are; no manifests yet");
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }
}

/// Asks every 30 s whether authors are held to the accounts that they may act as; what was known
/// last counts while the API server does not say. Never ends.
pub(super) async fn watch_authors(client: kube::Client, tell: watch::Sender<AuthorCheck>) {
    loop {
        if let Ok(found) = author_check(&client).await {
            tell.send_replace(found);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
