//! A control plane for tests: its options, its processes and its kubeconfigs.

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::audit::{Audited, AuditedResource};
use crate::components;
use crate::error::{Action, Result};
use crate::guard::Guard;
use crate::kubeconfig::{self, Credential};
use crate::layout::Layout;
use crate::node::{self, Entrance};
use crate::pki::Authority;
use crate::port::free_port;
use crate::process::{Probe, Process, Recipe, run};
use crate::program::{self, Program};
use crate::prometheus::Prometheus;

/// Options of a control plane. It always has etcd and kube-apiserver.
#[derive(Debug, Default, Clone)]
pub struct Builder {
    controller_manager: bool,
    has_oldest_apiserver: bool,
    pub(crate) has_rare_progress: bool,
    pub(crate) audited: Audited,
    pub(crate) apiserver_args: Vec<OsString>,
    folder: Option<PathBuf>,
    kubectl: Option<PathBuf>,
}

impl Builder {
    /// Adds kube-controller-manager. It creates default ServiceAccounts, finishes the deletion of
    /// namespaces and collects garbage. It does not delete pods on nodes that do not exist.
    #[must_use]
    pub fn with_controller_manager(mut self) -> Self {
        self.controller_manager = true;
        self
    }

    /// Starts kube-apiserver of the oldest Kubernetes release that kubewarm supports. The other
    /// programs stay the same.
    #[must_use]
    pub fn with_oldest_apiserver(mut self) -> Self {
        self.has_oldest_apiserver = true;
        self
    }

    /// Lets etcd send progress notifications only every 10 minutes, which is etcd's default. The
    /// testbed's default is 5 s, as in real clusters.
    #[must_use]
    pub fn with_rare_progress(mut self) -> Self {
        self.has_rare_progress = true;
        self
    }

    /// Writes each request into [`ControlPlane::audit_log`] as soon as the API server has answered
    /// it.
    #[must_use]
    pub fn with_audit_log(mut self) -> Self {
        self.audited = Audited::AllUsers;
        self
    }

    /// Writes requests of the users `users` into `file`, which is not deleted with the control
    /// plane. The log also contains the objects of one resource after each write, by any user.
    #[must_use]
    pub fn with_audit_log_of(
        mut self,
        users: &str,
        (group, resource): (&str, &str),
        file: impl Into<PathBuf>,
    ) -> Self {
        let written = AuditedResource { group: group.to_owned(), resource: resource.to_owned() };
        self.audited = Audited::Group { name: users.to_owned(), written, file: file.into() };
        self
    }

