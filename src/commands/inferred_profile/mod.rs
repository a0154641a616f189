//! The command `profile` prints a profile of the kinds that a ServiceAccount may list and watch.

mod targets;

use self::targets::{AccountRules, InferredTargets, ReadKinds, infer_targets};
use super::{
    CommandError,
    cache::CacheServiceArgs,
    cluster::{ConnectionArgs, served},
    flag_values,
    forwarded::fetch_user_reads,
    output::{OutputArgs, manifests},
    print::{print, tell},
    report::CommandExitCode,
};
use clap::{Args, ValueEnum};
use k8s_openapi::{List, api::rbac::v1::RoleBinding};
use kube::Client;
use kubewarm_api::model::{RequestFault, RulesCompleteness, Subject};
use kubewarm_client::{
    ApiServerConnection, ConnectError, ConnectionOptions, get, review_rules, service_account_groups,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt};

/// RBAC answers for a namespace without bindings with the cluster-wide rules alone, also if the
/// namespace does not exist.
const NO_NAMESPACE: &str = "kubewarm-rules-of-no-namespace";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/rolebindings";
/// Maximum number of targets in one profile.
const MAX_TARGETS: usize = 128;
/// Maximum number of namespaces whose rules the command reviews.
const MAX_NAMESPACES: usize = 64;

#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// ServiceAccount whose permissions decide which kinds the profile contains:
    /// system:serviceaccount:NAMESPACE:NAME.
    #[arg(long = "for", value_name = "USER", value_parser = account)]
    pub account: ServiceAccountName,

    /// Name of the profile [default: the name of the ServiceAccount].
    #[arg(long, value_name = "NAME", value_parser = flag_values::dns_name)]
    pub profile_name: Option<String>,

    #[command(flatten)]
    pub kinds: ProfileKindArgs,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub service: CacheServiceArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// The flag that decides which kinds an inferred profile contains.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ProfileKindArgs {
    /// Source of the kinds.
    #[arg(long = "from", value_name = "SOURCE", default_value = "rules")]
    pub from: ProfileKindSource,
}

/// Value of `--from`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProfileKindSource {
    /// What the ServiceAccount may list and watch, except Leases and Events.
    #[default]
    Rules,
    /// What kubewarm's replicas forwarded for it since their starts; needs permission for a
    /// port-forward to their pods.
    Forwarded,
    /// The rules, and Events if kubewarm forwarded them.
    Both,
}

/// A ServiceAccount with its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceAccountName {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Profiles of what a ServiceAccount may list and watch.
pub(super) struct InferredProfiles {
    /// One profile for each 128 targets. Empty if the ServiceAccount may list and watch nothing
    /// that belongs in a cache.
    pub(super) documents: Vec<Value>,
    /// Sentences about kinds that the profiles omit.
    pub(super) omitted: Vec<String>,
}

/// Reviews the rules of the ServiceAccount, and prints a profile. Messages on standard error name
/// the kinds that the profile omits.
///
/// # Errors
///
/// [`CommandError`] if the user may not impersonate the ServiceAccount, if a request fails, or if
/// the ServiceAccount may list and watch nothing.
///
/// # Cost
///
/// Discovery, a list of RoleBindings, and a review for each namespace with a binding of the
/// ServiceAccount.
pub async fn profile(args: &ProfileArgs) -> Result<CommandExitCode, CommandError> {
    let name = args.profile_name.as_deref();
    let source = (args.kinds.from, &args.service);
    let inferred = infer_profiles(&args.connection, &args.account, name, source).await?;
    for omitted in &inferred.omitted {
        tell(omitted);
    }
    if inferred.documents.is_empty() {
        return Err(args.account.reads_nothing());
    }
    print(&manifests(yaml_documents(&inferred.documents)?, args.output.format)?)?;
    Ok(CommandExitCode::Good)
}

