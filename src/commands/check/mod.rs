//! `check`: whether a cluster is fit for kubewarm, or kubewarm and its profiles are well, with the next
//! step where not.

mod definition;
mod install;
mod operator;
mod profiles;
mod server;

use super::{
    Error,
    advice::program,
    cluster::ConnectionArgs,
    output::OutputArgs,
    print::show,
    profiles::Profiles,
    report::{Fact, Mark, Report, ReportRow, Section, Tone, Verdict},
    specs::OperatorArgs,
    verdict::object_name,
};
use clap::Args;
use jiff::Timestamp;
use kubewarm_api::model::{Fault, Reason};
use kubewarm_client::Connection;

const CODES: &str = "\
Marks:
  ✔  well
  ✗  wrong; what to do stands below it
  !  works, and there is something to know
  ?  not checked, and why

Exit codes:
  0  nothing that was checked is wrong
  1  something is
  2  there is no cluster to ask";

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct CheckArgs {
    /// The only profile to look at [default: all].
    #[arg(conflicts_with = "pre")]
    pub name: Option<String>,

    /// Before installing: whether the cluster has what kubewarm needs, and whether you may install it.
    /// What would be created is sent as dry run: nothing is changed.
    #[arg(long)]
    pub pre: bool,

    /// Where the profiles are [default: everywhere; of a profile that is named, the namespace of the
    /// context].
    #[arg(short, long, conflicts_with = "pre")]
    pub namespace: Option<String>,

    /// How the operator runs.
    #[command(flatten)]
    pub operator: OperatorArgs,

    /// Output flags.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Looks, and prints what it found in lines. `clock` tells the time where the server does not.
///
/// # Errors
///
/// [`Error`] if there is no cluster to ask, or the profiles cannot be read though it serves them, or
/// the profile that `args` name does not exist. What only cannot be seen is said in a line.
///
/// # Cost
///
/// Some 30 requests, and the profiles.
pub async fn check(args: &CheckArgs, clock: fn() -> Timestamp) -> Result<Verdict, Error> {
    let connection = args.connection.connect()?;
    let mut names = Vec::new();
    let mut sections = sections(&connection, args, clock(), &mut names).await?;
    sections.push(summary(&sections));
    let names = (!args.pre).then_some(names);
    show(&Report { names, ..Report::judged(sections) }, args.output.format)
}

/// The sections of all checks; the names of the profiles are added to `names`.
async fn sections(
    connection: &Connection,
    args: &CheckArgs,
    now: Timestamp,
    names: &mut Vec<String>,
) -> Result<Vec<Section>, Error> {
    let client = &connection.client();
    let server = connection.server().to_string();
    let (mut reached, is_there) = server::reached(client, server.trim_end_matches('/')).await;
    let mut sections = Vec::new();
    if is_there && args.pre {
        reached.push(server::streams(client).await);
    }
    sections.push(Section::new("API server", reached));
    if !is_there {
        return Ok(sections);
    }
    if args.pre {
        let rows = install::permitted(client, &args.operator).await?;
        sections.push(Section::new("installing", rows));
        return Ok(sections);
    }
    let (definition, is_served) = definition::served(client).await?;
    let mut installed = vec![definition];
    if is_served {
        installed.extend(operator::works(client, &args.operator, now).await?);
    }
    sections.push(Section::new("kubewarm", installed));
    if is_served {
        sections.push(Section::new("profiles", all(connection, args, names).await?));
    }
    Ok(sections)
}

/// A row for each profile that `args` select, or of the caller's namespace if the caller cannot list all of them.
/// Their names are added to `names`.
async fn all(
    connection: &Connection,
    args: &CheckArgs,
    names: &mut Vec<String>,
) -> Result<Vec<ReportRow>, Error> {
    let own = Profiles::of(connection, args.namespace.as_deref(), args.name.as_deref());
    let is_everywhere = args.namespace.is_none() && args.name.is_none();
    let unseen = |what: &str, message: &str| {
        ReportRow::unseen(what, &Fault::new(Reason::Forbidden, message))
    };
    let mut rows = Vec::new();
    let mut source = if is_everywhere { Profiles::everywhere(connection) } else { own.clone() };
    let mut found = source.fetch().await;
    if let (true, Err(Error::Refused { message, code: 403, .. })) = (is_everywhere, &found) {
        rows.push(unseen("profiles of other namespaces", message));
        source = own;
        found = source.fetch().await;
    }
    let found = match found {
        Err(Error::Refused { message, code: 403, .. }) => {
            rows.push(unseen(&format!("profiles in {}", source.title()), &message));
            return Ok(rows);
        }
        found => found?,
    };
    if args.name.is_some() && found.is_empty() {
        return Err(source.not_found());
    }
    names.extend(found.iter().map(object_name));
    // Of namespaces that were not checked nothing is known.
    if !found.is_empty() || rows.is_empty() {
        rows.extend(profiles::of_profiles(&found, program()));
    }
    Ok(rows)
}

/// How many checks failed, and how many were not made.
fn summary(sections: &[Section]) -> Section {
    let count = |mark| sections.iter().map(|section| section.count(mark)).sum::<usize>();
    let all: usize = sections.iter().map(|section| section.rows.len()).sum();
    let unseen = match count(Mark::Unseen) {
        0 => String::new(),
        some => format!("; {some} not checked"),
    };
    let fact = match count(Mark::Bad) {
        0 => Fact::new(Tone::Good, format!("nothing is wrong{unseen}")),
        bad => Fact::new(Tone::Bad, format!("{bad} of {all} checks failed{unseen}")),
    };
    Section { head: ReportRow::of(vec![fact]), rows: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_what_is_wrong_and_what_was_not_checked() {
        let fault = Fault::new(Reason::Forbidden, "no");
        let mut rows =
            vec![ReportRow::bad("no"), ReportRow::unseen("the lease", &fault), ReportRow::note("")];
        let said = |rows: &[ReportRow]| {
            let sections = [Section::new("profiles", rows.to_vec())];
            summary(&sections).head.text()
        };
        assert_eq!(said(&rows), "1 of 3 checks failed; 1 not checked");
        assert_eq!(said(&rows.split_off(1)), "nothing is wrong; 1 not checked");
    }
}
