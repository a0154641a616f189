//! A process' resident memory, its peak and its processor time.

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// Kernel clock ticks a second in `/proc/PID/stat`. Linux fixes the value at 100 for user space on
/// all machines that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// The measurements of a process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// `VmRSS`, in KiB.
    pub rss_kib: f64,
    /// `VmHWM`, the largest `VmRSS` so far, in KiB.
    pub peak_kib: f64,
    /// User and system time of all threads, in seconds.
    pub cpu_seconds: f64,
}

impl Usage {
    /// Measures a process.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .with_context(|| format!("process {pid} has ended"))?;
        let kib = |field: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(field)?.strip_suffix("kB")?.trim().parse().ok())
                .with_context(|| format!("no {field} in /proc/{pid}/status"))
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is the program's name in parentheses, which can contain spaces. utime
        // and stime are the 14th and 15th field.
        let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: f64 =
            behind_name.split_whitespace().skip(11).take(2).flat_map(str::parse::<f64>).sum();
        Ok(Self {
            rss_kib: kib("VmRSS:")?,
            peak_kib: kib("VmHWM:")?,
            cpu_seconds: ticks / TICKS_PER_SECOND,
        })
    }

    /// Measures this process.
    ///
    /// # Errors
    ///
    /// If `/proc` is not mounted.
    pub fn of_this_process() -> Result<Self> {
        Self::of(std::process::id())
    }
}

/// Resets `VmHWM` of a process to its `VmRSS`.
///
/// # Errors
///
/// If the process has ended, belongs to another user, or the kernel cannot do it.
pub fn reset_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
        .with_context(|| format!("cannot reset the peak memory of process {pid}"))
}

/// Raises the limit of open files to its maximum. Processes that start later inherit it. `flag` is
/// the option that decides how many files are `needed`.
///
/// # Errors
///
/// If the maximum is too low.
pub(crate) fn raise_file_limit(needed: u32, flag: &str) -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    ensure!(
        maximum.is_none_or(|maximum| maximum >= u64::from(needed)),
        "{needed} open files are needed: raise ulimit -H -n, or lower {flag}"
    );
    tracing::info!("open files {needed}: each connection is a socket at either end");
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let usage = Usage::of_this_process().unwrap();
        assert!(usage.rss_kib > 0.0 && usage.peak_kib >= usage.rss_kib);
    }
}