/// Reviews the rules of the ServiceAccount, and infers profiles named `name`, by default like the
/// ServiceAccount.
///
/// # Errors
///
/// As for [`profile`]. A ServiceAccount without rules is no error.
///
/// # Cost
///
/// As for [`profile`].
pub(super) async fn infer_profiles(
    connection: &ConnectionArgs,
    account: &ServiceAccountName,
    name: Option<&str>,
    (source, service): (ProfileKindSource, &CacheServiceArgs),
) -> Result<InferredProfiles, CommandError> {
    connection.refuse_impersonation()?;
    let mut kinds = ReadKinds {
        is_only_forwarded: source == ProfileKindSource::Forwarded,
        ..ReadKinds::default()
    };
    if source != ProfileKindSource::Rules {
        let timeout = connection.request_timeout();
        let reads = fetch_user_reads(connection.connect()?, service, timeout).await?;
        kinds.forwarded = reads.kinds_of(&account.user());
    }
    let client = connection.connect()?.client();
    let ServiceAccountName { namespace, name: account_name } = account;
    let impersonated = account.impersonate(connection.options())?;
    let served = served(client.clone()).await.map_err(|fault| {
        CommandError::new(format!("cannot discover the cluster's kinds: {fault}"))
    })?;
    let mut rules = AccountRules {
        everywhere: review(&impersonated, NO_NAMESPACE).await?,
        ..AccountRules::default()
    };
    for namespace in bound_namespaces(&client, account).await {
        let reviewed = review(&impersonated, &namespace).await?;
        rules.namespaces.insert(namespace, reviewed);
    }
    let InferredTargets { targets, omitted } =
        infer_targets(served.resources(), &rules, &kinds, namespace);
    let base = name.unwrap_or(account_name);
    let document = |(index, targets): (usize, &[Value])| {
        let name = if index == 0 { base.to_owned() } else { format!("{base}-{}", index + 1) };
        json!({
            "apiVersion": "kubewarm.io/v1alpha1",
            "kind": "CacheProfile",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"serviceAccountName": account_name, "targets": targets},
        })
    };
    let documents = targets.chunks(MAX_TARGETS).enumerate().map(document).collect();
    let inferred = InferredProfiles { documents, omitted };
    Ok(inferred.with_wide_targets_in(service.operator_namespace.name()))
}

/// The objects as YAML documents.
pub(super) fn yaml_documents(objects: &[Value]) -> Result<String, CommandError> {
    let mut text = String::new();
    for object in objects {
        let yaml = serde_saphyr::to_string(object)
            .map_err(|error| CommandError::caused("cannot write an object as YAML", error))?;
        text.push_str("---\n");
        text.push_str(&yaml);
    }
    Ok(text)
}

impl InferredProfiles {
    /// Moves the targets of other scopes than the own namespace into profiles of the operator
    /// namespace, with which kubewarm reads as itself. kubewarm answers requests for all namespaces
    /// and for cluster-scoped kinds only from these profiles.
    fn with_wide_targets_in(self, operator_namespace: &str) -> Self {
        let Self { documents, omitted } = self;
        let mut moved = Vec::new();
        for mut document in documents {
            if document["metadata"]["namespace"] == operator_namespace {
                moved.push(document);
                continue;
            }
            let targets = document["spec"]["targets"].as_array().cloned().unwrap_or_default();
            let (own, wide): (Vec<_>, Vec<_>) =
                targets.into_iter().partition(|target| target["scope"]["type"] == "OwnNamespace");
            if !wide.is_empty() {
                let text = |field: &str| document["metadata"][field].as_str().unwrap_or_default();
                let name = format!("{}.{}", text("namespace"), text("name"));
                let mut profile = document.clone();
                profile["metadata"] = json!({"name": name, "namespace": operator_namespace});
                profile["spec"] = json!({"targets": wide});
                moved.push(profile);
            }
            if !own.is_empty() {
                document["spec"]["targets"] = own.into();
                moved.push(document);
            }
        }
        Self { documents: moved, omitted }
    }
}

impl ServiceAccountName {
    /// A client with the permissions of the ServiceAccount. The user connects with `options`, and
    /// must be permitted to impersonate the ServiceAccount.
    pub(super) fn impersonate(&self, options: ConnectionOptions) -> Result<Client, ConnectError> {
        let options = ConnectionOptions {
            impersonated_user: Some(self.user()),
            impersonated_groups: service_account_groups(&self.namespace).into(),
            ..options
        };
        Ok(ApiServerConnection::load(&options)?.client())
    }

    /// The ServiceAccount's user name.
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The error for a ServiceAccount for which no profile would keep anything warm.
    pub(super) fn reads_nothing(&self) -> CommandError {
        CommandError::new(format!(
            "ServiceAccount {self} may list and watch no kind that belongs in a cache"
        ))
    }
}

impl fmt::Display for ServiceAccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

