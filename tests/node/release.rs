//! The chart as a release on the node.

use std::process::Command;

use parking_lot::Mutex;
use testbed::{Helm, Process, eventually};

use crate::object::{Pod, condition, text};
use crate::world::{Failure, NodeWorld, Outcome, SOON, file};

/// The namespace of the release.
pub(crate) const NAMESPACE: &str = "kubewarm-system";
/// The name of the release.
const NAME: &str = "kubewarm";

/// The namespace of the release, which admits only pods of the restricted standard, and a namespace
/// for profiles with objects to cache.
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

/// Values for two replicas that keep the `ConfigMaps` of a namespace warm.
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

/// The values of the release that is installed now. The test that holds the lock sets them.
static INSTALLED: Mutex<Option<String>> = Mutex::new(None);

/// The holder of the lease, and since when it leads.
pub(crate) struct Lead {
    /// The identity of the process that holds the lease. It is new after each start of a process.
    pub(crate) holder: String,
    pub(crate) since: jiff::Timestamp,
}

impl Lead {
    pub(crate) fn pod(&self) -> &str {
        self.holder.split('_').next().unwrap_or_default()
    }
}

/// The release.
pub(crate) struct NodeRelease<'a> {
    world: &'a NodeWorld,
    helm: &'a Helm,
}

impl<'a> NodeRelease<'a> {
    /// The release, managed by Helm 4.
    fn of(world: &'a NodeWorld) -> Self {
        let [_, helm] = &world.helms;
        Self { world, helm }
    }

    /// Uninstalls an earlier release, installs a new one with these values and waits like
    /// `helm install --wait`. Also returns Helm's output.
    pub(crate) fn reinstall(world: &'a NodeWorld, values: &str) -> Result<(Self, String), Failure> {
        Self::reinstall_with(Self::of(world).helm, world, values)
    }

    /// Like [`Self::reinstall`], with a given version of Helm.
    pub(crate) fn reinstall_with(
        helm: &'a Helm,
        world: &'a NodeWorld,
        values: &str,
    ) -> Result<(Self, String), Failure> {
        let release = Self { world, helm };
        Self::uninstall_earlier(world)?;
        world.cluster().apply(SURROUNDINGS)?;
        *INSTALLED.lock() = Some(values.to_owned());
        let output = release.run(&["install", NAME], Some(values))?;
        Ok((release, output))
    }

