//! The profiles that a command is about: those of a file, or one of a cluster.

use super::{
    cluster::ConnectionArgs,
    documents::{Found, profiles},
    error::{Cause, Error},
    profiles::Profiles,
    value,
};
use clap::{ArgGroup, Args};
use kubewarm_api::{
    model::{Home, ValidatedProfile},
    v1alpha1::{self, CacheProfile},
};
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Flags for the operator's namespace.
#[derive(Clone, Debug, Args)]
pub struct HomeArgs {
    /// Namespace of the operator. Commands that use a cluster read the operator's settings from its Deployment
    /// there. Profiles there can name other namespaces than their own.
    #[arg(
        long,
        env = "KUBEWARM_OPERATOR_NAMESPACE",
        default_value = "kubewarm-system",
        value_name = "NAMESPACE",
        value_parser = value::namespace
    )]
    pub operator_namespace: String,
}

/// Which profiles a command is about.
#[derive(Clone, Debug, Args)]
pub struct SpecArgs {
    /// A profile of the cluster.
    pub name: Option<String>,

    /// A file with one CacheProfile or more, YAML or JSON; - reads standard input. Other kinds in
    /// it are skipped.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Where the profile is [default: the namespace of the context]; of profiles in a file that
    /// name none [default: default].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// How the operator runs.
    #[command(flatten)]
    pub operator: OperatorArgs,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Flags for the operator's settings.
#[derive(Clone, Debug, Args)]
pub struct OperatorArgs {
    /// Where it is.
    #[command(flatten)]
    pub home: HomeArgs,

    /// Namespaces whose profiles the operator runs, separated by commas. The operator then needs no ClusterRole,
    /// except for a profile that reads as a ServiceAccount [default: as in its Deployment, else all].
    #[arg(
        long,
        env = "KUBEWARM_WATCH_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ',',
        value_parser = value::namespace
    )]
    pub watch_namespaces: Vec<String>,
}

/// One of `ways` to name a profile, and no other.
pub(super) fn one_of<const N: usize>(ways: [&'static str; N]) -> ArgGroup {
    ArgGroup::new("profiles").args(ways).required(true)
}

/// The longest input, in bytes: far above a file that people write, far below memory.
const MAX_INPUT: u64 = 16 << 20;

impl SpecArgs {
    /// Reads them. No cluster is asked for those of a file.
    pub(super) async fn read(&self) -> Result<Vec<Found>, Error> {
        let Some(file) = self.file.as_deref() else {
            return self.named().await.map(|one| vec![one]);
        };
        let text = self::file(file)?;
        let of_file = |at: String| format!("{at} of {}", shown(file));
        let mut found =
            profiles(&text).map_err(|(at, source)| Error::unusable(&of_file(at), source))?;
        if found.is_empty() {
            let (file, group, version) = (shown(file), v1alpha1::GROUP, v1alpha1::VERSION);
            return Err(Error::new(format!("{file} holds no CacheProfile of {group}/{version}")));
        }
        for one in &mut found {
            one.at = of_file(std::mem::take(&mut one.at));
        }
        Ok(found)
    }

    async fn named(&self) -> Result<Found, Error> {
        let cluster = self.connection.connect()?;
        let source = Profiles::of(&cluster, self.namespace.as_deref(), self.name.as_deref());
        let Some(profile) = source.fetch().await?.pop() else { return Err(source.not_found()) };
        Ok(Found { at: format!("CacheProfile {}", source.title()), profile })
    }

    /// The profile, if an operator at `home` would run it.
    pub(super) fn check(
        &self,
        mut profile: CacheProfile,
        home: &Home,
    ) -> Result<ValidatedProfile, Cause> {
        let namespace = &mut profile.metadata.namespace;
        if namespace.as_deref().unwrap_or_default().is_empty() {
            *namespace = Some(self.namespace.as_deref().unwrap_or("default").to_owned());
        }
        let checked = ValidatedProfile::parse(&profile)?;
        let targets = || checked.targets.iter();
        let refusal = targets().find_map(|target| home.scope_refusal(&checked, target));
        if let Some(refusal) = refusal {
            return Err(format!("{}, or correct --operator-namespace", refusal.message).into());
        }
        let watched = &home.watched;
        let namespace = &checked.profile.namespace;
        if !watched.includes(namespace) {
            let text = format!(
                "metadata.namespace: profiles in {namespace} are not among those that --watch-namespaces has \
                 kubewarm run; move the profile, or add the namespace there"
            );
            return Err(text.into());
        }
        let refusal = |target| watched.refusal(&checked, target);
        if let Some(refusal) = targets().find_map(refusal) {
            return Err(refusal.message.into());
        }
        Ok(checked)
    }
}

/// The text of `file`; of standard input for `-`.
fn file(file: &Path) -> Result<String, Error> {
    text(file).map_err(|source| Error::caused(format!("cannot read {}", shown(file)), source))
}

/// A path as a person calls it.
fn shown(file: &Path) -> String {
    if file == Path::new("-") {
        return "standard input".to_owned();
    }
    file.display().to_string()
}

fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(MAX_INPUT + 1).read_to_string(&mut text)?
    } else {
        File::open(file)?.take(MAX_INPUT + 1).read_to_string(&mut text)?
    };
    if u64::try_from(read).is_ok_and(|read| read > MAX_INPUT) {
        return Err(io::Error::other("it is longer than 16 MiB"));
    }
    Ok(text)
}
