//! A long-running process that a test can start, kill, freeze and restart.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Action, Error, Result};
use crate::layout::Layout;

/// The time limit for a start. A cold kube-apiserver needs 3 s on two idle cores, but tests can run
/// while compilers use both cores.
const START_TIMEOUT: Duration = Duration::from_mins(2);
/// The time limit for an end after SIGTERM. Each process that a test ends this way needs only a few
/// seconds.
const TERM_TIMEOUT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(50);

/// Runs a command to its end and returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .output()
        .action(|| format!("run {}", command.get_program().display()))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let output_text = if stderr.trim().is_empty() { stdout } else { stderr };
    Err(Error::Command { command: shown, status: output.status, output: output_text })
}

/// Returns whether a running process is ready.
pub(crate) type Probe = Box<dyn Fn() -> bool + Send + Sync>;

/// The command of a process, and the paths of its log and pid file.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, Option<OsString>)>,
    pub(crate) log: PathBuf,
    pub(crate) pid: PathBuf,
}

impl Recipe {
    /// The recipe that runs this command.
    pub(crate) fn new(name: &str, command: &Command, layout: &Layout) -> Self {
        Self {
            name: name.to_owned(),
            program: command.get_program().into(),
            args: command.get_args().map(Into::into).collect(),
            environment: command
                .get_envs()
                .map(|(key, value)| (key.into(), value.map(Into::into)))
                .collect(),
            log: layout.log(name),
            pid: layout.pid(name),
        }
    }
}

/// A process of the testbed, in its own process group. All methods can be called from any thread.
/// The process ends when this value is dropped.
pub struct Process {
    recipe: Recipe,
    ready: Probe,
    child: Mutex<Option<Child>>,
}

impl Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("recipe", &self.recipe).finish_non_exhaustive()
    }
}

impl Process {
    pub(crate) fn new(recipe: Recipe, ready: Probe) -> Self {
        Self { recipe, ready, child: Mutex::new(None) }
    }

    /// Starts the process and waits until it is ready, for at most 2 minutes. Does nothing if it
    /// runs.
    ///
    /// # Errors
    /// When the process cannot be started, ends, or is not ready in time. The error contains the
    /// end of its log.
    pub fn start(&self) -> Result<()> {
        {
            let mut child = self.child.lock();
            if let Some(running) = child.as_mut()
                && matches!(running.try_wait(), Ok(None))
            {
                return Ok(());
            }
            *child = Some(self.spawn()?);
        }
        let deadline = Instant::now() + START_TIMEOUT;
        while !(self.ready)() {
            if let Some(status) = self.exited()? {
                return Err(self.not_ready(format!("it ended, {status}")));
            }
            if Instant::now() > deadline {
                return Err(self.not_ready(format!("{START_TIMEOUT:?} have passed")));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Sends SIGKILL and waits for the end of the process. Does nothing if it does not run.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.child.lock().take() else { return Ok(()) };
        self.signal_child(&child, Signal::KILL)?;
        child.wait().action(|| format!("wait for {}", self.recipe.name))?;
        self.forget_pid();
        Ok(())
    }

    /// Sends SIGTERM and waits for the end of the process, for at most a minute.
    ///
    /// # Errors
    /// When the process does not run, or did not end in time. In the second case it is killed.
    pub fn term(&self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(TERM_TIMEOUT)
    }

    /// Sends SIGTERM without waiting.
    ///
    /// # Errors
    /// When the process does not run.
    pub fn request_end(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Waits for the process to end by itself.
    ///
    /// # Errors
    /// When the process did not end in time. It is then killed.
    pub fn wait(&self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.exited()? {
                *self.child.lock() = None;
                self.forget_pid();
                return Ok(status);
            }
            if Instant::now() > deadline {
                let error = self.not_ready(format!("it did not end within {timeout:?}"));
                self.kill()?;
                return Err(error);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Sends SIGSTOP. The connections of the process stay open and silent.
    ///
    /// # Errors
    /// When the process does not run.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT to a frozen process.
    ///
    /// # Errors
    /// When the process does not run.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills the process and starts it again.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.start()
    }

    /// The process id, if it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.lock().as_ref().map(Child::id)
    }

    /// The output of the process so far, earlier runs included.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(&self.recipe.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn spawn(&self) -> Result<Child> {
        let Recipe { name, program, args, environment, log, pid } = &self.recipe;
        let open = || OpenOptions::new().create(true).append(true).open(log);
        let output = open().action(|| format!("write {}", log.display()))?;
        let error = open().action(|| format!("write {}", log.display()))?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(output).stderr(error);
        for (key, value) in environment {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        let child = command
            .process_group(0)
            .spawn()
            .action(|| format!("start {name} ({})", program.display()))?;
        fs::write(pid, child.id().to_string()).action(|| format!("write {}", pid.display()))?;
        Ok(child)
    }

    fn exited(&self) -> Result<Option<ExitStatus>> {
        match self.child.lock().as_mut() {
            Some(child) => child.try_wait().action(|| format!("wait for {}", self.recipe.name)),
            None => Err(self.not_running()),
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        match self.child.lock().as_ref() {
            Some(child) => self.signal_child(child, signal),
            None => Err(self.not_running()),
        }
    }

    fn signal_child(&self, child: &Child, signal: Signal) -> Result<()> {
        kill_process_group(Pid::from_child(child), signal)
            .or_else(|error| if error == rustix::io::Errno::SRCH { Ok(()) } else { Err(error) })
            .action(|| format!("signal {}", self.recipe.name))
    }

    fn not_running(&self) -> Error {
        self.not_ready("it does not run".to_owned())
    }

    fn not_ready(&self, reason: String) -> Error {
        let Recipe { name, log, .. } = &self.recipe;
        Error::NotReady { process: name.clone(), reason, log: log.clone(), tail: tail(log) }
    }

    /// Removes the pid file. Otherwise, the guard could kill another process that later gets the
    /// same number.
    fn forget_pid(&self) {
        let _ = fs::remove_file(&self.recipe.pid);
    }

    /// Lets the process outlive this value.
    pub(crate) fn detach(&self) {
        drop(self.child.lock().take());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The last 30 lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines.split_at(lines.len().saturating_sub(30)).1.join("\n")
}
