//! Where the tests take place: one node for all of them, for one at a time.

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use testbed::{ControlPlane, Helm, Node};

/// Why a test cannot go on.
pub(crate) type Failure = Box<dyn Error>;

/// What a test ends with.
pub(crate) type Outcome = Result<(), Failure>;

/// For what a cluster does in its own time.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// Names another archive to be tested instead of the one that `make test-image` writes.
const ARCHIVE: &str = "KUBEWARM_IMAGE_ARCHIVE";

static TURN: Mutex<()> = Mutex::new(());

/// The node, as long as it is one test's turn.
pub(crate) struct World {
    pub(crate) node: &'static Node,
    /// Helm 3 and Helm 4.
    pub(crate) helms: [Helm; 2],
    _turn: MutexGuard<'static, ()>,
}

impl World {
    /// Waits for the turn. None if there can be no node.
    pub(crate) fn enter(test: &str) -> Result<Option<Self>, Failure> {
        static SHARED: OnceLock<Result<Node, String>> = OnceLock::new();
        if !rustix::process::geteuid().is_root() {
            let lack = format!("{test} did NOT run: a node takes root");
            if std::env::var_os("CI").is_some() {
                return Err(lack.into());
            }
            tell(&lack)?;
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

    /// Runs `kubectl` and answers what it printed.
    pub(crate) fn run(&self, args: &str) -> Result<String, Failure> {
        Ok(self.cluster().run(args.split_whitespace())?)
    }

    /// Asks an HTTP server on the node's network: the code and the body.
    pub(crate) fn ask(&self, address: &str, path: &str) -> Result<(u16, String), Failure> {
        let answer = self.node.on_network(|| {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            // Of the version in which an answer has no chunks.
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

/// The image of this very source.
fn archive() -> Result<PathBuf, Failure> {
    if let Some(archive) = std::env::var_os(ARCHIVE) {
        return Ok(archive.into());
    }
    // Nothing is done if it is up to date, and it takes minutes if not: that is to be seen.
    let made = Command::new("make").arg("test-image").current_dir(file("")).status()?;
    if !made.success() {
        return Err("`make test-image` failed; what it printed stands above".into());
    }
    Ok(file("target/kubewarm-test-image.tar"))
}

/// Says something that is of interest even where all is well. The test harness would keep `println!` back.
pub(crate) fn tell(words: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{words}")
}

/// A file of the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
