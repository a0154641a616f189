//! A control plane: how to ask for one, and what to do with it.

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::audit::{Audited, Written};
use crate::error::{Action, Result};
use crate::guard::Guard;
use crate::kubeconfig::{self, Credential};
use crate::layout::Layout;
use crate::node::{self, Entrance};
use crate::pki::Authority;
use crate::process::{Probe, Process, Recipe, run};
use crate::prometheus::Prometheus;
use crate::tools::Tools;
use crate::{components, port};

/// What a control plane should have; etcd and kube-apiserver are always there.
#[derive(Debug, Default, Clone)]
pub struct Builder {
    controller_manager: bool,
    pub(crate) audited: Audited,
    pub(crate) apiserver_args: Vec<OsString>,
    folder: Option<PathBuf>,
}

impl Builder {
    /// With kube-controller-manager: service accounts appear in namespaces, namespaces can be
    /// deleted, owners collect what they own. Pods on nodes that do not exist are left alone.
    #[must_use]
    pub fn with_controller_manager(mut self) -> Self {
        self.controller_manager = true;
        self
    }

    /// The API server writes every answered request into [`ControlPlane::audit_log`], at once.
    #[must_use]
    pub fn with_audit_log(mut self) -> Self {
        self.audited = Audited::Everybody;
        self
    }

    /// The same of what these users, a group, asked for, and into `file`, which outlives the control
    /// plane. Beside that, the objects of a group and resource, as anybody's writes left them.
    #[must_use]
    pub fn with_audit_log_of(
        mut self,
        users: &str,
        (group, resource): (&str, &str),
        file: impl Into<PathBuf>,
    ) -> Self {
        let written = Written { group: group.to_owned(), resource: resource.to_owned() };
        self.audited = Audited::Group { name: users.to_owned(), written, file: file.into() };
        self
    }

    /// Adds arguments to the API server's.
    #[must_use]
    pub fn with_apiserver_args<A: Into<OsString>>(
        mut self,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        self.apiserver_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Uses this folder instead of a temporary one. Only such a control plane can be detached.
    #[must_use]
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// When the programs cannot be built or one of them does not start.
    ///
    /// # Cost
    /// About 4 s and 400 MB of memory, plus the first build: [`Tools::locate_or_build`].
    pub fn start(self) -> Result<ControlPlane> {
        let home = self.home()?;
        self.start_in(home, None)
    }

    /// The folder, and who removes it.
    pub(crate) fn home(&self) -> Result<Home> {
        let folder = match &self.folder {
            Some(folder) => {
                std::path::absolute(folder).action(|| format!("find {}", folder.display()))?
            }
            None => tempfile::Builder::new()
                .prefix("kubewarm-testbed-")
                .tempdir()
                .action(|| "create a temporary folder".to_owned())?
                // From here on the guard removes it.
                .keep(),
        };
        let layout = Layout::create(&folder)?;
        let guard = if self.folder.is_none() { Some(Guard::start(&folder)?) } else { None };
        Ok(Home { layout, guard })
    }

    /// Starts it in this folder, and in the namespaces of a node if there is one.
    pub(crate) fn start_in(
        self,
        Home { layout, guard }: Home,
        entrance: Option<&Entrance>,
    ) -> Result<ControlPlane> {
        let tools = Tools::locate_or_build()?;
        let authority = Authority::create(&layout, &[node::ADDRESS, components::SERVICE_ADDRESS])?;
        let ports = Ports { client: port::free()?, peer: port::free()?, api: port::free()? };

        let admin = authority.user("admin", "admin", Some("system:masters"))?;
        let server = format!("https://127.0.0.1:{}", ports.api);
        let credential =
            Credential::Certificate { certificate: &admin.certificate, key: &admin.key };
        let kubeconfig = layout.kubeconfig("admin");
        kubeconfig::write(&kubeconfig, &server, &layout.pki("ca.crt"), &credential)?;

        let kubectl = Kubectl {
            program: tools.program("kubectl"),
            kubeconfig,
            layout: layout.clone(),
            entrance: entrance.cloned(),
        };
        let recipe = |name: &str, args: Vec<OsString>| {
            let program = tools.program("kubecp");
            let command = entrance.map(|entrance| entrance.command(&program));
            let mut command = command.unwrap_or_else(|| Command::new(&program));
            Recipe::new(name, command.arg(name).args(args), &layout)
        };
        let connect = move || TcpStream::connect((Ipv4Addr::LOCALHOST, ports.client)).is_ok();
        let at = entrance.cloned();
        let etcd = Process::new(
            recipe("etcd", components::etcd(&layout, ports)),
            Box::new(move || match &at {
                Some(entrance) => entrance.on_network(connect).unwrap_or_default(),
                None => connect(),
            }),
        );
        let admission = self.controller_manager;
        let apiserver = Process::new(
            recipe("kube-apiserver", components::apiserver(&layout, ports, &self, admission)?),
            kubectl.probe(["get", "--raw", "/readyz"]),
        );
        let controller_manager = self.controller_manager.then(|| {
            Process::new(
                recipe(
                    "kube-controller-manager",
                    components::controller_manager(&layout, &kubectl.kubeconfig),
                ),
                kubectl.probe(["get", "serviceaccount", "default", "--namespace=default"]),
            )
        });
        let control_plane = ControlPlane {
            audit_log: self.audited.log(&layout),
            controller_manager,
            apiserver,
            etcd,
            tools,
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

/// Where the servers listen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) client: u16,
    pub(crate) peer: u16,
    pub(crate) api: u16,
}

/// Where the files of a control plane are.
pub(crate) struct Home {
    pub(crate) layout: Layout,
    /// Absent where the folder outlives the control plane.
    guard: Option<Guard>,
}

/// A control plane that runs. It ends with this value.
// Fields are dropped in this order: the API server goes before etcd, the folder last.
pub struct ControlPlane {
    audit_log: PathBuf,
    controller_manager: Option<Process>,
    apiserver: Process,
    etcd: Process,
    tools: Tools,
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
    /// Asks for a control plane.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn start(&self) -> Result<()> {
        self.etcd.start()?;
        self.apiserver.start()?;
        self.controller_manager.as_ref().map_or(Ok(()), Process::start)
    }

    /// Lets a control plane [in a folder of its own](Builder::in_folder) live on until
    /// [`take_down`](crate::take_down).
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

    /// The API server.
    #[must_use]
    pub fn apiserver(&self) -> &Process {
        &self.apiserver
    }

    /// etcd.
    #[must_use]
    pub fn etcd(&self) -> &Process {
        &self.etcd
    }

    /// kube-controller-manager, if it was asked for.
    #[must_use]
    pub fn controller_manager(&self) -> Option<&Process> {
        self.controller_manager.as_ref()
    }

    /// The programs this control plane was made of.
    #[must_use]
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// `https://127.0.0.1:port`.
    #[must_use]
    pub fn server_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// The certificate of the authority that vouches for the API server, as pods have it mounted.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.layout.pki("ca.crt")
    }

    /// A kubeconfig that may do everything.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubectl.kubeconfig
    }

