//! Runs a test of memory in a process of its own, because memory is measured for the whole process.

use std::process::Command;

/// The environment variable that is set in a process that runs only one test.
const ALONE: &str = "KUBEWARM_TEST_ALONE";

/// Whether this process runs only the caller, the test `test` (with its module). If not, this
/// function runs `test` in up to `tries` processes of its own. One of these processes must pass.
pub(crate) fn is_alone(test: &str, tries: usize) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut reports = String::new();
    let has_passed = (0..tries).any(|_| {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let alone = alone.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let stdout = String::from_utf8_lossy(&alone.stdout);
        reports.push_str(&stdout);
        reports.push_str(&String::from_utf8_lossy(&alone.stderr));
        alone.status.success() && stdout.contains("1 passed")
    });
    assert!(has_passed, "{reports}");
    false
}

/// A value of `/proc/self/status`, in KiB.
pub(crate) fn kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}
