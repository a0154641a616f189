//! Clients with only their in-cluster configuration: some create objects and read them back, and
//! controller-runtime makes a Secret of each of them.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use testbed::{GoClients, GoExample, eventually};

use super::audit::{AuditMark, RequestTally, assert_created_once, assert_no_reads, requests};
use super::{
    InjectedWorkload, injecting_release, kill_kubewarm, restart_apiserver, roll_kubewarm, served,
};
use crate::account::service_account;
use crate::object::{Pod, text};
use crate::release::NodeRelease;
use crate::world::{Failure, NodeWorld, Outcome, SOON, file, report};

/// A client.
const CLIENT: &str = "---
apiVersion: apps/v1
kind: Deployment
metadata: {name: CLIENT, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: CLIENT}}
  # Two writers of one name would meet each other's objects.
  strategy: {type: Recreate}
  template: {metadata: {labels: {app: CLIENT}}, spec: SPEC}
";
/// The permissions of a writer.
pub(crate) const WRITER_RULES: &str =
    "[{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch, create]}]";
/// The permissions of `examples/controller-runtime`.
const CONTROLLER_RULES: &str = "
- {apiGroups: [''], resources: [configmaps], verbs: [get, list, watch]}
- {apiGroups: [''], resources: [secrets], verbs: [get, list, watch, create, update]}
- {apiGroups: [''], resources: [events], verbs: [create, patch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}";
/// The number of objects that each writer creates in each step.
const BATCH: usize = 10;

/// A program that runs in a pod.
pub(crate) struct ClientPod {
    /// For instance `deployment/client-go`.
    pub(crate) workload: &'static str,
    pub(crate) rules: &'static str,
    /// The spec of the pod without its ServiceAccount.
    pub(crate) spec: Value,
}

impl ClientPod {
    /// A program of an image with only this program.
    fn of_program(
        world: &NodeWorld,
        workload: &'static str,
        rules: &'static str,
        (program, args): (PathBuf, &[&str]),
    ) -> Result<Self, Failure> {
        let name = workload.rsplit('/').next().unwrap_or_default();
        let image = world.node.import_program(name, &program)?;
        let container = json!({"name": "program", "image": image, "args": args});
        Ok(Self { workload, rules, spec: json!({"containers": [container]}) })
    }

    /// The writers with client-go and with kube-rs.
    pub(crate) fn go_and_rust(world: &NodeWorld) -> Result<[Self; 2], Failure> {
        let client_go = (GoClients::locate_or_build()?.program("writer"), &["client-go"][..]);
        let kube_rs = (build_writer()?, &["kube-rs"][..]);
        Ok([
            Self::of_program(world, "deployment/client-go", WRITER_RULES, client_go)?,
            Self::of_program(world, "deployment/kube-rs", WRITER_RULES, kube_rs)?,
        ])
    }

    /// `examples/controller-runtime` in this namespace.
    fn controller(world: &NodeWorld, namespace: &str) -> Result<Self, Failure> {
        let namespace = format!("-namespace={namespace}");
        // With an empty kubeconfig, it reads by its in-cluster configuration too.
        let args = ["-secrets=owned", &namespace, ""];
        let program = (GoExample::ControllerRuntime.locate_or_build()?, &args[..]);
        Self::of_program(world, "deployment/controller-runtime", CONTROLLER_RULES, program)
    }

    fn manifests(&self, namespace: &str) -> String {
        let name = self.workload.rsplit('/').next().unwrap_or_default();
        let mut spec = self.spec.clone();
        spec["serviceAccountName"] = name.into();
        spec["terminationGracePeriodSeconds"] = 1.into();
        let client = CLIENT
            .replace("CLIENT", name)
            .replace("NAMESPACE", namespace)
            .replace("SPEC", &spec.to_string());
        service_account(namespace, name, self.rules) + &client
    }
}

/// Builds the writer with kube-rs, and returns the path of its program.
fn build_writer() -> Result<PathBuf, Failure> {
    // Builds the example for the whole workspace. For one package alone, Cargo would build the
    // libraries again.
    let build = ["build", "--locked", "--quiet", "--workspace", "--example", "writer"];
    let done = Command::new(env!("CARGO")).args(build).current_dir(file(".")).status()?;
    assert!(done.success(), "the writer for kube-rs does not build");
    let this = env::current_exe()?;
    let folder = this.ancestors().nth(2).ok_or("a test has no folder")?;
    Ok(folder.join("examples/writer"))
}

/// What a writer has printed last.
#[derive(Debug)]
struct WriterProgress {
    count: usize,
    stale: usize,
}

/// Writers and the controller, in a namespace of their own.
pub(crate) struct ClientWorkloads<'a> {
    pub(crate) world: &'a NodeWorld,
    pub(crate) namespace: &'static str,
    writers: Vec<InjectedWorkload<'a>>,
    controller: InjectedWorkload<'a>,
    begin: AuditMark,
}

