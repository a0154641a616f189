//! Reads the user and the namespace of the kubeconfig's current context, which kubewarm writes into
//! other kubeconfigs.

use super::{
    ConnectionOptions,
    config_source::{ConfigEnvironment, ConfigSource, SERVICE_ACCOUNT_TOKEN, choose, merged},
    connection::ConnectError,
};
use kube::{
    Config,
    config::{AuthInfo, Kubeconfig},
};

/// The user and the namespace of the kubeconfig's current context.
#[derive(Clone, Debug, Default)]
pub struct ContextUser {
    /// The user entry of the kubeconfig with its credentials; its paths are absolute. In a pod, the
    /// entry refers to the token file, which the kubelet renews.
    pub user: AuthInfo,
    /// The namespace of the context; `None` if the context sets none.
    pub namespace: Option<String>,
}

/// Reads the configuration that [`ApiServerConnection::load`](super::ApiServerConnection::load)
/// would use. Sends no request.
///
/// # Errors
///
/// [`ConnectError`] if no configuration can be read. A context that is missing or has no user is
/// not an error: the result then has an empty user.
///
/// # Cost
///
/// Reads the kubeconfig files or the pod's files. Runs no exec plugin.
pub fn load_context_user(options: &ConnectionOptions) -> Result<ContextUser, ConnectError> {
    let source = choose(options, &ConfigEnvironment::of_process())?;
    let ConfigSource::Files { paths, .. } = &source else {
        let namespace = Config::incluster().map_err(ConnectError::InCluster)?.default_namespace;
        let token_file = Some(SERVICE_ACCOUNT_TOKEN.to_owned());
        let user = AuthInfo { token_file, ..AuthInfo::default() };
        return Ok(ContextUser { user, namespace: Some(namespace) });
    };
    Ok(of(&merged(&source, paths, options)?))
}

fn of(kubeconfig: &Kubeconfig) -> ContextUser {
    let current = kubeconfig.current_context.as_deref();
    let entry = kubeconfig.contexts.iter().find(|entry| Some(entry.name.as_str()) == current);
    let Some(context) = entry.and_then(|entry| entry.context.as_ref()) else {
        return ContextUser::default();
    };
    let is_of_it = |name: &str| context.user.as_deref() == Some(name);
    let user = kubeconfig.auth_infos.iter().find(|entry| is_of_it(&entry.name));
    ContextUser {
        user: user.and_then(|entry| entry.auth_info.clone()).unwrap_or_default(),
        namespace: context.namespace.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
current-context: b
users:
- {name: one, user: {token: secret}}
- {name: two, user: {tokenFile: token, exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, args: [x]}}}
contexts:
- {name: a, context: {cluster: c, user: one}}
- {name: b, context: {cluster: c, user: two, namespace: shop}}
";

    #[test]
    fn the_current_contexts_user_is_returned_unchanged_except_for_absolute_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, TEXT).unwrap();
        let ContextUser { user, namespace } =
            load_context_user(&ConnectionOptions::of_file(&path)).unwrap();
        assert_eq!(namespace.as_deref(), Some("shop"));
        let here = |name: &str| folder.path().join(name).to_str().map(str::to_owned);
        assert_eq!(user.token_file, here("token"));
        let exec = user.exec.unwrap();
        assert_eq!(exec.command, here("./login"));
        assert_eq!(exec.args, Some(vec!["x".to_owned()]));

        let of_context = |context: &str| {
            let context = Some(context.to_owned());
            load_context_user(&ConnectionOptions { context, ..ConnectionOptions::of_file(&path) })
                .unwrap()
        };
        let other = of_context("a");
        assert!(other.user.token.is_some() && other.namespace.is_none());
        let none = of_context("c");
        assert!(none.user.token.is_none() && none.user.exec.is_none());
    }
}
