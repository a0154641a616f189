//! Whether a profile becomes ready.

use super::{
    super::{
        Error,
        finding::Finding,
        profiles::{Place, Profiles},
        text::length,
        verdict::{Verdict, verdict},
        wait,
    },
    PAUSE,
};
use crate::{cli::SelfTestArgs, cluster::Connection};
use tokio::time::{Instant, sleep};

/// Waits for the profile, and says how that ended.
pub(super) async fn of_profile(
    connection: &Connection,
    args: &SelfTestArgs,
    name: &str,
    deadline: Instant,
) -> Result<Vec<Finding>, Error> {
    let source = Profiles::of(connection, &Place::Namespace(args.namespace.as_deref()), Some(name));
    loop {
        match source.fetch().await {
            Err(Error::Refused { code: 403, .. }) if Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            answer => {
                answer?;
                break;
            }
        }
    }
    let limit = deadline.saturating_duration_since(Instant::now());
    let (seen, _) = wait::until_ready(&source, limit).await?;
    let title = source.title();
    let found = seen.profiles.first().map_or(Verdict::NotReady, verdict);
    if found == Verdict::Ready {
        return Ok(vec![Finding::good(format!("{title} is ready{}", wait::summary(&seen)))]);
    }
    let mut finding = Finding::bad(format!("{title} is not ready after {}", length(args.timeout)));
    for line in wait::report(&source, &seen) {
        finding = finding.next(line);
    }
    Ok(vec![finding])
}
