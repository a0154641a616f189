//! The command `kubeconfig` writes a kubeconfig for kubewarm's read API (HTTP server for clients).

use super::{
    CommandError,
    cache::{self, CacheConnectionArgs},
    cluster::ConnectionArgs,
    operator_installation::{accepts_certificates, deployments},
    output::{OutputArgs, OutputFormat},
    print::{print, tell},
    report::CommandExitCode,
};
use clap::Args;
use kube::config::{AuthInfo, Kubeconfig};
use kubewarm_client::load_context_user;
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf, absolute},
};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// Output file with mode 0600 [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,

    /// Replace an existing file.
    #[arg(long, requires = "output_file")]
    pub overwrite: bool,

    /// File with a bearer token, such as a pod's ServiceAccount token, instead of the user of the
    /// context. Clients read it again when it changes.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub cache: CacheConnectionArgs,

    /// Connection flags. They select the user to copy, and the cluster from which kubewarm reads
    /// the CA.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Writes the new kubeconfig to a file, or prints it.
///
/// # Errors
///
/// [`CommandError`] if the user has no kubeconfig, if the read API's CA cannot be read, or if the
/// output file exists and `--overwrite` is not set.
pub async fn kubeconfig(args: &KubeconfigArgs) -> Result<CommandExitCode, CommandError> {
    let is_json = match args.output.format {
        None | Some(OutputFormat::Yaml) => false,
        Some(OutputFormat::Json) => true,
        Some(OutputFormat::Name | OutputFormat::Wide) => {
            return Err(CommandError::new("a kubeconfig is YAML or JSON; use -o yaml or -o json"));
        }
    };
    args.connection.refuse_impersonation()?;
    let mut context = load_context_user(&args.connection.options())?;
    if let Some(path) = &args.token_file {
        let path = absolute(path).map_err(|error| {
            CommandError::caused(format!("cannot read {}", path.display()), error)
        })?;
        let token_file = Some(path.display().to_string());
        context.user = AuthInfo { token_file, ..AuthInfo::default() };
    }
    let connect = || args.connection.connect();
    let (made, remark) = cache::kubeconfig(&args.cache, context, connect).await?;
    let warning = certificate_warning(&made, args).await;
    for remark in remark.into_iter().chain(warning).chain(profile_remark(args)) {
        tell(&remark);
    }
    let unwritable = "cannot write the kubeconfig";
    let text = Zeroizing::new(if is_json {
        serde_json::to_string_pretty(&made)
            .map_err(|error| CommandError::caused(unwritable, error))?
    } else {
        serde_saphyr::to_string(&made).map_err(|error| CommandError::caused(unwritable, error))?
    });
    let Some(path) = &args.output_file else {
        print(&text)?;
        return Ok(CommandExitCode::Good);
    };
    write(path, &text, args).map_err(|source| {
        let file = path.display();
        if source.kind() == io::ErrorKind::AlreadyExists {
            return CommandError::new(format!("{file} exists; --overwrite replaces it"));
        }
        CommandError::caused(format!("cannot write {file}"), source)
    })?;
    tell(&format!("wrote {}", path.display()));
    Ok(CommandExitCode::Good)
}

/// Returns a warning if the user has only a client certificate, and the operator's read API does
/// not accept client certificates.
async fn certificate_warning(made: &Kubeconfig, args: &KubeconfigArgs) -> Option<String> {
    let user = made.auth_infos.first()?.auth_info.as_ref()?;
    if !has_only_certificate(user) {
        return None;
    }
    let client = args.connection.connect().ok()?.client();
    let deployments =
        deployments(&client, args.cache.service.operator_namespace.name()).await.ok()?;
    // If the setting is unreadable, there is no warning, because the read API possibly accepts
    // client certificates.
    let is_accepted = deployments.is_empty()
        || deployments.iter().any(|deployment| accepts_certificates(deployment).unwrap_or(true));
    (!is_accepted).then(|| {
        "the user of the context has only a client certificate, and the read API accepts none: reads get 401; \
         pass --token-file, or set readApi.clientCA.configMap of the chart"
            .to_owned()
    })
}

fn has_only_certificate(user: &AuthInfo) -> bool {
    let has_certificate =
        user.client_certificate.is_some() || user.client_certificate_data.is_some();
    let has_token = user.token.is_some() || user.token_file.is_some();
    has_certificate && !has_token && user.exec.is_none()
}

/// Returns a remark if `--cache-profile` is set: clients of the read API then need the permission
/// `get` on that CacheProfile. kubectl prints only `Forbidden: unknown` for a client without it.
fn profile_remark(args: &KubeconfigArgs) -> Option<String> {
    let profile = args.cache.cache_profile.as_deref()?;
    Some(format!(
        "readers need the permission to get CacheProfile {profile}; without it kubectl prints only \
         \"Forbidden: unknown\""
    ))
}

/// Writes the kubeconfig to a temporary file with mode 0600 and renames that file to `path`. No
/// client therefore reads a partial file, and the new file does not keep the mode of the file that
/// it replaces.
fn write(path: &Path, text: &str, args: &KubeconfigArgs) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    let result = if args.overwrite { file.persist(path) } else { file.persist_noclobber(path) };
    result.map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::parse, *};
    use kube::config::ExecConfig;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn a_user_with_a_token_or_a_plugin_has_more_than_a_certificate() {
        let certificate =
            AuthInfo { client_certificate_data: Some("cGVt".to_owned()), ..AuthInfo::default() };
        assert!(has_only_certificate(&certificate));
        let token_file = Some("/token".to_owned());
        for user in [
            AuthInfo::default(),
            AuthInfo { token_file, ..certificate.clone() },
            AuthInfo { exec: Some(ExecConfig::default()), ..certificate },
        ] {
            assert!(!has_only_certificate(&user), "{user:?}");
        }
    }

    #[test]
    fn only_the_owner_can_read_a_kubeconfig_and_only_overwrite_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let args = parse::<KubeconfigArgs>("--output-file config").unwrap();
        write(&path, "one", &args).unwrap();
        let error = write(&path, "two", &args).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let args = parse::<KubeconfigArgs>("--output-file config --overwrite").unwrap();
        write(&path, "three", &args).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file is left");
    }
}
