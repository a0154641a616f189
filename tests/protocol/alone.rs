//! Tests about memory, which is that of a whole process: each in one of its own.

use std::process::Command;

/// Set in the process that runs one test and nothing else.
const ALONE: &str = "KUBEWARM_TEST_ALONE";

/// Whether this process runs nothing but the caller; if not, `test` (with its module) is run in one
/// that does, and must pass there.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let alone = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&alone.stdout);
    let complained = String::from_utf8_lossy(&alone.stderr);
    assert!(alone.status.success() && said.contains("1 passed"), "{said}{complained}");
    false
}

/// A line of what the kernel says of this process, in KiB.
pub(crate) fn kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}
