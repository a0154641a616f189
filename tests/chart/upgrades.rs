//! Tests the upgrade to a later chart whose CRD has one more field, and the rollback.

use std::path::Path;

use serde_json::{Value, json};
use testbed::{ControlPlane, eventually};

use crate::cluster::{Failure, NAMESPACE, Outcome, SOON, chart, helms};
use crate::installs::{CRD, Release, VALUES};
use crate::pods::get;

/// The version of the later chart.
const LATER: &str = "99.0.0";
/// A text of the CRD. The later chart has its new field before this text.
const PLACE: &str = "\n              mode:\n";
const FIELD: &str = "\n              note:\n                type: string";
/// Values that render most objects of the chart, without objects that need a node or the Prometheus
/// operator.
const MORE: &str = "networkPolicy: {enabled: true}
flowSchema: {enabled: true}
metrics:
  auth: {enabled: true, readers: [{namespace: shop, name: prometheus}]}
grafanaDashboard: {enabled: true}
rbac:
  read: [{resource: configmaps, namespaces: [shop]}]
";

fn copy(from: &Path, to: &Path) -> Outcome {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let copied = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &copied)?;
        } else {
            std::fs::copy(entry.path(), copied)?;
        }
    }
    Ok(())
}

/// Writes a later version of the chart and returns its folder.
fn later(folder: &Path) -> Result<String, Failure> {
    let path = folder.join("later");
    copy(Path::new(&chart()), &path)?;
    for (file, from, to) in [
        ("Chart.yaml", env!("CARGO_PKG_VERSION"), LATER.to_owned()),
        ("templates/crd.yaml", PLACE, format!("{FIELD}{PLACE}")),
    ] {
        let text = std::fs::read_to_string(path.join(file))?;
        let changed = text.replace(from, &to);
        assert_ne!(changed, text, "{file}");
        std::fs::write(path.join(file), changed)?;
    }
    Ok(path.to_string_lossy().into_owned())
}

