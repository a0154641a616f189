//! The machine, the commit and the server of a run.

use crate::report::Origin;
use jiff::Timestamp;
use std::{fs, process::Command, thread};

impl Origin {
    /// The origin of this run. An unknown value is `unknown`.
    #[must_use]
    pub fn of_this_run(pods: u32, rounds: u32) -> Self {
        Self {
            commit: printed("git", &["describe", "--always", "--dirty", "--exclude=*"]),
            date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
            machine: machine(),
            kubernetes: testbed::KUBERNETES_VERSION.to_owned(),
            pods,
            rounds,
        }
    }
}

fn machine() -> String {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let unknown = || "unknown".to_owned();
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(unknown);
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_else(unknown);
    let count = thread::available_parallelism().map_or(0, Into::into);
    let kernel = printed("uname", &["-sr"]);
    format!("{processor}, {count} cores shared by all programs, {memory} of memory, {kernel}")
}

fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    let text = output
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
