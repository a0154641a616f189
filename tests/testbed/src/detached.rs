//! Ends a control plane that outlived the process that started it.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Action, Result};
use crate::layout::pid_folder;

/// Kills the processes of the control plane in `root` and removes the folder.
///
/// # Errors
/// When `root` is not the folder of a control plane, or cannot be removed.
pub fn take_down(root: &Path) -> Result<()> {
    let folder = pid_folder(root);
    let files = fs::read_dir(&folder).action(|| format!("read {}", folder.display()))?;
    for file in files.flatten() {
        let group = fs::read_to_string(file.path()).ok().and_then(|text| text.parse().ok());
        if let Some(group) = group.and_then(Pid::from_raw) {
            // The process may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    fs::remove_dir_all(root)
        // A dying process may still write a file during the removal, so the removal is tried twice.
        .or_else(|_| {
            std::thread::sleep(std::time::Duration::from_secs(1));
            fs::remove_dir_all(root)
        })
        .action(|| format!("remove {}", root.display()))
}