impl<'a> ClientWorkloads<'a> {
    pub(crate) fn start(
        world: &'a NodeWorld,
        namespace: &'static str,
        writers: &[ClientPod],
    ) -> Result<Self, Failure> {
        let begin = AuditMark::now(world)?;
        let controller = ClientPod::controller(world, namespace)?;
        world.run(&format!("create namespace {namespace}"))?;
        for pod in writers.iter().chain([&controller]) {
            world.cluster().apply(&pod.manifests(namespace))?;
        }
        let workload =
            |pod: &ClientPod| InjectedWorkload { world, workload: pod.workload, namespace };
        let clients = Self {
            world,
            namespace,
            writers: writers.iter().map(workload).collect(),
            controller: workload(&controller),
            begin,
        };
        clients.each(InjectedWorkload::await_rollout)?;
        Ok(clients)
    }

    pub(crate) fn each(&self, visit: impl Fn(&InjectedWorkload<'a>) -> Outcome) -> Outcome {
        self.writers.iter().chain([&self.controller]).try_for_each(visit)
    }

    /// The user names of all clients start like this.
    fn users(&self) -> String {
        format!("system:serviceaccount:{}:", self.namespace)
    }

    /// What each writer has printed last.
    fn progress(&self) -> Result<Vec<WriterProgress>, Failure> {
        let progress = |writer: &InjectedWorkload<'_>| -> Result<WriterProgress, Failure> {
            let pod = writer.pod()?.name;
            let log = self.world.run(&format!("logs {pod} --namespace={}", self.namespace))?;
            let numbers = log.lines().rev().find_map(|line| {
                let (count, stale) = line.split_once(' ')?;
                Some(WriterProgress { count: count.parse().ok()?, stale: stale.parse().ok()? })
            });
            numbers.ok_or_else(|| format!("{}: {log}", writer.workload).into())
        };
        self.writers.iter().map(progress).collect()
    }

    /// Waits until each writer has created [`BATCH`] more objects and read them back.
    pub(crate) fn await_batch(&self) -> Outcome {
        let begin = eventually(SOON, || self.progress())?;
        eventually(SOON, || {
            let now = self.progress()?;
            let is_done = begin.iter().zip(&now).all(|(old, new)| new.count >= old.count + BATCH);
            if is_done { Ok(()) } else { Err(format!("{now:?}").into()) }
        })
    }

    /// Rolls and kills kubewarm, and restarts the API server. After each, the writers go on.
    pub(crate) fn work_through_restarts(&self, release: &NodeRelease<'_>) -> Outcome {
        roll_kubewarm(self.world)?;
        self.await_batch()?;
        kill_kubewarm(self.world, release)?;
        self.await_batch()?;
        restart_apiserver(self.world)?;
        self.await_batch()
    }

    /// The pods of the writers.
    pub(crate) fn writer_pods(&self) -> Result<Vec<Pod>, Failure> {
        self.writers.iter().map(InjectedWorkload::pod).collect()
    }

