//! Applies an injection, in an order in which each step finds what it needs. The workload is last.

use super::{
    super::{
        CommandError,
        forwarded::fetch_user_reads,
        output::OutputArgs,
        print::{print, tell},
        report::CommandExitCode,
        wait::{AwaitedCondition, WaitArgs, wait},
    },
    InjectArgs, WorkloadName,
    live_workload::PlannedInjection,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, TypeMeta},
};
use kubewarm_api::{
    manifests::{API_CA, INJECT_LABEL},
    model::escape,
};
use kubewarm_client::ApiServerConnection;
use kubewarm_inject::WorkloadKind;
use serde_json::{Value, json};
use std::{
    io::{self, BufRead as _, IsTerminal as _},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// The field manager of all writes.
const MANAGER: &str = "kubectl-warm";
/// kubewarm publishes its CA within 5 s after the label of the namespace.
const CA_LIMIT: Duration = Duration::from_mins(1);
/// Time for new pods to start, without which there are no reads to report.
const ROLLOUT_LIMIT: Duration = Duration::from_mins(5);
/// Time for the first reads of the new pods.
const READ_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_secs(1);

/// A workload of a cluster.
pub(super) struct LiveWorkload {
    pub(super) kind: WorkloadKind,
    pub(super) namespace: String,
    pub(super) object: Value,
    /// For messages, such as `deployment/shop in namespace shop`.
    pub(super) title: String,
    /// For commands, such as `deployment/shop`.
    pub(super) word: String,
    api: Api<DynamicObject>,
    name: String,
}

impl LiveWorkload {
    pub(super) async fn fetch(
        connection: &ApiServerConnection,
        workload: &WorkloadName,
        namespace: &str,
    ) -> Result<Self, CommandError> {
        let WorkloadName { kind, name } = workload;
        let gvk = GroupVersionKind::gvk(kind.group(), "v1", kind.name());
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
        let api = Api::namespaced_with(connection.client(), namespace, &resource);
        let title = format!("{} in namespace {namespace}", workload.title());
        let mut object: DynamicObject =
            api.get(name).await.map_err(|error| CommandError::of_request(&title, error))?;
        object.types = Some(TypeMeta { api_version: resource.api_version, kind: resource.kind });
        let object = serde_json::to_value(object)
            .map_err(|error| CommandError::caused(format!("cannot read {title}"), error))?;
        let (namespace, word) = (namespace.to_owned(), workload.title());
        Ok(Self { kind: *kind, namespace, object, title, word, api, name: name.clone() })
    }

    /// Replaces the object. The API server rejects this if somebody changed the object meanwhile.
    pub(super) async fn replace(&self, object: &Value) -> Result<(), CommandError> {
        let object: DynamicObject = serde_json::from_value(object.clone())
            .map_err(|error| CommandError::caused(format!("cannot write {}", self.title), error))?;
        let parameters =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let replaced = self.api.replace(&self.name, &parameters, &object).await;
        let failed = |error| CommandError::of_write(&format!("update {}", self.title), error);
        replaced.map(drop).map_err(failed)
    }

    /// Waits until all pods are new. Returns `false` after a time limit, or if the controller of
    /// this kind does not replace pods.
    async fn rolled_out(&self) -> bool {
        let until = Instant::now() + ROLLOUT_LIMIT;
        while Instant::now() < until {
            if let Ok(object) = self.api.get(&self.name).await {
                match is_rolled_out(self.kind, &object) {
                    Some(true) => return true,
                    Some(false) => {}
                    None => return false,
                }
            }
            sleep(POLL).await;
        }
        false
    }
}

/// Whether all pods of the object have its current template and are ready. `None` if the controller
/// of this kind does not replace pods, or waits for the user.
fn is_rolled_out(kind: WorkloadKind, object: &DynamicObject) -> Option<bool> {
    let spec = object.data.get("spec")?;
    let is = |pointer: &str, value: Value| spec.pointer(pointer) == Some(&value);
    if is("/paused", true.into()) || is("/updateStrategy/type", "OnDelete".into()) {
        return None;
    }
    let status = |field: &str| object.data.get("status")?.get(field)?.as_i64();
    let is_observed = status("observedGeneration") >= object.metadata.generation;
    let (wanted, updated, ready) = match kind {
        WorkloadKind::Deployment | WorkloadKind::StatefulSet => {
            let wanted = spec.get("replicas").and_then(Value::as_i64).unwrap_or(1);
            let all = status("replicas").unwrap_or_default();
            // Old pods that still run count among the replicas.
            (wanted.max(all), status("updatedReplicas"), status("readyReplicas"))
        }
        WorkloadKind::DaemonSet => (
            status("desiredNumberScheduled").unwrap_or_default(),
            status("updatedNumberScheduled"),
            status("numberReady"),
        ),
        WorkloadKind::ReplicaSet
        | WorkloadKind::Job
        | WorkloadKind::CronJob
        | WorkloadKind::Pod => return None,
    };
    let is_all = |count: Option<i64>| count.unwrap_or_default() >= wanted;
    Some(is_observed && is_all(updated) && is_all(ready))
}

/// Asks the user. With `--yes` the answer is yes.
///
/// # Errors
///
/// [`CommandError`] if nobody can answer.
pub(super) fn confirm(args: &InjectArgs, question: &str) -> Result<bool, CommandError> {
    if args.yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(CommandError::new("standard input is no terminal; confirm with --yes"));
    }
    tell(&format!("{question} [y/N]"));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| CommandError::caused("cannot read the answer", error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Shows everything, asks, and applies it.
///
/// # Errors
///
/// [`CommandError`] with the step that failed. The workload is unchanged then.
pub(super) async fn apply(
    args: &InjectArgs,
    connection: &ApiServerConnection,
    live: &LiveWorkload,
    plan: &PlannedInjection,
    clock: fn() -> Timestamp,
) -> Result<CommandExitCode, CommandError> {
    let LiveWorkload { namespace, title, .. } = live;
    let needs = plan.needs(namespace)?;
    let lines: Vec<_> = plan.lines.iter().map(|line| format!("+ {}\n", escape(line))).collect();
    print(&format!("{needs}---\n# {title} gets:\n{}", lines.concat()))?;
    if !confirm(args, &format!("Apply these objects, and then change {title}?"))? {
        return Ok(CommandExitCode::Bad);
    }
    let client = connection.client();
    label(&client, namespace, &plan.label).await?;
    for profile in &plan.profiles {
        apply_object(&client, profile.clone()).await?;
    }
    let grants: Vec<Value> = serde_saphyr::from_multiple(&plan.grants)
        .map_err(|error| CommandError::caused("cannot read the grants back", error))?;
    for grant in grants.into_iter().filter(Value::is_object) {
        apply_object(&client, grant).await?;
    }
    for profile in &plan.profiles {
        let text = |field: &str| profile["metadata"][field].as_str().map(str::to_owned);
        let wait_args = WaitArgs {
            name: text("name").unwrap_or_default(),
            namespace: text("namespace"),
            until: AwaitedCondition::ready(),
            timeout: args.timeout,
            output: OutputArgs::default(),
            connection: args.connection.clone(),
        };
        let code = wait(wait_args, clock).await?;
        if code != CommandExitCode::Good {
            tell(&format!("{title} is unchanged; run the command again once the profile is ready"));
            return Ok(code);
        }
    }
    await_authority(&client, namespace).await?;
    live.replace(&plan.injected).await?;
    print(&format!("{title} is injected\n"))?;
    report_reads(args, live, plan).await;
    Ok(CommandExitCode::Good)
}

async fn label(client: &Client, namespace: &str, value: &str) -> Result<(), CommandError> {
    let label = json!({"metadata": {"labels": {INJECT_LABEL: value}}});
    let namespaces = Api::<Namespace>::all(client.clone());
    let parameters =
        PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let labelled = namespaces.patch_metadata(namespace, &parameters, &Patch::Merge(label)).await;
    let failed = |error| CommandError::of_write(&format!("label namespace {namespace}"), error);
    labelled.map(drop).map_err(failed)
}

/// Applies an object by server-side apply. A field that another manager owns is a conflict, because
/// the object could belong to somebody else.
async fn apply_object(client: &Client, object: Value) -> Result<(), CommandError> {
    let text = |pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
    let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match namespace.as_str() {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let applied = api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(&object)).await;
    applied
        .map(drop)
        .map_err(|error| CommandError::of_write(&format!("apply {kind} {name}"), error))
}

/// Waits until the namespace has kubewarm's CA. Pods that mount a missing `ConfigMap` do not start.
async fn await_authority(client: &Client, namespace: &str) -> Result<(), CommandError> {
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let until = Instant::now() + CA_LIMIT;
    loop {
        let found = config_maps.get_opt(API_CA).await;
        let title = format!("ConfigMap {namespace}/{API_CA}");
        if found.map_err(|error| CommandError::of_request(&title, error))?.is_some() {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(CommandError::new(format!(
                "kubewarm did not create {title} within {} s, and the workload is unchanged; set the chart value \
                 inject.enabled=true, and read the leader's log",
                CA_LIMIT.as_secs()
            )));
        }
        sleep(POLL).await;
    }
}

/// Prints how many lists and watches of the ServiceAccount kubewarm serves from its stores. The
/// injection has succeeded, so a failure is only a message.
async fn report_reads(args: &InjectArgs, live: &LiveWorkload, plan: &PlannedInjection) {
    if !live.rolled_out().await {
        tell("not all pods are new yet; kubectl warm forwarded shows what they read");
        return;
    }
    let (account, timeout) = (&plan.account, args.connection.request_timeout());
    let (service, user) = (args.service(), account.user());
    let until = Instant::now() + READ_LIMIT;
    loop {
        let reads = match args.connection.connect() {
            Ok(connection) => fetch_user_reads(connection, &service, timeout).await,
            Err(error) => Err(error.into()),
        };
        match reads.map(|reads| reads.share(&user)) {
            Ok((0, 0)) if Instant::now() < until => sleep(POLL).await,
            Ok((0, 0)) => {
                tell(&format!(
                    "no list or watch of ServiceAccount {account} has reached kubewarm yet"
                ));
                return;
            }
            Ok((served, forwarded)) => {
                tell(&format!(
                    "kubewarm served {served} of {} lists and watches of ServiceAccount {account} from its stores",
                    served.saturating_add(forwarded)
                ));
                return;
            }
            Err(error) => {
                tell(&format!("cannot read what kubewarm serves: {error}"));
                return;
            }
        }
    }
}
