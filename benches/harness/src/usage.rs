//! What the kernel says of a process: resident memory, its peak, CPU time.

use anyhow::{Context, Result};
use std::fs;

/// Kernel clock ticks a second in `/proc/PID/stat`; fixed at 100 in the user-space ABI of Linux on
/// all machines that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process, looked at once.
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
    /// Looks at a process.
    ///
    /// # Errors
    ///
    /// If it has gone.
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
        // The second field is the program's name in parentheses, which may hold spaces; utime and
        // stime are the 14th and 15th field.
        let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: f64 =
            behind_name.split_whitespace().skip(11).take(2).flat_map(str::parse::<f64>).sum();
        Ok(Self {
            rss_kib: kib("VmRSS:")?,
            peak_kib: kib("VmHWM:")?,
            cpu_seconds: ticks / TICKS_PER_SECOND,
        })
    }

    /// Looks at this process.
    ///
    /// # Errors
    ///
    /// If `/proc` is not mounted.
    pub fn of_this_process() -> Result<Self> {
        Self::of(std::process::id())
    }
}

/// Lets `VmHWM` of a process begin anew at its `VmRSS`.
///
/// # Errors
///
/// If the process has gone, belongs to someone else, or the kernel cannot do it.
pub fn reset_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
        .with_context(|| format!("cannot reset the peak memory of process {pid}"))
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
