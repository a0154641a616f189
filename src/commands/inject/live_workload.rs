//! Injection of a workload in a cluster.

use super::{
    super::{
        CommandError,
        inferred_profile::{ServiceAccountName, infer_profiles, yaml_documents},
        operator_installation::OperatorInstallation,
        print::{print, tell},
        report::CommandExitCode,
    },
    InjectArgs, TRUSTED, WorkloadName,
    apply::{self, LiveWorkload},
    check,
    plan::{InjectionReviewer, account_of},
    refused,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use kubewarm_api::{
    manifests::{INJECT_LABEL, NamespacesBySelector, ProfilePermissions},
    model::{ValidatedProfile, escape},
    v1alpha1::CacheProfile,
};
use kubewarm_client::ApiServerConnection;
use kubewarm_inject::{
    Injection, WorkloadOrigin, clean_object, inject_object, remarks, undo_object,
};
use serde_json::{Value, json};

/// All objects of an injection.
pub(super) struct PlannedInjection {
    pub(super) account: ServiceAccountName,
    /// Value of the namespace's label. A value that an administrator has set stays.
    pub(super) label: String,
    pub(super) profiles: Vec<Value>,
    /// RBAC manifests as YAML, which let kubewarm read for the profiles.
    pub(super) grants: String,
    /// The injected workload, as the API server would store it.
    pub(super) injected: Value,
    /// The added fields.
    pub(super) lines: Vec<String>,
}

/// Prints or applies the injection of `workload`, or its removal.
pub(super) async fn inject(
    args: &InjectArgs,
    workload: &WorkloadName,
    clock: fn() -> Timestamp,
) -> Result<CommandExitCode, CommandError> {
    args.connection.refuse_impersonation()?;
    if !args.undo {
        args.operator.operator_namespace.require("--operator-namespace", TRUSTED)?;
    }
    let connection = args.connection.connect()?;
    let namespace = args.namespace.clone().unwrap_or_else(|| connection.namespace().to_owned());
    let live = LiveWorkload::fetch(&connection, workload, &namespace).await?;
    if args.undo {
        return undo(args, &live).await;
    }
    if args.check {
        return Box::pin(check::check(args, &connection, &live)).await;
    }
    let plan = Box::pin(plan(args, &connection, &live)).await?;
    if args.apply {
        return apply::apply(args, &connection, &live, &plan, clock).await;
    }
    print(&plan.stream(&namespace)?)?;
    Ok(CommandExitCode::Good)
}

async fn plan(
    args: &InjectArgs,
    connection: &ApiServerConnection,
    live: &LiveWorkload,
) -> Result<PlannedInjection, CommandError> {
    let LiveWorkload { object, kind, namespace, title, .. } = live;
    let restored = undo_object(object, *kind)
        .map_err(|error| CommandError::caused(format!("cannot inject {title} again"), error))?;
    let plain = restored.unwrap_or_else(|| object.clone());
    let mut reviewer = InjectionReviewer::discover(args, connection).await?;
    let reasons = reviewer.reasons(&plain, *kind, namespace, WorkloadOrigin::Cluster).await?;
    if !reasons.is_empty() {
        return Err(refused(title, &reasons));
    }
    let installation = reviewer.installation;
    let remark = installation.remark(args, *kind);
    for remark in remarks(&plain, *kind).into_iter().chain(remark) {
        tell(&format!("{title}: {remark}"));
    }
    let account = account_of(&plain, *kind, namespace);
    let name = args.profile_name.as_deref();
    let source = (args.kinds.from, &args.service());
    let inferred = infer_profiles(&args.connection, &account, name, source).await?;
    for omitted in &inferred.omitted {
        tell(omitted);
    }
    if inferred.documents.is_empty() {
        return Err(account.reads_nothing());
    }
    let grants = grants(&inferred.documents, &installation.operator)?;
    let (injected, injection) = inject_object(&plain, *kind, installation.address(args, *kind));
    let lines = injection.lines();
    let profiles = inferred.documents;
    let label = label(&connection.client(), namespace).await;
    Ok(PlannedInjection { account, label, profiles, grants, injected, lines })
}

/// The value of the namespace's label. Empty without a label, or if the user may not get the
/// namespace.
async fn label(client: &Client, namespace: &str) -> String {
    let found = Api::<Namespace>::all(client.clone()).get_metadata(namespace).await.ok();
    let mut labels = found.and_then(|found| found.metadata.labels).unwrap_or_default();
    labels.remove(INJECT_LABEL).unwrap_or_default()
}

/// The RBAC manifests of the profiles, whose targets have no namespace selectors.
fn grants(profiles: &[Value], operator: &OperatorInstallation) -> Result<String, CommandError> {
    let mut all = Vec::new();
    for document in profiles {
        let failed = |error| CommandError::unusable("the profile", error);
        let profile: CacheProfile =
            serde_json::from_value(document.clone()).map_err(|error| failed(error.into()))?;
        let checked = ValidatedProfile::parse(&profile).map_err(|error| failed(error.into()))?;
        let scope = operator.scope();
        let permissions = ProfilePermissions::of_profile(
            &checked,
            &NamespacesBySelector::new(),
            &operator.subject(),
            &scope.watched,
        )
        .map_err(|error| failed(error.into()))?;
        all.push(permissions.to_yaml());
    }
    Ok(all.join("\n"))
}

impl PlannedInjection {
    /// All objects but the workload: the namespace's label, the profiles and their grants.
    pub(super) fn needs(&self, namespace: &str) -> Result<String, CommandError> {
        let label = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {INJECT_LABEL: self.label}},
        });
        let mut text = yaml_documents(&[label])?;
        text.push_str(&yaml_documents(&self.profiles)?);
        if !self.grants.starts_with("---") {
            text.push_str("---\n");
        }
        text.push_str(&self.grants);
        Ok(text)
    }

    fn stream(&self, namespace: &str) -> Result<String, CommandError> {
        let mut text = self.needs(namespace)?;
        let mut workload = self.injected.clone();
        clean_object(&mut workload);
        text.push_str(&yaml_documents(&[workload])?);
        Ok(text)
    }
}

async fn undo(args: &InjectArgs, live: &LiveWorkload) -> Result<CommandExitCode, CommandError> {
    let LiveWorkload { object, kind, title, .. } = live;
    let failed =
        |error| CommandError::caused(format!("cannot undo the injection of {title}"), error);
    let Some(mut restored) = undo_object(object, *kind).map_err(failed)? else {
        return Err(CommandError::new(format!("{title} is not injected")));
    };
    if !args.apply {
        clean_object(&mut restored);
        print(&yaml_documents(&[restored])?)?;
        return Ok(CommandExitCode::Good);
    }
    let injection = Injection::of_object(object, *kind).map_err(failed)?;
    for line in injection.iter().flat_map(Injection::lines) {
        print(&format!("- {}\n", escape(&line)))?;
    }
    if !apply::confirm(args, &format!("Remove the injection of {title}?"))? {
        return Ok(CommandExitCode::Bad);
    }
    live.replace(&restored).await?;
    print(&format!("{title} is no longer injected\n"))?;
    Ok(CommandExitCode::Good)
}
