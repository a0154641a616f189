//! The shared environment of these tests: one node, which one test uses at a time.

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use testbed::{ControlPlane, Helm, Node};

/// The reason why a test failed.
pub(crate) type Failure = Box<dyn Error>;

/// The result of a test.
pub(crate) type Outcome = Result<(), Failure>;

/// The time limit for what takes seconds on an idle machine. Tests run while compilers use all
/// cores.
pub(crate) const SOON: Duration = Duration::from_mins(10);

/// The environment variable with the path of an archive that the tests use instead of the archive
/// of `make test-image`.
const ARCHIVE: &str = "KUBEWARM_IMAGE_ARCHIVE";

static TURN: Mutex<()> = Mutex::new(());

/// The node, while one test holds the lock.
pub(crate) struct NodeWorld {
    pub(crate) node: &'static Node,
    /// Helm 3 and Helm 4.
    pub(crate) helms: [Helm; 2],
    _turn: MutexGuard<'static, ()>,
}

impl NodeWorld {
    /// Waits for the lock. Returns `None` if the user is not root, because a node needs root.
    pub(crate) fn enter(test: &str) -> Result<Option<Self>, Failure> {
        static SHARED: OnceLock<Result<Node, String>> = OnceLock::new();
        if !rustix::process::geteuid().is_root() {
            let lack = format!("{test} did NOT run: a node needs root");
            if std::env::var_os("CI").is_some() {
                return Err(lack.into());
            }
            report(&lack)?;
            return Ok(None);
        }
        let turn = TURN.lock();
        let shared = SHARED.get_or_init(|| start().map_err(|error| error.to_string()));
        let node = shared.as_ref().map_err(String::as_str)?;
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-helm");
        let helms = Helm::locate_or_build(&home)?;
        Ok(Some(Self { node, helms, _turn: turn }))
    }

    pub(crate) fn cluster(&self) -> &'static ControlPlane {
        self.node.cluster()
    }

    /// Runs `kubectl` and returns its output.
    pub(crate) fn run(&self, args: &str) -> Result<String, Failure> {
        Ok(self.cluster().run(args.split_whitespace())?)
    }

    /// Sends a GET request on the node's network and returns the status code and the body.
    pub(crate) fn ask(&self, address: &str, path: &str) -> Result<(u16, String), Failure> {
        let answer = self.node.on_network(|| {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            // Responses of HTTP/1.0 are not chunked.
            write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        })??;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no end of the headers")?;
        let code = head.split_whitespace().nth(1).ok_or("no status line")?;
        Ok((code.parse()?, body.to_owned()))
    }
}

fn start() -> Result<Node, Failure> {
    let archive = archive()?;
    let node = Node::start()?;
    node.import(&archive)?;
    Ok(node)
}

/// The image of this source tree.
fn archive() -> Result<PathBuf, Failure> {
    if let Some(archive) = std::env::var_os(ARCHIVE) {
        return Ok(archive.into());
    }
    // The build is visible, because it takes minutes if the archive is out of date.
    let made = Command::new("make").arg("test-image").current_dir(file("")).status()?;
    if !made.success() {
        return Err("`make test-image` failed; see its output above".into());
    }
    Ok(file("target/kubewarm-test-image.tar"))
}

/// Prints a message even if the test passes. The test harness would capture `println!` of passing
/// tests.
pub(crate) fn report(words: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{words}")
}

/// The path of a file in the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
