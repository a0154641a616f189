//! `rbac`: the roles that profiles need, and who would gain and lose what by them.

mod change;
mod live;
#[cfg(test)]
mod tests;

pub(super) use self::live::namespaces;

use super::{
    Error,
    documents::Found,
    operator_settings::OperatorSettings,
    output::{OutputArgs, manifests},
    print::{print, show},
    report::{Mark, Report, ReportRow, Section, Verdict},
    specs::{OperatorArgs, SpecArgs, one_of},
    verdict::{name, object_name, title},
};
use clap::Args;
use kube::Client;
use kubewarm_api::{
    manifests::{
        Access, Change, Document, FoundNamespaces, More, Unreadable, compare, grants, operator,
        token_minter,
    },
    model::{ProfileRef, Subject, ValidatedProfile},
    v1alpha1::{AccessStatus, CacheProfile},
};

const CODES: &str = "\
Exit codes:
  0  printed; with --diff: nothing would change, or --generation was given and is the profile's
  1  with --diff and without --generation: somebody would gain, lose or keep more than is needed
  2  the question failed, a profile would be refused, or it is of another generation";

/// Arguments of `rbac`.
#[derive(Debug, Args)]
#[command(after_help = CODES, group = one_of(["name", "file", "operator"]))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct RbacArgs {
    /// Which profiles.
    #[command(flatten)]
    pub spec: SpecArgs,

    /// Print what kubewarm itself needs, whatever the profiles say, instead of a profile's roles.
    #[arg(long, conflicts_with_all = ["diff", "generation", "subject", "namespace"])]
    pub operator: bool,

    /// With --operator: what `kubewarm run --metrics-auth` needs, too.
    #[arg(long, requires = "operator", conflicts_with_all = ["name", "file", "watch_namespaces"])]
    pub metrics_auth: bool,

    /// With --operator: what `kubewarm run --api-addr` needs, too.
    #[arg(long, requires = "operator", conflicts_with_all = ["name", "file", "watch_namespaces"])]
    pub read_api: bool,

    /// Say who would gain and lose what if the manifests were applied, instead of printing them.
    /// Namespaces of selectors are asked for.
    #[arg(long)]
    pub diff: bool,

    /// Fail unless the profile is of this generation: it has not been edited since it was reviewed.
    #[arg(long, value_name = "NUMBER", conflicts_with = "file")]
    pub generation: Option<i64>,

    /// Who is to be granted: system:serviceaccount:NAMESPACE:NAME, the name of a user, or
    /// group:NAME [default: the operator's ServiceAccount, or with -f alone the ServiceAccount kubewarm in its
    /// namespace; it is an error if the status of a profile in the cluster names another].
    #[arg(long, value_parser = subject)]
    pub subject: Option<Subject>,

    /// Output flags.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A subject as [`Subject`] displays it.
pub(super) fn subject(text: &str) -> Result<Subject, String> {
    let subject = text
        .strip_prefix("group:")
        .map_or_else(|| Subject::from_username(text), |name| Subject::Group(name.into()));
    let complete = match &subject {
        Subject::ServiceAccount { namespace, name } => !namespace.is_empty() && !name.is_empty(),
        Subject::User(name) => !name.is_empty() && !name.starts_with("system:serviceaccount:"),
        Subject::Group(name) => !name.is_empty(),
    };
    if complete {
        return Ok(subject);
    }
    Err("expected system:serviceaccount:NAMESPACE:NAME, the name of a user, or group:NAME"
        .to_owned())
}

const UNTRUSTED: &str = "do not apply status.access: it grants more than the spec needs, being of an older \
     generation or not kubewarm's; apply what `kubewarm rbac` prints";

/// Prints the manifests for the profile that `args` name, or for those in a file, as YAML documents in the
/// order of the file; of each profile first those that everybody may apply, then the elevated ones.
/// With `--diff`, what applying them would change, in lines.
///
/// Of a file without `--diff` no cluster is asked.
///
/// # Errors
///
/// [`Error`] if the file or the cluster cannot be read, there is no profile, or one that kubewarm
/// would refuse; it names the file, the document and the field, or the permission that is missing.
pub async fn rbac(args: &RbacArgs) -> Result<Verdict, Error> {
    if args.operator {
        let metrics_auth = args.metrics_auth.then_some(More::MetricsAuth);
        let read_api = args.read_api.then_some(More::ReadApi);
        let more: Vec<_> = metrics_auth.into_iter().chain(read_api).collect();
        let OperatorArgs { home, watch_namespaces } = &args.spec.operator;
        let text = operator(&home.operator_namespace, watch_namespaces, &more)?;
        print(&manifests(text, args.output.format)?)?;
        return Ok(Verdict::Good);
    }
    let (text, report) = of_profiles(args).await?;
    if args.diff {
        return show(&report, args.output.format);
    }
    print(&manifests(text, args.output.format)?)?;
    Ok(Verdict::Good)
}

