//! A node that runs real pods, together with its control plane.

mod namespaces;
mod program_image;
mod settings;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::components::{self, flag};
use crate::control_plane::ControlPlane;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::module::Module;
use crate::process::{Probe, Process, Recipe, run};
use crate::program::{KUBERNETES_VERSION, linker_flags};
use crate::prometheus::Prometheus;

pub(crate) use namespaces::Entrance;
pub(crate) use settings::ADDRESS;

use namespaces::Namespaces;
use program_image::PAUSE_IMAGE;
use settings::{Files, NAME};

/// The files of the Go module, relative to `tests/kubenode`.
const MODULE: [(&str, &str); 4] = [
    ("go.mod", include_str!("../../../kubenode/go.mod")),
    ("go.sum", include_str!("../../../kubenode/go.sum")),
    ("cmd/kubenode/main.go", include_str!("../../../kubenode/cmd/kubenode/main.go")),
    ("cmd/pause/main.go", include_str!("../../../kubenode/cmd/pause/main.go")),
];

/// Each program, and the Go package that it is built from.
const PROGRAMS: [(&str, &str); 2] = [("kubenode", "./cmd/kubenode"), ("pause", "./cmd/pause")];

/// Programs that are not built, and the Debian package of each.
const INSTALLED: [(&str, &str); 5] = [
    ("containerd", "install Debian's package containerd"),
    ("/usr/lib/cni/bridge", "install Debian's package containernetworking-plugins"),
    ("runc", "install Debian's package runc"),
    ("iptables", "install Debian's package iptables"),
    ("ip", "install Debian's package iproute2"),
];

/// A control plane with one node: containerd, kubelet, kube-proxy and kube-scheduler. All run in
/// their own Linux namespaces, so that their ports, mounts and processes are separate from the
/// host. They end when this value is dropped.
// The order of the fields is the order in which they are dropped: the processes end with the
// namespaces, then the control plane removes the folder and the cgroups.
pub struct Node {
    _namespaces: Namespaces,
    _processes: Vec<Process>,
    entrance: Entrance,
    cluster: ControlPlane,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Node {
    /// Starts a node and waits until it is Ready and Services answer. It needs root.
    ///
    /// # Errors
    /// When a program is missing, cannot be built or does not start.
    ///
    /// # Cost
    /// About 10 s and 600 MB of memory. The first build takes 3 minutes on two cores after the
    /// control plane's, and 120 MB in the cache.
    pub fn start() -> Result<Self> {
        check_installed()?;
        let programs = Module {
            name: "kubenode",
            title: &format!("the kubelet {KUBERNETES_VERSION}"),
            files: &MODULE,
            programs: &PROGRAMS,
            flags: &linker_flags(KUBERNETES_VERSION),
        }
        .locate_or_build()?;

        // The node needs an audit log, because only the audit log shows which pod sent a request.
        let builder = ControlPlane::builder().with_controller_manager().with_audit_log();
        let home = builder.home()?;
        let layout = home.layout.clone();
        let namespaces = Namespaces::start(&layout, ADDRESS, &programs.join("pause"))?;
        let entrance = namespaces.entrance()?;
        let builder = builder.with_apiserver_args(apiserver(&layout));
        let cluster = builder.start_in(home, Some(&entrance))?;
        let processes = start(&programs, &layout, &entrance, &cluster)?;
        Ok(Self { _namespaces: namespaces, _processes: processes, entrance, cluster })
    }

    /// The control plane of this node. Its `kubectl` works on the node's network.
    #[must_use]
    pub fn cluster(&self) -> &ControlPlane {
        &self.cluster
    }

    /// Imports the images of an archive, so that pods can use them.
    ///
    /// # Errors
    /// When containerd rejects the archive.
    pub fn import(&self, archive: &Path) -> Result<()> {
        ctr(&self.entrance, &["images", "import"], archive).map(drop)
    }

    /// Imports an image of one program, with its shared libraries if it is not static. Returns the
    /// name of the image, whose entry point is the program.
    ///
    /// # Errors
    /// When the program cannot be read, or containerd rejects the image.
    pub fn import_program(&self, name: &str, program: &Path) -> Result<String> {
        let image = format!("localhost/{name}:node");
        let folder = self.cluster.layout().root().join("node/images").join(name);
        self.import(&program_image::pack(program, &image, &folder)?)?;
        Ok(image)
    }

    /// The same command, but on the node's network. For instance, Helm needs this to reach the API
    /// server.
    #[must_use]
    pub fn command(&self, command: &Command) -> Command {
        let mut entering = self.entrance.network_command(command.get_program());
        entering.args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => entering.env(key, value),
                None => entering.env_remove(key),
            };
        }
        entering
    }

    /// Runs `work` on the node's network: its connections reach pods and Services.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn on_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.entrance.on_network(work)
    }

    /// Starts a Prometheus server with this configuration on the node's network.
    ///
    /// # Errors
    /// As [`ControlPlane::prometheus`].
    pub fn prometheus(&self, config: &Value) -> Result<Prometheus> {
        Prometheus::start(&self.cluster, Some(&self.entrance), config)
    }

    /// Sends SIGKILL to the first process of a container, from outside.
    ///
    /// # Errors
    /// When the container does not exist, or does not run.
    pub fn kill_container(&self, id: &str) -> Result<()> {
        self.signal_container("SIGKILL", id)
    }

    /// Sends SIGSTOP to the first process of a container. Its connections stay open and silent.
    ///
    /// # Errors
    /// As [`Self::kill_container`].
    pub fn freeze_container(&self, id: &str) -> Result<()> {
        self.signal_container("SIGSTOP", id)
    }

    /// Sends SIGCONT to the first process of a frozen container.
    ///
    /// # Errors
    /// As [`Self::kill_container`].
    pub fn thaw_container(&self, id: &str) -> Result<()> {
        self.signal_container("SIGCONT", id)
    }

    /// The resident memory of the first process of a container, in KiB.
    ///
    /// # Errors
    /// When the container does not run.
    pub fn resident_kib(&self, id: &str) -> Result<u64> {
        let tasks = ctr(&self.entrance, &["tasks", "list"], "")?;
        let process =
            tasks.lines().find_map(|line| line.strip_prefix(id)?.split_whitespace().next());
        let process = process.unwrap_or_default();
        let status = run(self.entrance.command("cat").arg(format!("/proc/{process}/status")))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        Ok(number.unwrap_or_default())
    }

    fn signal_container(&self, signal: &str, id: &str) -> Result<()> {
        ctr(&self.entrance, &["tasks", "kill", "--signal", signal], id).map(drop)
    }
}

