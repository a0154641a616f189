//! `rbac` prints the roles that profiles need, or the permissions that they would change.

mod grant_diff;
mod live;
#[cfg(test)]
mod tests;

pub(super) use self::live::namespaces;

use self::live::DeniedList;

use super::{
    CommandError,
    operator_installation::OperatorInstallation,
    output::{OutputArgs, manifests},
    print::{print, show, tell},
    profile_documents::ProfileDocument,
    profile_readiness::{name, object_name, title},
    profile_source::{OperatorArgs, ProfileSourceArgs, one_of},
    report::{CommandExitCode, CommandReport, ReportRow, ReportSection, RowMark},
};
use clap::Args;
use kube::Client;
use kubewarm_api::{
    manifests::{
        GrantDiff, NamespacesBySelector, OperatorFeature, ProfilePermissions, RbacObject,
        RbacParseError, diff_grants, find_token_minter, list_grants, render_operator,
    },
    model::{ProfileRef, Subject, ValidatedProfile},
    v1alpha1::{AccessStatus, CacheProfile},
};

const CODES: &str = "\
Exit codes:
  0  printed; with --diff: no change, or the generation matches
  1  with --diff and without --generation: subjects would gain, lose or keep permissions
  2  an error, or a profile would be rejected or has another generation";

#[derive(Debug, Args)]
#[command(after_help = CODES, group = one_of(["name", "file", "operator"]))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct RbacArgs {
    #[command(flatten)]
    pub spec: ProfileSourceArgs,

    /// Print the operator's own permissions instead of a profile's.
    #[arg(long, conflicts_with_all = ["diff", "generation", "subject", "namespace"])]
    pub operator: bool,

    /// With --operator: add the permissions for `kubewarm run --metrics-auth`.
    #[arg(long, requires = "operator", conflicts_with_all = ["name", "file", "watch_namespaces"])]
    pub metrics_auth: bool,

    /// With --operator: add the permissions for the read API.
    #[arg(long, requires = "operator", conflicts_with_all = ["name", "file", "watch_namespaces"])]
    pub read_api: bool,

    /// With --operator: add the permissions for `kubewarm run --authorization=rbac`.
    #[arg(long, requires = "operator", conflicts_with_all = ["name", "file", "watch_namespaces"])]
    pub rbac_authorization: bool,

    /// With --operator: add the objects and permissions for
    /// `kubewarm run --certificate-secret=kubewarm-ca`.
    #[arg(long, requires = "operator", conflicts_with_all = ["name", "file"])]
    pub certificate: bool,

    /// With --operator: add the permissions for `kubewarm run --inject`, and the admission policy
    /// that limits them.
    #[arg(long, requires = "operator", conflicts_with_all = ["name", "file", "watch_namespaces"])]
    pub inject: bool,

    /// With --operator: add the objects and permissions for `kubewarm run --inject-policy`, and the
    /// admission policy that injects pods, which needs Kubernetes 1.36.
    #[arg(long, requires = "inject", conflicts_with_all = ["name", "file", "watch_namespaces"])]
    pub inject_policy: bool,

    /// Print the permissions that the manifests would add and remove, instead of the manifests.
    #[arg(long)]
    pub diff: bool,

    /// Reviewed generation: fail if the profile has another generation.
    #[arg(long, value_name = "NUMBER", conflicts_with = "file")]
    pub generation: Option<i64>,

    /// Subject of the permissions: system:serviceaccount:NAMESPACE:NAME, a user name or group:NAME.
    /// Without the flag, a status with another subject is an error [default: the operator's
    /// ServiceAccount].
    #[arg(long, value_parser = subject)]
    pub subject: Option<Subject>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Parses a subject: `system:serviceaccount:NAMESPACE:NAME`, a user name or `group:NAME`.
pub(super) fn subject(text: &str) -> Result<Subject, String> {
    let subject = text
        .strip_prefix("group:")
        .map_or_else(|| Subject::from_username(text), |name| Subject::Group(name.into()));
    let is_complete = match &subject {
        Subject::ServiceAccount { namespace, name } => !namespace.is_empty() && !name.is_empty(),
        Subject::User(name) => !name.is_empty() && !name.starts_with("system:serviceaccount:"),
        Subject::Group(name) => !name.is_empty(),
    };
    if is_complete {
        return Ok(subject);
    }
    Err("expected system:serviceaccount:NAMESPACE:NAME, the name of a user, or group:NAME"
        .to_owned())
}

/// Reason why the user must name the operator namespace. The error message contains this reason.
const GRANTED: &str = "the manifests grant permissions to the operator's ServiceAccount";
const UNTRUSTED: &str = "do not apply status.access: it grants more than the spec needs, because it is of an older \
     generation or kubewarm did not write it; apply the output of `kubewarm rbac`";

