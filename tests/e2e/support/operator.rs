//! Starts kubewarm as the built binary, with a ServiceAccount that has the shipped permissions.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use testbed::Process;

use crate::world::{Failure, World, file};

/// The operator's namespace.
pub(crate) const NAMESPACE: &str = "kubewarm-system";
/// The log message that contains the bound address.
pub(crate) const LISTENING: &str = "admin listening";
/// The log message that contains the bound address of the read API.
pub(crate) const SERVING: &str = "serving reads";
/// Permissions to read everything, for tests that do not test permissions.
const READER: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: kubewarm, namespace: kubewarm-system}]
";

/// A running operator.
pub(crate) struct Operator {
    pub(crate) process: Process,
}

/// A control plane and an operator that may read everything, which several tests share. So these
/// tests must stay in their own namespaces and change nothing else in the cluster.
pub(crate) struct Running {
    pub(crate) world: World,
    pub(crate) operator: Operator,
}

impl Running {
    /// The instance that all tests share.
    pub(crate) fn shared() -> Result<&'static Self, Failure> {
        static SHARED: OnceLock<Result<Running, String>> = OnceLock::new();
        let start = || {
            let world = World::alone()?;
            let operator = Operator::start(&world)?;
            Operator::grant_reading(&world)?;
            Ok::<_, Failure>(Self { world, operator })
        };
        let shared = SHARED.get_or_init(|| start().map_err(|error| error.to_string()));
        shared.as_ref().map_err(|error| error.as_str().into())
    }
}

impl Operator {
    /// Starts an operator that has only the permissions of `deploy/operator-rbac.yaml`.
    pub(crate) fn start(world: &World) -> Result<Self, Failure> {
        Self::start_as(world, "kubewarm")
    }

    /// The same with more arguments.
    pub(crate) fn start_with(world: &World, more: &[&str]) -> Result<Self, Failure> {
        Self::grant_rights(world)?;
        Self::launch(world, "kubewarm", more)
    }

    /// The same with this pod name.
    pub(crate) fn start_as(world: &World, pod: &str) -> Result<Self, Failure> {
        Self::grant_rights(world)?;
        Self::launch(world, pod, &[])
    }

    /// Creates the operator's namespace and applies the shipped permissions.
    pub(crate) fn grant_rights(world: &World) -> Result<(), Failure> {
        let rights = file("deploy/operator-rbac.yaml");
        world.cluster.run(["apply", "-f", &rights.to_string_lossy()])?;
        Ok(())
    }

    /// Starts an operator with the permissions that its ServiceAccount has at the moment.
    pub(crate) fn launch(world: &World, pod: &str, more: &[&str]) -> Result<Self, Failure> {
        let kubeconfig = world.cluster.service_account_kubeconfig(NAMESPACE, "kubewarm")?;
        Self::run(world, pod, &kubeconfig, more)
    }

    /// The operator's kubeconfig with the address of a proxy in front of the API server.
    pub(crate) fn kubeconfig_through(
        world: &World,
        name: &str,
        proxy: SocketAddr,
    ) -> Result<PathBuf, Failure> {
        let direct = world.cluster.service_account_kubeconfig(NAMESPACE, "kubewarm")?;
        let text = std::fs::read_to_string(direct)?;
        let path = world.cluster.folder().join(format!("{name}.kubeconfig"));
        let proxy = format!("https://{proxy}");
        std::fs::write(&path, text.replace(&world.cluster.server_url(), &proxy))?;
        Ok(path)
    }

    /// Starts an operator with the administrator's client certificate.
    pub(crate) fn start_as_administrator(world: &World) -> Result<Self, Failure> {
        Self::run(world, "kubewarm", world.cluster.kubeconfig(), &[])
    }

    /// Starts an operator with this kubeconfig.
    pub(crate) fn run(
        world: &World,
        pod: &str,
        kubeconfig: &Path,
        more: &[&str],
    ) -> Result<Self, Failure> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
        command
            .env("HOSTNAME", pod)
            // As in the image, there are no certificates of a system.
            .env("SSL_CERT_FILE", "/nonexistent")
            .env("SSL_CERT_DIR", "/nonexistent")
            // Starts no read API here; tests of the read API set its address.
            .env("KUBEWARM_API_ADDR", "")
            // The limits on readers would follow the memory limit of the test's own cgroup.
            .env("KUBEWARM_MEMORY_LIMIT", "0")
            .arg("run")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--operator-namespace", NAMESPACE, "--admin-addr", "127.0.0.1:0"])
            .args(["--log-format", "json"])
            .args(more);
        // The operator binds the address of its read API last, and ends if it cannot.
        let serves = more.contains(&"--api-addr");
        let process = world.cluster.process(pod, &command, move |log| {
            admin_address(log).is_some() && (!serves || log.contains(SERVING))
        });
        process.start()?;
        Ok(Self { process })
    }

    /// Grants the operator permission to read everything in the cluster.
    pub(crate) fn grant_reading(world: &World) -> Result<(), Failure> {
        world.cluster.apply(READER)?;
        Ok(())
    }

    /// Sends a GET request to the admin server, and returns status code and body.
    pub(crate) fn ask(&self, path: &str) -> Result<(u16, String), Failure> {
        self.ask_with(path, "")
    }

    /// The same with headers. Each header ends with a line end.
    pub(crate) fn ask_with(&self, path: &str, headers: &str) -> Result<(u16, String), Failure> {
        let log = self.process.log();
        ask_with(admin_address(&log).ok_or("no address in the log")?, path, headers)
    }
}

/// Sends a GET request to an admin server, and returns status code and body.
pub(crate) fn ask(address: &str, path: &str) -> Result<(u16, String), Failure> {
    ask_with(address, path, "")
}

fn ask_with(address: &str, path: &str, headers: &str) -> Result<(u16, String), Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    write!(stream, "{head}{headers}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no end of the headers")?;
    let code = head.split_whitespace().nth(1).ok_or("no status line")?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body)? } else { body.to_owned() };
    Ok((code.parse()?, body))
}

/// The last admin address in a log of JSON lines. The operator binds a new port after each restart,
/// so earlier addresses are outdated.
pub(crate) fn admin_address(log: &str) -> Option<&str> {
    let line = log.lines().rev().find(|line| line.contains(LISTENING))?;
    let (_, rest) = line.split_once(r#""addr":""#)?;
    rest.split_once('"').map(|(address, _)| address)
}

/// Decodes a chunked body. Each chunk follows a line with its length in hexadecimal.
fn unchunk(mut body: &str) -> Result<String, Failure> {
    let mut text = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16)?;
        text.push_str(rest.get(..length).ok_or("a chunk is cut off")?);
        body = rest.get(length + 2..).ok_or("a chunk does not end")?;
    }
    Ok(text)
}
