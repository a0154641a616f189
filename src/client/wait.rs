//! `wait`: come back when a profile is ready, and say what is missing if it is not in time.

use super::{
    Error,
    print::{print, tell},
    profiles::{Place, Profiles, Seen},
    text::{escape, grouped, length},
    verdict::{Verdict, lacking, verdict},
};
use crate::{
    api::CacheProfile,
    cli::{Until, WaitArgs},
};
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// Waits until the profile is ready, needs an edit, or the time is over, and says which.
///
/// # Errors
///
/// [`Error`] if there is no cluster, or the first question is refused or fails. Later troubles are
/// waited out.
pub async fn wait(args: WaitArgs) -> Result<Verdict, Error> {
    // One arm today; a second state to wait for must be dealt with here before this compiles.
    let Until::Ready = args.until;
    let place = Place::Namespace(args.namespace.as_deref());
    let source = Profiles::connect(&args.connection, &place, Some(&args.name))?;
    let (seen, waited) = until_ready(&source, args.timeout).await?;
    conclude(&source, &seen, waited)
}

/// Waits until the profile is ready or needs an edit, telling about progress on the way: what was seen last,
/// and for how long it waited if the time is over.
///
/// # Errors
///
/// As for [`wait`].
pub(super) async fn until_ready(
    source: &Profiles,
    limit: Duration,
) -> Result<(Seen, Option<Duration>), Error> {
    if limit.is_zero() {
        let profiles = source.fetch().await?;
        return Ok((Seen { profiles, trouble: None }, None));
    }
    let deadline = Instant::now() + limit;
    let Ok(first) = timeout_at(deadline, source.fetch()).await else {
        let trouble = Some("the API server does not answer".to_owned());
        return Ok((Seen { profiles: Vec::new(), trouble }, Some(limit)));
    };
    let (sender, receiver) = watch::channel(Seen { profiles: first?, trouble: None });
    let decided = async {
        tokio::select! {
            () = source.follow(&sender) => {}
            () = until_decided(source, receiver) => {}
        }
    };
    let waited = timeout_at(deadline, decided).await;
    let seen = sender.borrow().clone();
    Ok((seen, waited.err().map(|_| limit)))
}

/// Returns when there is nothing left to wait for; tells about progress on the way.
async fn until_decided(source: &Profiles, mut seen: watch::Receiver<Seen>) {
    let mut told = Vec::new();
    loop {
        let now = seen.borrow_and_update().clone();
        if now.profiles.first().map(verdict).is_some_and(|found| found != Verdict::NotReady) {
            return;
        }
        let report = report(source, &now);
        if report != told {
            for line in &report {
                tell(&format!("waiting: {line}"));
            }
            told = report;
        }
        if seen.changed().await.is_err() {
            return;
        }
    }
}

/// Prints how it ended; `waited` is set if the time is over.
fn conclude(source: &Profiles, seen: &Seen, waited: Option<Duration>) -> Result<Verdict, Error> {
    let found = seen.profiles.first().map_or(Verdict::NotReady, verdict);
    let title = source.title();
    match (found, waited) {
        (Verdict::Ready, _) => print(&format!("{title} is ready{}\n", summary(seen)))?,
        (Verdict::Failed, _) => tell(&format!("{title} needs an edit:")),
        (Verdict::NotReady | Verdict::TimedOut, None) => tell(&format!("{title} is not ready:")),
        (Verdict::NotReady | Verdict::TimedOut, Some(waited)) => {
            tell(&format!("{title} is not ready after {}:", length(waited)));
        }
    }
    if found != Verdict::Ready {
        for line in report(source, seen) {
            tell(&format!("  {line}"));
        }
    }
    Ok(match (found, waited) {
        (Verdict::NotReady, Some(_)) => Verdict::TimedOut,
        (found, _) => found,
    })
}

pub(super) fn report(source: &Profiles, seen: &Seen) -> Vec<String> {
    let mut lines = match seen.profiles.first() {
        Some(profile) => lacking(profile),
        None => vec![format!("there is no CacheProfile {}", source.title())],
    };
    lines.extend(seen.trouble.as_deref().map(|trouble| escape(trouble).into_owned()));
    lines
}

pub(super) fn summary(seen: &Seen) -> String {
    let status = seen.profiles.first().and_then(|profile: &CacheProfile| profile.status.as_ref());
    let warm = status.and_then(|status| status.warm_targets.as_deref());
    let objects = status.and_then(|status| status.objects);
    let mut text = String::new();
    if let Some(warm) = warm {
        text.push_str(": ");
        text.push_str(&escape(warm));
        text.push_str(" targets are warm");
    }
    if let Some(objects) = objects {
        text.push_str(", ");
        text.push_str(&grouped(objects));
        text.push_str(" objects");
    }
    text
}