/// Prints the RBAC manifests of a profile in the cluster, or of the profiles in a file in file
/// order. The elevated manifests of a profile follow its other manifests. With `--diff` it prints
/// the changes instead.
///
/// Only a file without `--diff` needs no cluster.
///
/// # Errors
///
/// [`CommandError`] if the file or the cluster cannot be read, or if a profile is missing or
/// invalid. The error names the file, the document and the field, or the missing permission.
pub async fn rbac(args: &RbacArgs) -> Result<CommandExitCode, CommandError> {
    let text = if args.operator {
        let metrics_auth = args.metrics_auth.then_some(OperatorFeature::MetricsAuth);
        let read_api = args.read_api.then_some(OperatorFeature::ReadApi);
        let rules = args.rbac_authorization.then_some(OperatorFeature::RbacAuthorization);
        let certificate = args.certificate.then_some(OperatorFeature::Certificate);
        let inject = args.inject.then_some(OperatorFeature::Inject);
        let policy = args.inject_policy.then_some(OperatorFeature::InjectPolicy);
        let features = [metrics_auth, read_api, rules, certificate, inject, policy];
        let features: Vec<_> = features.into_iter().flatten().collect();
        let OperatorArgs { operator_namespace, watch_namespaces } = &args.spec.operator;
        operator_namespace.require("--operator-namespace", GRANTED)?;
        render_operator(operator_namespace.name(), watch_namespaces, &features)?
    } else {
        let (text, report) = of_profiles(args).await?;
        if args.diff {
            return show(&report, args.output.format);
        }
        text
    };
    print(&manifests(text, args.output.format)?)?;
    Ok(CommandExitCode::Good)
}

async fn of_profiles(args: &RbacArgs) -> Result<(String, CommandReport), CommandError> {
    let operator_namespace = &args.spec.operator.operator_namespace;
    if args.subject.is_none() {
        operator_namespace.require("--operator-namespace or --subject", GRANTED)?;
    }
    let client = if args.diff || args.spec.name.is_some() {
        Some(args.spec.connection.connect()?.client())
    } else {
        None
    };
    let settings = match &client {
        Some(client) if operator_namespace.is_explicit() => {
            OperatorInstallation::discover(client, &args.spec.operator).await?.0
        }
        Some(_) | None => OperatorInstallation::of_flags(&args.spec.operator),
    };
    let operator = settings.scope();
    let (mut text, mut report, mut names) = (String::new(), CommandReport::default(), Vec::new());
    for ProfileDocument { at, profile } in args.spec.read().await? {
        reviewed(&profile, args)?;
        names.push(object_name(&profile));
        let subject = args.subject.clone().unwrap_or_else(|| settings.subject());
        if args.subject.is_none() && args.spec.name.is_some() {
            expected(&profile, &subject)?;
        }
        let refused = |error| CommandError::unusable(&at, error);
        let checked = args.spec.check(profile.clone(), &operator).map_err(refused)?;
        let namespaces = match &client {
            Some(client) => live::namespaces(client, &checked).await?,
            None => NamespacesBySelector::new(),
        };
        let access =
            ProfilePermissions::of_profile(&checked, &namespaces, &subject, &operator.watched)
                .map_err(|error| refused(error.into()))?;
        let elevated = documents(access.manifests_elevated.as_deref())?;
        let all = [documents(access.manifests.as_deref())?, elevated.clone()].concat();
        let Some(client) = client.as_ref().filter(|_| args.diff) else {
            if let Some(client) = client.as_ref().filter(|_| args.generation.is_none()) {
                check_bindings(client, &checked, &all).await?;
            }
            text.push_str(&access.to_yaml());
            continue;
        };
        let (mut section, verdict) = diff(client, &checked, &all, &elevated).await?;
        // A user who passes the generation has already reviewed the changes, so changes are no
        // reason for a failing exit code.
        let mut verdict = if args.generation.is_some() { CommandExitCode::Good } else { verdict };
        if args.subject.is_none() && exceeds(&profile, &all) {
            section.rows.push(ReportRow::bad(UNTRUSTED));
            verdict = CommandExitCode::Failed;
        }
        report.sections.push(section);
        report.verdict = report.verdict.max(verdict);
    }
    Ok((text, CommandReport { names: Some(names), ..report }))
}

