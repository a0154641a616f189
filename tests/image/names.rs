//! Runs the image's program in a root folder that contains only the files that a kubelet mounts.
//! The program must find the API server by name and trust the CA of the token volume.
//!
//! A program's C library can need shared libraries to resolve names, and the image has none.

#![expect(clippy::print_stderr, reason = "a test that is left out says so")]

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use testbed::{ControlPlane, Process, eventually};

use crate::scripts::{Failure, Outcome, file};

/// The API server's name in pods.
const SERVER: &str = "kubernetes.default.svc";
/// The complete name that the program must look up. A kubelet configures the search domains that
/// make it from [`SERVER`].
const QUALIFIED: &str = "kubernetes.default.svc.cluster.local";
const NAMESPACE: &str = "kubewarm-system";
/// The time limit for a start on a busy machine.
const SOON: Duration = Duration::from_mins(10);
const TOKENS: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// Whether this test can change its root folder and bind port 53, which needs root. In CI, the test
/// fails if it cannot.
fn may_change_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || std::env::var_os("CI").is_none(), "{test} needs root");
    if !is_root {
        eprintln!("LEFT OUT: {test} needs root");
    }
    is_root
}

/// A root with the program, a token volume and these files of `/etc`.
fn root(cluster: &ControlPlane, etc: &[(&str, &str)]) -> Result<TempDir, Failure> {
    let root = tempfile::tempdir()?;
    fs::set_permissions(root.path(), Permissions::from_mode(0o755))?;
    let program = testbed::static_program()?;
    fs::copy(program, root.path().join("kubewarm"))?;
    let tokens = root.path().join(TOKENS);
    fs::create_dir_all(&tokens)?;
    let token = cluster.run(["create", "token", "kubewarm", "-n", NAMESPACE])?;
    fs::write(tokens.join("token"), token.trim())?;
    fs::write(tokens.join("namespace"), NAMESPACE)?;
    fs::copy(cluster.authority(), tokens.join("ca.crt"))?;
    fs::create_dir(root.path().join("etc"))?;
    for (name, text) in etc {
        fs::write(root.path().join("etc").join(name), text)?;
    }
    Ok(root)
}

/// Starts the program in this root folder with the image's arguments, and waits until it has read
/// the profiles from the API server.
fn reaches_the_server(cluster: &ControlPlane, name: &str, root: &TempDir) -> Outcome {
    let url = cluster.server_url();
    let (_, port) = url.rsplit_once(':').ok_or("no port")?;
    let mut command = Command::new("chroot");
    command
        .arg("--userspec=65532:65532")
        .arg(root.path())
        .args([
            "/kubewarm",
            "run",
            "--admin-addr",
            "127.0.0.1:0",
            "--api-addr=",
            "--log-format",
            "json",
        ])
        .env_remove("KUBECONFIG")
        .env("KUBERNETES_SERVICE_HOST", SERVER)
        .env("KUBERNETES_SERVICE_PORT", port);
    let process = cluster.process(name, &command, |log| admin_address(log).is_some());
    process.start()?;
    eventually(SOON, || is_ready(&process)).map(drop)
}

/// The admin address, read from the log.
fn admin_address(log: &str) -> Option<&str> {
    let line = log.lines().find(|line| line.contains("admin listening"))?;
    let (_, rest) = line.split_once(r#""addr":""#)?;
    rest.split_once('"').map(|(address, _)| address)
}

/// Checks that the profiles were listed, which needs the API server.
fn is_ready(process: &Process) -> Outcome {
    let log = process.log();
    let mut stream = TcpStream::connect(admin_address(&log).ok_or("no address in the log")?)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET /readyz HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.lines().next().is_some_and(|line| line.contains(" 200 ")) {
        return Ok(());
    }
    let newest = log.lines().rev().find(|line| line.contains("WARN")).unwrap_or_default();
    Err(format!("{answer}; {newest}").into())
}

/// The names in the queries to the DNS server.
type DnsQueries = Arc<Mutex<BTreeSet<String>>>;

/// A DNS server that resolves one name. It uses port 53 of its own address and runs until the
/// process ends.
fn dns() -> Result<(Ipv4Addr, DnsQueries), Failure> {
    // The address contains the process id, so that concurrent tests have different addresses.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 53, high, low.max(1));
    let socket = UdpSocket::bind((address, 53))?;
    let asked = DnsQueries::default();
    let heard = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, peer)) = socket.recv_from(&mut query) {
            let Some((name, answer)) = answered(&query[..length]) else { continue };
            heard.lock().insert(name);
            let _ = socket.send_to(&answer, peer);
        }
    });
    Ok((address, asked))
}

/// The name in a query with one question, and the response. The response is 127.0.0.1 for the IPv4
/// address of the one name, and "no such name" for all others.
fn answered(query: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut labels = Vec::new();
    let mut at = 12;
    while let length @ 1.. = usize::from(*query.get(at)?) {
        labels.push(String::from_utf8_lossy(query.get(at + 1..at + 1 + length)?).to_lowercase());
        at += 1 + length;
    }
    let name = labels.join(".");
    let question = query.get(12..at + 5)?;
    let is_known = name == QUALIFIED;
    // The question ends with its type (1 is an IPv4 address) and its class.
    let is_found = is_known && question.ends_with(&[0, 0, 1, 0, 1]);
    let mut answer = query.get(..2)?.to_vec();
    // Flags of a response with recursion available. Code 3 means that the name does not exist. One
    // question follows.
    answer.extend([0x81, if is_known { 0x80 } else { 0x83 }, 0, 1]);
    answer.extend([0, u8::from(is_found), 0, 0, 0, 0]);
    answer.extend(question);
    if is_found {
        // The question's name, type and class, a lifetime of 5 s, and an address of 4 bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 1]);
    }
    Some((name, answer))
}

#[test]
fn in_an_empty_root_the_server_is_found_by_the_hosts_file_and_by_dns() -> Outcome {
    if !may_change_root("a program in a root of its own") {
        return Ok(());
    }
    let cluster = ControlPlane::builder().start()?;
    for manifests in ["crds/kubewarm.io_cacheprofiles.yaml", "deploy/operator-rbac.yaml"] {
        cluster.run(["apply", "--server-side", "-f", &file(manifests).to_string_lossy()])?;
    }

    let hosts = format!("127.0.0.1 localhost\n127.0.0.1 {SERVER}\n");
    let by_hosts = root(&cluster, &[("hosts", &hosts)])?;
    reaches_the_server(&cluster, "by-hosts", &by_hosts)?;

    let (server, asked) = dns()?;
    let resolver = format!(
        "nameserver {server}\nsearch kubewarm-system.svc.cluster.local svc.cluster.local \
         cluster.local\noptions ndots:5\n"
    );
    let by_dns = root(&cluster, &[("hosts", "127.0.0.1 localhost\n"), ("resolv.conf", &resolver)])?;
    reaches_the_server(&cluster, "by-dns", &by_dns)?;
    let asked = asked.lock();
    assert!(asked.contains(QUALIFIED), "the domains were not appended: {asked:?}");
    Ok(())
}
