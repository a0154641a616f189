//! The paths of the files in a control plane's folder.

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
    /// Creates the folders that the processes expect.
    pub(crate) fn create(root: &Path) -> Result<Self> {
        for part in ["", "pki", "log", "run", "kubeconfig"] {
            let path = root.join(part);
            fs::create_dir_all(&path).action(|| format!("create {}", path.display()))?;
        }
        Ok(Self { root: root.to_owned() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a certificate or key.
    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        self.root.join("pki").join(file)
    }

    /// The log of a process, which also contains the output of earlier runs.
    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.root.join("log").join(format!("{process}.log"))
    }

    /// The file with the process group of a process. The file exists only while the process runs.
    pub(crate) fn pid(&self, process: &str) -> PathBuf {
        pid_folder(&self.root).join(process)
    }

    /// The path of a user's kubeconfig.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        // Group and user names contain ':' and '/'.
        let file = user.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        self.root.join("kubeconfig").join(file)
    }

    /// The API server's audit log, with one JSON document per line.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.root.join("log/audit.jsonl")
    }

    /// The name of the node's cgroup in each cgroup hierarchy. This cgroup contains the cgroups of
    /// the pods, and the guard removes it.
    pub(crate) fn cgroup(&self) -> &OsStr {
        self.root.file_name().unwrap_or_default()
    }

    /// The folder of etcd's data.
    pub(crate) fn etcd(&self) -> PathBuf {
        self.root.join("etcd")
    }
}

/// The folder with one file for each running process; the file contains its process group.
pub(crate) fn pid_folder(root: &Path) -> PathBuf {
    root.join("run")
}
