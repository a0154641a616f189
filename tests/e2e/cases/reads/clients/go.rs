//! Runs client-go and controller-runtime as a separate program, `tests/clients/follow`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::world::{Failure, Outcome};

/// The running program with its informers in one namespace, and its standard streams.
pub(super) struct Followers {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    title: String,
}

impl Followers {
    /// Starts the program and waits until all informers have synced.
    pub(super) fn start(
        program: &Path,
        (api, through): (&Path, &Path),
        namespace: &str,
        watch_list: bool,
    ) -> Result<Self, Failure> {
        let title = format!("client-go, WatchList {watch_list}");
        let mut child = Command::new(program)
            .arg(api)
            .arg(through)
            .arg(namespace)
            .env("KUBE_FEATURE_WatchListClient", watch_list.to_string())
            // With this variable, client-go's consistency detector lists each watch's first version
            // exactly. The program ends if this list differs from what the watch sent.
            .env("KUBE_WATCHLIST_INCONSISTENCY_DETECTOR", watch_list.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let commands = child.stdin.take().ok_or("no standard input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut followers = Self { child, commands, answers, title };
        let synced = followers.answer()?;
        assert!(synced["followers"].as_u64() >= Some(8), "{synced}");
        Ok(followers)
    }

    /// Sends a command and waits for its answer.
    pub(super) fn ask(&mut self, command: &str) -> Result<Value, Failure> {
        self.send(command)?;
        self.answer()
    }

    pub(super) fn send(&mut self, command: &str) -> Outcome {
        writeln!(self.commands, "{command}")?;
        Ok(())
    }

    pub(super) fn answer(&mut self) -> Result<Value, Failure> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("{} ended: {:?}", self.title, self.child.wait()?).into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Waits until each client has the API server's objects, and checks that no object went back to
    /// an older state.
    pub(super) fn agree(&mut self, when: &str, seconds: u64) -> Outcome {
        let line = self.ask(&format!("agree {seconds}"))?;
        let none = Value::Array(Vec::new());
        assert_eq!(line["differences"], none, "{when}, {}", self.title);
        assert_eq!(line["faults"], none, "{when}, {}", self.title);
        assert!(line["objects"].as_u64() > Some(20), "{when}: {line}");
        Ok(())
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
