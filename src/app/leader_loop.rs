//! Work that only the leader does, again and again.

use kubewarm_client::LeaseState;
use std::{fmt::Display, time::Duration};
use tokio::{sync::watch, time::sleep};

/// Work of the leader.
pub(super) trait LeaderDuty {
    type Error: Display;

    /// Does the work once.
    fn perform(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Performs `duty` every `period` while this replica leads. Never returns.
///
/// Logs an error with the message `failed`, and again only after it has changed: the same error
/// would otherwise be logged every few seconds.
pub(super) async fn repeat_while_leading(
    mut duty: impl LeaderDuty,
    lease: watch::Receiver<LeaseState>,
    period: Duration,
    failed: &'static str,
) {
    let mut last_error = String::new();
    loop {
        let is_leader = lease.borrow().is_leader();
        let result = if is_leader { duty.perform().await } else { Ok(()) };
        let error = result.err().map(|error| error.to_string()).unwrap_or_default();
        if !error.is_empty() && error != last_error {
            tracing::error!(error, "{failed}");
        }
        last_error = error;
        sleep(period).await;
    }
}
