//! The command `wait` waits until a condition of a profile has a status. After its timeout, it
//! prints why the condition lacks that status.

use super::{
    CommandError,
    cluster::ConnectionArgs,
    flag_values,
    output::OutputArgs,
    print::{show, tell},
    profile_readiness::{condition, holds, lacking, object_name, sentence},
    profiles::{ProfileListState, ProfileSelection},
    report::{CommandExitCode, CommandReport, ReportRow, ReportSection},
    text::{grouped, length},
};
use clap::Args;
use jiff::Timestamp;
use kubewarm_api::v1alpha1::{CONDITION_TYPES, CacheProfile};
use std::{ops::ControlFlow, time::Duration};
use tokio::time::timeout;

const CODES: &str = "\
Exit codes:
  0  the condition has the status
  1  it does not, with --timeout=0
  2  the profile needs an edit (Stalled), or an error
  3  timed out";

const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct WaitArgs {
    /// Name of the profile.
    pub name: String,

    /// Namespace of the profile [default: the context's].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// Condition of the newest generation: condition=TYPE or condition=TYPE=STATUS, with True as
    /// default status. TYPE is one of Ready, Accepted, Authorized, Warm, Fresh, WithinLimits,
    /// WarmupDeadlineMet and Stalled.
    #[arg(
        long = "for",
        value_name = "CONDITION",
        default_value = "condition=Ready",
        value_parser = condition_wait
    )]
    pub until: AwaitedCondition,

    /// Timeout, in seconds or such as 90s or 5m. 0 checks once.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flag_values::duration)]
    pub timeout: Duration,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Value of the flag `--for`: a condition type and the status to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedCondition {
    type_: &'static str,
    status: &'static str,
}

fn condition_wait(text: &str) -> Result<AwaitedCondition, String> {
    let known = |words: &[&'static str], word: &str| {
        words.iter().copied().find(|known| known.eq_ignore_ascii_case(word))
    };
    let expected = || {
        format!(
            "expected condition=TYPE or condition=TYPE=STATUS with a TYPE of {} and a STATUS of {}; for deletion \
             and jsonpath use kubectl wait",
            CONDITION_TYPES.join(", "),
            STATUSES.join(", ")
        )
    };
    let rest = text.strip_prefix("condition=").ok_or_else(expected)?;
    let (type_, status) = rest.split_once('=').unwrap_or((rest, "True"));
    match (known(&CONDITION_TYPES, type_), known(&STATUSES, status)) {
        (Some(type_), Some(status)) => Ok(AwaitedCondition { type_, status }),
        (None, _) | (_, None) => Err(expected()),
    }
}

impl AwaitedCondition {
    /// The default of `--for`.
    pub(super) const fn ready() -> Self {
        Self { type_: "Ready", status: "True" }
    }

    /// Returns `Good` if the condition has the status that `--for` names. Returns `Failed` if the
    /// profile is stalled, because only an edit of the profile can help. Otherwise returns `Bad`,
    /// and `wait` continues.
    fn verdict(self, profile: &CacheProfile) -> CommandExitCode {
        if holds(profile, self.type_, self.status) {
            CommandExitCode::Good
        } else if self.type_ != "Stalled" && holds(profile, "Stalled", "True") {
            CommandExitCode::Failed
        } else {
            CommandExitCode::Bad
        }
    }

    /// Returns the current status of the condition as text. Returns `None` for the condition
    /// `Ready`, because [`lacking`] already explains why the profile is not ready.
    fn current(self, profile: &CacheProfile) -> Option<String> {
        let status = profile.status.as_ref().filter(|_| self.type_ != "Ready")?;
        let condition = condition(&status.conditions, self.type_)?;
        Some(format!("{} is {}: {}", self.type_, condition.status, sentence(condition)))
    }
}

/// Waits until the condition has the status that `--for` names, the profile needs an edit, or the
/// timeout expires, and prints the outcome. `clock` returns the current time.
///
/// # Errors
///
/// [`CommandError`] if there is no kubeconfig, or if the first request fails. After later failures,
/// `wait` sends the request again.
pub async fn wait(
    args: WaitArgs,
    clock: fn() -> Timestamp,
) -> Result<CommandExitCode, CommandError> {
    let cluster = args.connection.connect()?;
    let source = ProfileSelection::of(&cluster, args.namespace.as_deref(), Some(&args.name));
    if args.timeout.is_zero() {
        let seen = ProfileListState { profiles: source.fetch().await?, trouble: None };
        return conclude(&args, &source, &seen, None, clock());
    }
    let trouble = Some("the API server does not answer".to_owned());
    let mut seen = ProfileListState { profiles: Vec::new(), trouble };
    let mut printed = Vec::new();
    let decided = async {
        seen = ProfileListState { profiles: source.fetch().await?, trouble: None };
        let ControlFlow::Break(()) = source
            .follow(&mut seen, |now| {
                let verdict = now.profiles.first().map(|profile| args.until.verdict(profile));
                if verdict.is_some_and(|verdict| verdict != CommandExitCode::Bad) {
                    return ControlFlow::Break(());
                }
                let missing = missing(&args, &source, now, clock());
                if missing != printed {
                    for line in &missing {
                        tell(&format!("waiting: {line}"));
                    }
                    printed = missing;
                }
                ControlFlow::Continue(())
            })
            .await;
        Ok::<_, CommandError>(())
    };
    let waited = match timeout(args.timeout, decided).await {
        Ok(ended) => ended.map(|()| None)?,
        Err(_) => Some(args.timeout),
    };
    conclude(&args, &source, &seen, waited, clock())
}

