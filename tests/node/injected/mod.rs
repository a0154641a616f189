//! Real programs that `kubewarm inject` lets read from kubewarm. They do their work while kubewarm
//! and the API server restart.

pub(crate) mod audit;
pub(crate) mod clients;
mod sealed_secrets;

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use testbed::eventually;

use crate::object::Pod;
use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON};

/// The duration for which the API server is away.
const OUTAGE: Duration = Duration::from_secs(3);

/// A workload that can be injected, with a ServiceAccount of the same name.
pub(crate) struct InjectedWorkload<'a> {
    pub(crate) world: &'a NodeWorld,
    /// For instance `deployment/watcher`.
    pub(crate) workload: &'static str,
    pub(crate) namespace: &'static str,
}

impl InjectedWorkload<'_> {
    fn name(&self) -> &'static str {
        self.workload.split_once('/').map_or(self.workload, |(_, name)| name)
    }

    /// The user name of its ServiceAccount.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name())
    }

    /// Waits until all its pods are new and ready.
    pub(crate) fn await_rollout(&self) -> Outcome {
        let Self { workload, namespace, .. } = self;
        self.world
            .run(&format!("rollout status {workload} --namespace={namespace} --timeout=600s"))?;
        Ok(())
    }

    /// Injects it and waits for new pods. Returns what the command printed.
    pub(crate) fn inject(&self, options: &str) -> Result<String, Failure> {
        let command = format!(
            "inject {} --operator-namespace {NAMESPACE} --apply --yes {options}",
            self.workload
        );
        let printed = kubewarm(self.world, self.namespace, &command)?;
        assert!(printed.contains("kubewarm served "), "{printed}");
        self.await_rollout()?;
        Ok(printed)
    }

    /// Its only pod that is not being deleted.
    pub(crate) fn pod(&self) -> Result<Pod, Failure> {
        let (namespace, name) = (self.namespace, self.name());
        eventually(SOON, || {
            let pods =
                self.world.list(&format!("pods --namespace={namespace} --selector=app={name}"))?;
            let mut stay = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
            let (Some(pod), None) = (stay.next(), stay.next()) else {
                return Err(format!("not one pod of {name}").into());
            };
            Ok(Pod::of(pod))
        })
    }

    /// The resident memory of its only process.
    pub(crate) fn memory_mib(&self) -> Result<u64, Failure> {
        let kib = self.world.node.resident_kib(&self.pod()?.container)?;
        if kib > 0 { Ok(kib >> 10) } else { Err("no resident memory".into()) }
    }
}

/// The release that injected pods need.
pub(crate) fn injecting_release(world: &NodeWorld) -> Result<NodeRelease<'_>, Failure> {
    let values = format!("readApi: {{forward: true}}\ninject: {{enabled: true}}\n{PAIR}");
    let release = NodeRelease::with(world, &values)?;
    release.await_ready()?;
    Ok(release)
}

/// Runs `kubewarm COMMAND -n NAMESPACE` and returns what it printed, also to standard error.
pub(crate) fn kubewarm(
    world: &NodeWorld,
    namespace: &str,
    command: &str,
) -> Result<String, Failure> {
    let mut process = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    process.args(command.split_whitespace());
    process.args(["-n", namespace, "--kubeconfig"]).arg(world.cluster().kubeconfig());
    let output = world.node.command(&process).output()?;
    let printed =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let printed = printed.concat();
    if output.status.success() { Ok(printed) } else { Err(printed.into()) }
}

/// The lists and watches of a user that kubewarm's replicas served.
pub(crate) fn served(world: &NodeWorld, user: &str) -> Result<u64, Failure> {
    let mut process = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    process.args(["forwarded", "-o", "json", "--operator-namespace", NAMESPACE, "--kubeconfig"]);
    process.arg(world.cluster().kubeconfig());
    let report: Value = serde_json::from_slice(&world.node.command(&process).output()?.stdout)?;
    let entry = report["served"].get(user).and_then(Value::as_u64);
    entry.ok_or_else(|| format!("no {user} in {report:#}").into())
}

/// Replaces kubewarm's pods one after the other.
pub(crate) fn roll_kubewarm(world: &NodeWorld) -> Outcome {
    let deployment = format!("deployment/kubewarm --namespace={NAMESPACE}");
    world.run(&format!("rollout restart {deployment}"))?;
    world.run(&format!("rollout status {deployment} --timeout=600s"))?;
    Ok(())
}

/// Kills all kubewarm containers at once, and waits until the kubelet has replaced them.
pub(crate) fn kill_kubewarm(world: &NodeWorld, release: &NodeRelease<'_>) -> Outcome {
    let killed = release.pods()?;
    for pod in &killed {
        world.node.kill_container(&pod.container)?;
    }
    eventually(SOON, || {
        let pods = release.pods()?;
        let is_new = |pod: &Pod| killed.iter().all(|old| old.container != pod.container);
        if pods.len() == killed.len() && pods.iter().all(|pod| pod.is_ready && is_new(pod)) {
            Ok(())
        } else {
            Err(format!("{pods:?}").into())
        }
    })
}

/// Kills the API server and starts it again after [`OUTAGE`].
pub(crate) fn restart_apiserver(world: &NodeWorld) -> Outcome {
    world.cluster().apiserver().kill()?;
    // Programs must meet an API server that is away.
    sleep(OUTAGE);
    world.cluster().apiserver().start()?;
    Ok(())
}
