//! `rbac`: the roles that profiles need, and who would gain and lose what by them.

mod change;
mod live;
#[cfg(test)]
mod tests;

pub(super) use self::live::namespaces;

use super::{
    Error,
    specs::{Specs, Wanted, title},
};
use crate::{
    api::{AccessStatus, CacheProfile},
    cli::RbacArgs,
    cluster::Connection,
    manifests::{
        Access, Change, Document, FoundNamespaces, More, Unreadable, compare, grants, operator,
        token_minter,
    },
    model::{Home, ProfileRef, Subject, ValidatedProfile, Watched},
};
use kube::Client;
use std::process::ExitCode;

const UNTRUSTED: &str = "\
! do not apply status.access: it grants more than the spec needs, being of an older generation or
  not kubewarm's; apply what `kubewarm rbac` prints
";

/// Whether a cluster is what the manifests say; the number is the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agreement {
    /// It is, or nobody asked.
    #[default]
    Same = 0,
    /// Somebody would gain or lose something, or has more than is needed.
    Differs = 1,
    /// The status of the profile grants more than its spec needs: it is of an older generation, or
    /// not kubewarm's. It must not be applied.
    Untrusted = 2,
}

impl From<Agreement> for ExitCode {
    fn from(agreement: Agreement) -> Self {
        Self::from(agreement as u8)
    }
}

/// The manifests for the profile that `args` name, or for those in a file, as YAML documents in the
/// order of the file; of each profile first those that everybody may apply, then the elevated ones.
/// With `--diff`, what applying them would change, in lines.
///
/// Of a file without `--diff` no cluster is asked.
///
/// # Errors
///
/// [`Error`] if the file or the cluster cannot be read, there is no profile, or one that kubewarm
/// would refuse; it names the file, the document and the field, or the permission that is missing.
pub async fn rbac(args: &RbacArgs) -> Result<(String, Agreement), Error> {
    if args.operator {
        let metrics_auth = args.metrics_auth.then_some(More::MetricsAuth);
        let read_api = args.read_api.then_some(More::ReadApi);
        let more: Vec<_> = metrics_auth.into_iter().chain(read_api).collect();
        let text = operator(&args.home.operator_namespace, &args.watch_namespaces, &more);
        return Ok((text.map_err(Error::Operator)?, Agreement::Same));
    }
    let mut text = String::new();
    let mut agreement = Agreement::Same;
    let client = if args.diff || args.name.is_some() { Some(connect(args)?) } else { None };
    let specs = Specs {
        name: args.name.as_deref(),
        file: args.file.as_deref(),
        namespace: args.namespace.as_deref(),
        home: Home {
            namespace: args.home.operator_namespace.as_str().into(),
            watched: Watched::of(&args.watch_namespaces),
        },
        connection: &args.connection,
    };
    for Wanted { profile, refused } in specs.read().await? {
        reviewed(&profile, args)?;
        let subject = args.subject.clone().unwrap_or_else(|| specs.operator());
        if args.subject.is_none() && args.name.is_some() {
            expected(&profile, &subject)?;
        }
        let checked = specs.check(profile.clone()).map_err(&refused)?;
        let found = match &client {
            Some(client) => live::namespaces(client, &checked).await?,
            None => FoundNamespaces::new(),
        };
        let access = Access::of_profile(&checked, &found, &subject, (&specs.home.watched).into())
            .map_err(|error| refused(error.into()))?;
        match &client {
            Some(client) if args.diff => {
                let needed = Needed::parse(&access)?;
                let (lines, one) = needed.diff(client, &checked).await?;
                text.push_str(&lines);
                agreement = agreement.max(one);
                if args.subject.is_none() && needed.is_exceeded(&profile) {
                    text.push_str(UNTRUSTED);
                    agreement = Agreement::Untrusted;
                }
            }
            Some(_) | None => text.push_str(&access.to_yaml()),
        }
    }
    // Whoever names the generation has reviewed the differences: what counts is that they are those.
    match agreement {
        Agreement::Differs if args.generation.is_some() => Ok((text, Agreement::Same)),
        Agreement::Same | Agreement::Differs | Agreement::Untrusted => Ok((text, agreement)),
    }
}

/// Fails unless the profile is of the generation that was reviewed.
fn reviewed(profile: &CacheProfile, args: &RbacArgs) -> Result<(), Error> {
    let found = profile.metadata.generation.unwrap_or_default();
    match args.generation {
        Some(wanted) if wanted != found => {
            Err(Error::Generation { title: title(profile), found, wanted })
        }
        Some(_) | None => Ok(()),
    }
}

/// Fails if the status says that somebody else reads: it may be written by others than kubewarm, also
/// after a review, since it has no generation.
fn expected(profile: &CacheProfile, subject: &Subject) -> Result<(), Error> {
    match said_operator(profile) {
        Some(said) if said != *subject => Err(Error::OtherSubject {
            title: title(profile),
            said: said.to_string().escape_debug().to_string(),
            expected: subject.to_string(),
        }),
        Some(_) | None => Ok(()),
    }
}

fn connect(args: &RbacArgs) -> Result<Client, Error> {
    let connection = &args.connection;
    let found = Connection::load(connection.kubeconfig.as_deref(), connection.context.as_deref())?;
    Ok(found.client())
}

/// What the spec needs, as objects.
struct Needed {
    all: Vec<Document>,
    elevated: Vec<Document>,
}

impl Needed {
    fn parse(access: &Access) -> Result<Self, Error> {
        let parse = |text: &Option<String>| documents(text.as_deref()).map_err(Error::Manifests);
        let (plain, elevated) = (parse(&access.manifests)?, parse(&access.manifests_elevated)?);
        Ok(Self { all: [plain, elevated.clone()].concat(), elevated })
    }

    /// What applying it would change: a line for the profile, one for each change.
    async fn diff(
        &self,
        client: &Client,
        profile: &ValidatedProfile,
    ) -> Result<(String, Agreement), Error> {
        let live = live::read(client, &profile.profile, &self.all).await?;
        let change = compare(&self.all, &live.documents);
        let lines = change::lines(&change, &grants(&self.elevated), &grants(&self.all));
        let unseen = live.unseen.iter().map(|unseen| format!("? you may not list {unseen}"));
        let lines = [heading(profile, &change)].into_iter().chain(lines).chain(unseen);
        let text = lines.map(|line| line + "\n").collect();
        Ok((text, if change.is_empty() { Agreement::Same } else { Agreement::Differs }))
    }

    /// Whether the status of `profile` grants more than this.
    fn is_exceeded(&self, profile: &CacheProfile) -> bool {
        let Some(said) = access_status(profile) else { return false };
        let needed = grants(&self.all);
        let texts = [&said.manifests, &said.manifests_elevated];
        let said: Result<Vec<_>, _> = texts.iter().map(|text| documents(text.as_deref())).collect();
        !said.is_ok_and(|said| grants(&said.concat()).keys().all(|one| needed.contains_key(one)))
    }
}

fn heading(profile: &ValidatedProfile, change: &Change) -> String {
    let generation = match profile.generation {
        0 => String::new(),
        generation => format!(" (generation {generation})"),
    };
    let outcome =
        if change.is_empty() { "nothing would change" } else { "by applying its manifests" };
    format!("{}{generation}: {outcome}", profile.profile)
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
