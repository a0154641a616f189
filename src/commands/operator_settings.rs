//! The operator's settings that affect permissions, from its Deployment or from flags.

use super::{advice::variable, flag_values, print::tell, profile_source::OperatorArgs};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Container};
use kube::{Client, api::ObjectList};
use kubewarm_api::{
    manifests::OperatorFeature,
    model::{ListPolicy, OperatorScope, RequestFault, Subject, WatchedNamespaces, is_dns_label},
};
use kubewarm_client::get;

/// End of the path that lists the operator's Deployments, with their label. The label is the same for every Helm
/// release name.
const DEPLOYMENTS: &str = "deployments?labelSelector=app.kubernetes.io%2Fname%3Dkubewarm";
/// Name of the operator's ServiceAccount, unless the Deployment names another one.
const ACCOUNT: &str = "kubewarm";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OperatorSettings {
    pub(super) namespace: String,
    /// Namespaces whose profiles the operator runs (`--watch-namespaces`). Empty means all namespaces.
    pub(super) watched: Vec<String>,
    /// Name of the operator's ServiceAccount.
    pub(super) account: String,
    /// Enabled features of the operator that need further permissions.
    pub(super) more: Vec<OperatorFeature>,
    /// How the operator lists the objects of profiles.
    pub(super) lists: ListPolicy,
}

/// Returns the operator's Deployments in `namespace`.
///
/// It reads no other namespace: a tenant could set the label on a Deployment there, and so choose the ServiceAccount
/// that `rbac` grants permissions to.
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
pub(super) fn accepts_certificates(deployment: &Deployment) -> bool {
    let pod = deployment.spec.template.spec.as_ref();
    let container = pod.and_then(|pod| pod.containers.first());
    let file = container.and_then(|container| flag_value(container, "client-ca-file"));
    file.is_some_and(|file| !file.is_empty())
}

impl OperatorSettings {
    /// Returns the settings from the flags, else the defaults.
    pub(super) fn of_flags(args: &OperatorArgs) -> Self {
        Self {
            namespace: args.home.operator_namespace.clone(),
            watched: args.watch_namespaces.clone(),
            account: ACCOUNT.to_owned(),
            more: Vec::new(),
            lists: ListPolicy::default(),
        }
    }

    /// Returns the settings from the flags, else from the Deployment, else the defaults. If kubewarm cannot use the
    /// Deployment, it prints the reason to standard error.
    ///
    /// # Cost
    ///
    /// One request.
    pub(super) async fn discover(client: &Client, args: &OperatorArgs) -> Self {
        let namespace = &args.home.operator_namespace;
        let found = deployments(client, namespace).await;
        let found = found.map_err(|fault| format!("it cannot be read: {fault}"));
        found.and_then(|found| Self::of(&found, args)).unwrap_or_else(|reason| {
            tell(&format!(
                "the operator's settings are not read from its Deployment in namespace {namespace}, because \
                 {reason}; set them with --operator-namespace and --watch-namespaces"
            ));
            Self::of_flags(args)
        })
    }

    /// Returns the settings from the flags, else from `deployments`.
    ///
    /// # Errors
    ///
    /// The reason, if `deployments` is empty or its Deployments have different settings.
    pub(super) fn of(deployments: &[Deployment], args: &OperatorArgs) -> Result<Self, String> {
        let mut all = deployments.iter().map(|one| Self::of_deployment(one, args));
        let Some(first) = all.next() else {
            return Err("none has the label app.kubernetes.io/name=kubewarm".to_owned());
        };
        if all.any(|other| other != first) {
            return Err("several Deployments have the label and differ".to_owned());
        }
        Ok(first)
    }

    fn of_deployment(deployment: &Deployment, args: &OperatorArgs) -> Self {
        let flags = Self::of_flags(args);
        let Some(pod) = &deployment.spec.template.spec else { return flags };
        let Some(container) = pod.containers.first() else { return flags };
        let metrics_auth =
            flag_value(container, "metrics-auth").is_some_and(|it| matches!(it, "" | "delegated"));
        // The read API is enabled unless `--api-addr` is empty.
        let reads = flag_value(container, "api-addr").is_none_or(|address| !address.is_empty());
        let more =
            [(metrics_auth, OperatorFeature::MetricsAuth), (reads, OperatorFeature::ReadApi)];
        let more = more.into_iter().filter_map(|(is_done, more)| is_done.then_some(more)).collect();
        let account = pod.service_account_name.clone().unwrap_or_else(|| ACCOUNT.to_owned());
        let watched = if flags.watched.is_empty() {
            let names = flag_value(container, "watch-namespaces").unwrap_or_default();
            names.split(',').filter(|name| is_dns_label(name)).map(str::to_owned).collect()
        } else {
            flags.watched
        };
        Self { namespace: flags.namespace, watched, account, more, lists: lists(container) }
    }