async fn review(
    account: &Client,
    namespace: &str,
) -> Result<Vec<k8s_openapi::api::authorization::v1::ResourceRule>, CommandError> {
    let reviewed = review_rules(account, namespace).await.map_err(|fault| {
        CommandError::new(format!(
            "cannot review the rules of the ServiceAccount, as which you need permission to \
                                   impersonate: {fault}"
        ))
    })?;
    if reviewed.completeness == RulesCompleteness::Incomplete {
        tell("the API server did not return all rules, so the profile can lack kinds");
    }
    Ok(reviewed.rules)
}

/// The namespaces with a RoleBinding of the ServiceAccount. If the user may not list RoleBindings,
/// only the ServiceAccount's own namespace.
async fn bound_namespaces(client: &Client, account: &ServiceAccountName) -> BTreeSet<String> {
    let bindings: Result<List<RoleBinding>, RequestFault> =
        async { get(client, BINDINGS).await?.json() }.await;
    let own = BTreeSet::from([account.namespace.clone()]);
    let bindings = match bindings {
        Ok(bindings) => bindings.items,
        Err(fault) => {
            tell(&format!(
                "only the rules in namespace {} count, because RoleBindings cannot be listed: {fault}",
                account.namespace
            ));
            return own;
        }
    };
    let groups = service_account_groups(&account.namespace);
    let is_bound = |binding: &&RoleBinding| {
        binding.subjects.iter().flatten().any(|subject| match subject.kind.as_str() {
            "ServiceAccount" => {
                subject.name == account.name
                    && subject.namespace.as_deref() == Some(&account.namespace)
            }
            "Group" => groups.contains(&subject.name),
            _ => subject.name == account.user(),
        })
    };
    let bound =
        bindings.iter().filter(is_bound).filter_map(|binding| binding.metadata.namespace.clone());
    let all: BTreeSet<_> = own.into_iter().chain(bound).collect();
    if all.len() > MAX_NAMESPACES {
        tell(&format!(
            "only the first {MAX_NAMESPACES} of {} namespaces with a RoleBinding count",
            all.len()
        ));
    }
    all.into_iter().take(MAX_NAMESPACES).collect()
}

fn account(text: &str) -> Result<ServiceAccountName, String> {
    match Subject::from_username(text) {
        Subject::ServiceAccount { namespace, name }
            if !namespace.is_empty() && !name.is_empty() =>
        {
            Ok(ServiceAccountName { namespace: (*namespace).into(), name: (*name).into() })
        }
        Subject::ServiceAccount { .. } | Subject::User(_) | Subject::Group(_) => {
            Err("expected system:serviceaccount:NAMESPACE:NAME".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::parse, *};

    #[test]
    fn wide_targets_move_into_the_operator_namespace() {
        let target = |name: &str, scope: &str| json!({"name": name, "scope": {"type": scope}});
        let document = json!({
            "metadata": {"name": "reader", "namespace": "shop"},
            "spec": {"serviceAccountName": "reader", "targets": [
                target("pods", "AllNamespaces"), target("secrets", "OwnNamespace"),
                target("nodes", "Cluster"),
            ]},
        });
        let inferred = InferredProfiles { documents: vec![document.clone()], omitted: Vec::new() };
        let wide = json!({
            "metadata": {"name": "shop.reader", "namespace": "system"},
            "spec": {"targets": [target("pods", "AllNamespaces"), target("nodes", "Cluster")]},
        });
        let own = json!({
            "metadata": {"name": "reader", "namespace": "shop"},
            "spec": {"serviceAccountName": "reader", "targets": [target("secrets", "OwnNamespace")]},
        });
        assert_eq!(inferred.with_wide_targets_in("system").documents, [wide, own]);

        let inferred = InferredProfiles { documents: vec![document.clone()], omitted: Vec::new() };
        assert_eq!(inferred.with_wide_targets_in("shop").documents, [document]);
    }

    #[test]
    fn only_a_service_account_is_accepted() {
        let args = parse::<ProfileArgs>("--for system:serviceaccount:shop:checkout").unwrap();
        let expected =
            ServiceAccountName { namespace: "shop".to_owned(), name: "checkout".to_owned() };
        assert_eq!(args.account, expected);
        for line in ["", "--for jane", "--for system:serviceaccount:shop", "--for shop/checkout"] {
            assert!(parse::<ProfileArgs>(line).is_err(), "{line}");
        }
    }
}
