//! The command `check` finds problems of kubewarm and its profiles, or of a cluster before the
//! installation. Each problem has a next step.

mod authorizers;
mod definition;
mod install;
mod operator;
mod profiles;
mod server;

use super::{
    CommandError,
    advice::program,
    cluster::ConnectionArgs,
    output::OutputArgs,
    print::show,
    profile_readiness::object_name,
    profile_source::OperatorArgs,
    profiles::ProfileSelection,
    report::{
        CommandExitCode, CommandReport, ReportFact, ReportRow, ReportSection, RowMark, TextTone,
    },
};
use clap::Args;
use jiff::Timestamp;
use kubewarm_api::model::{FaultReason, RequestFault};
use kubewarm_client::ApiServerConnection;

const CODES: &str = "\
Marks:
  ✔  passed
  ✗  failed; the next step follows
  !  passed, with a remark
  ?  not checked, with the reason

Exit codes:
  0  no check failed
  1  a check failed
  2  an error, such as a missing kubeconfig";

#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct CheckArgs {
    /// Profile to check [default: all profiles].
    #[arg(conflicts_with = "pre")]
    pub name: Option<String>,

    /// Check a cluster before the installation: its version, its features and your permissions.
    /// Requests to create objects are dry runs.
    #[arg(long)]
    pub pre: bool,

    /// Namespace of the profiles [default: all namespaces; for a named profile the context's].
    #[arg(short, long, conflicts_with = "pre")]
    pub namespace: Option<String>,

    #[command(flatten)]
    pub operator: OperatorArgs,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Runs the checks and prints a row for each check. `clock` is the current time, which `check` uses
/// if the API server sends no `Date` header.
///
/// # Errors
///
/// [`CommandError`] if there is no kubeconfig, the profiles cannot be read, or the named profile
/// does not exist. A missing permission is a row of the output, not an error.
///
/// # Cost
///
/// About 30 requests, the lists of profiles and the API server's metrics, some MB.
pub async fn check(
    args: &CheckArgs,
    clock: fn() -> Timestamp,
) -> Result<CommandExitCode, CommandError> {
    let connection = args.connection.connect()?;
    let mut names = Vec::new();
    let mut sections = sections(&connection, args, clock(), &mut names).await?;
    sections.push(summary(&sections));
    let names = (!args.pre).then_some(names);
    show(&CommandReport { names, ..CommandReport::judged(sections) }, args.output.format)
}

/// Runs the checks and returns a section for each group of checks. It adds the names of the checked
/// profiles to `names`.
async fn sections(
    connection: &ApiServerConnection,
    args: &CheckArgs,
    now: Timestamp,
    names: &mut Vec<String>,
) -> Result<Vec<ReportSection>, CommandError> {
    let client = &connection.client();
    let server = connection.server().to_string();
    let (mut reached, is_there) = server::reached(client, server.trim_end_matches('/')).await;
    let mut sections = Vec::new();
    if is_there {
        reached.push(authorizers::decided(client).await);
    }
    if is_there && args.pre {
        reached.push(server::streams(client).await);
    }
    sections.push(ReportSection::new("API server", reached));
    if !is_there {
        return Ok(sections);
    }
    if args.pre {
        let rows = install::permitted(client, &args.operator).await?;
        sections.push(ReportSection::new("installing", rows));
        return Ok(sections);
    }
    let (definition, is_served) = definition::served(client).await?;
    let mut installed = vec![definition];
    if is_served {
        installed.extend(operator::works(client, &args.operator, now).await?);
    }
    sections.push(ReportSection::new("kubewarm", installed));
    if is_served {
        sections.push(ReportSection::new("profiles", all(connection, args, names, now).await?));
    }
    Ok(sections)
}

/// Returns a row for each selected profile, and adds the names of these profiles to `names`. If the
/// user cannot list profiles in all namespaces, reads only the profiles in the namespace of the
/// kubeconfig's context.
async fn all(
    connection: &ApiServerConnection,
    args: &CheckArgs,
    names: &mut Vec<String>,
    now: Timestamp,
) -> Result<Vec<ReportRow>, CommandError> {
    let selection =
        ProfileSelection::of(connection, args.namespace.as_deref(), args.name.as_deref());
    let is_everywhere = args.namespace.is_none() && args.name.is_none();
    let unseen = |what: &str, message: &str| {
        ReportRow::unseen(what, &RequestFault::new(FaultReason::Forbidden, message))
    };
    let mut rows = Vec::new();
    let mut source =
        if is_everywhere { ProfileSelection::everywhere(connection) } else { selection.clone() };
    let mut result = source.fetch().await;
    if let (true, Err(CommandError::Refused { message, code: 403, .. })) = (is_everywhere, &result)
    {
        rows.push(unseen("profiles of other namespaces", message));
        source = selection;
        result = source.fetch().await;
    }
    let profiles = match result {
        Err(CommandError::Refused { message, code: 403, .. }) => {
            rows.push(unseen(&format!("profiles in {}", source.title()), &message));
            return Ok(rows);
        }
        result => result?,
    };
    if args.name.is_some() && profiles.is_empty() {
        return Err(source.not_found());
    }
    names.extend(profiles.iter().map(object_name));
    // If the user can list profiles in only one namespace, an empty list does not mean that the
    // cluster has no profile.
    if !profiles.is_empty() || rows.is_empty() {
        let operator = args.operator.operator_namespace.shown();
        rows.extend(profiles::of_profiles(&profiles, program(), operator, now));
    }
    Ok(rows)
}

/// Returns a section that counts the failed checks and the skipped checks.
fn summary(sections: &[ReportSection]) -> ReportSection {
    let count = |mark| sections.iter().map(|section| section.count(mark)).sum::<usize>();
    let all: usize = sections.iter().map(|section| section.rows.len()).sum();
    let unseen = match count(RowMark::Unseen) {
        0 => String::new(),
        some => format!("; {some} not checked"),
    };
    let fact = match count(RowMark::Bad) {
        0 => ReportFact::new(TextTone::Good, format!("nothing is wrong{unseen}")),
        bad => ReportFact::new(TextTone::Bad, format!("{bad} of {all} checks failed{unseen}")),
    };
    ReportSection { head: ReportRow::of(vec![fact]), rows: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_failed_and_skipped_checks() {
        let fault = RequestFault::new(FaultReason::Forbidden, "no");
        let mut rows =
            vec![ReportRow::bad("no"), ReportRow::unseen("the lease", &fault), ReportRow::note("")];
        let summary_text = |rows: &[ReportRow]| {
            let sections = [ReportSection::new("profiles", rows.to_vec())];
            summary(&sections).head.text()
        };
        assert_eq!(summary_text(&rows), "1 of 3 checks failed; 1 not checked");
        assert_eq!(summary_text(&rows.split_off(1)), "nothing is wrong; 1 not checked");
    }
}
