//! Injection of the workloads in a file or on standard input.

use super::{
    super::{
        CommandError,
        print::{print, tell},
        profile_source::{file_text, shown_file},
        report::CommandExitCode,
    },
    InjectArgs, TRUSTED,
    plan::{InjectionReviewer, account_of},
    refused,
};
use kubewarm_api::model::is_dns_label;
use kubewarm_inject::{
    DocumentError, FoundWorkload, ManifestDocument, WorkloadKind, WorkloadOrigin, refusals, remarks,
};
use std::{collections::BTreeSet, path::Path};

const NOT_CHECKED: &str = "offline: not checked are the ServiceAccount with its permissions, profiles, network policies, \
     and whether kubewarm runs at the cluster IP, forwards requests and publishes its CA";

/// What decides about a workload: the cluster, or with `--offline` the file alone.
struct StreamContext {
    cluster: Option<InjectionReviewer>,
    /// Namespace of objects without a namespace.
    namespace: String,
}

/// Prints the file with its workloads injected. Without the name of a workload, those that cannot
/// be injected stay as they are, with a message.
///
/// # Errors
///
/// [`CommandError`] if the file cannot be read or edited, if the named workload is missing or
/// cannot be injected, or if no workload can be.
pub(super) async fn inject(
    args: &InjectArgs,
    file: &Path,
) -> Result<CommandExitCode, CommandError> {
    let title = shown_file(file);
    let failed = |error: DocumentError| CommandError::caused(format!("cannot use {title}"), error);
    let documents = ManifestDocument::parse_stream(&file_text(file)?).map_err(failed)?;
    let mut context = StreamContext::new(args).await?;
    let mut output = StreamOutput::default();
    for mut document in documents {
        for position in 0..document.workloads.len() {
            let workload = document.workloads.get(position);
            if !workload.is_some_and(|one| is_selected(args, one)) {
                continue;
            }
            output.found += 1;
            // A second injection replaces the first one.
            match document.undo(position) {
                Ok(()) => {}
                Err(error) if args.workload.is_none() && !args.undo => {
                    tell(&format!("a workload of {title} stays as it is: {error}"));
                    continue;
                }
                Err(error) => return Err(failed(error)),
            }
            if !args.undo {
                context.inject(args, &mut document, position, &mut output).await?;
            }
        }
        output.text.push_str(&document.text);
    }
    output.finish(args, &title)
}

#[derive(Default)]
struct StreamOutput {
    text: String,
    found: usize,
    injected: usize,
    /// Objects that the injected workloads need, and commands that create them.
    needs: BTreeSet<String>,
}

impl StreamOutput {
    fn finish(self, args: &InjectArgs, title: &str) -> Result<CommandExitCode, CommandError> {
        if let (Some(workload), 0) = (&args.workload, self.found) {
            return Err(CommandError::new(format!("{title} holds no {}", workload.title())));
        }
        if self.found > 0 && self.injected == 0 && !args.undo {
            tell(&format!("no workload of {title} is injected"));
        }
        if self.found == 0 {
            tell(&format!("{title} holds no workload, so the output is the input"));
        }
        for need in &self.needs {
            tell(need);
        }
        print(&self.text)?;
        Ok(CommandExitCode::Good)
    }
}

impl StreamContext {
    async fn new(args: &InjectArgs) -> Result<Self, CommandError> {
        let given = args.namespace.clone();
        if args.undo || args.offline {
            if args.offline && !args.undo {
                tell(NOT_CHECKED);
            }
            let namespace = given.unwrap_or_else(|| "default".to_owned());
            return Ok(Self { cluster: None, namespace });
        }
        args.connection.refuse_impersonation()?;
        args.operator.operator_namespace.require("--operator-namespace", TRUSTED)?;
        let connection = args.connection.connect()?;
        let reviewer = InjectionReviewer::discover(args, &connection).await?;
        let namespace = given.unwrap_or_else(|| connection.namespace().to_owned());
        Ok(Self { cluster: Some(reviewer), namespace })
    }

    /// Injects a workload. It stays as it is if it cannot be injected and the user did not name it.
    async fn inject(
        &mut self,
        args: &InjectArgs,
        document: &mut ManifestDocument,
        position: usize,
        output: &mut StreamOutput,
    ) -> Result<(), CommandError> {
        let Some(FoundWorkload { kind, object, .. }) = document.workloads.get(position) else {
            return Ok(());
        };
        let text = |pointer| object.pointer(pointer).and_then(|value| value.as_str());
        let namespace = text("/metadata/namespace").unwrap_or(&self.namespace);
        let name = text("/metadata/name").unwrap_or_default();
        let title = format!("{}/{name} in namespace {namespace}", kind.name().to_lowercase());
        let origin = WorkloadOrigin::File;
        let account = account_of(object, *kind, namespace);
        // Both names stand in URLs and in printed commands.
        if !is_dns_label(namespace) || !account.name.split('.').all(is_dns_label) {
            let reason = "the name of its namespace or ServiceAccount is invalid".to_owned();
            return Err(refused(&title, &[reason]));
        }
        let mut placed = object.clone();
        placed["metadata"]["namespace"] = namespace.into();
        let object = &placed;
        if self.cluster.is_none() && *kind == WorkloadKind::DaemonSet && args.fail_open.is_none() {
            tell(&format!(
                "{title}: the cluster IP must be that of kubewarm-api, unless its pods may use the API server"
            ));
        }
        let (reasons, address) = if let Some(reviewer) = &mut self.cluster {
            let reasons = reviewer.reasons(object, *kind, namespace, origin).await?;
            (reasons, reviewer.installation.address(args, *kind).clone())
        } else {
            (refusals(object, *kind, origin), args.given_address())
        };
        if !reasons.is_empty() {
            let refused = refused(&title, &reasons);
            if args.workload.is_some() {
                return Err(refused);
            }
            tell(&refused.to_string());
            return Ok(());
        }
        let remark = self.cluster.as_ref().and_then(|one| one.installation.remark(args, *kind));
        for remark in remarks(object, *kind).into_iter().chain(remark) {
            tell(&format!("{title}: {remark}"));
        }
        output.needs.extend([
            format!("label the namespace: kubectl label namespace {namespace} kubewarm.io/inject="),
            format!(
                "create the profile: kubectl warm profile --for system:serviceaccount:{namespace}:{} | kubectl apply \
                 -f -",
                account.name
            ),
        ]);
        output.injected += 1;
        let failed = |error| CommandError::caused(format!("cannot edit {title}"), error);
        match document.inject(position, &address) {
            Ok(()) => Ok(()),
            Err(error) if args.workload.is_none() => {
                tell(&format!("{title} stays as it is: {error}"));
                Ok(())
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn is_selected(args: &InjectArgs, workload: &FoundWorkload) -> bool {
    let FoundWorkload { kind, object, .. } = workload;
    args.workload.as_ref().is_none_or(|wanted| {
        let name = object.pointer("/metadata/name").and_then(|name| name.as_str());
        wanted.kind == *kind && name == Some(wanted.name.as_str())
    })
}
