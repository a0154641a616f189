//! Backup, restore and compaction of the control plane's etcd.

use std::path::Path;
use std::process::Command;

use crate::control_plane::ControlPlane;
use crate::error::{Action, Result};
use crate::process::run;
use crate::program::Program;

impl ControlPlane {
    /// Saves the state of etcd into a file.
    ///
    /// # Errors
    /// When etcd does not answer or the file cannot be written.
    pub fn snapshot(&self, file: &Path) -> Result<()> {
        run(self.etcdctl()?.args(["snapshot", "save"]).arg(file)).map(drop)
    }

    /// Stops the control plane, restores etcd from a snapshot and starts the processes again.
    /// Afterwards, resource versions are lower than before.
    ///
    /// # Errors
    /// When the snapshot is unusable or something does not start again.
    pub fn restore(&self, file: &Path) -> Result<()> {
        let managed = self.controller_manager().filter(|process| process.id().is_some());
        if let Some(process) = managed {
            process.kill()?;
        }
        self.apiserver().kill()?;
        self.etcd().kill()?;
        let data = self.layout().etcd();
        std::fs::remove_dir_all(&data).action(|| format!("remove {}", data.display()))?;
        let peer = self.etcd_peer_url();
        run(Command::new(Program::Etcdutl.locate_or_build()?)
            .args(["snapshot", "restore"])
            .arg(file)
            .arg("--data-dir")
            .arg(&data)
            .arg(format!("--initial-cluster=default={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}")))?;
        self.etcd().start()?;
        self.apiserver().start()?;
        managed.map_or(Ok(()), crate::Process::start)
    }

    /// Compacts etcd at its newest revision. A watch from an older version then fails, unless the
    /// API server's watch cache still contains that version.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn compact(&self) -> Result<()> {
        let revision = self.etcd_revision()?;
        run(self.etcdctl()?.args(["compact", "--physical", &revision])).map(drop)
    }

    /// The revision of etcd's last write.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn etcd_revision(&self) -> Result<String> {
        // Each response of etcd contains the revision. This read of a key that does not exist is
        // the cheapest request.
        let answer = run(self.etcdctl()?.args(["get", "none", "--write-out=fields"]))?;
        let revision = answer.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
        Ok(revision.unwrap_or_default().to_owned())
    }

    /// An `etcdctl` command for the control plane's etcd. Add arguments and run it.
    ///
    /// # Errors
    /// When the program cannot be built.
    pub fn etcdctl(&self) -> Result<Command> {
        let mut command = Command::new(Program::Etcdctl.locate_or_build()?);
        command.arg(format!("--endpoints={}", self.etcd_url()));
        Ok(command)
    }
}