/// The manifests, or with `--diff` the report on what they would change.
async fn of_profiles(args: &RbacArgs) -> Result<(String, Report), Error> {
    let client = if args.diff || args.spec.name.is_some() {
        Some(args.spec.connection.connect()?.client())
    } else {
        None
    };
    let settings = match &client {
        Some(client) => OperatorSettings::discover(client, &args.spec.operator).await,
        None => OperatorSettings::of_flags(&args.spec.operator),
    };
    let home = settings.home();
    let (mut text, mut report, mut names) = (String::new(), Report::default(), Vec::new());
    for Found { at, profile } in args.spec.read().await? {
        reviewed(&profile, args)?;
        names.push(object_name(&profile));
        let subject = args.subject.clone().unwrap_or_else(|| settings.subject());
        if args.subject.is_none() && args.spec.name.is_some() {
            expected(&profile, &subject)?;
        }
        let refused = |error| Error::unusable(&at, error);
        let checked = args.spec.check(profile.clone(), &home).map_err(refused)?;
        let found = match &client {
            Some(client) => live::namespaces(client, &checked).await?,
            None => FoundNamespaces::new(),
        };
        let access = Access::of_profile(&checked, &found, &subject, &home.watched)
            .map_err(|error| refused(error.into()))?;
        let Some(client) = client.as_ref().filter(|_| args.diff) else {
            text.push_str(&access.to_yaml());
            continue;
        };
        let elevated = documents(access.manifests_elevated.as_deref())?;
        let all = [documents(access.manifests.as_deref())?, elevated.clone()].concat();
        let (mut section, verdict) = diff(client, &checked, &all, &elevated).await?;
        // Whoever names the generation has reviewed the differences: what counts is that they are those.
        let mut verdict = if args.generation.is_some() { Verdict::Good } else { verdict };
        if args.subject.is_none() && exceeds(&profile, &all) {
            section.rows.push(ReportRow::bad(UNTRUSTED));
            verdict = Verdict::Failed;
        }
        report.sections.push(section);
        report.verdict = report.verdict.max(verdict);
    }
    Ok((text, Report { names: Some(names), ..report }))
}

/// Fails unless the profile is of the generation that was reviewed.
fn reviewed(profile: &CacheProfile, args: &RbacArgs) -> Result<(), Error> {
    let found = profile.metadata.generation.unwrap_or_default();
    match args.generation {
        Some(wanted) if wanted != found => Err(Error::new(format!(
            "CacheProfile {} is of generation {found}, not {wanted}: it was edited; review it again with \
             `kubewarm rbac --diff`",
            name(profile)
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Fails if the status says that somebody else reads: it may be written by others than kubewarm, also
/// after a review, since it has no generation. Somebody could have itself granted to by what is printed.
fn expected(profile: &CacheProfile, subject: &Subject) -> Result<(), Error> {
    match said_operator(profile) {
        Some(said) if said != *subject => Err(Error::new(format!(
            "the status of CacheProfile {} names {said} as who reads, not {subject}; if that is how kubewarm \
             runs, say so with --subject",
            name(profile)
        ))),
        Some(_) | None => Ok(()),
    }
}

/// What applying all documents would change: the profile, and a row for each change.
async fn diff(
    client: &Client,
    profile: &ValidatedProfile,
    all: &[Document],
    elevated: &[Document],
) -> Result<(Section, Verdict), Error> {
    let (live, unseen) = live::read(client, &profile.profile, all).await?;
    let change = compare(all, &live);
    let mut rows = change::rows(&change, &grants(elevated), &grants(all));
    let unseen = unseen.iter().map(|unseen| format!("you may not list {unseen}"));
    rows.extend(unseen.map(|text| ReportRow::marked(Mark::Unseen, text)));
    let verdict = if change.is_empty() { Verdict::Good } else { Verdict::Bad };
    Ok((Section::new(heading(profile, &change), rows), verdict))
}

/// Whether the status of `profile` grants more than `needed`.
fn exceeds(profile: &CacheProfile, needed: &[Document]) -> bool {
    let Some(said) = access_status(profile) else { return false };
    let needed = grants(needed);
    let texts = [&said.manifests, &said.manifests_elevated];
    let said: Result<Vec<_>, _> = texts.iter().map(|text| documents(text.as_deref())).collect();
    !said.is_ok_and(|said| grants(&said.concat()).keys().all(|one| needed.contains_key(one)))
}

fn heading(profile: &ValidatedProfile, change: &Change) -> String {
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

fn documents(manifests: Option<&str>) -> Result<Vec<Document>, Unreadable> {
    manifests.map_or_else(|| Ok(Vec::new()), Document::parse)
}

/// Who kubewarm is, as the status says: whoever reads, or where an account does, whoever is to mint
/// its tokens.
fn said_operator(profile: &CacheProfile) -> Option<Subject> {
    let access = access_status(profile)?;
    if profile.spec.service_account_name.is_none() {
        return access.subject.as_deref().map(Subject::from_username);
    }
    let metadata = &profile.metadata;
    let of = ProfileRef {
        namespace: metadata.namespace.as_deref()?.into(),
        name: metadata.name.as_deref()?.into(),
    };
    token_minter(&of, &documents(access.manifests.as_deref()).ok()?)
}
