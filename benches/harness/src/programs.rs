//! The programs that are measured, and where their logs go.

use anyhow::{Context, Result};
use std::{env, path::PathBuf};

/// Paths of what `benches/run.sh build` makes.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This one.
    pub bench: PathBuf,
    /// The operator.
    pub kubewarm: PathBuf,
    /// The peer from Rust.
    pub kube_rs: PathBuf,
    /// The peers from Go.
    pub go: PathBuf,
    /// Where logs and samples go.
    pub logs: PathBuf,
}

impl Programs {
    /// Beside this program, and in `bench` beside its folder.
    ///
    /// # Errors
    ///
    /// If the path of this program is not known.
    pub fn beside_this_one() -> Result<Self> {
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

    /// Where the samples of the last whole run are.
    #[must_use]
    pub fn samples(&self) -> PathBuf {
        self.logs.join("samples.json")
    }
}