    fn report(&self, step: &str, since: AuditMark) -> Outcome {
        self.each(|client| {
            let tally = RequestTally::of(&requests(self.world, &client.user(), since)?);
            let memory = client.memory_mib()?;
            Ok(report(&format!("{} {step}: {memory} MiB: {tally}", client.workload))?)
        })
    }

    /// Injects all clients, and checks that kubewarm then serves all their reads.
    pub(crate) fn inject(&self) -> Outcome {
        self.await_batch()?;
        self.report("directly", self.begin)?;
        self.each(|client| client.inject("").map(drop))?;
        let mark = AuditMark::now(self.world)?;
        self.await_batch()?;
        self.report("injected", mark)?;
        self.each(|client| {
            let count = served(self.world, &client.user())?;
            Ok(report(&format!("{}: {count} served by kubewarm", client.workload))?)
        })?;
        assert_no_reads(&requests(self.world, &self.users(), mark)?);
        for progress in self.progress()? {
            assert_eq!(progress.stale, 0, "each list contained the client's own writes");
        }
        Ok(())
    }

    fn names(&self, what: &str) -> Result<BTreeSet<String>, Failure> {
        let objects = self.world.list(&format!("{what} --namespace={}", self.namespace))?;
        let name = |object: &Value| text(object, "/metadata/name").to_owned();
        Ok(objects.iter().map(name).collect())
    }

    /// Ends the writers, and checks that no object is missing or was created twice. Returns a
    /// summary.
    pub(crate) fn check_objects(&self) -> Result<String, Failure> {
        let (world, namespace) = (self.world, self.namespace);
        let progress = self.progress()?;
        let mut names = BTreeSet::new();
        for (writer, progress) in self.writers.iter().zip(&progress) {
            world
                .run(&format!("scale {} --replicas=0 --namespace={namespace}", writer.workload))?;
            let pods = format!("pods --namespace={namespace} --selector=app={}", writer.name());
            eventually(SOON, || {
                if world.list(&pods)?.is_empty() { Ok(()) } else { Err("the writer runs".into()) }
            })?;
            let written = self.names(&format!("configmaps --selector=writer={}", writer.name()))?;
            assert!(written.len() >= progress.count, "{written:?}, {progress:?}");
            let expected = (0..written.len()).map(|number| format!("{}-{number}", writer.name()));
            assert_eq!(written, expected.collect(), "no number is missing");
            names.extend(written);
        }
        eventually(SOON, || {
            let secrets = self.names("secrets")?;
            if secrets == names { Ok(()) } else { Err(format!("{secrets:?}").into()) }
        })?;
        let all = requests(world, &self.users(), self.begin)?;
        assert_created_once(&all, "configmaps", names.iter().cloned());
        assert_created_once(&all, "secrets", names.iter().cloned());
        let restarts = self.controller.pod()?.restarts;
        Ok(format!(
            "{} objects of {progress:?}; {restarts} restarts of the controller",
            names.len()
        ))
    }

    pub(crate) fn delete(&self) -> Outcome {
        let namespace = self.namespace;
        self.world.run(&format!("delete cacheprofiles --all --namespace={namespace}"))?;
        self.world.run(&format!("delete namespace {namespace} --wait=false"))?;
        Ok(())
    }
}

#[test]
fn injected_clients_read_their_own_writes_while_servers_restart() -> Outcome {
    let test = "injected_clients_read_their_own_writes_while_servers_restart";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let world = &world;
    let release = injecting_release(world)?;
    let clients = ClientWorkloads::start(world, "forge", &ClientPod::go_and_rust(world)?)?;
    clients.inject()?;
    let pods = clients.writer_pods()?;
    clients.work_through_restarts(&release)?;

    assert_eq!(clients.writer_pods()?, pods, "no writer ended");
    report(&format!("{test}: {}", clients.check_objects()?))?;
    clients.delete()
}
