//! Tests the life of a release: install with CRD and profile, upgrade, rollback, uninstall.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use testbed::{ControlPlane, Helm, eventually};

use crate::cluster::{Failure, NAMESPACE, Outcome, SOON, chart, helms};
use crate::pods::get;

pub(crate) const CRD: &str = "cacheprofiles.kubewarm.io";
/// The kinds of all objects that a release could leave behind.
const KINDS: &str = "deployments,pods,services,serviceaccounts,configmaps,secrets,roles,rolebindings,\
    clusterroles,clusterrolebindings,networkpolicies,poddisruptionbudgets,flowschemas,\
    prioritylevelconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings";
/// Without a node no pod can run, so there are no replicas and Helm does not wait for pods.
pub(crate) const VALUES: &str = "replicaCount: 0
profiles:
- name: sample
  namespace: shop
  spec:
    targets:
    - name: configmaps
      resource: configmaps
";
const MORE: &str = "    - name: services
      resource: services
";
const EDITORS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jane, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
";

/// A release on a cluster.
pub(crate) struct Release<'a> {
    pub(crate) helm: &'a Helm,
    pub(crate) cluster: &'a ControlPlane,
    /// The file with the values for Helm.
    pub(crate) values: PathBuf,
}

impl Release<'_> {
    /// Runs Helm on the release with these values.
    pub(crate) fn run(&self, words: &[&str], values: Option<&str>) -> Result<String, Failure> {
        let kubeconfig = self.cluster.kubeconfig().to_string_lossy();
        let mut args = words.to_vec();
        args.extend(["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig]);
        let path = self.values.to_string_lossy();
        if let Some(values) = values {
            std::fs::write(&self.values, values)?;
            args.extend(["--values", &path]);
        }
        Ok(self.helm.run(args)?)
    }

    pub(crate) fn profile(&self) -> Result<Value, Failure> {
        let args = ["get", "cprof", "sample", "-n", "shop", "-o", "json"];
        Ok(serde_json::from_str(&self.cluster.run(args)?)?)
    }

    /// Writes into the Secret and the `ConfigMap` of the certificate, as the leading replica does.
    pub(crate) fn write_certificate(&self) -> Outcome {
        for (kind, data) in [("secret", "Y2VydGlmaWNhdGU="), ("configmap", "certificate")] {
            let patch = json!({"data": {"ca.crt": data}}).to_string();
            self.cluster.run(["patch", kind, "kubewarm-ca", "-n", NAMESPACE, "-p", &patch])?;
        }
        Ok(())
    }

    /// Fails if Helm has changed what [`Self::write_certificate`] wrote.
    fn check_certificate(&self) -> Outcome {
        for kind in ["secret", "configmap"] {
            let object = get(self.cluster, &[kind, "kubewarm-ca", "-n", NAMESPACE])?;
            assert_eq!(object["data"].as_object().map(Map::len), Some(1), "{object:#}");
        }
        Ok(())
    }

    /// The objects with the label of the release that still exist, except the CRD and its profiles,
    /// which Helm keeps.
    pub(crate) fn left(&self) -> Result<String, Failure> {
        let label = "--selector=app.kubernetes.io/instance=kubewarm";
        Ok(self.cluster.run(["get", KINDS, "--all-namespaces", label, "-o", "name"])?)
    }

    /// Whether the user jane has this permission in the namespace `shop`.
    fn jane_may(&self, what: &[&str]) -> bool {
        let who = ["auth", "can-i", "--as=jane", "--namespace=shop"];
        self.cluster.run(who.iter().chain(what)).is_ok_and(|answer| answer.trim() == "yes")
    }
}

#[test]
fn profiles_outlive_upgrade_rollback_and_uninstall() -> Outcome {
    let cluster = ControlPlane::builder().with_controller_manager().start()?;
    for namespace in [NAMESPACE, "shop"] {
        cluster.run(["create", "namespace", namespace])?;
    }
    cluster.apply(EDITORS)?;
    for helm in helms()? {
        let values = cluster.folder().join("values.yaml");
        live(&Release { helm: &helm, cluster: &cluster, values })
            .map_err(|error| format!("{}: {error}", helm.name()))?;
        cluster.run(["delete", "crd", CRD])?;
    }
    Ok(())
}

fn live(release: &Release<'_>) -> Outcome {
    let chart = chart();
    let notes = release.run(&["install", "kubewarm", &chart, "--wait"], Some(VALUES))?;
    let rbac = format!("kubectl warm rbac sample -n shop --operator-namespace {NAMESPACE}");
    let review = format!("{rbac} --diff\n");
    for command in ["rollout status deployment/kubewarm", &review, "get cprof sample -n shop"] {
        assert!(notes.contains(command), "{notes}");
    }
    assert!(!notes.contains(".status."), "no command applies a status: {notes}");
    let installed = release.profile()?;
    release.write_certificate()?;
    let uid = |profile: &Value| profile.pointer("/metadata/uid").cloned();
    let targets = |profile: &Value| profile["spec"]["targets"].as_array().map(Vec::len);
    assert_eq!(targets(&installed), Some(1));

    // The role `edit` permits changes of profiles, but not of their status.
    let edit = ["update", "cacheprofiles.kubewarm.io"];
    eventually(SOON, || {
        release.jane_may(&edit).then_some(()).ok_or_else(|| "jane cannot update profiles".into())
    })?;
    let status = ["patch", "cacheprofiles.kubewarm.io", "--subresource=status"];
    assert!(!release.jane_may(&status), "a status is the operator's");

    let upgrade = ["upgrade", "kubewarm", &chart, "--wait"];
    release.run(&upgrade, Some(VALUES))?;
    assert_eq!(uid(&release.profile()?), uid(&installed), "nothing of it was changed");
    release.check_certificate()?;
    release.run(&upgrade, Some(&format!("{VALUES}{MORE}")))?;
    let upgraded = release.profile()?;
    release.run(&upgrade, Some(&format!("{VALUES}{MORE}tls: {{names: [warm.example.com]}}\n")))?;
    release.check_certificate()?;
    assert_eq!(targets(&upgraded), Some(2));
    // Helm 4 adopts the profile. Helm 3 cannot change an object that an install created as a hook,
    // so it deletes and creates the profile again.
    assert!(uid(&upgraded) == uid(&installed) || release.helm.name() == "helm-3", "made again");

    // The first revision created the profile as a hook. The rollback to this revision must not
    // delete the profile.
    release.run(&["rollback", "kubewarm", "1", "--wait"], None)?;
    assert_eq!(uid(&release.profile()?), uid(&upgraded));
    release.check_certificate()?;
    release.run(&["uninstall", "kubewarm", "--wait"], None)?;
    assert_eq!(release.left()?, "");
    assert_eq!(uid(&release.profile()?), uid(&upgraded));

    // Installs again while the CRD and the profile, which `uninstall` kept, still exist.
    release.run(&["install", "kubewarm", &chart, "--wait"], Some(VALUES))?;
    let again = release.profile()?;
    assert_eq!(targets(&again), Some(1));
    release.run(&upgrade, Some(VALUES))?;
    assert_eq!(uid(&release.profile()?), uid(&again));
    refuse_to_drop_what_is_stored(release, &upgrade)?;
    release.run(&["uninstall", "kubewarm", "--wait"], None)?;
    Ok(())
}

/// Simulates a later chart: profiles are stored in a version that this chart does not have.
fn refuse_to_drop_what_is_stored(release: &Release<'_>, upgrade: &[&str]) -> Outcome {
    let added = r#"[{"op": "copy", "from": "/spec/versions/0", "path": "/spec/versions/1"},
        {"op": "replace", "path": "/spec/versions/1/name", "value": "v1beta9"},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false}]"#;
    release.cluster.run(["patch", "crd", CRD, "--type=json", "-p", added])?;
    let error = match release.run(upgrade, Some(VALUES)) {
        Ok(output) => format!("accepted: {output}"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("profiles are stored as v1beta9"), "{error}");
    Ok(())
}
