//! The pause image, whose process holds the namespaces of a pod.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::process::run;

pub(crate) const PAUSE_IMAGE: &str = "localhost/pause:node";

/// $1: the program; $2: the working folder; $3: the name of the image; $4: the architecture. Writes
/// `$2/pause.tar` in the format of `docker save`.
const SCRIPT: &str = r#"
set -eu
mkdir -p "$2"
cd "$2"
tar -C "$(dirname "$1")" -cf layer.tar pause
layer=$(sha256sum layer.tar | cut -d ' ' -f 1)
echo '{"architecture": "'"$4"'", "os": "linux", "config": {"Entrypoint": ["/pause"]},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:'"$layer"'"]}}' >config.json
echo '[{"Config": "config.json", "RepoTags": ["'"$3"'"], "Layers": ["layer.tar"]}]' >manifest.json
tar -cf pause.tar manifest.json config.json layer.tar
"#;

/// Packs the image in this folder and returns the archive.
pub(crate) fn pack(pause: &Path, folder: &Path) -> Result<PathBuf> {
    run(Command::new("sh")
        .args(["-c", SCRIPT, "testbed-pause"])
        .args([pause, folder])
        .args([PAUSE_IMAGE, architecture()]))?;
    Ok(folder.join("pause.tar"))
}

/// The architecture's name in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
