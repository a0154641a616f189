//! Images of one program, for pods of a node.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::process::run;

/// The image whose process holds the namespaces of a pod.
pub(crate) const PAUSE_IMAGE: &str = "localhost/pause:node";

/// $1: the program; $2: the working folder; $3: the name of the image; $4: the architecture. Writes
/// `$2/image.tar` in the format of `docker save`. A static program is alone in the image, another
/// one with its shared libraries.
const SCRIPT: &str = r#"
set -eu
mkdir -p "$2/files"
cp "$1" "$2/files/program"
# `ldd` fails for a static program.
ldd "$1" 2>&1 | grep -o '/[^ ]*' | while read -r library; do
    case $library in "$1"*) continue ;; esac
    mkdir -p "$2/files${library%/*}"
    cp --dereference "$library" "$2/files$library"
done
cd "$2"
tar -C files -cf layer.tar .
layer=$(sha256sum layer.tar | cut -d ' ' -f 1)
echo '{"architecture": "'"$4"'", "os": "linux", "config": {"Entrypoint": ["/program"]},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:'"$layer"'"]}}' >config.json
echo '[{"Config": "config.json", "RepoTags": ["'"$3"'"], "Layers": ["layer.tar"]}]' >manifest.json
tar -cf image.tar manifest.json config.json layer.tar
rm -r files layer.tar
"#;

/// Packs an image of this name in this folder and returns the archive.
pub(crate) fn pack(program: &Path, name: &str, folder: &Path) -> Result<PathBuf> {
    run(Command::new("sh")
        .args(["-c", SCRIPT, "testbed-image"])
        .args([program, folder])
        .args([name, architecture()]))?;
    Ok(folder.join("image.tar"))
}

/// The architecture's name in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
