//! Selects the source of the API server's URL and credentials: flags, environment, pod files or
//! home directory.

use super::{ConnectionOptions, connection::ConnectError};
use kube::{Config, config::Kubeconfig};
use std::{
    env,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf, absolute},
};

pub(super) const SERVICE_ACCOUNT_TOKEN: &str =
    "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A source of the API server's URL and credentials. Error messages contain the `Display` form of
/// this type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConfigSource {
    /// One kubeconfig file, or several files of `KUBECONFIG` that kubewarm merges. `flag` is the
    /// text that names the source in messages, such as `--kubeconfig`.
    Files { flag: &'static str, paths: Vec<PathBuf> },
    /// The ServiceAccount files that the kubelet mounts into the pod.
    Pod,
}

/// The sources of the configuration that this process uses if no flag selects a source:
/// `KUBECONFIG`, the pod and the home directory.
#[derive(Clone, Debug, Default)]
pub(super) struct ConfigEnvironment {
    kubeconfig: Option<OsString>,
    is_pod: bool,
    home_file: Option<PathBuf>,
}

pub(super) fn choose(
    options: &ConnectionOptions,
    around: &ConfigEnvironment,
) -> Result<ConfigSource, ConnectError> {
    if let Some(path) = &options.kubeconfig {
        return Ok(ConfigSource::Files { flag: "--kubeconfig", paths: vec![path.clone()] });
    }
    let listed: Vec<PathBuf> = around
        .kubeconfig
        .iter()
        .flat_map(env::split_paths)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if !listed.is_empty() {
        return Ok(ConfigSource::Files { flag: "KUBECONFIG", paths: listed });
    }
    let needs_kubeconfig = [&options.context, &options.cluster, &options.user];
    if around.is_pod && needs_kubeconfig.iter().all(|entry| entry.is_none()) {
        return Ok(ConfigSource::Pod);
    }
    match &around.home_file {
        Some(path) if path.exists() => {
            Ok(ConfigSource::Files { flag: "the home directory", paths: vec![path.clone()] })
        }
        missing => {
            let home = missing
                .as_ref()
                .map_or_else(|| "$HOME/.kube/config".to_owned(), |path| path.display().to_string());
            Err(ConnectError::Nothing { home })
        }
    }
}

/// Merges the files at `paths` into one kubeconfig. If `options` names a context, a cluster or a
/// user, the current context of the result selects this entry.
///
/// Paths in the result are absolute, because kubewarm also writes these paths into kubeconfigs in
/// other directories.
///
/// # Errors
///
/// [`ConnectError`] if kubewarm cannot read a file, or if no file contains the cluster or the user
/// in `options`.
pub(super) fn merged(
    source: &ConfigSource,
    paths: &[PathBuf],
    options: &ConnectionOptions,
) -> Result<Kubeconfig, ConnectError> {
    let broken =
        |error| ConnectError::Kubeconfig { origin: source.to_string(), source: Box::new(error) };
    let mut merged = Kubeconfig::default();
    for path in paths {
        // As for kubectl, a missing file is not an error if `KUBECONFIG` lists several files.
        if paths.len() > 1 && !path.exists() {
            continue;
        }
        let path = absolute(path).unwrap_or_else(|_| path.clone());
        merged = Kubeconfig::read_from(path).and_then(|next| merged.merge(next)).map_err(broken)?;
    }
    if let Some(context) = &options.context {
        merged.current_context = Some(context.clone());
    }
    let missing = |kind, name: &String| {
        let (origin, name) = (source.to_string(), name.clone());
        Err(ConnectError::NoEntry { origin, kind, name })
    };
    if let Some(cluster) = &options.cluster
        && !merged.clusters.iter().any(|entry| entry.name == *cluster)
    {
        return missing("cluster", cluster);
    }
    if let Some(user) = &options.user
        && !merged.auth_infos.iter().any(|entry| entry.name == *user)
    {
        return missing("user", user);
    }
    let current = merged.current_context.clone();
    let context = merged.contexts.iter_mut().find(|entry| current.as_ref() == Some(&entry.name));
    if let Some(context) = context.and_then(|entry| entry.context.as_mut()) {
        if let Some(cluster) = &options.cluster {
            context.cluster.clone_from(cluster);
        }
        if options.user.is_some() {
            context.user.clone_from(&options.user);
        }
    }
    Ok(merged)
}

/// Returns the configuration of the kubeconfig's current context. The function takes a proxy only
/// from the kubeconfig's `proxy-url`, and discards a proxy that kube reads from the environment.
/// `ApiServerConnection` evaluates the environment itself, because kube compares `NO_PROXY` with
/// the proxy instead of the server.
pub(super) fn from_kubeconfig(
    source: &ConfigSource,
    merged: Kubeconfig,
) -> Result<Config, ConnectError> {
    let broken =
        |error| ConnectError::Kubeconfig { origin: source.to_string(), source: Box::new(error) };
    let explicit_proxy = proxy_url_of(&merged)
        .map(str::parse)
        .transpose()
        .map_err(|_| ConnectError::ProxyUrl { origin: source.to_string() })?;
    let mut config = Config::try_from(merged).map_err(broken)?;
    config.proxy_url = explicit_proxy;
    Ok(config)
}

fn proxy_url_of(kubeconfig: &Kubeconfig) -> Option<&str> {
    let current = kubeconfig.current_context.as_deref()?;
    let context = kubeconfig.contexts.iter().find(|entry| entry.name == current)?;
    let cluster = &context.context.as_ref()?.cluster;
    let entry = kubeconfig.clusters.iter().find(|entry| &entry.name == cluster)?;
    entry.cluster.as_ref()?.proxy_url.as_deref().filter(|url| !url.is_empty())
}

