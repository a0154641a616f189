//! The cluster of a run: its replicas, its profiles, and the injection of faults.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use kube::Client;
use kubewarm_client::{ApiServerConnection, ConnectionOptions};
use testbed::Program;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::api::{Served, free_address, peer_flags, write_peer_token};
use crate::collection::COLLECTIONS;
use crate::link::{LinkMode, serve};
use crate::observation::Millis;
use crate::operator::{NAMESPACE, Operator};
use crate::plan::{FaultStep, InjectedFault, REPLICAS};
use crate::profile::Profile;
use crate::recorder::{EtcdRecorder, RunClock};
use crate::request::send;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// The profiles: namespace, name and spec.
const PROFILES: [(&str, &str, &str); 3] = [
    (
        "oracle",
        "bounded",
        "freshness: {maxStalenessSeconds: 10}, targets: [{name: settings, resource: configmaps},
         {name: parts, group: example.com, resource: parts}]",
    ),
    (
        "strict",
        "strict",
        "freshness: {maxStalenessSeconds: 10}, reads: {consistency: Strict},
         targets: [{name: settings, resource: configmaps}]",
    ),
    // A second profile of the first namespace, so that two stores can answer reads of this
    // namespace.
    (
        NAMESPACE,
        "second",
        "freshness: {maxStalenessSeconds: 10}, targets: [{name: settings, resource: configmaps,
         scope: {type: Namespaces, namespaces: [oracle]}}]",
    ),
];

/// The number of writes between a snapshot and its restore. A restarting control plane writes less,
/// so the versions after the restore are lower than before.
const UNDONE: usize = 500;

/// How long the link refuses new connections after it has cut the open ones.
const CUT: Duration = Duration::from_millis(300);

/// A replica and its network.
pub(crate) struct Replica {
    pub(crate) served: Served,
    modes: watch::Sender<LinkMode>,
}

/// The cluster and the replicas.
pub(crate) struct OracleFixture {
    // The replicas are the first field, so that they end before the control plane.
    pub(crate) replicas: Vec<Replica>,
    pub(crate) recorder: EtcdRecorder,
    pub(crate) clock: RunClock,
    /// The administrator at the API server.
    pub(crate) client: Client,
    manifests: String,
    /// For each start of the API server, the time of the start and the time when it was ready.
    pub(crate) restarts: Vec<(Millis, Millis)>,
    pub(crate) world: World,
}

impl OracleFixture {
    /// Starts everything, and waits until all profiles are ready.
    pub(crate) fn start(runtime: &Runtime) -> Result<Self, Failure> {
        let world = World::alone()?;
        world.define_parts()?;
        for namespace in ["oracle", "strict"] {
            world.cluster.run(["create", "namespace", namespace])?;
        }
        Operator::grant_rights(&world)?;
        let clock = RunClock::start();
        let recorder = EtcdRecorder::start(&world.cluster, clock)?;
        let addresses = [free_address()?, free_address()?];
        let replicas =
            (0..REPLICAS).map(|number| Replica::start(&world, runtime, number, &addresses));
        let replicas = replicas.collect::<Result<Vec<_>, _>>()?;
        let mut manifests = Vec::new();
        for (namespace, name, spec) in PROFILES {
            let profile = Profile::apply(&world, namespace, name, &format!("{{{spec}}}"))?;
            profile.await_manifests()?;
            profile.grant()?;
            profile.await_condition("Ready", "True", None, SOON)?;
            let granted = profile.read()?;
            let granted = granted.pointer("/status/access/manifests");
            let granted = granted.and_then(serde_json::Value::as_str).ok_or("no manifests")?;
            manifests.push(granted.to_owned());
        }
        let client =
            ApiServerConnection::load(&ConnectionOptions::of_file(world.cluster.kubeconfig()))?
                .client();
        let manifests = manifests.join("\n---\n");
        Ok(Self { replicas, recorder, clock, client, manifests, restarts: Vec::new(), world })
    }

