//! The operator's settings that affect permissions, from its Deployment or from flags.

use super::{
    CommandError, advice::variable, flag_values, print::tell, profile_source::OperatorArgs,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container, PodSpec},
};
use kube::{Client, api::ObjectList};
use kubewarm_api::{
    manifests::OperatorFeature,
    model::{ListPolicy, OperatorScope, RequestFault, Subject, WatchedNamespaces, is_dns_label},
};
use kubewarm_client::get;

/// End of the path that lists the operator's Deployments, with their label. The label is the same for every Helm
/// release name.
const DEPLOYMENTS: &str = "deployments?labelSelector=app.kubernetes.io%2Fname%3Dkubewarm";
/// Name of the operator's container in the chart, and of the ServiceAccount in settings without a Deployment.
const OPERATOR: &str = "kubewarm";

/// Why no settings were read, if a namespace contains no Deployment of the operator.
const NO_DEPLOYMENT: &str = "no Deployment has the label app.kubernetes.io/name=kubewarm";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OperatorSettings {
    pub(super) namespace: String,
    /// Namespaces whose profiles the operator runs (`--watch-namespaces`). Empty means all namespaces.
    pub(super) watched: Vec<String>,
    /// Name of the operator's ServiceAccount.
    pub(super) account: String,
}

/// Returns the operator's Deployments in `namespace`.
///
/// Reads no other namespace. In another namespace, a tenant could set the label on a Deployment, and so choose the
/// ServiceAccount to which the manifests of `rbac` grant permissions.
pub(super) async fn deployments(
    client: &Client,
    namespace: &str,
) -> Result<Vec<Deployment>, RequestFault> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/{DEPLOYMENTS}");
    Ok(get(client, &path).await?.json::<ObjectList<Deployment>>()?.items)
}

/// Returns the operator's version from the labels of its Deployment.
pub(super) fn version_of(deployment: &Deployment) -> Option<&str> {
    let labels = deployment.metadata.labels.as_ref()?;
    labels.get("app.kubernetes.io/version").map(String::as_str)
}

/// Whether the Deployment sets `--client-ca-file`, so that the read API accepts client certificates.
///
/// # Errors
///
/// The reason, if the flag cannot be read exactly.
pub(super) fn accepts_certificates(deployment: &Deployment) -> Result<bool, String> {
    let (_, container) = operator_of(deployment)?;
    let file = flag_value(container, "client-ca-file")?;
    Ok(file.is_some_and(|file| !file.is_empty()))
}

impl OperatorSettings {
    /// Returns the settings from the flags, else the defaults.
    pub(super) fn of_flags(args: &OperatorArgs) -> Self {
        Self {
            namespace: args.operator_namespace.name().to_owned(),
            watched: args.watch_namespaces.clone(),
            account: OPERATOR.to_owned(),
        }
    }

    /// Returns the settings from the flags, else from the Deployments, and the Deployments. If no Deployment can be
    /// read, it prints the reason to standard error, and the settings have the defaults.
    ///
    /// # Errors
    ///
    /// [`CommandError`] with the reason, if a setting of a Deployment cannot be read exactly.
    ///
    /// # Cost
    ///
    /// One request.
    pub(super) async fn discover(
        client: &Client,
        args: &OperatorArgs,
    ) -> Result<(Self, Vec<Deployment>), CommandError> {
        let namespace = args.operator_namespace.name();
        let reason = match deployments(client, namespace).await {
            Ok(found) if found.is_empty() => NO_DEPLOYMENT.to_owned(),
            Ok(found) => {
                let settings = Self::of(&found, args);
                let settings = settings.map_err(|reason| unreadable(namespace, &reason))?;
                return Ok((settings, found));
            }
            Err(fault) => format!("Deployments cannot be read: {fault}"),
        };
        tell(&format!("using only flags and defaults: in namespace {namespace}, {reason}"));
        Ok((Self::of_flags(args), Vec::new()))
    }

