//! The command `status` prints profiles once, or prints each change with `--watch`.

use super::{
    CommandError,
    cluster::ConnectionArgs,
    output::OutputArgs,
    overview::overview,
    print::{print, show, show_as, tell, terminal},
    profile_source::OperatorNamespaceArgs,
    profiles::{ProfileListState, ProfileSelection},
    report::{
        CommandExitCode, CommandReport, ReportFact, ReportFormat, ReportRow, ReportSection,
        TerminalLayout, TextTone, render,
    },
    target_report::target,
};
use clap::Args;
use jiff::Timestamp;
use std::{collections::HashSet, ops::ControlFlow};

const CODES: &str = "\
Exit codes:
  0  all shown profiles are ready; with --target, the target is warm and fresh
  1  a profile is not ready, or none exists
  2  a profile needs an edit (Stalled), or an error";

#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct StatusArgs {
    /// Profile [default: all profiles of the namespace].
    #[arg(conflicts_with = "all_namespaces")]
    pub name: Option<String>,

    /// Target of the profile to explain.
    #[arg(long, requires = "name", conflicts_with = "watch")]
    pub target: Option<String>,

    /// Namespace of the profiles [default: the context's].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// Show profiles of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,

    /// Show every change until interrupted.
    #[arg(short, long, conflicts_with = "output")]
    pub watch: bool,

    #[command(flatten)]
    pub operator: OperatorNamespaceArgs,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Terminal sequence that moves the cursor to the top left. `status --watch` writes over the
/// previous screen, because a cleared screen would flicker.
const HOME: &str = "\u{1b}[H";
/// Terminal sequence that clears from the cursor to the end of the line.
const CLEAR_LINE: &str = "\u{1b}[K";
/// Terminal sequence that clears from the cursor to the end of the screen.
const CLEAR_BELOW: &str = "\u{1b}[J";
/// Terminal sequence that clears the screen.
const CLEAR: &str = "\u{1b}[2J";

/// Prints profiles once, or with `--watch` until the process is interrupted. `clock` returns the
/// current time.
///
/// # Errors
///
/// [`CommandError`] if there is no kubeconfig, a request fails, the profile or target does not
/// exist, or the output cannot be written. With `--watch`, only a failure of the first request is
/// an error; the output shows later failures.
pub async fn status(
    args: StatusArgs,
    clock: fn() -> Timestamp,
) -> Result<CommandExitCode, CommandError> {
    let cluster = args.connection.connect()?;
    let source = if args.all_namespaces {
        ProfileSelection::everywhere(&cluster)
    } else {
        ProfileSelection::of(&cluster, args.namespace.as_deref(), args.name.as_deref())
    };
    let profiles = source.fetch().await?;
    let operator_namespace = args.operator.shown();
    if args.name.is_some() && profiles.is_empty() && !args.watch {
        return Err(source.not_found());
    }
    if let (Some(name), [profile]) = (&args.target, &profiles[..]) {
        return show(&target(profile, name, operator_namespace, clock())?, args.output.format);
    }
    if args.watch {
        let seen = ProfileListState { profiles, trouble: None };
        return follow(&source, seen, operator_namespace, clock).await;
    }
    let data = source.document(&profiles);
    let report = CommandReport { data, ..overview(&profiles, operator_namespace, clock()) };
    if args.output.format.is_some() {
        return show(&report, args.output.format);
    }
    if profiles.is_empty() {
        tell(&source.nothing());
    }
    match terminal() {
        Some(terminal) => show_as(&report, ReportFormat::Text(terminal)),
        None => show_as(&report, ReportFormat::Lines),
    }
}

