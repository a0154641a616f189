//! `kubewarm inject -f -` as the post-renderer of a chart that is not ours.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use testbed::Helm;

use crate::cluster::{Failure, Outcome};

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      # the program
      - name: app
        image: {{ .Values.image }}
";

/// Helm 4 accepts only plugins as post-renderers.
const PLUGIN: &str = "apiVersion: v1
type: postrenderer/v1
name: warm-inject
version: 0.1.0
runtime: subprocess
runtimeConfig:
  platformCommand:
  - command: ${HELM_PLUGIN_DIR}/render.sh
";

fn write(path: &Path, text: &str) -> Outcome {
    fs::create_dir_all(path.parent().ok_or("no folder")?)?;
    Ok(fs::write(path, text)?)
}

fn rendered(helm: &Helm, folder: &Path) -> Result<String, Failure> {
    let chart = folder.join("chart");
    let renderer = if helm.name() == "helm-4" {
        helm.run(["plugin", "install", &folder.join("plugin").to_string_lossy()])?;
        "warm-inject".to_owned()
    } else {
        folder.join("plugin/render.sh").to_string_lossy().into_owned()
    };
    let chart = chart.to_string_lossy();
    Ok(helm.run(["template", "shop", &*chart, "--post-renderer", &renderer])?)
}

#[test]
fn helm_renders_injected_workloads() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    write(&folder.join("chart/Chart.yaml"), "apiVersion: v2\nname: shop\nversion: 0.1.0\n")?;
    write(&folder.join("chart/values.yaml"), "image: localhost/none\n")?;
    write(&folder.join("chart/templates/deployment.yaml"), DEPLOYMENT)?;
    write(&folder.join("plugin/plugin.yaml"), PLUGIN)?;
    let script = folder.join("plugin/render.sh");
    let program = env!("CARGO_BIN_EXE_kubewarm");
    let command = format!("{program} inject -f - --offline --cluster-ip 10.96.0.99");
    write(&script, &format!("#!/bin/sh\nexec {command}\n"))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    for helm in Helm::locate_or_build(&folder.join("home"))? {
        let text = rendered(&helm, folder)?;
        for part in ["# the program", "image: localhost/none", "kubewarm.io/inject", "10.96.0.99"] {
            assert!(text.contains(part), "{}: {part} in {text}", helm.name());
        }
    }
    Ok(())
}
