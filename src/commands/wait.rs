//! `wait`: come back when a profile is ready, and say what is missing if it is not in time.

use super::{
    Error,
    cluster::ConnectionArgs,
    output::{OutputArgs, OutputFormat},
    print::{show, tell},
    profiles::{Profiles, Seen},
    report::{Report, ReportRow, Section, Verdict},
    text::{grouped, length},
    value,
    verdict::{lacking, object_name, verdict},
};
use clap::{Args, builder::PossibleValue};
use kubewarm_api::v1alpha1::CacheProfile;
use std::{ops::ControlFlow, time::Duration};
use tokio::time::timeout;

const CODES: &str = "\
Exit codes:
  0  ready
  1  not ready, with --timeout=0
  2  only an edit of the profile helps (Stalled), or the question failed
  3  timed out";

/// Arguments of `wait`.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct WaitArgs {
    /// The profile.
    pub name: String,

    /// Where it is [default: the namespace of the context].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// What to wait for.
    // The only state, so that nothing reads it.
    #[arg(
        long = "for",
        value_name = "STATE",
        default_value = "ready",
        value_parser = [
            PossibleValue::new("ready").help("The condition Ready is True for the newest generation")
        ]
    )]
    pub until: String,

    /// How long: seconds, or such as 90s or 5m. 0 looks once.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = value::duration)]
    pub timeout: Duration,

    /// Output flags.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Waits until the profile is ready, needs an edit, or the time is over, and says which.
///
/// # Errors
///
/// [`Error`] if there is no cluster, or the first question is refused or fails. Later troubles are
/// waited out.
pub async fn wait(args: WaitArgs) -> Result<Verdict, Error> {
    let cluster = args.connection.connect()?;
    let source = Profiles::of(&cluster, args.namespace.as_deref(), Some(&args.name));
    if args.timeout.is_zero() {
        let seen = Seen { profiles: source.fetch().await?, trouble: None };
        return conclude(&source, &seen, None, args.output.format);
    }
    let trouble = Some("the API server does not answer".to_owned());
    let mut seen = Seen { profiles: Vec::new(), trouble };
    let mut told = Vec::new();
    let decided = async {
        seen = Seen { profiles: source.fetch().await?, trouble: None };
        let ControlFlow::Break(()) = source
            .follow(&mut seen, |now| {
                if now.profiles.first().map(verdict).is_some_and(|found| found != Verdict::Bad) {
                    return ControlFlow::Break(());
                }
                let missing = missing(&source, now);
                if missing != told {
                    for line in &missing {
                        tell(&format!("waiting: {line}"));
                    }
                    told = missing;
                }
                ControlFlow::Continue(())
            })
            .await;
        Ok::<_, Error>(())
    };
    let waited = match timeout(args.timeout, decided).await {
        Ok(ended) => ended.map(|()| None)?,
        Err(_) => Some(args.timeout),
    };
    conclude(&source, &seen, waited, args.output.format)
}

/// Prints how it ended; `waited` is set if the time is over. In text, what is missing goes to standard error.
fn conclude(
    source: &Profiles,
    seen: &Seen,
    waited: Option<Duration>,
    output: Option<OutputFormat>,
) -> Result<Verdict, Error> {
    let found = seen.profiles.first().map_or(Verdict::Bad, verdict);
    let title = source.title();
    let outcome = match (found, waited) {
        (Verdict::Good, _) => format!("{title} is ready{}", summary(seen.profiles.first())),
        (Verdict::Failed, _) => format!("{title} needs an edit"),
        (_, None) => format!("{title} is not ready"),
        (_, Some(waited)) => format!("{title} is not ready after {}", length(waited)),
    };
    let missing = if found == Verdict::Good { Vec::new() } else { missing(source, seen) };
    let verdict =
        if found == Verdict::Bad && waited.is_some() { Verdict::TimedOut } else { found };
    if found != Verdict::Good && output.is_none() {
        tell(&format!("{outcome}:"));
        for line in missing {
            tell(&format!("  {line}"));
        }
        return Ok(verdict);
    }
    let rows = missing.into_iter().map(ReportRow::bad).collect();
    let names = Some(seen.profiles.iter().map(object_name).collect());
    let sections = vec![Section::new(outcome, rows)];
    show(&Report { sections, verdict, names, ..Report::default() }, output)
}

fn missing(source: &Profiles, seen: &Seen) -> Vec<String> {
    let mut lines = match seen.profiles.first() {
        Some(profile) => lacking(profile),
        None => vec![source.nothing()],
    };
    lines.extend(seen.trouble.clone());
    lines
}

fn summary(profile: Option<&CacheProfile>) -> String {
    let Some(status) = profile.and_then(|profile| profile.status.as_ref()) else {
        return String::new();
    };
    let warm = status.warm_targets.as_ref().map(|warm| format!(": {warm} targets are warm"));
    let objects = status.objects.map(|objects| format!(", {} objects", grouped(objects)));
    [warm, objects].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::{super::sample::parse, *};

    #[test]
    fn wait_has_defaults_and_refuses_what_it_cannot_wait_for() {
        let wait = parse::<WaitArgs>("checkout -n shop").unwrap();
        assert_eq!((&*wait.until, wait.timeout), ("ready", Duration::from_mins(5)));
        assert!(parse::<WaitArgs>("checkout --for=rv=5").is_err());
        assert!(parse::<WaitArgs>("").is_err());
    }
}