    /// `kubectl` as administrator; add arguments and run it.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        self.kubectl.command()
    }

    /// Runs `kubectl` as administrator and answers what it printed.
    ///
    /// # Errors
    /// With the command line and what it printed, if it fails.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<String> {
        run(self.kubectl().args(args))
    }

    /// Applies manifests given as text (`kubectl apply -f`) and answers what that printed.
    ///
    /// # Errors
    /// With what the server said, if it refuses.
    pub fn apply(&self, manifests: &str) -> Result<String> {
        let file = tempfile::NamedTempFile::new_in(self.folder())
            .and_then(|mut file| {
                std::io::Write::write_all(&mut file, manifests.as_bytes()).map(|()| file)
            })
            .action(|| format!("write into {}", self.folder().display()))?;
        run(self.kubectl().args(["apply", "-f"]).arg(file.path()))
    }

    /// A kubeconfig with a client certificate of this user, who is in `group`.
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

    /// Makes another key that signs tokens of service accounts. Once the API server has been
    /// restarted, it accepts none that it made before.
    ///
    /// # Errors
    /// When the key cannot be written.
    pub fn replace_token_key(&self) -> Result<()> {
        self.authority.make_token_key()
    }

    /// A kubeconfig with a token of this ServiceAccount, good for 24 hours.
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

    /// A process of the caller's that ends with the control plane at the latest, for instance the
    /// operator under test. It is not started yet, and ready when `ready` says so about its log.
    ///
    /// `name` is the name of its log and must not be given twice at a time.
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

    /// Starts a Prometheus with this configuration and waits until it answers.
    ///
    /// # Errors
    /// When Debian's package prometheus is not installed, or it does not start.
    pub fn prometheus(&self, config: &Value) -> Result<Prometheus> {
        Prometheus::start(self, None, config)
    }

    /// Where the API server's requests are written ([`Builder::with_audit_log`],
    /// [`Builder::with_audit_log_of`]): one JSON document a line.
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

/// `kubectl` as administrator, with its discovery cache in the control plane's folder.
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
            // Preferences of whoever runs the tests (`kuberc`) must not change what they see.
            .env("KUBECTL_KUBERC", "false");
        command
    }

    /// Succeeds when this command does.
    fn probe<const N: usize, A>(&self, args: [A; N]) -> Probe
    where
        A: AsRef<OsStr> + Send + Sync + 'static,
    {
        let kubectl = self.clone();
        Box::new(move || run(kubectl.command().args(&args).arg("--request-timeout=2s")).is_ok())
    }
}
