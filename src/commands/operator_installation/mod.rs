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
    manifests::{CERTIFICATE_SECRET, OperatorFeature},
    model::{ListPolicy, OperatorScope, RequestFault, Subject, WatchedNamespaces, is_dns_label},
};
use kubewarm_client::get;

/// End of the URL path that lists the operator's Deployments by their label. The chart sets this
/// label for every Helm release name.
const DEPLOYMENTS: &str = "deployments?labelSelector=app.kubernetes.io%2Fname%3Dkubewarm";
/// Name of the operator's container in the chart. It is also the name of the operator's
/// ServiceAccount if no Deployment can be read.
const OPERATOR: &str = "kubewarm";

/// The reason why kubewarm reads no settings from a namespace without a Deployment of the operator.
const NO_DEPLOYMENT: &str = "no Deployment has the label app.kubernetes.io/name=kubewarm";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OperatorInstallation {
    pub(super) namespace: String,
    /// Namespaces whose profiles the operator runs (`--watch-namespaces`). Empty means all
    /// namespaces.
    pub(super) watched: Vec<String>,
    /// Name of the operator's ServiceAccount.
    pub(super) account: String,
}

/// Returns the operator's Deployments in `namespace`.
///
/// Reads no other namespace. In another namespace, a tenant could set the label on a Deployment,
/// and so choose the ServiceAccount to which the manifests of `rbac` grant permissions.
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

/// Whether the Deployment sets `--client-ca-file`, so that the read API accepts client
/// certificates.
///
/// # Errors
///
/// The reason why the flag's value is unknown, for instance because a shell sets the flag.
pub(super) fn accepts_certificates(deployment: &Deployment) -> Result<bool, String> {
    let (_, container) = operator_of(deployment)?;
    let file = flag_value(container, "client-ca-file")?;
    Ok(file.is_some_and(|file| !file.is_empty()))
}

impl OperatorInstallation {
    /// Returns the settings from the flags, else the defaults.
    pub(super) fn of_flags(args: &OperatorArgs) -> Self {
        Self {
            namespace: args.operator_namespace.name().to_owned(),
            watched: args.watch_namespaces.clone(),
            account: OPERATOR.to_owned(),
        }
    }