    /// Adds command-line arguments of the API server.
    #[must_use]
    pub fn with_apiserver_args<A: Into<OsString>>(
        mut self,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        self.apiserver_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Uses this kubectl. Otherwise, kubectl of the same release is built.
    #[must_use]
    pub fn with_kubectl(mut self, program: impl Into<PathBuf>) -> Self {
        self.kubectl = Some(program.into());
        self
    }

    /// Uses this folder instead of a temporary folder. [`ControlPlane::detach`] needs this option,
    /// because a temporary folder ends with the control plane.
    #[must_use]
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Starts the control plane and waits until it answers.
    ///
    /// # Errors
    /// When the programs cannot be built or one of them does not start.
    ///
    /// # Cost
    /// About 4 s and 400 MB of memory, plus the first build: [`Program::locate_or_build`].
    pub fn start(self) -> Result<ControlPlane> {
        let home = self.home()?;
        self.start_in(home, None)
    }

    /// The folder of the control plane, and the guard that removes it.
    pub(crate) fn home(&self) -> Result<Home> {
        let folder = match &self.folder {
            Some(folder) => {
                std::path::absolute(folder).action(|| format!("find {}", folder.display()))?
            }
            None => tempfile::Builder::new()
                .prefix("kubewarm-testbed-")
                .tempdir()
                .action(|| "create a temporary folder".to_owned())?
                // From here on, the guard removes the folder, so the temporary folder must not
                // remove itself.
                .keep(),
        };
        let layout = Layout::create(&folder)?;
        let guard = if self.folder.is_none() { Some(Guard::start(&folder)?) } else { None };
        Ok(Home { layout, guard })
    }

    /// Starts the control plane in this folder, and in the namespaces of a node if there is one.
    pub(crate) fn start_in(
        self,
        Home { layout, guard }: Home,
        entrance: Option<&Entrance>,
    ) -> Result<ControlPlane> {
        let kubecp = Program::Kubecp.locate_or_build()?;
        let program =
            self.kubectl.clone().map_or_else(|| Program::Kubectl.locate_or_build(), Ok)?;
        let authority = Authority::create(&layout, &[node::ADDRESS, components::SERVICE_ADDRESS])?;
        let ports = Ports { client: free_port()?, peer: free_port()?, api: free_port()? };

        let admin = authority.user("admin", "admin", Some("system:masters"))?;
        let server = format!("https://127.0.0.1:{}", ports.api);
        let credential =
            Credential::Certificate { certificate: &admin.certificate, key: &admin.key };
        let kubeconfig = layout.kubeconfig("admin");
        kubeconfig::write(&kubeconfig, &server, &layout.pki("ca.crt"), &credential)?;

        let kubectl =
            Kubectl { program, kubeconfig, layout: layout.clone(), entrance: entrance.cloned() };
        let command = |program: &Path| {
            let command = entrance.map(|entrance| entrance.command(program));
            command.unwrap_or_else(|| Command::new(program))
        };
        let server = |name: &str, args: Vec<OsString>| {
            Recipe::new(name, command(&kubecp).arg(name).args(args), &layout)
        };
        let accepts = |port: u16| -> Probe {
            let connect = move || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
            let at = entrance.cloned();
            Box::new(move || match &at {
                Some(entrance) => entrance.on_network(connect).unwrap_or_default(),
                None => connect(),
            })
        };
        let arguments = components::etcd(&layout, ports, &self);
        let etcd = Process::new(server("etcd", arguments), accepts(ports.client));
        let admission = self.controller_manager;
        let arguments = components::apiserver(&layout, ports, &self, admission)?;
        let apiserver = if self.has_oldest_apiserver {
            let mut command = command(&program::oldest_apiserver()?);
            Recipe::new("kube-apiserver", command.args(arguments), &layout)
        } else {
            server("kube-apiserver", arguments)
        };
        // A connection costs nothing, whereas kubectl takes a third of a core from the API server
        // that starts.
        let (listens, answers) = (accepts(ports.api), kubectl.probe(["get", "--raw", "/readyz"]));
        let apiserver = Process::new(apiserver, Box::new(move || listens() && answers()));
        let controller_manager = if self.controller_manager {
            let mut command = command(&Program::ControllerManager.locate_or_build()?);
            command.args(components::controller_manager(&layout, &kubectl.kubeconfig));
            Some(Process::new(
                Recipe::new("kube-controller-manager", &command, &layout),
                kubectl.probe(["get", "serviceaccount", "default", "--namespace=default"]),
            ))
        } else {
            None
        };
        let control_plane = ControlPlane {
            audit_log: self.audited.log(&layout),
            controller_manager,
            apiserver,
            etcd,
            authority,
            kubectl,
            ports,
            layout,
            guard,
        };
        control_plane.start()?;
        Ok(control_plane)
    }
}

/// The ports on which the servers listen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) client: u16,
    pub(crate) peer: u16,
    pub(crate) api: u16,
}

/// The folder of a control plane, and the guard that removes it.
pub(crate) struct Home {
    pub(crate) layout: Layout,
    /// `None` if the folder outlives the control plane.
    guard: Option<Guard>,
}

/// A control plane that runs. Its processes end when this value is dropped.
// The order of the fields is the order in which they are dropped: the API server ends before etcd,
// and the folder is removed last.
pub struct ControlPlane {
    audit_log: PathBuf,
    controller_manager: Option<Process>,
    apiserver: Process,
    etcd: Process,
    authority: Authority,
    kubectl: Kubectl,
    ports: Ports,
    layout: Layout,
    guard: Option<Guard>,
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlPlane")
            .field("folder", &self.layout.root())
            .field("temporary", &self.guard.is_some())
            .finish_non_exhaustive()
    }
}

