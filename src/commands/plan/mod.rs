//! `plan`: what profiles would cost, and which permissions they lack, before anything is watched.

mod costs;
mod live;
mod offline;
mod reported;

use self::{costs::Outlook, live::Cluster};
use super::{
    Error,
    documents::Found,
    operator_settings::OperatorSettings,
    output::OutputArgs,
    print::show,
    rbac::subject,
    report::{Report, Verdict},
    specs::{SpecArgs, one_of},
    verdict::object_name,
};
use clap::Args;
use kubewarm_api::{
    model::{Identity, Subject, ValidatedProfile},
    v1alpha1::Mode,
};
use tokio::sync::OnceCell;

const CODES: &str = "\
Exit codes:
  0  said
  1  said, and permissions are missing, or a target would be refused
  2  the question failed, or a profile would be refused";

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = CODES, group = one_of(["name", "file"]))]
pub struct PlanArgs {
    /// Which profiles.
    #[command(flatten)]
    pub spec: SpecArgs,

    /// Ask the cluster: of a file, for what a spec alone cannot say; of a profile in mode Plan,
    /// instead of printing what kubewarm has found.
    #[arg(long)]
    pub live: bool,

    /// Whose permissions are looked at: system:serviceaccount:NAMESPACE:NAME, the name of a user, or
    /// group:NAME [default: the account that the profile names, else the operator's ServiceAccount].
    #[arg(long, value_parser = subject)]
    pub subject: Option<Subject>,

    /// Output flags. JSON and YAML have bytes and milliseconds.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Prints what the profile that `args` name would cost, or those in a file: a table, or a document.
///
/// Of a file without `--live` no cluster is asked. Of a profile in mode Plan without `--live` it is
/// what kubewarm itself has found.
///
/// # Errors
///
/// [`Error`] if the file or the cluster cannot be read, there is no profile, or one that kubewarm
/// would refuse.
///
/// # Cost
///
/// On a cluster at most 512 requests that look, and as many reviews, a profile.
pub async fn plan(args: &PlanArgs) -> Result<Verdict, Error> {
    let settings = if args.spec.name.is_some() || args.live {
        let client = args.spec.connection.connect()?.client();
        OperatorSettings::discover(&client, &args.spec.operator).await
    } else {
        OperatorSettings::of_flags(&args.spec.operator)
    };
    let home = settings.home();
    let cluster = OnceCell::new();
    let (mut outlooks, mut names) = (Vec::new(), Vec::new());
    for Found { at, profile } in args.spec.read().await? {
        let refused = |error| Error::unusable(&at, error);
        let checked = args.spec.check(profile.clone(), &home).map_err(refused)?;
        let is_looked_at = args.spec.name.is_some() && profile.spec.mode == Mode::Plan;
        let outlook = match &args.spec.file {
            Some(file) if !args.live => {
                offline::outlook(&checked, &home, &file.display().to_string()).map_err(refused)?
            }
            _ if is_looked_at && !args.live => reported::outlook(&profile)?,
            _ => {
                let connect = || Cluster::connect(&args.spec.connection);
                let cluster = cluster.get_or_try_init(connect).await?;
                let reader = reader(&checked, args, &settings);
                cluster.outlook(&checked, &home, &reader).await?
            }
        };
        outlooks.push(outlook);
        names.push(object_name(&profile));
    }
    let mut data: Vec<_> = outlooks.iter().map(Outlook::json).collect();
    let report = Report {
        sections: outlooks.iter().map(Outlook::section).collect(),
        verdict: outlooks.iter().map(Outlook::verdict).max().unwrap_or_default(),
        data: match data.pop() {
            Some(one) if args.spec.name.is_some() => one,
            last => data.into_iter().chain(last).collect(),
        },
        names: Some(names),
    };
    show(&report, args.output.format)
}

/// Whose permissions count.
fn reader(profile: &ValidatedProfile, args: &PlanArgs, settings: &OperatorSettings) -> Subject {
    args.subject.clone().unwrap_or_else(|| match profile.identity() {
        Identity::Operator => settings.subject(),
        Identity::ServiceAccount { namespace, name } => Subject::ServiceAccount { namespace, name },
    })
}