    /// Injects a fault, waits for its duration, and removes the fault.
    pub(crate) fn inject(&mut self, runtime: &Runtime, step: FaultStep) -> Outcome {
        let lasts = step.lasts;
        match step.fault {
            InjectedFault::CutLink(replica) => {
                self.link(replica, LinkMode::Refuse, CUT);
                sleep(lasts);
            }
            InjectedFault::RefuseLink(replica) => self.link(replica, LinkMode::Refuse, lasts),
            InjectedFault::HoldLink(replica) => self.link(replica, LinkMode::Hold, lasts),
            InjectedFault::SlowLink(replica) => self.link(replica, LinkMode::Slow, lasts),
            InjectedFault::FreezeReplica(replica) => {
                freeze(&self.replicas[replica].served.operator.process, lasts)?;
            }
            InjectedFault::KillReplica(replica) => {
                kill(&self.replicas[replica].served.operator.process, lasts)?;
            }
            InjectedFault::FreezeApiServer => freeze(self.world.cluster.apiserver(), lasts)?,
            InjectedFault::KillApiServer => {
                self.world.cluster.apiserver().kill()?;
                sleep(lasts);
                self.starting(|scene| Ok(scene.world.cluster.apiserver().start()?))?;
            }
            InjectedFault::FreezeEtcd => freeze(self.world.cluster.etcd(), lasts)?,
            InjectedFault::CompactEtcd => self.compact(runtime, lasts)?,
            InjectedFault::RestoreEtcd => drop(self.restore(runtime, lasts)?),
            InjectedFault::RestoreEtcdUnseen => self.restore_unseen(runtime, lasts)?,
            InjectedFault::RevokePermission => {
                let file = self.world.cluster.folder().join("manifests.yaml");
                std::fs::write(&file, &self.manifests)?;
                let file = file.to_string_lossy();
                self.world.cluster.run(["delete", "--filename", &file])?;
                sleep(lasts);
                self.world.cluster.apply(&self.manifests)?;
            }
            InjectedFault::PauseProfile => {
                let (namespace, name, spec) = PROFILES[0];
                let paused = format!("{{mode: Paused, {spec}}}");
                Profile::apply(&self.world, namespace, name, &paused)?;
                sleep(lasts);
                Profile::apply(&self.world, namespace, name, &format!("{{mode: Active, {spec}}}"))?;
            }
        }
        Ok(())
    }

    fn link(&self, replica: usize, mode: LinkMode, lasts: Duration) {
        let modes = &self.replicas[replica].modes;
        modes.send_replace(mode);
        sleep(lasts);
        modes.send_replace(LinkMode::Pass);
    }

    /// Starts the API server and records the time of the start and the time when it was ready.
    fn starting(&mut self, start: impl FnOnce(&Self) -> Outcome) -> Outcome {
        let begin = self.clock.now();
        start(self)?;
        self.restarts.push((begin, self.clock.now()));
        Ok(())
    }

    fn link_all(&self, mode: LinkMode) {
        for replica in &self.replicas {
            replica.modes.send_replace(mode);
        }
    }

    /// Compacts etcd and restarts the API server, so that no watch of kubewarm can resume.
    fn compact(&mut self, runtime: &Runtime, lasts: Duration) -> Outcome {
        self.link_all(LinkMode::Refuse);
        runtime.block_on(self.write_elsewhere(UNDONE));
        sleep(lasts);
        self.world.cluster.compact()?;
        self.starting(|scene| Ok(scene.world.cluster.apiserver().restart()?))?;
        self.link_all(LinkMode::Pass);
        Ok(())
    }

    /// Takes a snapshot, lets writes go on, and restores the snapshot. Returns the last revision
    /// before the restore.
    fn restore(&mut self, runtime: &Runtime, lasts: Duration) -> Result<u64, Failure> {
        let snapshot = self.world.cluster.folder().join("snapshot");
        if snapshot.exists() {
            std::fs::remove_file(&snapshot)?;
        }
        self.world.cluster.snapshot(&snapshot)?;
        let base = Self::snapshot_revision(&snapshot)?;
        runtime.block_on(self.write_elsewhere(UNDONE));
        sleep(lasts);
        self.world.cluster.apiserver().kill()?;
        self.recorder.end_epoch(&self.world.cluster)?;
        // The recorder sees only the versions of the collections. But kubewarm can have received
        // bookmarks with the versions of all kinds, so the test reads etcd's own revision.
        let last = self.world.cluster.etcd_revision()?.parse()?;
        self.starting(|scene| Ok(scene.world.cluster.restore(&snapshot)?))?;
        self.recorder.begin_epoch(&self.world.cluster, base)?;
        Ok(last)
    }