impl ControlPlane {
    /// The options of a new control plane.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn start(&self) -> Result<()> {
        self.etcd.start()?;
        self.apiserver.start()?;
        self.controller_manager.as_ref().map_or(Ok(()), Process::start)
    }

    /// Lets a control plane [in a given folder](Builder::in_folder) outlive this process. It runs
    /// until someone calls [`take_down`](crate::take_down).
    pub fn detach(self) {
        for process in self.controller_manager.iter().chain([&self.apiserver, &self.etcd]) {
            process.detach();
        }
    }

    /// The folder with logs, keys and data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.layout.root()
    }

    /// The process of the API server.
    #[must_use]
    pub fn apiserver(&self) -> &Process {
        &self.apiserver
    }

    /// The process of etcd.
    #[must_use]
    pub fn etcd(&self) -> &Process {
        &self.etcd
    }

    /// The process of kube-controller-manager, if [`Builder::with_controller_manager`] added it.
    #[must_use]
    pub fn controller_manager(&self) -> Option<&Process> {
        self.controller_manager.as_ref()
    }

    /// The path of kubectl.
    #[must_use]
    pub fn kubectl_program(&self) -> &Path {
        &self.kubectl.program
    }

    /// `https://127.0.0.1:port`.
    #[must_use]
    pub fn server_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// The path of the CA certificate that signed the API server's certificate. Pods find the same
    /// file in their token volume.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.layout.pki("ca.crt")
    }

    /// A kubeconfig with the rights of cluster-admin.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubectl.kubeconfig
    }

    /// A `kubectl` command with the rights of cluster-admin. Add arguments and run it.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        self.kubectl.command()
    }

    /// Runs `kubectl` with the rights of cluster-admin and returns its output.
    ///
    /// # Errors
    /// With the command line and the output, if the command fails.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<String> {
        run(self.kubectl().args(args))
    }

    /// Applies manifests given as text (`kubectl apply -f`) and returns the output.
    ///
    /// # Errors
    /// With the API server's message, if it rejects a manifest.
    pub fn apply(&self, manifests: &str) -> Result<String> {
        let file = tempfile::NamedTempFile::new_in(self.folder())
            .and_then(|mut file| {
                std::io::Write::write_all(&mut file, manifests.as_bytes()).map(|()| file)
            })
            .action(|| format!("write into {}", self.folder().display()))?;
        run(self.kubectl().args(["apply", "-f"]).arg(file.path()))
    }

    /// A kubeconfig with a client certificate of this user, as a member of `group`.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn user_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let path = self.layout.kubeconfig(user);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let pair = self.authority.user(&format!("user-{file}"), user, group)?;
        let credential = Credential::Certificate { certificate: &pair.certificate, key: &pair.key };
        self.write_kubeconfig(path, &credential)
    }

    /// Replaces the key that signs ServiceAccount tokens. After a restart, the API server rejects
    /// all earlier tokens.
    ///
    /// # Errors
    /// When the key cannot be written.
    pub fn replace_token_key(&self) -> Result<()> {
        self.authority.make_token_key()
    }

    /// A kubeconfig with a token of this ServiceAccount. The token expires after 24 hours.
    ///
    /// # Errors
    /// When the account does not exist.
    pub fn service_account_kubeconfig(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let token = self.run([
            "create",
            "token",
            account,
            "--duration=24h",
            &format!("--namespace={namespace}"),
        ])?;
        let path = self.layout.kubeconfig(&format!("{namespace}_{account}"));
        self.write_kubeconfig(path, &Credential::Token(token.trim()))
    }

    fn write_kubeconfig(&self, path: PathBuf, credential: &Credential<'_>) -> Result<PathBuf> {
        kubeconfig::write(&path, &self.server_url(), &self.layout.pki("ca.crt"), credential)?;
        Ok(path)
    }

    /// Describes a process that ends with the control plane at the latest, for instance the
    /// operator under test. This function does not start the process. The process counts as ready
    /// when `ready` returns true for its log.
    ///
    /// `name` names the log, so two running processes must not share it.
    #[must_use]
    pub fn process(
        &self,
        name: &str,
        command: &Command,
        ready: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Process {
        let log = self.layout.log(name);
        let recipe = Recipe::new(name, command, &self.layout);
        let probe = move || std::fs::read_to_string(&log).is_ok_and(|text| ready(&text));
        Process::new(recipe, Box::new(probe))
    }

    /// Starts a Prometheus server with this configuration and waits until it answers.
    ///
    /// # Errors
    /// When Debian's package prometheus is not installed, or it does not start.
    pub fn prometheus(&self, config: &Value) -> Result<Prometheus> {
        Prometheus::start(self, None, config)
    }

    /// The file of the audit log ([`Builder::with_audit_log`], [`Builder::with_audit_log_of`]),
    /// with one JSON document per line.
    #[must_use]
    pub fn audit_log(&self) -> &Path {
        &self.audit_log
    }

    pub(crate) fn probe<const N: usize, A>(&self, args: [A; N]) -> Probe
    where
        A: AsRef<OsStr> + Send + Sync + 'static,
    {
        self.kubectl.probe(args)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn etcd_url(&self) -> String {
        components::url(self.ports.client)
    }

    pub(crate) fn etcd_peer_url(&self) -> String {
        components::url(self.ports.peer)
    }
}

/// Creates `kubectl` commands with the rights of cluster-admin. Their discovery cache is in the
/// control plane's folder.
#[derive(Debug, Clone)]
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    layout: Layout,
    entrance: Option<Entrance>,
}

impl Kubectl {
    fn command(&self) -> Command {
        let command = self.entrance.as_ref().map(|at| at.network_command(&self.program));
        let mut command = command.unwrap_or_else(|| Command::new(&self.program));
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", self.layout.root().join("kubectl-cache"))
            // The user's own preferences (`kuberc`) must not change the output of kubectl.
            .env("KUBECTL_KUBERC", "false");
        command
    }

    /// A readiness check that runs a `kubectl` command. The check succeeds if the command does.
    fn probe<const N: usize, A>(&self, args: [A; N]) -> Probe
    where
        A: AsRef<OsStr> + Send + Sync + 'static,
    {
        let kubectl = self.clone();
        Box::new(move || run(kubectl.command().args(&args).arg("--request-timeout=2s")).is_ok())
    }
}
