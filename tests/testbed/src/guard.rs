//! Ends a control plane with the process that owns it, even if that is killed.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::error::{Action, Result};
use crate::layout::pid_folder;

/// Waits for its standard input to end, which happens however the owner ends, then kills what is
/// written down and removes the cgroups of a node and the folder. A cgroup goes when the last process
/// in it has died, which takes a moment. The second `rm` is for files that a dying process still
/// wrote during the first. Debian's `sh` takes a group only with `-s`.
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

/// While this lives, the folder and its processes do.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
    stdin: Option<ChildStdin>,
}

impl Guard {
    /// Watches over the control plane in `root`.
    pub(crate) fn start(root: &Path) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "testbed-guard"])
            .args([&pid_folder(root), root])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A group of its own: Ctrl-C in a terminal must end the owner, not the guard.
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
        // Nothing to be done about a failure, and the guard has no other way to report one.
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn processes_and_folder_go_when_the_guard_hears_no_more_of_its_owner() {
        let root = tempfile::tempdir().unwrap().keep();
        let layout = Layout::create(&root).unwrap();
        let mut process = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        std::fs::write(layout.pid("sleeper"), process.id().to_string()).unwrap();

        drop(Guard::start(&root).unwrap());

        assert_eq!(process.wait().unwrap().signal(), Some(9));
        assert!(!root.exists());
    }
}
