//! Ends a control plane when the process that owns it ends, even if that process is killed.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::error::{Action, Result};
use crate::layout::pid_folder;

/// The script of the guard, a shell that runs as a separate process. Its standard input ends when
/// the owner ends, however that happens. Then the script kills the listed process groups, and
/// removes the cgroups and the folder. A cgroup can be removed only after its last process has
/// died. The second `rm` removes files that a dying process wrote during the first `rm`. Debian's
/// `sh` kills a group only with `-s`.
const SCRIPT: &str = r#"
cat >/dev/null
for file in "$1"/*; do
    [ -f "$file" ] && kill -s KILL -- "-$(cat "$file")" 2>/dev/null
done
for cgroup in "/sys/fs/cgroup/${2##*/}" /sys/fs/cgroup/*/"${2##*/}"; do
    tries=0
    while [ -d "$cgroup" ] && [ "$((tries += 1))" -le 100 ]; do
        find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
    done
done
[ -n "$KUBEWARM_TESTBED_KEEP" ] || rm -rf "$2" || { sleep 1; rm -rf "$2"; }
"#;

/// A shell that removes the folder and ends the processes when this value is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
    stdin: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard of the control plane in `root`.
    pub(crate) fn start(root: &Path) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "testbed-guard"])
            .args([&pid_folder(root), root])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // The guard has its own process group: Ctrl-C in a terminal must end the owner, not the
            // guard.
            .process_group(0)
            .spawn()
            .action(|| "start `sh`".to_owned())?;
        let stdin = shell.stdin.take();
        Ok(Self { shell, stdin })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // The result is ignored: the guard cannot report a failure, and no one could handle it.
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn the_guard_removes_processes_and_folder_when_its_owner_ends() {
        let root = tempfile::tempdir().unwrap().keep();
        let layout = Layout::create(&root).unwrap();
        let mut process = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        std::fs::write(layout.pid("sleeper"), process.id().to_string()).unwrap();

        drop(Guard::start(&root).unwrap());

        assert_eq!(process.wait().unwrap().signal(), Some(9));
        assert!(!root.exists());
    }
}