    /// Restores etcd while no replica reaches the API server, writes until the versions are higher
    /// than before, and restarts the replicas.
    fn restore_unseen(&mut self, runtime: &Runtime, lasts: Duration) -> Outcome {
        self.link_all(LinkMode::Refuse);
        let before = self.restore(runtime, lasts)?;
        eventually(SOON, || {
            runtime.block_on(self.write_elsewhere(UNDONE / 10));
            let now: u64 = self.world.cluster.etcd_revision()?.parse()?;
            if now > before { Ok(()) } else { Err(format!("{now} is not above {before}").into()) }
        })?;
        for replica in &self.replicas {
            replica.served.operator.process.kill()?;
        }
        self.link_all(LinkMode::Pass);
        for replica in &self.replicas {
            replica.served.operator.process.start()?;
        }
        Ok(())
    }

    /// The last revision in a snapshot.
    fn snapshot_revision(snapshot: &Path) -> Result<u64, Failure> {
        let mut command = std::process::Command::new(Program::Etcdutl.locate_or_build()?);
        let output =
            command.args(["snapshot", "status", "--write-out=json"]).arg(snapshot).output()?;
        let status: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        Ok(status["revision"].as_u64().ok_or("no revision of the snapshot")?)
    }

    /// Writes objects of a collection that no reader reads, to raise the revision.
    async fn write_elsewhere(&self, writes: usize) {
        for number in 0..writes {
            let object = COLLECTIONS[0].object("elsewhere", &number.to_string());
            let path = "/api/v1/namespaces/default/configmaps";
            let one = format!("{path}/elsewhere");
            let method = if number == 0 { ("POST", path) } else { ("PATCH", &*one) };
            drop(send(&self.client, method, &[], Some(&object)).await);
        }
    }
}

impl Replica {
    /// Starts the replica `number`. The first replica runs with `--forward`. After a restart, each
    /// replica copies the stores of the other one.
    fn start(
        world: &World,
        runtime: &Runtime,
        number: usize,
        addresses: &[String; REPLICAS],
    ) -> Result<Self, Failure> {
        let (modes, receiver) = watch::channel(LinkMode::Pass);
        let kubeconfig = linked(world, runtime, number, receiver)?;
        let pod = |number: usize| format!("kubewarm-{number}");
        let other = (number + 1) % REPLICAS;
        let authority = world.cluster.folder().join(format!("{}.crt", pod(other)));
        let token = write_peer_token(world, NAMESPACE, "kubewarm")?;
        let mut flags = peer_flags(&addresses[other], &authority, &token).to_vec();
        flags.extend((number == 0).then(|| "--forward".to_owned()));
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let address = &addresses[number];
        let served = Served::start_replica_at(world, &pod(number), &kubeconfig, address, &flags)?;
        Ok(Self { served, modes })
    }
}

/// The kubeconfig of a replica that reaches the API server through a link of its own.
fn linked(
    world: &World,
    runtime: &Runtime,
    number: usize,
    modes: watch::Receiver<LinkMode>,
) -> Result<PathBuf, Failure> {
    let server = world.cluster.server_url();
    let upstream: SocketAddr = server.strip_prefix("https://").ok_or("no https")?.parse()?;
    let address = runtime.block_on(serve(upstream, modes))?;
    Operator::kubeconfig_through(world, &format!("link-{number}"), address)
}

fn freeze(process: &testbed::Process, lasts: Duration) -> Outcome {
    process.freeze()?;
    sleep(lasts);
    Ok(process.thaw()?)
}

fn kill(process: &testbed::Process, lasts: Duration) -> Outcome {
    process.kill()?;
    sleep(lasts);
    Ok(process.start()?)
}