/// Fails if `--generation` is set and `profile` has another generation.
fn reviewed(profile: &CacheProfile, args: &RbacArgs) -> Result<(), CommandError> {
    let generation = profile.metadata.generation.unwrap_or_default();
    match args.generation {
        Some(wanted) if wanted != generation => Err(CommandError::new(format!(
            "CacheProfile {} is of generation {generation}, not {wanted}: it was edited; review it again with \
             `kubewarm rbac --diff`",
            name(profile)
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Fails if the status names another subject than `subject`. kubewarm does not trust the status:
/// users other than kubewarm can write it, and such a write does not change the generation that the
/// user reviewed.
fn expected(profile: &CacheProfile, subject: &Subject) -> Result<(), CommandError> {
    match reported_operator(profile) {
        Some(operator) if operator != *subject => Err(CommandError::new(format!(
            "the status of CacheProfile {} has the subject {operator}, not {subject}; if that is how kubewarm \
             runs, pass its namespace with --operator-namespace, or {operator} with --subject",
            name(profile)
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Fails if the manifests `all` would grant permissions to others, because the cluster already has
/// another binding to one of their roles. A user who may write roles could bind an empty role with
/// such a name in advance, and wait until an administrator applies the manifests.
///
/// A user who may not list bindings gets a warning and no error, because the manifests themselves
/// are right.
async fn check_bindings(
    client: &Client,
    profile: &ValidatedProfile,
    all: &[RbacObject],
) -> Result<(), CommandError> {
    let live = live::read(client, &profile.profile, all, DeniedList::Name).await?;
    if !live.denied.is_empty() {
        tell(&format!(
            "warning: you may not list {}, so kubewarm could not check completely whether others have already \
             bound the roles of these manifests",
            live.denied.join(", ")
        ));
    }
    let (change, needed) = (diff_grants(all, &live.documents), list_grants(all));
    let other = change.gained.iter().find(|(grant, _)| !needed.contains_key(grant));
    let Some((grant, binding)) = other else { return Ok(()) };
    Err(CommandError::new(format!(
        "the manifests would also grant permissions to {}, by {binding}, which is not of kubewarm: delete this \
         binding, or see all changes with --diff and pass the generation that you reviewed with --generation",
        grant.subject
    )))
}

/// Returns a section with a row for each permission that would change if the user applied the
/// manifests `all`, and the exit code.
async fn diff(
    client: &Client,
    profile: &ValidatedProfile,
    all: &[RbacObject],
    elevated: &[RbacObject],
) -> Result<(ReportSection, CommandExitCode), CommandError> {
    let live = live::read(client, &profile.profile, all, DeniedList::Fail).await?;
    let change = diff_grants(all, &live.documents);
    let mut rows = grant_diff::rows(&change, &list_grants(elevated), &list_grants(all));
    let unseen = live.unseen.iter().map(|unseen| format!("you may not list {unseen}"));
    rows.extend(unseen.map(|text| ReportRow::marked(RowMark::Unseen, text)));
    let verdict = if change.is_empty() { CommandExitCode::Good } else { CommandExitCode::Bad };
    Ok((ReportSection::new(heading(profile, &change), rows), verdict))
}

/// Whether the manifests in the status of `profile` grant more than `needed` (the manifests that
/// the spec requires), or cannot be parsed. Users other than kubewarm can write the status.
fn exceeds(profile: &CacheProfile, needed: &[RbacObject]) -> bool {
    let Some(access) = access_status(profile) else { return false };
    let needed = list_grants(needed);
    let texts = [&access.manifests, &access.manifests_elevated];
    let parsed: Result<Vec<_>, _> = texts.iter().map(|text| documents(text.as_deref())).collect();
    !parsed.is_ok_and(|parsed| {
        list_grants(&parsed.concat()).keys().all(|grant| needed.contains_key(grant))
    })
}

fn heading(profile: &ValidatedProfile, change: &GrantDiff) -> String {
    let generation = match profile.generation {
        0 => String::new(),
        generation => format!(" (generation {generation})"),
    };
    let outcome =
        if change.is_empty() { "nothing would change" } else { "by applying its manifests" };
    let ProfileRef { name, namespace } = &profile.profile;
    format!("{}{generation}: {outcome}", title(name, namespace))
}

fn access_status(profile: &CacheProfile) -> Option<&AccessStatus> {
    profile.status.as_ref()?.access.as_ref()
}

fn documents(manifests: Option<&str>) -> Result<Vec<RbacObject>, RbacParseError> {
    manifests.map_or_else(|| Ok(Vec::new()), RbacObject::parse)
}

/// Returns the operator's subject according to the profile's status. For a profile that reads as a
/// ServiceAccount, this is the subject that requests the ServiceAccount's tokens. For other
/// profiles, it is the subject that reads.
fn reported_operator(profile: &CacheProfile) -> Option<Subject> {
    let access = access_status(profile)?;
    if profile.spec.service_account_name.is_none() {
        return access.subject.as_deref().map(Subject::from_username);
    }
    let metadata = &profile.metadata;
    let profile_ref = ProfileRef {
        namespace: metadata.namespace.as_deref()?.into(),
        name: metadata.name.as_deref()?.into(),
    };
    find_token_minter(&profile_ref, &documents(access.manifests.as_deref()).ok()?)
}
