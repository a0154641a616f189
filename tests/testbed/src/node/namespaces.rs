//! The Linux namespaces of a node.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Action, Result};
use crate::layout::Layout;
use crate::process::{Process, Recipe};

const SCRIPT: &str = include_str!("namespaces.sh");
/// The last line that the script prints.
const FIT: &str = "fit\n";

/// Namespaces for network, mounts, processes, host name and IPC. They end, with all their
/// processes, when this value is dropped.
pub(crate) struct Namespaces {
    process: Process,
}

impl Namespaces {
    /// Creates the namespaces. `pause` is the program of their first process.
    pub(crate) fn start(layout: &Layout, address: Ipv4Addr, pause: &Path) -> Result<Self> {
        let name = "namespaces";
        let kinds = ["--net", "--mount", "--pid", "--uts", "--ipc"];
        let how = ["--propagation", "private", "--fork", "--kill-child", "--mount-proc"];
        let mut command = Command::new("unshare");
        command
            .args(kinds)
            .args(how)
            .args(["sh", "-c", SCRIPT, "testbed-node"])
            .arg(layout.root())
            .arg(address.to_string())
            .arg(layout.cgroup())
            .arg(pause);
        let log = layout.log(name);
        let ready = move || fs::read_to_string(&log).is_ok_and(|text| text.ends_with(FIT));
        let process = Process::new(Recipe::new(name, &command, layout), Box::new(ready));
        process.start()?;
        Ok(Self { process })
    }

    /// Returns a way to run programs in these namespaces. It works as long as the namespaces exist.
    pub(crate) fn entrance(&self) -> Result<Entrance> {
        let unshare = self.process.id().unwrap_or_default();
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        let first = fs::read_to_string(&children).action(|| format!("read {children}"))?;
        Ok(Entrance { first: first.trim().to_owned() })
    }
}

/// A way to run programs in the namespaces of a node.
#[derive(Debug, Clone)]
pub(crate) struct Entrance {
    /// The process id of the namespaces' first process, by which `nsenter` finds them.
    first: String,
}

impl Entrance {
    /// A command that runs `program` in all namespaces of the node.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(&["--net", "--mount", "--pid", "--uts", "--ipc"], program)
    }

    /// A command that runs `program` on the node's network, but with the host's files and
    /// processes.
    pub(crate) fn network_command(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(&["--net"], program)
    }

    fn enter(&self, kinds: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first]).args(kinds).arg("--").arg(program);
        command
    }

    /// Runs `work` on the node's network.
    pub(crate) fn on_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = format!("/proc/{}/ns/net", self.first);
        let namespace = File::open(&path).action(|| format!("open {path}"))?;
        // Only this thread changes its network namespace. It ends afterwards, and the other threads
        // of this process keep theirs.
        let done = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .action(|| format!("enter {path}"))
                    .map(|()| work())
            });
            thread.join()
        });
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