    /// Returns the settings from the flags, else from `deployments`, else the defaults.
    ///
    /// # Errors
    ///
    /// The reason, if the Deployments have different settings, or if a setting cannot be read exactly.
    pub(super) fn of(deployments: &[Deployment], args: &OperatorArgs) -> Result<Self, String> {
        let flags = Self::of_flags(args);
        let found = same_in_all(deployments, |pod, container| {
            // Kubernetes runs a pod without a ServiceAccount as `default`.
            let account = pod.service_account_name.clone().unwrap_or_else(|| "default".to_owned());
            let mut settings = Self { account, ..flags.clone() };
            if settings.watched.is_empty() {
                settings.watched = watched(container)?;
            }
            Ok(settings)
        })?;
        Ok(found.unwrap_or(flags))
    }

    /// Returns the operator namespace, and the namespaces whose profiles the operator runs.
    pub(super) fn scope(&self) -> OperatorScope {
        OperatorScope {
            namespace: self.namespace.as_str().into(),
            watched: WatchedNamespaces::of(&self.watched),
        }
    }

    pub(super) fn subject(&self) -> Subject {
        Subject::ServiceAccount {
            namespace: self.namespace.as_str().into(),
            name: self.account.as_str().into(),
        }
    }
}

/// Returns the error for a setting that cannot be read exactly from the Deployments in `namespace`.
pub(super) fn unreadable(namespace: &str, reason: &str) -> CommandError {
    CommandError::new(format!(
        "cannot read the operator's settings from its Deployment in namespace {namespace}: {reason}; with -f FILE \
         alone, `kubewarm rbac` and `kubewarm plan` read them from flags only"
    ))
}

/// Returns the enabled features of the operator that need further permissions; no feature without a Deployment.
///
/// # Errors
///
/// The reason, if the Deployments have different features, or if a flag cannot be read exactly.
pub(super) fn features(deployments: &[Deployment]) -> Result<Vec<OperatorFeature>, String> {
    let found: Option<Vec<_>> = same_in_all(deployments, |_, container| {
        let metrics_auth =
            flag_value(container, "metrics-auth")?.is_some_and(|it| matches!(it, "" | "delegated"));
        // The read API is enabled unless `--api-addr` is empty.
        let reads = flag_value(container, "api-addr")?.is_none_or(|address| !address.is_empty());
        let all = [(metrics_auth, OperatorFeature::MetricsAuth), (reads, OperatorFeature::ReadApi)];
        Ok(all.into_iter().filter_map(|(is_enabled, one)| is_enabled.then_some(one)).collect())
    })?;
    Ok(found.unwrap_or_default())
}

/// Returns how the operator lists the objects of profiles, from the `run` flags in `deployments`, else the defaults.
///
/// # Errors
///
/// The reason, if the Deployments have different flags, or if a flag cannot be read exactly.
pub(super) fn lists(deployments: &[Deployment]) -> Result<ListPolicy, String> {
    let default = ListPolicy::default();
    let duration = |text: &str| flag_values::duration(text).ok();
    let found = same_in_all(deployments, |_, container| {
        Ok(ListPolicy {
            strategy: parsed(container, "list-strategy", |text| text.parse().ok())?
                .unwrap_or(default.strategy),
            page_size: parsed(container, "list-page-size", |text| text.parse().ok())?
                .unwrap_or(default.page_size),
            watch_list_timeout: parsed(container, "watch-list-timeout", duration)?
                .unwrap_or(default.watch_list_timeout),
        })
    });
    Ok(found?.unwrap_or(default))
}

/// Returns what `read` returns for the pod and the operator's container of each Deployment; `None` without a
/// Deployment.
///
/// # Errors
///
/// The reason from `read`, or the reason why the results cannot be used: they differ.
fn same_in_all<T: PartialEq>(
    deployments: &[Deployment],
    read: impl Fn(&PodSpec, &Container) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let mut last = None;
    for deployment in deployments {
        let (pod, container) = operator_of(deployment)?;
        let found = Some(read(pod, container)?);
        if last.is_some() && last != found {
            return Err("several Deployments have the label and differ".to_owned());
        }
        last = found;
    }
    Ok(last)
}

