//! The chart, installed on the node.

use std::process::Command;

use parking_lot::Mutex;
use testbed::Helm;

use crate::object::{Pod, condition, text};
use crate::world::{Failure, Outcome, SOON, World, file};

/// Where it is installed.
pub(crate) const NAMESPACE: &str = "kubewarm-system";
/// Its name.
const NAME: &str = "kubewarm";

/// The namespace of the release, which admits only pods that the strictest standard allows; and one for
/// profiles, with something in it to be kept warm.
const SURROUNDINGS: &str = "apiVersion: v1
kind: Namespace
metadata:
  name: kubewarm-system
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: storefront, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: checkout, namespace: shop}}
";

/// Two replicas that keep the `ConfigMaps` of a namespace warm.
pub(crate) const PAIR: &str = "replicaCount: 2
rbac:
  read:
  - {resource: configmaps, namespaces: [shop]}
profiles:
- name: sample
  namespace: shop
  spec:
    targets:
    - name: configmaps
      resource: configmaps
";

/// The values of the release that is installed, by the test that has its turn.
static INSTALLED: Mutex<Option<String>> = Mutex::new(None);

/// Who leads, and since when.
pub(crate) struct Lead {
    /// Another one after each start of a process.
    pub(crate) holder: String,
    pub(crate) since: jiff::Timestamp,
}

impl Lead {
    pub(crate) fn pod(&self) -> &str {
        self.holder.split('_').next().unwrap_or_default()
    }
}

/// The release.
pub(crate) struct Release<'a> {
    world: &'a World,
    helm: &'a Helm,
}

impl<'a> Release<'a> {
    /// By Helm 4.
    fn of(world: &'a World) -> Self {
        let [_, helm] = &world.helms;
        Self { world, helm }
    }

    /// Installs it with these values where nothing of it is, and waits as `helm install --wait` does. With
    /// it comes what Helm said.
    pub(crate) fn anew(world: &'a World, values: &str) -> Result<(Self, String), Failure> {
        Self::anew_by(Self::of(world).helm, world, values)
    }

    /// The same by another Helm.
    pub(crate) fn anew_by(
        helm: &'a Helm,
        world: &'a World,
        values: &str,
    ) -> Result<(Self, String), Failure> {
        let release = Self { world, helm };
        if INSTALLED.lock().is_some() {
            Self::of(world).uninstall()?;
        }
        world.cluster().apply(SURROUNDINGS)?;
        *INSTALLED.lock() = Some(values.to_owned());
        let said = release.run(&["install", NAME], Some(values))?;
        Ok((release, said))
    }

    /// The release with these values, and its sample profile Ready: as an earlier test left it, or made
    /// so.
    pub(crate) fn with(world: &'a World, values: &str) -> Result<Self, Failure> {
        let installed = INSTALLED.lock().clone();
        let release = match installed.as_deref() {
            None => Self::anew(world, values)?.0,
            Some(installed) => {
                let release = Self::of(world);
                if installed != values {
                    *INSTALLED.lock() = Some(values.to_owned());
                    release.run(&["upgrade", NAME], Some(values))?;
                }
                release
            }
        };
        release.await_ready()?;
        Ok(release)
    }

    /// Removes it, and the CRD that it leaves.
    pub(crate) fn uninstall(&self) -> Outcome {
        self.run(&["uninstall", NAME], None)?;
        *INSTALLED.lock() = None;
        self.world.run("delete crd cacheprofiles.kubewarm.io")?;
        Ok(())
    }

    /// Runs Helm and waits for what it does.
    fn run(&self, words: &[&str], values: Option<&str>) -> Result<String, Failure> {
        let mut command = self.helm.command();
        command.args(words).args(["--wait", "--timeout=3m"]);
        if let Some(values) = values {
            let path = self.world.cluster().folder().join("values.yaml");
            std::fs::write(&path, values)?;
            command.arg(file("charts/kubewarm")).arg("--values").arg(path);
            // The tests here read pages of pods by plain requests; tests/chart scrapes as the chart has it.
            command.args(["--set", "metrics.tls.enabled=false,metrics.auth.enabled=false"]);
        }
        self.finish(command)
    }

    /// Runs `helm test`, and returns what it printed: everything has passed.
    pub(crate) fn test_from_within(&self) -> Result<String, Failure> {
        let mut command = self.helm.command();
        command.args(["test", NAME, "--timeout=2m"]);
        let said = self.finish(command)?;
        let phases = said.lines().filter_map(|line| line.strip_prefix("Phase:"));
        let phases: Vec<_> = phases.map(str::trim).collect();
        let is_passed = phases.len() > 1 && phases.iter().all(|phase| *phase == "Succeeded");
        if is_passed { Ok(said) } else { Err(said.into()) }
    }

    /// Runs Helm on the release.
    fn finish(&self, mut command: Command) -> Result<String, Failure> {
        let kubeconfig = self.world.cluster().kubeconfig();
        command.args(["--namespace", NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
        let output = self.world.node.command(&command).output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        // Helm writes there what the pods of a hook printed.
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(format!("{stdout}{stderr}"));
        }
        let pods = self.world.run(&format!("describe pods --namespace={NAMESPACE}"))?;
        Err(format!("{command:?} failed:\n{stdout}{stderr}\n{pods}").into())
    }

    /// Its pods that are not on their way out, by name.
    pub(crate) fn pods(&self) -> Result<Vec<Pod>, Failure> {
        // Those of tests from within are none of its Deployment's.
        let selector = format!("--selector=app.kubernetes.io/instance={NAME},pod-template-hash");
        let found = self.world.list(&format!("pods --namespace={NAMESPACE} {selector}"))?;
        let stays = found.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let mut pods: Vec<_> = stays.map(Pod::of).collect();
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pods)
    }

    /// Waits until the sample profile is Ready for its newest generation.
    pub(crate) fn await_ready(&self) -> Outcome {
        self.world.await_that("cprof sample --namespace=shop", SOON, |profile| {
            condition(profile, "Ready") == "True"
                && profile.pointer("/status/observedGeneration")
                    == profile.pointer("/metadata/generation")
        })?;
        Ok(())
    }

    /// Who writes the statuses, by the lease.
    pub(crate) fn lead(&self) -> Result<Lead, Failure> {
        let lease = self.world.get(&format!("lease kubewarm --namespace={NAMESPACE}"))?;
        let holder = text(&lease, "/spec/holderIdentity").to_owned();
        if holder.is_empty() {
            return Err(format!("nobody leads: {lease:#}").into());
        }
        Ok(Lead { holder, since: text(&lease, "/spec/acquireTime").parse()? })
    }

    /// The name of the pod that writes the statuses.
    pub(crate) fn leader(&self) -> Result<String, Failure> {
        Ok(self.lead()?.pod().to_owned())
    }

    /// A page of a pod.
    pub(crate) fn ask(&self, pod: &Pod, path: &str) -> Result<(u16, String), Failure> {
        self.world.ask(&format!("{}:9090", pod.address), path)
    }

    /// The sum of the series of a pod whose name and labels hold these words.
    pub(crate) fn sum(&self, pod: &Pod, words: &[&str]) -> Result<f64, Failure> {
        let (_, page) = self.ask(pod, "/metrics")?;
        let lines = page.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Whether a pod is warm: it says so, and holds what the sample profile asks for.
    pub(crate) fn is_warm(&self, pod: &Pod) -> bool {
        self.ask(pod, "/readyz").is_ok_and(|(code, _)| code == 200)
            && self
                .sum(pod, &["kubewarm_objects{", r#"resource="configmaps""#])
                .is_ok_and(|objects| objects > 1.5)
    }
}
