//! Flags that select profiles from a file or a cluster, and the operator's flags.

use super::{
    cluster::ConnectionArgs,
    error::{CommandError, CommandErrorSource},
    flag_values,
    profile_documents::{ProfileDocument, profiles},
    profiles::ProfileSelection,
};
use clap::{ArgGroup, Args};
use kubewarm_api::{
    manifests::NAMESPACE,
    model::{OperatorScope, ValidatedProfile},
    v1alpha1::{self, CacheProfile},
};
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

#[derive(Clone, Debug, Args)]
pub struct OperatorNamespaceArgs {
    /// Namespace in which kubewarm is installed [default: kubewarm-system; no default for grants
    /// and credentials]. Commands that use a cluster read the operator's settings from its
    /// Deployment.
    #[arg(
        long,
        env = "KUBEWARM_OPERATOR_NAMESPACE",
        value_name = "NAMESPACE",
        value_parser = flag_values::namespace
    )]
    pub operator_namespace: Option<String>,
}

impl OperatorNamespaceArgs {
    /// Returns the operator namespace, by default `kubewarm-system`.
    pub(super) fn name(&self) -> &str {
        self.operator_namespace.as_deref().unwrap_or(NAMESPACE)
    }

    /// Whether the user named the operator namespace, by the flag or by the environment.
    pub(super) fn is_explicit(&self) -> bool {
        self.operator_namespace.is_some()
    }

    /// Fails unless the user named the operator namespace. If kubewarm runs in another namespace,
    /// any user could own the default namespace and receive the permissions or credentials.
    ///
    /// # Errors
    ///
    /// [`CommandError`] with `flags`, which the user can pass, and with `reason`.
    pub(super) fn require(&self, flags: &str, reason: &str) -> Result<(), CommandError> {
        if self.is_explicit() {
            return Ok(());
        }
        Err(CommandError::new(format!(
            "pass {flags}: {reason}, and any user could own the default {NAMESPACE}; the operator namespace is the \
             namespace in which kubewarm is installed, and KUBEWARM_OPERATOR_NAMESPACE sets it for all commands"
        )))
    }

    /// Returns the operator namespace for printed commands. If the user did not name it, returns
    /// the placeholder `NAMESPACE`, so that the user does not run a command with a default
    /// namespace that nobody chose.
    pub(super) fn shown(&self) -> &str {
        self.operator_namespace.as_deref().unwrap_or("NAMESPACE")
    }
}

#[derive(Clone, Debug, Args)]
pub struct ProfileSourceArgs {
    /// Profile in the cluster.
    pub name: Option<String>,

    /// YAML or JSON file with profiles; - is standard input. Other kinds are skipped.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Namespace of the profile [default: the context's]; with -f, of profiles that have none
    /// [default: default].
    #[arg(short, long)]
    pub namespace: Option<String>,

    #[command(flatten)]
    pub operator: OperatorArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

#[derive(Clone, Debug, Args)]
pub struct OperatorArgs {
    #[command(flatten)]
    pub operator_namespace: OperatorNamespaceArgs,

    /// Namespaces whose profiles the operator runs, separated by commas [default: as in its
    /// Deployment, else all].
    #[arg(
        long,
        env = "KUBEWARM_WATCH_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ',',
        value_parser = flag_values::namespace
    )]
    pub watch_namespaces: Vec<String>,
}

/// Returns a clap group that requires exactly one of the arguments `ways`.
pub(super) fn one_of<const N: usize>(ways: [&'static str; N]) -> ArgGroup {
    ArgGroup::new("profiles").args(ways).required(true)
}

/// Maximum size of the input, in bytes (16 MiB). Files that people write are smaller.
const MAX_INPUT: u64 = 16 << 20;

impl ProfileSourceArgs {
    /// Reads the selected profiles. For a file it sends no request.
    pub(super) async fn read(&self) -> Result<Vec<ProfileDocument>, CommandError> {
        let Some(file) = self.file.as_deref() else {
            return self.fetch().await.map(|document| vec![document]);
        };
        let text = file_text(file)?;
        let of_file = |at: String| format!("{at} of {}", shown_file(file));
        let mut documents =
            profiles(&text).map_err(|(at, source)| CommandError::unusable(&of_file(at), source))?;
        if documents.is_empty() {
            let (file, group, version) = (shown_file(file), v1alpha1::GROUP, v1alpha1::VERSION);
            return Err(CommandError::new(format!(
                "{file} holds no CacheProfile of {group}/{version}"
            )));
        }
        for document in &mut documents {
            document.at = of_file(std::mem::take(&mut document.at));
        }
        Ok(documents)
    }

    async fn fetch(&self) -> Result<ProfileDocument, CommandError> {
        let cluster = self.connection.connect()?;
        let source =
            ProfileSelection::of(&cluster, self.namespace.as_deref(), self.name.as_deref());
        let Some(profile) = source.fetch().await?.pop() else { return Err(source.not_found()) };
        Ok(ProfileDocument { at: format!("CacheProfile {}", source.title()), profile })
    }

    /// Validates a profile. The operator namespace and the watched namespaces in `operator` limit
    /// the scopes of targets.
    pub(super) fn check(
        &self,
        mut profile: CacheProfile,
        operator: &OperatorScope,
    ) -> Result<ValidatedProfile, CommandErrorSource> {
        let namespace = &mut profile.metadata.namespace;
        if namespace.as_deref().unwrap_or_default().is_empty() {
            *namespace = Some(self.namespace.as_deref().unwrap_or("default").to_owned());
        }
        let checked = ValidatedProfile::parse(&profile)?;
        let targets = || checked.targets.iter();
        let refusal = targets().find_map(|target| operator.scope_refusal(&checked, target));
        if let Some(refusal) = refusal {
            return Err(format!("{}, or correct --operator-namespace", refusal.message).into());
        }
        let watched = &operator.watched;
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

/// The contents of `file`, or of standard input for `-`.
pub(super) fn file_text(file: &Path) -> Result<String, CommandError> {
    text(file)
        .map_err(|source| CommandError::caused(format!("cannot read {}", shown_file(file)), source))
}

/// Returns the name of the file for messages.
pub(super) fn shown_file(file: &Path) -> String {
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
