//! The command `rotate-ca` lets another CA sign kubewarm's certificate at once.

use super::{
    CommandError,
    ca_readers::fetch_ca_readers,
    cluster::ConnectionArgs,
    print::{print, tell},
    profile_source::OperatorNamespaceArgs,
    report::CommandExitCode,
};
use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use kubewarm_api::manifests::{API_CA, CERTIFICATE_ROTATION, CERTIFICATE_SECRET};
use kubewarm_serve::certificate::BUNDLE;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The leader reads the Secret every minute, and after a failure every 10 s. A new leader needs up
/// to 20 s.
const LIMIT: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct RotateCaArgs {
    /// Name of the Secret and of the `ConfigMap` with kubewarm's CA.
    #[arg(long, value_name = "NAME", default_value = CERTIFICATE_SECRET)]
    pub certificate_secret: String,

    #[command(flatten)]
    pub operator_namespace: OperatorNamespaceArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Requests the rotation by an annotation of the Secret, and waits until the leader has published
/// the new CA.
///
/// # Errors
///
/// [`CommandError`] if the Secret cannot be patched, if the `ConfigMap` cannot be read, or if no
/// leader rotates within 3 minutes.
pub async fn rotate_ca(args: &RotateCaArgs) -> Result<CommandExitCode, CommandError> {
    let connection = args.connection.connect()?;
    let namespace = args.operator_namespace.name();
    let (client, name) = (connection.client(), args.certificate_secret.as_str());
    let title = format!("{namespace}/{name}");
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let config_maps = Api::<ConfigMap>::namespaced(client, namespace);
    let bundle = || async {
        let published = config_maps.get(name).await;
        let published = published
            .map_err(|error| CommandError::of_request(format!("ConfigMap {title}"), error))?;
        Ok::<_, CommandError>(published.data.unwrap_or_default().remove(BUNDLE))
    };
    let annotate = async |value: Option<&str>| {
        let change = json!({"metadata": {"annotations": {CERTIFICATE_ROTATION: value}}});
        // The response of this request contains no keys.
        let (parameters, change) = (PatchParams::default(), Patch::Merge(change));
        let patched = secrets.patch_metadata(name, &parameters, &change).await;
        let error = |error| CommandError::of_request(format!("Secret {title}"), error);
        patched.map(drop).map_err(error)
    };
    let before = bundle().await?;
    annotate(Some("requested")).await?;
    tell(&format!("waiting until the leader has published another CA in ConfigMap {title}"));
    let until = Instant::now() + LIMIT;
    // A single failed request does not end the wait.
    while bundle().await.map_or(true, |published| published == before) {
        if Instant::now() > until {
            annotate(None).await?;
            return Err(CommandError::new(format!(
                "no other CA in ConfigMap {title} after {} s, kubewarm withdrew the request; read the leader's log",
                LIMIT.as_secs()
            )));
        }
        sleep(POLL).await;
    }
    print(&format!(
        "another CA signs kubewarm's certificate; ConfigMap {title} contains it, and the old one.\n\
         Clients that read {BUNDLE} before now fail: let them read the ConfigMap again, and create their kubeconfigs again.\n"
    ))?;
    let readers = fetch_ca_readers(&connection.client(), namespace, name).await;
    print(&match readers.map(|readers| readers.and_then(|readers| readers.broken())) {
        Ok(Some(pods)) => format!("Restart these pods, which mount ConfigMap {API_CA}: {pods}\n"),
        Ok(None) => format!(
            "All running pods that mount ConfigMap {API_CA} started after its publication.\n"
        ),
        Err(fault) => format!("list the pods that mount ConfigMap {API_CA}: {fault}\n"),
    })?;
    Ok(CommandExitCode::Good)
}