    /// The release with these values and a Ready sample profile. A release of an earlier test is
    /// upgraded if its values differ.
    pub(crate) fn with(world: &'a NodeWorld, values: &str) -> Result<Self, Failure> {
        let installed = INSTALLED.lock().clone();
        let release = match installed.as_deref() {
            None => Self::reinstall(world, values)?.0,
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

    /// Uninstalls the release of an earlier test, if there is one.
    pub(crate) fn uninstall_earlier(world: &'a NodeWorld) -> Outcome {
        if INSTALLED.lock().is_some() {
            Self::of(world).uninstall()?;
        }
        Ok(())
    }

    /// Uninstalls the release and deletes the CRD, which Helm keeps.
    pub(crate) fn uninstall(&self) -> Outcome {
        self.run(&["uninstall", NAME], None)?;
        *INSTALLED.lock() = None;
        self.world.run("delete crd cacheprofiles.kubewarm.io")?;
        self.await_no_pods()
    }

    /// Waits until the garbage collector has deleted the pods. Helm waits only until the Deployment
    /// is gone. After a restart of the API server, the controller manager's informers pause up to
    /// 30 s before their next list. A Deployment that is deleted and created again in this pause
    /// looks like an update to them, and then nobody deletes the old pods.
    fn await_no_pods(&self) -> Outcome {
        let are_gone = eventually(SOON, || match self.pods()? {
            pods if pods.is_empty() => Ok(()),
            pods => Err(Failure::from(format!("{pods:?}"))),
        });
        are_gone.map_err(|error| {
            let manager = self.world.cluster().controller_manager();
            let log = manager.map(Process::log).unwrap_or_default();
            let lines: Vec<_> = log.lines().filter(|line| line.contains("garbage")).collect();
            let last = &lines[lines.len().saturating_sub(40)..];
            format!("{error}\nthe garbage collector's log:\n{}", last.join("\n")).into()
        })
    }

    /// Runs Helm and waits for the result in the cluster.
    fn run(&self, words: &[&str], values: Option<&str>) -> Result<String, Failure> {
        let mut command = self.helm.command();
        command.args(words).args(["--wait", "--timeout=3m"]);
        if let Some(values) = values {
            let path = self.world.cluster().folder().join("values.yaml");
            std::fs::write(&path, values)?;
            command.arg(file("charts/kubewarm")).arg("--values").arg(path);
            // In these tests, the admin port has no TLS and no authentication, because they read
            // its pages with plain requests. tests/chart scrapes with TLS and tokens.
            command.args(["--set", "metrics.tls.enabled=false,metrics.auth.enabled=false"]);
        }
        self.finish(command)
    }

    /// Runs `helm test`, which must pass, and returns its output.
    pub(crate) fn test_from_within(&self) -> Result<String, Failure> {
        let mut command = self.helm.command();
        command.args(["test", NAME, "--timeout=2m"]);
        let output = self.finish(command)?;
        let phases = output.lines().filter_map(|line| line.strip_prefix("Phase:"));
        let phases: Vec<_> = phases.map(str::trim).collect();
        let is_passed = phases.len() > 1 && phases.iter().all(|phase| *phase == "Succeeded");
        if is_passed { Ok(output) } else { Err(output.into()) }
    }

    /// Runs Helm on the release.
    fn finish(&self, mut command: Command) -> Result<String, Failure> {
        let kubeconfig = self.world.cluster().kubeconfig();
        command.args(["--namespace", NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
        let output = self.world.node.command(&command).output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        // Helm prints the output of a hook's pods to standard error.
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(format!("{stdout}{stderr}"));
        }
        let pods = self.world.run(&format!("describe pods --namespace={NAMESPACE}"))?;
        Err(format!("{command:?} failed:\n{stdout}{stderr}\n{pods}").into())
    }

    /// The pods of the release's Deployment that are not being deleted, by name.
    pub(crate) fn pods(&self) -> Result<Vec<Pod>, Failure> {
        // This selector excludes the pods of `helm test`, which have no such hash.
        let selector = format!("--selector=app.kubernetes.io/instance={NAME},pod-template-hash");
        let objects = self.world.list(&format!("pods --namespace={NAMESPACE} {selector}"))?;
        let stays = objects.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let mut pods: Vec<_> = stays.map(Pod::of).collect();
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pods)
    }

    /// Waits until the sample profile is Ready in its newest generation.
    pub(crate) fn await_ready(&self) -> Outcome {
        self.world.await_that("cprof sample --namespace=shop", SOON, |profile| {
            condition(profile, "Ready") == "True"
                && profile.pointer("/status/observedGeneration")
                    == profile.pointer("/metadata/generation")
        })?;
        Ok(())
    }

    /// The leader, read from the lease.
    pub(crate) fn lead(&self) -> Result<Lead, Failure> {
        let lease = self.world.get(&format!("lease kubewarm --namespace={NAMESPACE}"))?;
        let holder = text(&lease, "/spec/holderIdentity").to_owned();
        if holder.is_empty() {
            return Err(format!("no leader: {lease:#}").into());
        }
        Ok(Lead { holder, since: text(&lease, "/spec/acquireTime").parse()? })
    }

    /// The name of the leader's pod.
    pub(crate) fn leader(&self) -> Result<String, Failure> {
        Ok(self.lead()?.pod().to_owned())
    }

    /// Reads a page of a pod's admin server.
    pub(crate) fn ask(&self, pod: &Pod, path: &str) -> Result<(u16, String), Failure> {
        self.world.ask(&format!("{}:9090", pod.address), path)
    }

    /// The sum of a pod's series whose name and labels contain these words.
    pub(crate) fn sum(&self, pod: &Pod, words: &[&str]) -> Result<f64, Failure> {
        let (_, page) = self.ask(pod, "/metrics")?;
        let lines = page.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Whether `/readyz` succeeds and the pod's store contains the objects of the sample profile.
    pub(crate) fn is_warm(&self, pod: &Pod) -> bool {
        self.ask(pod, "/readyz").is_ok_and(|(code, _)| code == 200)
            && self
                .sum(pod, &["kubewarm_objects{", r#"resource="configmaps""#])
                .is_ok_and(|objects| objects > 1.5)
    }
}