    /// Returns the settings from the flags, or else from the Deployments, and the Deployments. If
    /// no Deployment can be read, this function prints the reason to standard error, and returns
    /// the settings from the flags and the defaults.
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
            Ok(deployments) if deployments.is_empty() => NO_DEPLOYMENT.to_owned(),
            Ok(deployments) => {
                let settings = Self::of(&deployments, args);
                let settings = settings.map_err(|reason| unreadable(namespace, &reason))?;
                return Ok((settings, deployments));
            }
            Err(fault) => format!("Deployments cannot be read: {fault}"),
        };
        let watched = match &*args.watch_namespaces {
            [] => "all namespaces".to_owned(),
            names => names.join(", "),
        };
        tell(&format!(
            "in namespace {namespace}, {reason}; assuming that kubewarm runs there as the ServiceAccount {OPERATOR} \
             and watches {watched}"
        ));
        Ok((Self::of_flags(args), Vec::new()))
    }

    /// Returns the settings from the flags, else from `deployments`, else the defaults.
    ///
    /// # Errors
    ///
    /// The reason, if the Deployments have different settings, or if a setting cannot be read
    /// exactly.
    pub(super) fn of(deployments: &[Deployment], args: &OperatorArgs) -> Result<Self, String> {
        let flags = Self::of_flags(args);
        let settings = same_in_all(deployments, |pod, container| {
            // Kubernetes runs a pod that names no ServiceAccount as the ServiceAccount `default`.
            let account = pod.service_account_name.clone().unwrap_or_else(|| "default".to_owned());
            let mut settings = Self { account, ..flags.clone() };
            if settings.watched.is_empty() {
                settings.watched = watched(container)?;
            }
            Ok(settings)
        })?;
        Ok(settings.unwrap_or(flags))
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

/// Returns the enabled features of the operator that need permissions in addition to the operator's
/// basic permissions. Without a Deployment the result is empty.
///
/// # Errors
///
/// The reason, if the Deployments have different features, or if a flag cannot be read exactly.
pub(super) fn features(deployments: &[Deployment]) -> Result<Vec<OperatorFeature>, String> {
    let features: Option<Vec<_>> = same_in_all(deployments, |_, container| {
        let metrics_auth = flag_value(container, "metrics-auth")?
            .is_some_and(|value| matches!(value, "" | "delegated"));
        // The read API is enabled by default; only an empty `--api-addr` disables it.
        let reads = flag_value(container, "api-addr")?.is_none_or(|address| !address.is_empty());
        let rules = reads && flag_value(container, "authorization")? == Some("rbac");
        // kubewarm knows the permissions only for the Secret that its own manifests contain.
        let certificate = flag_value(container, "certificate-secret")? == Some(CERTIFICATE_SECRET);
        let inject = flag_value(container, "inject")?.is_some_and(|value| value != "false");
        let policy = flag_value(container, "inject-policy")?.is_some_and(|value| value != "false");
        let all = [
            (metrics_auth, OperatorFeature::MetricsAuth),
            (reads, OperatorFeature::ReadApi),
            (rules, OperatorFeature::RbacAuthorization),
            (certificate, OperatorFeature::Certificate),
            (inject, OperatorFeature::Inject),
            (policy, OperatorFeature::InjectPolicy),
        ];
        let enabled = all.into_iter().filter(|(is_enabled, _)| *is_enabled);
        Ok(enabled.map(|(_, feature)| feature).collect())
    })?;
    Ok(features.unwrap_or_default())
}

/// Whether the operator forwards requests that it cannot answer. Without a Deployment the result is
/// `None`.
///
/// # Errors
///
/// The reason, if the Deployments differ, or if the flag cannot be read exactly.
pub(super) fn is_forwarding(deployments: &[Deployment]) -> Result<Option<bool>, String> {
    same_in_all(deployments, |_, container| {
        Ok(flag_value(container, "forward")?.is_some_and(|value| value != "false"))
    })
}

/// Returns the Secret of the certificate that the operator issues, and the name of its `ConfigMap`.
/// Without a readable flag, this is the chart's default.
pub(super) fn certificate_secret(deployments: &[Deployment]) -> String {
    let name = same_in_all(deployments, |_, container| {
        Ok(flag_value(container, "certificate-secret")?.map(str::to_owned))
    });
    name.ok().flatten().flatten().unwrap_or_else(|| CERTIFICATE_SECRET.to_owned())
}

/// Returns how the operator lists the objects of profiles, from the `run` flags in `deployments`,
/// else the defaults.
///
/// # Errors
///
/// The reason, if the Deployments have different flags, or if a flag cannot be read exactly.
pub(super) fn lists(deployments: &[Deployment]) -> Result<ListPolicy, String> {
    let default = ListPolicy::default();
    let duration = |text: &str| flag_values::duration(text).ok();
    let policy = same_in_all(deployments, |_, container| {
        Ok(ListPolicy {
            strategy: parsed(container, "list-strategy", |text| text.parse().ok())?
                .unwrap_or(default.strategy),
            page_size: parsed(container, "list-page-size", |text| text.parse().ok())?
                .unwrap_or(default.page_size),
            watch_list_timeout: parsed(container, "watch-list-timeout", duration)?
                .unwrap_or(default.watch_list_timeout),
        })
    });
    Ok(policy?.unwrap_or(default))
}

/// Calls `read` with the pod and the operator's container of each Deployment. Returns the result,
/// which must be the same for each Deployment, because otherwise kubewarm's setting is ambiguous.
/// Returns `None` without a Deployment.
///
/// # Errors
///
/// The reason from `read`, or that the results differ.
fn same_in_all<T: PartialEq>(
    deployments: &[Deployment],
    read: impl Fn(&PodSpec, &Container) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let mut last = None;
    for deployment in deployments {
        let (pod, container) = operator_of(deployment)?;
        let value = Some(read(pod, container)?);
        if last.is_some() && last != value {
            return Err("several Deployments have the label and differ".to_owned());
        }
        last = value;
    }
    Ok(last)
}

/// Returns the pod and the operator's container: the container `kubewarm`, or the only container.
fn operator_of(deployment: &Deployment) -> Result<(&PodSpec, &Container), String> {
    let pod = deployment.spec.template.spec.as_ref().ok_or("its pods have no container")?;
    let container = match &*pod.containers {
        [only] => Some(only),
        all => all.iter().find(|container| container.name == OPERATOR),
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

/// Returns the value of a `run` flag from the container's arguments, else from its environment;
/// `None` if it is not set.
///
/// # Errors
///
/// The reason, if only the running container knows the value, if the value is set more than once,
/// or if a shell starts the program.
fn flag_value<'a>(container: &'a Container, flag: &str) -> Result<Option<&'a str>, String> {
    // An argument with several words and a flag is a command for a shell, which can set every flag.
    let is_shell = |text: &&String| text.split_whitespace().skip(1).any(|word| word.contains("--"));
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
    // Kubernetes replaces `$(NAME)` in arguments and in values of variables when it starts the
    // container, so the Deployment does not contain the final value.
    if value.is_some_and(|value| value.contains("$(")) {
        return Err(format!("{name} refers to another variable"));
    }
    Ok(value)
}

fn variable_value<'a>(container: &'a Container, name: &str) -> Result<Option<&'a str>, String> {
    let all: Vec<_> =
        container.env.iter().flatten().filter(|variable| variable.name == name).collect();
    match *all {
        [] => {
            let prefixes = container.env_from.iter().flatten().map(|from| from.prefix.as_deref());
            let mut prefixes = prefixes.map(Option::unwrap_or_default);
            if prefixes.any(|prefix| name.starts_with(prefix)) {
                return Err(format!("{name} can come from another object (envFrom)"));
            }
            Ok(None)
        }
        [variable] if variable.value_from.is_some() => {
            Err(format!("{name} comes from another object (valueFrom)"))
        }
        // The API server omits an empty value, so a variable without a value is empty.
        [variable] => Ok(Some(variable.value.as_deref().unwrap_or_default())),
        [..] => Err(format!("{name} is set more than once")),
    }
}

/// Returns the values that the container's arguments give a `run` flag. A flag without a value has
/// an empty value.
fn arguments<'a>(container: &'a Container, flag: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    let mut arguments = container.command.iter().chain(&container.args).flatten().peekable();
    while let Some(argument) = arguments.next() {
        let Some(rest) = argument.strip_prefix("--").and_then(|text| text.strip_prefix(flag))
        else {
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