    /// Returns the operator namespace, and the namespaces whose profiles the operator runs.
    pub(super) fn home(&self) -> OperatorScope {
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

/// Returns the list settings from the `run` flags of `container`, else the defaults.
fn lists(container: &Container) -> ListPolicy {
    let default = ListPolicy::default();
    let [strategy, page_size, timeout] = ["list-strategy", "list-page-size", "watch-list-timeout"]
        .map(|flag| flag_value(container, flag));
    ListPolicy {
        strategy: strategy.and_then(|text| text.parse().ok()).unwrap_or(default.strategy),
        page_size: page_size.and_then(|text| text.parse().ok()).unwrap_or(default.page_size),
        watch_list_timeout: timeout
            .and_then(|text| flag_values::duration(text).ok())
            .unwrap_or(default.watch_list_timeout),
    }
}

/// Returns the value of a `run` flag from the container's arguments, else from its environment.
fn flag_value<'a>(container: &'a Container, flag: &str) -> Option<&'a str> {
    let mut arguments = container.command.iter().chain(&container.args).flatten();
    while let Some(argument) = arguments.next() {
        let Some(rest) = argument.strip_prefix("--").and_then(|it| it.strip_prefix(flag)) else {
            continue;
        };
        if rest.is_empty() {
            let value = arguments.next().filter(|next| !next.starts_with("--"));
            return Some(value.map_or("", String::as_str));
        }
        if let Some(value) = rest.strip_prefix('=') {
            return Some(value);
        }
    }
    let name = variable(flag);
    let variable = container.env.iter().flatten().find(|one| one.name == name)?;
    // The API server omits an empty value, so a variable without a value is empty.
    Some(variable.value.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::parse, *};
    use http::{Request, Response};
    use kube::client::Body;
    use kubewarm_api::model::ListStrategy;
    use serde_json::{Value, json};
    use std::{convert::Infallible, time::Duration};

    fn deployment(container: &Value) -> Value {
        let pod = json!({"serviceAccountName": "warm", "containers": [container]});
        json!({"spec": {"selector": {}, "template": {"spec": pod}}})
    }

    fn settings(container: &Value) -> OperatorSettings {
        let found = serde_json::from_value(deployment(container)).unwrap();
        OperatorSettings::of(&[found], &parse::<OperatorArgs>("").unwrap()).unwrap()
    }

    #[test]
    fn settings_come_from_the_first_container() {
        let with = |env: Value, args: Value| {
            let found = settings(&json!({"name": "kubewarm", "env": env, "args": args}));
            assert_eq!(found.account, "warm");
            found.more
        };
        let (api, metrics) = ("KUBEWARM_API_ADDR", "KUBEWARM_METRICS_AUTH");
        assert_eq!(with(json!([]), json!(["run"])), [OperatorFeature::ReadApi]);
        assert_eq!(
            with(json!([{"name": api, "value": "[::]:8443"}]), json!([])),
            [OperatorFeature::ReadApi]
        );
        assert_eq!(with(json!([{"name": api}]), json!(["run"])), []);
        assert_eq!(with(json!([]), json!(["run", "--api-addr="])), []);
        assert_eq!(with(json!([]), json!(["run", "--api-addr", ""])), []);
        assert_eq!(
            with(json!([{"name": api}]), json!(["--api-addr=[::]:8443"])),
            [OperatorFeature::ReadApi]
        );
        let both = [OperatorFeature::MetricsAuth, OperatorFeature::ReadApi];
        assert_eq!(with(json!([{"name": metrics, "value": "delegated"}]), json!([])), both);
        assert_eq!(with(json!([]), json!(["--metrics-auth"])), both);
        assert_eq!(with(json!([]), json!(["--metrics-auth", "--api-addr=a"])), both);
        let loopback = json!([{"name": metrics, "value": "loopback"}]);
        assert_eq!(with(loopback, json!([])), [OperatorFeature::ReadApi]);
    }

