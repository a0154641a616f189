//! The paths of the measured programs and of their logs.

use anyhow::{Context, Result};
use std::{env, path::PathBuf};

/// The programs that `benches/run.sh build` builds.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The bench itself.
    pub bench: PathBuf,
    /// The operator.
    pub kubewarm: PathBuf,
    /// The peer in Rust.
    pub kube_rs: PathBuf,
    /// The peers in Go.
    pub go: PathBuf,
    /// The folder of logs and samples.
    pub logs: PathBuf,
}

impl Programs {
    /// Finds the other programs next to this program, and the Go peers in `bench` next to its
    /// folder.
    ///
    /// # Errors
    ///
    /// If the path of this program is unknown.
    pub fn next_to_this_one() -> Result<Self> {
        let bench = env::current_exe()?;
        let built = bench.parent().context("a program without a folder")?.to_owned();
        let logs = built.parent().context("a folder without a parent")?.join("bench");
        Ok(Self {
            kubewarm: built.join("kubewarm"),
            kube_rs: built.join("peer-kube-rs"),
            go: logs.join("peer"),
            bench,
            logs,
        })
    }

    /// The file with the samples of the last complete run.
    #[must_use]
    pub fn samples(&self) -> PathBuf {
        self.logs.join("samples.json")
    }
}