/// Prints the outcome of the wait. `waited` is the timeout if the timeout has expired, and
/// otherwise `None`. With text output, the reasons go to standard error.
fn conclude(
    args: &WaitArgs,
    source: &ProfileSelection,
    seen: &ProfileListState,
    waited: Option<Duration>,
    now: Timestamp,
) -> Result<CommandExitCode, CommandError> {
    let (output, until) = (args.output.format, args.until);
    let profile = seen.profiles.first();
    let code = profile.map_or(CommandExitCode::Bad, |profile| until.verdict(profile));
    let AwaitedCondition { type_, status } = until;
    let title = source.title();
    let condition = format!("{title}: condition {type_}");
    let outcome = match (code, waited) {
        (CommandExitCode::Good, _) => format!("{condition} is {status}{}", summary(profile)),
        (CommandExitCode::Failed, _) => format!("{title} needs an edit"),
        (_, None) => format!("{condition} is not {status}"),
        (_, Some(waited)) => format!("{condition} is not {status} after {}", length(waited)),
    };
    let missing =
        if code == CommandExitCode::Good { Vec::new() } else { missing(args, source, seen, now) };
    let verdict = if code == CommandExitCode::Bad && waited.is_some() {
        CommandExitCode::TimedOut
    } else {
        code
    };
    if code != CommandExitCode::Good && output.is_none() {
        tell(&format!("{outcome}:"));
        for line in missing {
            tell(&format!("  {line}"));
        }
        return Ok(verdict);
    }
    let rows = missing.into_iter().map(ReportRow::bad).collect();
    let names = Some(seen.profiles.iter().map(object_name).collect());
    let sections = vec![ReportSection::new(outcome, rows)];
    show(&CommandReport { sections, verdict, names, ..CommandReport::default() }, output)
}

fn missing(
    args: &WaitArgs,
    source: &ProfileSelection,
    seen: &ProfileListState,
    now: Timestamp,
) -> Vec<String> {
    let mut lines = match seen.profiles.first() {
        Some(profile) => {
            args.until.current(profile).into_iter().chain(lacking(profile, now)).collect()
        }
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
    use super::{
        super::fixtures::{parse, ready, stalled},
        *,
    };

    #[test]
    fn conditions_are_parsed_without_regard_to_case() {
        let wait = parse::<WaitArgs>("checkout -n shop").unwrap();
        let ready = AwaitedCondition { type_: "Ready", status: "True" };
        assert_eq!((wait.until, wait.timeout), (ready, Duration::from_mins(5)));
        for (text, type_, status) in [
            ("condition=Ready", "Ready", "True"),
            ("condition=ready=TRUE", "Ready", "True"),
            ("condition=Warm=false", "Warm", "False"),
            ("condition=withinlimits=unknown", "WithinLimits", "Unknown"),
        ] {
            let wait = parse::<WaitArgs>(&format!("checkout --for={text}")).unwrap();
            assert_eq!(wait.until, AwaitedCondition { type_, status }, "{text}");
        }
        for text in [
            "ready",
            "condition=",
            "condition=Hot",
            "condition=Ready=",
            "condition=Ready=maybe",
            "delete",
            "jsonpath={.status.objects}=1",
        ] {
            let error = parse::<WaitArgs>(&format!("checkout --for={text}")).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("Ready, Accepted, ") && message.contains("kubectl wait"));
        }
        assert!(parse::<WaitArgs>("").is_err());
    }

    #[test]
    fn only_a_condition_of_the_newest_generation_counts() {
        let verdict = |text: &str, profile: &CacheProfile| {
            condition_wait(&format!("condition={text}")).unwrap().verdict(profile)
        };
        let mut profile = ready();
        assert_eq!(verdict("Ready", &profile), CommandExitCode::Good);
        assert_eq!(verdict("Ready=Unknown", &profile), CommandExitCode::Bad);
        assert_eq!(
            verdict("Warm", &profile),
            CommandExitCode::Bad,
            "a missing condition does not count"
        );
        profile.metadata.generation = Some(3);
        assert_eq!(verdict("Ready", &profile), CommandExitCode::Bad);

        let mut planned = ready();
        planned.status.as_mut().unwrap().conditions[0].status = "Unknown".to_owned();
        assert_eq!(verdict("Ready=Unknown", &planned), CommandExitCode::Good);
        assert_eq!(verdict("Ready", &planned), CommandExitCode::Bad);

        assert_eq!(verdict("Ready", &stalled()), CommandExitCode::Failed);
        assert_eq!(verdict("Stalled", &stalled()), CommandExitCode::Good);
        assert_eq!(verdict("Ready=False", &stalled()), CommandExitCode::Good);
    }

    #[test]
    fn the_help_lists_every_condition() {
        let command = WaitArgs::augment_args(clap::Command::new("wait"));
        let flag = command.get_arguments().find(|flag| flag.get_id() == "until").unwrap();
        let help = flag.get_help().unwrap().to_string();
        for type_ in CONDITION_TYPES {
            assert!(help.contains(type_), "no {type_} in {help}");
        }
    }
}