/// Writes the new field into a profile and returns the value that the API server stored: null if
/// the installed CRD lacks the field.
fn noted(release: &Release<'_>, note: &str) -> Result<Value, Failure> {
    let patch = format!(r#"{{"spec": {{"note": "{note}"}}}}"#);
    let patched = ["patch", "cprof", "sample", "-n", "shop", "--type=merge", "-p", &patch];
    release.cluster.run(patched)?;
    Ok(release.profile()?["spec"]["note"].clone())
}

fn await_note(release: &Release<'_>, note: &str, expected: &Value) -> Outcome {
    eventually(SOON, || {
        let value = noted(release, note)?;
        if value == *expected { Ok(()) } else { Err(format!("{value}").into()) }
    })
}

fn chart_of(release: &Release<'_>) -> Result<String, Failure> {
    let label = r"jsonpath={.metadata.labels.helm\.sh/chart}";
    let all = [("deployment", "kubewarm"), ("crd", CRD), ("clusterrole", "kubewarm")];
    let each = all
        .map(|(kind, name)| release.cluster.run(["get", kind, name, "-n", NAMESPACE, "-o", label]));
    Ok(each.into_iter().collect::<Result<Vec<_>, _>>()?.join(" "))
}

fn live(release: &Release<'_>, later: &str) -> Outcome {
    let values = format!("{VALUES}{MORE}");
    release.run(&["install", "kubewarm", &chart(), "--wait"], Some(&values))?;
    let installed = release.profile()?;
    let uid = |profile: &Value| profile.pointer("/metadata/uid").cloned();
    let is_the_same = |profile: &Value| {
        uid(profile) == uid(&installed)
            && profile["spec"]["targets"] == installed["spec"]["targets"]
    };
    assert_eq!(noted(release, "too early")?, Value::Null);

    release.run(&["upgrade", "kubewarm", later, "--wait"], Some(&values))?;
    let chart = format!("kubewarm-{LATER}");
    assert_eq!(chart_of(release)?, [&*chart; 3].join(" "));
    assert!(is_the_same(&release.profile()?), "{:#}", release.profile()?);
    // The API server needs a moment to serve the field.
    await_note(release, "known", &json!("known"))?;

    release.run(&["rollback", "kubewarm", "1", "--wait"], None)?;
    let chart = format!("kubewarm-{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(chart_of(release)?, [&*chart; 3].join(" "));
    await_note(release, "unknown", &Value::Null)?;
    assert!(is_the_same(&release.profile()?), "{:#}", release.profile()?);

    release.run(&["upgrade", "kubewarm", later, "--wait"], Some(&values))?;
    release.run(&["uninstall", "kubewarm", "--wait"], None)?;
    assert_eq!(release.left()?, "");
    assert!(is_the_same(&release.profile()?), "{:#}", release.profile()?);
    Ok(())
}

#[test]
fn profiles_outlive_a_chart_whose_crd_has_grown() -> Outcome {
    let cluster = ControlPlane::builder().with_controller_manager().start()?;
    for namespace in [NAMESPACE, "shop"] {
        cluster.run(["create", "namespace", namespace])?;
    }
    let later = later(cluster.folder())?;
    for helm in helms()? {
        let values = cluster.folder().join("values.yaml");
        live(&Release { helm: &helm, cluster: &cluster, values }, &later)
            .map_err(|error| format!("{}: {error}", helm.name()))?;
        cluster.run(["delete", "crd", CRD])?;
    }
    Ok(())
}

/// What an earlier chart created: a certificate of Helm, and its CA.
const BY_HELM: &str = "apiVersion: v1
kind: Secret
metadata: {name: kubewarm-tls, namespace: {{ .Release.Namespace }}}
type: kubernetes.io/tls
data: {tls.crt: YQ==, tls.key: YQ==, ca.crt: YQ==}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kubewarm-ca, namespace: {{ .Release.Namespace }}}
data: {ca.crt: of Helm}
";

#[test]
fn a_release_with_a_certificate_of_helm_upgrades_and_rolls_back() -> Outcome {
    let cluster = ControlPlane::builder().with_controller_manager().start()?;
    for namespace in [NAMESPACE, "shop"] {
        cluster.run(["create", "namespace", namespace])?;
    }
    let earlier = cluster.folder().join("earlier");
    copy(Path::new(&chart()), &earlier)?;
    std::fs::write(earlier.join("templates/tls.yaml"), BY_HELM)?;
    let earlier = earlier.to_string_lossy();
    let data = |kind: &str| -> Result<Value, Failure> {
        let object = get(&cluster, &[kind, "kubewarm-ca", "-n", NAMESPACE])?;
        Ok(object["data"].clone())
    };
    for helm in helms()? {
        let values = cluster.folder().join("values.yaml");
        let release = Release { helm: &helm, cluster: &cluster, values };
        release.run(&["install", "kubewarm", &earlier, "--wait"], Some(VALUES))?;
        assert_eq!(data("configmap")?, json!({"ca.crt": "of Helm"}), "{}", helm.name());
        for _ in 0..2 {
            release.run(&["upgrade", "kubewarm", &chart(), "--wait"], Some(VALUES))?;
            assert_eq!(data("secret")?, Value::Null, "{}", helm.name());
            assert!(get(&cluster, &["secret", "kubewarm-tls", "-n", NAMESPACE]).is_err());
            release.write_certificate()?;
            // Helm 4 refuses to overwrite what kubewarm wrote. The changelog says so.
            cluster.run(["delete", "configmap", "kubewarm-ca", "-n", NAMESPACE])?;
            release.run(&["rollback", "kubewarm", "1", "--wait"], None)?;
            assert_eq!(data("configmap")?, json!({"ca.crt": "of Helm"}), "{}", helm.name());
        }
        release.run(&["uninstall", "kubewarm", "--wait"], None)?;
        cluster.run(["delete", "crd", CRD])?;
    }
    Ok(())
}