    #[test]
    fn namespaces_are_read_from_arguments_and_environment() {
        let watched = |container: Value| settings(&container).watched;
        let name = "kubewarm";
        assert_eq!(watched(json!({"name": name})), [""; 0]);
        for args in [json!(["--watch-namespaces=a,b"]), json!(["--watch-namespaces", "a,b"])] {
            assert_eq!(watched(json!({"name": name, "args": args})), ["a", "b"]);
        }
        let env = json!([{"name": "KUBEWARM_WATCH_NAMESPACES", "value": "c"}]);
        assert_eq!(watched(json!({"name": name, "env": env})), ["c"]);
        let found: Deployment =
            serde_json::from_value(deployment(&json!({"name": name, "env": env}))).unwrap();
        let args = parse::<OperatorArgs>("--watch-namespaces d").unwrap();
        assert_eq!(
            OperatorSettings::of(&[found], &args).unwrap().watched,
            ["d"],
            "flags come before the Deployment"
        );
    }

    #[test]
    fn list_settings_are_read_from_arguments_and_environment() {
        let lists = |args: Value, env: Value| {
            settings(&json!({"name": "kubewarm", "args": args, "env": env})).lists
        };
        assert_eq!(lists(json!(["run"]), json!([])), ListPolicy::default());
        let args = json!(["--list-strategy=paged-list", "--watch-list-timeout", "10s"]);
        let env = json!([{"name": "KUBEWARM_LIST_PAGE_SIZE", "value": "50"}]);
        let expected = ListPolicy {
            strategy: ListStrategy::PagedList,
            page_size: 50,
            watch_list_timeout: Duration::from_secs(10),
        };
        assert_eq!(lists(args, env), expected);
        assert_eq!(lists(json!(["--list-page-size=many"]), json!([])), ListPolicy::default());
    }

    #[test]
    fn client_certificates_need_a_file_with_cas() {
        let accepts = |args: Value| {
            let container = json!({"name": "kubewarm", "args": args});
            accepts_certificates(&serde_json::from_value(deployment(&container)).unwrap())
        };
        assert!(accepts(json!(["run", "--client-ca-file=/etc/ca.crt"])));
        assert!(!accepts(json!(["run"])) && !accepts(json!(["--client-ca-file="])));
    }

    #[test]
    fn missing_and_differing_deployments_have_no_settings() {
        let args = parse::<OperatorArgs>("").unwrap();
        let of = |name: &str| -> Deployment {
            let container = json!({"name": "kubewarm", "args": ["--watch-namespaces", name]});
            serde_json::from_value(deployment(&container)).unwrap()
        };
        assert!(OperatorSettings::of(&[], &args).is_err());
        assert!(OperatorSettings::of(&[of("a"), of("b")], &args).is_err());
        assert!(OperatorSettings::of(&[of("a"), of("a")], &args).is_ok());
        let empty = serde_json::from_value(json!({"spec": {"selector": {}, "template": {}}}));
        let found = OperatorSettings::of(&[empty.unwrap()], &args).unwrap();
        assert_eq!(found, OperatorSettings::of_flags(&args));
    }

    /// A fake API server with the operator's Deployment in namespace `ops`. It returns 403 for the Deployments of
    /// namespace `hidden` and panics for other paths.
    fn api_server() -> Client {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let path = request.uri().path().to_owned();
            let (code, body) = match path.as_str() {
                "/apis/apps/v1/namespaces/ops/deployments" => {
                    let args = json!(["run", "--watch-namespaces=ops"]);
                    let one = deployment(&json!({"name": "kubewarm", "args": args}));
                    (200_u16, json!({"metadata": {}, "items": [one]}))
                }
                "/apis/apps/v1/namespaces/hidden/deployments" => (403, json!({})),
                _ => panic!("unexpected request for {path}"),
            };
            let response =
                Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            Ok::<_, Infallible>(response.unwrap())
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn only_the_deployment_in_the_operators_namespace_is_read() {
        let args = parse::<OperatorArgs>("--operator-namespace ops").unwrap();
        let found = OperatorSettings::discover(&api_server(), &args).await;
        assert_eq!(found.subject().to_string(), "system:serviceaccount:ops:warm");
        assert_eq!(found.watched, ["ops"]);
        let args = parse::<OperatorArgs>("--operator-namespace hidden").unwrap();
        let found = OperatorSettings::discover(&api_server(), &args).await;
        assert_eq!(found, OperatorSettings::of_flags(&args));
    }
}
