//! The command `version` prints the versions of this program, of the operator and of Kubernetes.

use super::{
    CommandError,
    cluster::ConnectionArgs,
    operator_installation::{deployments, version_of},
    output::OutputArgs,
    print::{show, tell},
    profile_source::OperatorNamespaceArgs,
    report::{CommandExitCode, CommandReport, ReportRow, ReportSection, RowMark},
};
use clap::Args;
use k8s_openapi::{
    api::apps::v1::Deployment, apimachinery::pkg::version::Info as KubernetesVersion,
};
use kube::Client;
use kubewarm_api::model::{FaultReason, RequestFault};
use kubewarm_client::get;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const CODES: &str = "\
Exit codes:
  0  printed, also if you may not read a version
  1  no API server answered; only the version of this program is printed
  2  an error";

#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct VersionArgs {
    /// Print only the version of this program, without a request.
    #[arg(long)]
    pub client: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub operator_namespace: OperatorNamespaceArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

pub(super) struct Version {
    title: &'static str,
    key: &'static str,
    number: Result<String, String>,
}

/// # Errors
///
/// [`CommandError`] if the output cannot be written. If the API server does not answer, the
/// function returns [`CommandExitCode::Bad`] instead of an error.
pub async fn version(args: &VersionArgs) -> Result<CommandExitCode, CommandError> {
    let servers = if args.client { Ok(Vec::new()) } else { connect(args).await };
    let mut versions = vec![of_client()];
    let trouble = match servers {
        Ok(servers) => {
            versions.extend(servers);
            None
        }
        Err(error) => Some(error),
    };
    let verdict = show(&report(&versions), args.output.format)?;
    let Some(error) = trouble else { return Ok(verdict) };
    let cause = std::error::Error::source(&error);
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    tell(&format!("error: {error}{cause}; --client prints only the version of this program"));
    Ok(CommandExitCode::Bad)
}

pub(super) fn of_client() -> Version {
    let number = Ok(env!("CARGO_PKG_VERSION").to_owned());
    Version { title: "Client Version", key: "clientVersion", number }
}

async fn connect(args: &VersionArgs) -> Result<Vec<Version>, CommandError> {
    let client = args.connection.connect()?.client();
    let versions = of_servers(&client, args.operator_namespace.name()).await;
    versions.map_err(|fault| CommandError::caused("the API server did not answer", fault))
}

/// Returns the versions of the operator in `namespace` and of the API server. If the user has no
/// permission to read a version, the result contains the reason instead.
async fn of_servers(client: &Client, namespace: &str) -> Result<Vec<Version>, RequestFault> {
    let kubernetes = match get(client, "/version").await.and_then(|answer| answer.json()) {
        Ok(KubernetesVersion { git_version, .. }) => Ok(git_version),
        Err(fault) if fault.reason() == FaultReason::Forbidden => Err(fault.to_string()),
        Err(fault) => return Err(fault),
    };
    let operator = deployments(client, namespace).await;
    let operator = operator.map_err(|fault| fault.to_string());
    let operator = operator.and_then(|deployments| of_operator(&deployments, namespace));
    Ok(vec![
        Version { title: "Server Version", key: "serverVersion", number: operator },
        Version { title: "Kubernetes Version", key: "kubernetesVersion", number: kubernetes },
    ])
}

fn of_operator(deployments: &[Deployment], namespace: &str) -> Result<String, String> {
    let versions: BTreeSet<_> = deployments.iter().filter_map(version_of).collect();
    if versions.is_empty() {
        return Err(format!(
            "no Deployment in namespace {namespace} has the labels app.kubernetes.io/name=kubewarm and \
             app.kubernetes.io/version; --operator-namespace selects another namespace"
        ));
    }
    Ok(versions.into_iter().collect::<Vec<_>>().join(", "))
}

pub(super) fn report(versions: &[Version]) -> CommandReport {
    let text = |Version { title, number, .. }: &Version| match number {
        Ok(number) => format!("{title}: {number}"),
        Err(reason) => format!("{title}: unknown ({reason})"),
    };
    let row = |version| ReportRow::marked(RowMark::Plain, text(version));
    let rows = versions.iter().map(row).collect();
    let known = versions.iter().filter_map(|Version { key, number, .. }| {
        Some(((*key).to_owned(), json!({ "version": number.as_ref().ok()? })))
    });
    let data = Value::Object(known.collect());
    CommandReport {
        sections: vec![ReportSection { rows, ..ReportSection::default() }],
        data,
        ..CommandReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::report::{ReportFormat, TerminalLayout, render},
        *,
    };
    use http::{Request, Response};
    use kube::client::Body;
    use std::convert::Infallible;

    /// A fake API server that answers `/version` with the status code `version`, and requests for
    /// Deployments in namespace `ops` with the status code `deployments`.
    fn api_server(version: u16, deployments: u16) -> Client {
        let labels = |version: &str| json!({ "app.kubernetes.io/version": version });
        let deployment = |version| json!({ "metadata": { "labels": labels(version) } });
        let items = ["0.2.0", "0.1.0", "0.2.0"].map(deployment);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = match request.uri().path() {
                "/version" => {
                    let info = json!({
                        "major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitCommit": "",
                        "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "",
                        "platform": "",
                    });
                    (version, info)
                }
                "/apis/apps/v1/namespaces/ops/deployments" => {
                    (deployments, json!({ "metadata": {}, "items": items }))
                }
                "/apis/apps/v1/namespaces/empty/deployments" => {
                    (200, json!({ "metadata": {}, "items": [] }))
                }
                path => panic!("unexpected request for {path}"),
            };
            let body = Body::from(body.to_string().into_bytes());
            let response = Response::builder().status(code).body(body).unwrap();
            async { Ok::<_, Infallible>(response) }
        });
        Client::new(service, "default")
    }

    async fn printed(client: Client, namespace: &str) -> Result<(String, Value), RequestFault> {
        let report = report(&of_servers(&client, namespace).await?);
        let text = render(&report, ReportFormat::Text(TerminalLayout::default())).unwrap();
        Ok((text, report.data))
    }

    #[tokio::test]
    async fn operator_and_kubernetes_have_their_own_lines() {
        let (text, data) = printed(api_server(200, 200), "ops").await.unwrap();
        assert_eq!(text, "Server Version: 0.1.0, 0.2.0\nKubernetes Version: v1.36.2\n");
        let expected = json!({
            "serverVersion": { "version": "0.1.0, 0.2.0" },
            "kubernetesVersion": { "version": "v1.36.2" },
        });
        assert_eq!(data, expected);
    }

    #[tokio::test]
    async fn a_version_that_the_user_may_not_read_is_unknown() {
        let (text, data) = printed(api_server(403, 403), "ops").await.unwrap();
        assert!(text.starts_with("Server Version: unknown ("), "{text}");
        assert!(text.contains("\nKubernetes Version: unknown ("), "{text}");
        assert_eq!(data, json!({}));
        let (text, _) = printed(api_server(200, 200), "empty").await.unwrap();
        assert!(text.contains("--operator-namespace selects another namespace"), "{text}");
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_is_a_fault() {
        let fault = printed(api_server(503, 200), "ops").await.unwrap_err();
        assert_eq!(fault.reason(), FaultReason::ServerError);
    }

    #[test]
    fn the_first_line_is_the_version_of_this_program() {
        let text =
            render(&report(&[of_client()]), ReportFormat::Text(TerminalLayout::default())).unwrap();
        assert_eq!(text, concat!("Client Version: ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}
