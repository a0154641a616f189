//! The command `plan` forecasts what profiles cost and which permissions they lack.

mod costs;
mod live;
mod offline;
mod reported;

use self::{costs::ForecastReport, live::LiveCluster};
use super::{
    CommandError,
    operator_installation::{OperatorInstallation, lists, unreadable},
    output::OutputArgs,
    print::show,
    profile_documents::ProfileDocument,
    profile_readiness::object_name,
    profile_source::{ProfileSourceArgs, one_of},
    rbac::subject,
    report::{CommandExitCode, CommandReport},
};
use clap::Args;
use kubewarm_api::{
    model::{Identity, Subject, ValidatedProfile},
    v1alpha1::ProfileMode,
};
use tokio::sync::OnceCell;

const CODES: &str = "\
Exit codes:
  0  printed
  1  printed, but permissions are missing or a target would be rejected
  2  an error, or a profile would be rejected";

#[derive(Debug, Args)]
#[command(after_help = CODES, group = one_of(["name", "file"]))]
pub struct PlanArgs {
    #[command(flatten)]
    pub spec: ProfileSourceArgs,

    /// Sample the cluster, also for a file and for a profile in mode Plan. Without the flag, the
    /// estimate of a profile in mode Plan comes from its status.
    #[arg(long)]
    pub live: bool,

    /// Subject whose permissions are reviewed: system:serviceaccount:NAMESPACE:NAME, a user name or
    /// group:NAME [default: the profile's ServiceAccount, else the operator's].
    #[arg(long, value_parser = subject)]
    pub subject: Option<Subject>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Prints the forecast of the costs of a profile in the cluster, or of the profiles in a file.
///
/// For a file without `--live`, forecasts the costs from the spec alone. For a profile in mode Plan
/// without `--live`, prints the forecast from its status. In all other cases, samples the cluster.
///
/// # Errors
///
/// [`CommandError`] if the file or the cluster cannot be read, or if a profile is missing or
/// invalid.
///
/// # Cost
///
/// For a sample, at most 512 requests and 512 access reviews per profile.
pub async fn plan(args: &PlanArgs) -> Result<CommandExitCode, CommandError> {
    let (settings, deployments) = if args.spec.name.is_some() || args.live {
        let client = args.spec.connection.connect()?.client();
        OperatorInstallation::discover(&client, &args.spec.operator).await?
    } else {
        (OperatorInstallation::of_flags(&args.spec.operator), Vec::new())
    };
    let operator = settings.scope();
    let cluster = OnceCell::new();
    let (mut forecasts, mut names) = (Vec::new(), Vec::new());
    for ProfileDocument { at, profile } in args.spec.read().await? {
        let refused = |error| CommandError::unusable(&at, error);
        let checked = args.spec.check(profile.clone(), &operator).map_err(refused)?;
        let has_reported_forecast =
            args.spec.name.is_some() && profile.spec.mode == ProfileMode::Plan;
        let forecast = match &args.spec.file {
            Some(file) if !args.live => {
                let namespace = args.spec.operator.operator_namespace.shown();
                let file = file.display().to_string();
                offline::forecast(&checked, &operator, namespace, &file).map_err(refused)?
            }
            _ if has_reported_forecast && !args.live => reported::forecast(&profile)?,
            _ => {
                let connect = || LiveCluster::connect(&args.spec.connection);
                let cluster = cluster.get_or_try_init(connect).await?;
                let reader = reader(&checked, args, &settings);
                let lists = lists(&deployments)
                    .map_err(|reason| unreadable(&settings.namespace, &reason))?;
                cluster.forecast(&checked, &operator, lists, &reader).await?
            }
        };
        forecasts.push(forecast);
        names.push(object_name(&profile));
    }
    let mut data: Vec<_> = forecasts.iter().map(ForecastReport::json).collect();
    let report = CommandReport {
        sections: forecasts.iter().map(ForecastReport::section).collect(),
        verdict: forecasts.iter().map(ForecastReport::verdict).max().unwrap_or_default(),
        data: match data.pop() {
            Some(document) if args.spec.name.is_some() => document,
            last => data.into_iter().chain(last).collect(),
        },
        names: Some(names),
    };
    show(&report, args.output.format)
}

/// Returns the subject whose permissions `plan` checks: the value of `--subject`, or else the
/// identity with which the profile reads.
fn reader(profile: &ValidatedProfile, args: &PlanArgs, settings: &OperatorInstallation) -> Subject {
    args.subject.clone().unwrap_or_else(|| match profile.identity() {
        Identity::Operator => settings.subject(),
        Identity::ServiceAccount { namespace, name } => Subject::ServiceAccount { namespace, name },
    })
}