impl ConfigEnvironment {
    pub(super) fn of_process() -> Self {
        Self {
            kubeconfig: env::var_os("KUBECONFIG"),
            is_pod: env::var_os("KUBERNETES_SERVICE_HOST").is_some()
                && Path::new(SERVICE_ACCOUNT_TOKEN).exists(),
            home_file: env::home_dir().map(|home| home.join(".kube/config")),
        }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod => f.write_str("the pod's ServiceAccount"),
            Self::Files { flag, paths } if paths.is_empty() => f.write_str(flag),
            Self::Files { flag, paths } => {
                f.write_str(flag)?;
                for (index, path) in paths.iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { " (" } else { ", " }, path.display())?;
                }
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
pub(super) mod sample {
    /// A kubeconfig with three clusters: `two` is behind a proxy, and `three` skips TLS
    /// verification.
    pub(crate) const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: one
clusters:
- name: one
  cluster: {server: 'https://one.example:6443'}
- name: two
  cluster: {server: 'https://two.example', proxy-url: 'http://proxy.example:3128'}
- name: three
  cluster: {server: 'https://three.example', insecure-skip-tls-verify: true}
contexts:
- {name: one, context: {cluster: one, user: '', namespace: shop}}
- {name: two, context: {cluster: two, user: ''}}
- {name: three, context: {cluster: three, user: ''}}
";
}

#[cfg(test)]
mod tests {
    use super::{sample::KUBECONFIG, *};

    #[test]
    fn flags_override_the_environment_and_the_pod_overrides_the_home_directory() {
        let home = tempfile::NamedTempFile::new().unwrap();
        let around = ConfigEnvironment {
            kubeconfig: Some(":/a:/b".into()),
            is_pod: true,
            home_file: Some(home.path().to_owned()),
        };
        let chosen = |path: Option<&str>, context: Option<&str>, around: &ConfigEnvironment| {
            let kubeconfig = path.map(PathBuf::from);
            let context = context.map(str::to_owned);
            let options = ConnectionOptions { kubeconfig, context, ..ConnectionOptions::default() };
            choose(&options, around).unwrap().to_string()
        };
        assert_eq!(chosen(Some("/x"), None, &around), "--kubeconfig (/x)");
        assert_eq!(chosen(None, None, &around), "KUBECONFIG (/a, /b)");
        let around = ConfigEnvironment { kubeconfig: Some("".into()), ..around };
        assert_eq!(chosen(None, None, &around), "the pod's ServiceAccount");
        // `--context` requires a kubeconfig, so kubewarm does not use the pod's ServiceAccount.
        assert!(chosen(None, Some("c"), &around).starts_with("the home directory"));
        for name in ["cluster", "user"] {
            let value = |field: &str| (field == name).then(|| "c".to_owned());
            let (cluster, user) = (value("cluster"), value("user"));
            let options = ConnectionOptions { cluster, user, ..ConnectionOptions::default() };
            let chosen = choose(&options, &around).unwrap().to_string();
            assert!(chosen.starts_with("the home directory"), "{name}: {chosen}");
        }
        let around = ConfigEnvironment { is_pod: false, ..around };
        assert!(chosen(None, None, &around).starts_with("the home directory"));
    }

    #[test]
    fn the_error_about_a_missing_configuration_lists_every_source() {
        let around = ConfigEnvironment {
            home_file: Some("/nowhere/.kube/config".into()),
            ..ConfigEnvironment::default()
        };
        let message = choose(&ConnectionOptions::default(), &around).unwrap_err().to_string();
        for tried in ["--kubeconfig", "KUBECONFIG", "ServiceAccount", "/nowhere/.kube/config"] {
            assert!(message.contains(tried), "{tried} in {message}");
        }
    }

    #[test]
    fn options_replace_the_cluster_and_the_user_of_the_context() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let users = "users:\n- {name: jane, user: {token: t}}\n";
        std::fs::write(file.path(), KUBECONFIG.to_owned() + users).unwrap();
        let paths = vec![file.path().to_owned()];
        let source = ConfigSource::Files { flag: "--kubeconfig", paths: paths.clone() };
        let merged = |cluster: Option<&str>, user: Option<&str>| {
            let (cluster, user) = (cluster.map(str::to_owned), user.map(str::to_owned));
            let options = ConnectionOptions { cluster, user, ..ConnectionOptions::default() };
            super::merged(&source, &paths, &options)
        };
        let kubeconfig = merged(Some("two"), Some("jane")).unwrap();
        let context = kubeconfig.contexts[0].context.as_ref().unwrap();
        assert_eq!((&*context.cluster, context.user.as_deref()), ("two", Some("jane")));
        assert_eq!(
            context.namespace.as_deref(),
            Some("shop"),
            "the namespace of the context changed"
        );
        assert_eq!(proxy_url_of(&kubeconfig), Some("http://proxy.example:3128"));
        for (result, text) in [
            (merged(Some("nine"), None), "has no cluster \"nine\""),
            (merged(None, Some("joe")), "has no user \"joe\""),
        ] {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(text), "{message}");
        }
    }

    #[test]
    fn the_proxy_of_the_current_contexts_cluster_is_used() {
        let mut kubeconfig = Kubeconfig::from_yaml(KUBECONFIG).unwrap();
        assert_eq!(proxy_url_of(&kubeconfig), None);
        kubeconfig.current_context = Some("two".into());
        assert_eq!(proxy_url_of(&kubeconfig), Some("http://proxy.example:3128"));
    }
}