/// Draws the current profiles on a terminal after each change. Prints only new lines if the output
/// is not a terminal. Returns when the output cannot be written.
async fn follow(
    source: &ProfileSelection,
    mut seen: ProfileListState,
    operator_namespace: &str,
    clock: fn() -> Timestamp,
) -> Result<CommandExitCode, CommandError> {
    let (nothing, mut printed) = (source.nothing(), HashSet::new());
    if terminal().is_some() {
        print(CLEAR)?;
    }
    let mut draw = |seen: &ProfileListState| {
        let report = current(seen, &nothing, operator_namespace, clock());
        print(&match terminal() {
            Some(terminal) => screen(&report, terminal)?,
            None => news(&report, &mut printed)?,
        })
    };
    let ControlFlow::Break(error) = source
        .follow(&mut seen, |seen| match draw(seen) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        })
        .await;
    Err(error)
}

fn current(
    seen: &ProfileListState,
    nothing: &str,
    operator_namespace: &str,
    now: Timestamp,
) -> CommandReport {
    let remark = |text: String, key, value: &str| {
        let fact = ReportFact::new(TextTone::Warning, text).named(key, value);
        ReportSection { head: ReportRow::of(vec![fact]), rows: Vec::new() }
    };
    let mut report = overview(&seen.profiles, operator_namespace, now);
    if seen.profiles.is_empty() {
        report.sections.push(remark(nothing.to_owned(), "message", nothing));
    }
    if let Some(trouble) = &seen.trouble {
        report.sections.insert(0, remark(format!("not current: {trouble}"), "trouble", trouble));
    }
    report
}

/// Returns one screen of output. If some lines do not fit, the last line contains the number of
/// hidden lines.
fn screen(report: &CommandReport, terminal: TerminalLayout) -> Result<String, CommandError> {
    let drawn = render(report, ReportFormat::Text(terminal))?;
    let count = drawn.lines().count();
    // The last row stays empty, because a line feed in the last row would scroll the screen.
    let rows = terminal.height.saturating_sub(1).max(1);
    let shown = if count > rows { rows - 1 } else { count };
    let mut screen = HOME.to_owned();
    for line in drawn.lines().take(shown) {
        screen.extend([line, CLEAR_LINE, "\n"]);
    }
    if count > shown {
        let hidden = (count - shown).to_string();
        screen.extend(["… ", &hidden, " more lines", CLEAR_LINE, "\n"]);
    }
    Ok(screen + CLEAR_BELOW)
}

/// Returns the lines of `report` that are not in `printed`, the previous output. Afterwards
/// `printed` contains the lines of `report`.
fn news(report: &CommandReport, printed: &mut HashSet<String>) -> Result<String, CommandError> {
    let lines = render(report, ReportFormat::Lines)?;
    let new = lines.lines().filter(|line| !printed.contains(*line));
    let new = new.flat_map(|line| [line, "\n"]).collect();
    *printed = lines.lines().map(str::to_owned).collect();
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures, *};

    #[test]
    fn only_changed_lines_are_printed_again() {
        let mut printed = HashSet::new();
        let mut news = |seen: &ProfileListState| {
            super::news(&current(seen, "none", "ops", fixtures::now()), &mut printed).unwrap()
        };
        let mut seen = ProfileListState { profiles: vec![fixtures::warming()], trouble: None };
        assert_eq!(news(&seen).lines().count(), 7);
        assert_eq!(news(&seen), "");

        seen.trouble = Some("no \u{1b} answer".to_owned());
        assert_eq!(news(&seen), "trouble=\"no \\u{1b} answer\"\n");

        seen = ProfileListState::default();
        assert_eq!(news(&seen), "message=none\n");
        seen.profiles.push(fixtures::warming());
        assert_eq!(news(&seen).lines().count(), 7);
    }

    #[test]
    fn a_screen_never_scrolls() {
        let seen = ProfileListState {
            profiles: vec![fixtures::warming(), fixtures::ready()],
            trouble: Some("away".to_owned()),
        };
        let report = current(&seen, "none", "ops", fixtures::now());
        for height in 1..20 {
            let terminal = TerminalLayout { width: 60, height, has_colours: false };
            let drawn = screen(&report, terminal).unwrap();
            assert!(drawn.matches('\n').count() < height.max(2), "{height}:\n{drawn}");
        }
    }
}
