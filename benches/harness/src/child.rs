//! Runs a measured cache in its own process and sends it commands.

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// The time limit for one response of a cache. The slowest cache needs about 20 s, so a cache that
/// needs longer hangs.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// A process whose cache has synced. Dropping it kills the process.
#[derive(Debug)]
pub struct CacheProcess {
    name: String,
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl CacheProcess {
    /// Starts `command` and waits for its first line, which it prints when its cache has synced.
    ///
    /// # Errors
    ///
    /// If the process cannot be started, ends, or prints nothing within `patience`.
    pub async fn start<T: DeserializeOwned>(
        name: &str,
        command: &mut Command,
        patience: Duration,
    ) -> Result<(Self, T)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        let commands = child.stdin.take().context("no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let mut asked = Self { name: name.to_owned(), child, commands, answers };
        let synced = asked.answer(patience).await?;
        Ok((asked, synced))
    }

    /// Sends one command and waits for the response.
    ///
    /// # Errors
    ///
    /// If the process ends, or does not respond within three minutes.
    pub async fn ask<T: DeserializeOwned>(&mut self, command: &str) -> Result<T> {
        self.commands.write_all(format!("{command}\n").as_bytes()).await?;
        self.answer(PATIENCE).await
    }

    /// Waits until the process ends by itself, which is a failure, and returns the error.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        let status = self.child.wait().await;
        anyhow!("{} ended: {status:?}; its message is above", self.name)
    }

    /// Ends the process and waits until its memory is free.
    ///
    /// # Errors
    ///
    /// If it cannot be killed.
    pub async fn end(mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("cannot end {}", self.name))
    }

    async fn answer<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T> {
        let name = &self.name;
        let Ok(line) = timeout(patience, self.answers.next_line()).await else {
            bail!("{name} did not answer within {} s", patience.as_secs());
        };
        let line = line?.with_context(|| format!("{name} ended; its message is above"))?;
        serde_json::from_str(&line).with_context(|| format!("{name} answered {line:?}"))
    }
}

/// Runs a command to its end and reads the one line of JSON that it prints.
///
/// # Errors
///
/// If it fails, or takes more than three minutes.
pub async fn once<T: DeserializeOwned>(name: &str, command: &mut Command) -> Result<T> {
    let child = command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true).output();
    let Ok(output) = timeout(PATIENCE, child).await else {
        bail!("{name} took more than {} s", PATIENCE.as_secs());
    };
    let output = output.with_context(|| format!("cannot start {name}: {command:?}"))?;
    if !output.status.success() {
        bail!("{name}: {}; its message is above", output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{name} printed no JSON"))
}
