//! Where the files of one control plane lie inside its folder.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Action, Result};

/// The folder of one control plane.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the folders that the processes expect.
    pub(crate) fn create(root: &Path) -> Result<Self> {
        for part in ["", "pki", "log", "run", "kubeconfig"] {
            let path = root.join(part);
            fs::create_dir_all(&path).action(|| format!("create {}", path.display()))?;
        }
        Ok(Self { root: root.to_owned() })
    }

    /// The folder itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A certificate or key.
    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        self.root.join("pki").join(file)
    }

    /// What a process printed, restarts included.
    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.root.join("log").join(format!("{process}.log"))
    }

    /// The process group of a running process; absent when it does not run.
    pub(crate) fn pid(&self, process: &str) -> PathBuf {
        pid_folder(&self.root).join(process)
    }

    /// The kubeconfig of a user.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        // Group and user names contain ':' and '/'.
        let file = user.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        self.root.join("kubeconfig").join(file)
    }

    /// What the API server was asked, one JSON document a line.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.root.join("log/audit.jsonl")
    }

    /// The name of the cgroup, in each hierarchy, with those of the pods in it. The guard takes it away.
    pub(crate) fn cgroup(&self) -> &OsStr {
        self.root.file_name().unwrap_or_default()
    }

    /// etcd's data.
    pub(crate) fn etcd(&self) -> PathBuf {
        self.root.join("etcd")
    }
}

/// Where the process groups of a control plane are written down.
pub(crate) fn pid_folder(root: &Path) -> PathBuf {
    root.join("run")
}
