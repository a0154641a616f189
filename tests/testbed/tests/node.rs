//! Tests that a node runs pods and leaves nothing behind, however its owner ends.

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::eventually;

/// Timeout until the processes of a killed node have ended.
const SOON: Duration = Duration::from_mins(1);

#[test]
fn nothing_is_left_of_a_node_whose_owner_is_killed() -> Result<(), Box<dyn Error>> {
    if !rustix::process::geteuid().is_root() {
        let said = "nothing_is_left_of_a_node_whose_owner_is_killed did NOT run: a node takes root";
        return if std::env::var_os("CI").is_some() { Err(said.into()) } else { Ok(()) };
    }
    let mut owner = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .arg("node")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(owner.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let folder = Path::new(line.trim());
    assert!(folder.join("log/kubelet.log").exists(), "no node in {line:?}");
    let number = std::fs::read_to_string(folder.join("run/containerd"))?;
    let process = Path::new("/proc").join(number);
    assert!(process.exists());
    assert!(!cgroups(folder)?.is_empty());

    owner.kill()?;
    owner.wait()?;
    for left in [folder, &process] {
        eventually(SOON, || {
            if left.exists() { Err(left.display().to_string().into()) } else { Ok(()) }
        })?;
    }
    assert_eq!(cgroups(folder)?, [""; 0]);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    assert!(!mounts.contains(line.trim()), "{mounts}");
    Ok(())
}

/// The cgroups of the node whose folder is `folder`.
fn cgroups(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let name = folder.file_name().ok_or("no name")?;
    let output = Command::new("find")
        .args(["/sys/fs/cgroup", "-maxdepth", "2", "-name"])
        .arg(name)
        .output()?;
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}