/// Returns the pod and the operator's container: the container `kubewarm`, or the only container.
fn operator_of(deployment: &Deployment) -> Result<(&PodSpec, &Container), String> {
    let pod = deployment.spec.template.spec.as_ref().ok_or("its pods have no container")?;
    let container = match &*pod.containers {
        [only] => Some(only),
        all => all.iter().find(|one| one.name == OPERATOR),
    };
    let container =
        container.ok_or("its pods have no container kubewarm, and not exactly one container")?;
    Ok((pod, container))
}

fn watched(container: &Container) -> Result<Vec<String>, String> {
    let names = flag_value(container, "watch-namespaces")?.unwrap_or_default();
    let names = names.split(',').filter(|_| !names.is_empty());
    let checked = |name: &str| {
        if is_dns_label(name) {
            return Ok(name.to_owned());
        }
        Err(format!("--watch-namespaces has the value {name:?}"))
    };
    names.map(checked).collect()
}

/// Returns the parsed value of a `run` flag; `None` if it is not set.
fn parsed<T>(
    container: &Container,
    flag: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let Some(text) = flag_value(container, flag)? else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| format!("--{flag} has the value {text:?}"))
}

/// Returns the value of a `run` flag from the container's arguments, else from its environment; `None` if it is not
/// set.
///
/// # Errors
///
/// The reason, if only the running container knows the value, if the value is set more than once, or if a shell starts
/// the program.
fn flag_value<'a>(container: &'a Container, flag: &str) -> Result<Option<&'a str>, String> {
    // An argument with several words and a flag is a command for a shell, which can set every flag.
    let is_shell = |text: &&String| text.split_whitespace().skip(1).any(|it| it.contains("--"));
    let mut texts = container.command.iter().chain(&container.args).flatten();
    if let Some(text) = texts.find(is_shell) {
        return Err(format!("an argument is a command for a shell: {text:?}"));
    }
    let (name, value) = match *arguments(container, flag) {
        [] => {
            let name = variable(flag);
            let value = variable_value(container, &name)?;
            (name, value)
        }
        [value] => (format!("--{flag}"), Some(value)),
        [..] => return Err(format!("--{flag} is set more than once")),
    };
    // Kubernetes replaces `$(NAME)` in arguments and in values of variables.
    if value.is_some_and(|value| value.contains("$(")) {
        return Err(format!("{name} refers to another variable"));
    }
    Ok(value)
}

fn variable_value<'a>(container: &'a Container, name: &str) -> Result<Option<&'a str>, String> {
    let all: Vec<_> = container.env.iter().flatten().filter(|one| one.name == name).collect();
    match *all {
        [] => {
            let prefixes = container.env_from.iter().flatten().map(|from| from.prefix.as_deref());
            let mut prefixes = prefixes.map(Option::unwrap_or_default);
            if prefixes.any(|prefix| name.starts_with(prefix)) {
                return Err(format!("{name} can come from another object (envFrom)"));
            }
            Ok(None)
        }
        [one] if one.value_from.is_some() => {
            Err(format!("{name} comes from another object (valueFrom)"))
        }
        // The API server omits an empty value, so a variable without a value is empty.
        [one] => Ok(Some(one.value.as_deref().unwrap_or_default())),
        [..] => Err(format!("{name} is set more than once")),
    }
}

/// Returns the values that the container's arguments give a `run` flag. A flag without a value has an empty value.
fn arguments<'a>(container: &'a Container, flag: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    let mut arguments = container.command.iter().chain(&container.args).flatten().peekable();
    while let Some(argument) = arguments.next() {
        let Some(rest) = argument.strip_prefix("--").and_then(|it| it.strip_prefix(flag)) else {
            continue;
        };
        if rest.is_empty() {
            let value = arguments.next_if(|next| !next.starts_with("--"));
            values.push(value.map_or("", String::as_str));
        }
        values.extend(rest.strip_prefix('='));
    }
    values
}

#[cfg(test)]
mod tests;