/// Starts the processes of the node, in this order.
fn start(
    programs: &Path,
    layout: &Layout,
    entrance: &Entrance,
    cluster: &ControlPlane,
) -> Result<Vec<Process>> {
    let files = Files::write(layout, cluster.kubeconfig())?;
    let start = |name: &str, command: &Command, ready: Probe| {
        let process = Process::new(Recipe::new(name, command, layout), ready);
        process.start().map(|()| process)
    };
    let component = |name: &str, args: Vec<OsString>, ready| {
        let mut command = entrance.command(programs.join("kubenode"));
        start(name, command.arg(name).args(args), ready)
    };

    let at = entrance.clone();
    let containerd = start(
        "containerd",
        entrance.command("containerd").arg("--config").arg(files.containerd),
        Box::new(move || ctr(&at, &["version"], "").is_ok()),
    )?;
    // This image is imported before the kubelet starts, because the kubelet needs it for each pod.
    let folder = layout.root().join("node/pause");
    let pause = program_image::pack(&programs.join("pause"), PAUSE_IMAGE, &folder)?;
    ctr(entrance, &["images", "import"], &pause)?;

    let scheduler = vec![
        flag("--kubeconfig", cluster.kubeconfig()),
        "--leader-elect=false".into(),
        // No test sends a request to the scheduler.
        "--secure-port=0".into(),
    ];
    let scheduler = component("kube-scheduler", scheduler, Box::new(|| true))?;
    let user = cluster.user_kubeconfig(&format!("system:node:{NAME}"), Some("system:nodes"))?;
    let kubelet = vec![
        flag("--config", files.kubelet),
        flag("--kubeconfig", user),
        flag("--hostname-override", NAME),
        flag("--node-ip", ADDRESS.to_string()),
    ];
    let is_ready = ["wait", "--for=condition=Ready", "--timeout=1s", "node", NAME];
    let kubelet = component("kubelet", kubelet, cluster.probe(is_ready))?;
    let by_service = format!("--server=https://{}", components::SERVICE_ADDRESS);
    let answers = [by_service, "get".to_owned(), "--raw=/readyz".to_owned()];
    let proxy = vec![flag("--config", files.proxy)];
    let proxy = component("kube-proxy", proxy, cluster.probe(answers))?;
    Ok(vec![proxy, kubelet, scheduler, containerd])
}

/// Runs `ctr` on images or containers of pods.
fn ctr(entrance: &Entrance, action: &[&str], object: impl AsRef<OsStr>) -> Result<String> {
    let object = Some(object).filter(|object| !object.as_ref().is_empty());
    run(entrance.command("ctr").args(["--namespace", "k8s.io"]).args(action).args(object))
}

/// Further arguments of the API server, which it needs to have nodes, and which pods need to reach
/// it.
fn apiserver(layout: &Layout) -> Vec<OsString> {
    vec![
        "--bind-address=0.0.0.0".into(),
        flag("--advertise-address", ADDRESS.to_string()),
        "--endpoint-reconciler-type=lease".into(),
        "--authorization-mode=Node".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        // The API server needs a client certificate to get logs and port-forwards from the kubelet.
        flag("--kubelet-client-certificate", layout.pki("admin.crt")),
        flag("--kubelet-client-key", layout.pki("admin.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
    ]
}

fn check_installed() -> Result<()> {
    for (program, remedy) in INSTALLED {
        // The program is installed if it starts, even if it rejects this argument.
        Command::new(program)
            .arg("--version")
            .output()
            .map_err(|_| Error::Missing { program, remedy })?;
    }
    Ok(())
}
