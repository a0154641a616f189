//! Tests the image's archive: it is reproducible and complete, and binaries that cannot run in it
//! are rejected.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::scripts::{Failure, Outcome, file, printed, script, static_program};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const NAMES: [&str; 2] = ["localhost/kubewarm:1", "localhost/kubewarm:dev"];

fn pack(binary: &Path, archive: &Path) -> Command {
    let mut command = script("pack.sh");
    command.arg(binary).arg(VERSION).arg(archive).args(NAMES);
    command
}

/// The error of a command.
fn refusal(command: &mut Command) -> String {
    printed(command).map_or_else(|error| error.to_string(), |output| format!("accepted: {output}"))
}

fn unpacked(archive: &Path, folder: &Path) -> Outcome {
    fs::create_dir(folder)?;
    printed(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(folder)).map(drop)
}

fn sum(path: &Path) -> Result<String, Failure> {
    let output = printed(Command::new("sha256sum").arg(path))?;
    Ok(output.split_whitespace().next().unwrap_or_default().to_owned())
}

/// The blob of a descriptor, after a check of its size and digest.
fn blob(layout: &Path, descriptor: &Value) -> Result<PathBuf, Failure> {
    let digest = descriptor["digest"].as_str().and_then(|text| text.strip_prefix("sha256:"));
    let digest = digest.ok_or_else(|| format!("no digest: {descriptor}"))?;
    let path = layout.join("blobs/sha256").join(digest);
    assert_eq!(sum(&path)?, digest);
    assert_eq!(descriptor["size"], fs::metadata(&path)?.len());
    Ok(path)
}

fn document(path: &Path) -> Result<Value, Failure> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

#[test]
fn the_same_binary_gives_the_same_archive() -> Outcome {
    let folder = tempfile::tempdir()?;
    let binary = static_program(folder.path())?;
    // The program file's time, owner and folder must not change the archive, which has to be
    // reproducible.
    let again = folder.path().join("elsewhere");
    fs::copy(&binary, &again)?;
    printed(Command::new("touch").args(["-d", "2001-01-01"]).arg(&again))?;
    let [one, two] = ["one.tar", "two.tar"].map(|name| folder.path().join(name));
    let output = printed(&mut pack(&binary, &one))?;
    let loosely = format!("umask 0; exec {:?} \"$@\"", file("deploy/image/pack.sh"));
    let mut command = Command::new("bash");
    command.args(["-c", &loosely, "bash"]).arg(&again).arg(VERSION).arg(&two).args(NAMES);
    printed(command.env("TZ", "Asia/Tokyo").current_dir(folder.path()))?;
    assert_eq!(sum(&one)?, sum(&two)?);
    assert!(output.contains(": 1 of 20 MiB, sha256:"), "{output}");
    assert!(output.contains(&format!("/kubewarm in it: sha256:{}", sum(&binary)?)), "{output}");
    Ok(())
}

#[test]
fn the_image_is_one_program_that_runs_without_root() -> Outcome {
    let folder = tempfile::tempdir()?;
    let binary = static_program(folder.path())?;
    let archive = folder.path().join("image.tar");
    let mut command = pack(&binary, &archive);
    printed(
        command.env("KUBEWARM_REVISION", "0a1b").env("KUBEWARM_SOURCE", "https://example.com"),
    )?;
    let layout = folder.path().join("layout");
    unpacked(&archive, &layout)?;
    assert_eq!(document(&layout.join("oci-layout"))?, json!({"imageLayoutVersion": "1.0.0"}));

    let index = document(&layout.join("index.json"))?;
    let manifests = index["manifests"].as_array().ok_or("no manifests")?;
    let name =
        |manifest: &Value| manifest["annotations"]["org.opencontainers.image.ref.name"].clone();
    assert_eq!(manifests.iter().map(name).collect::<Vec<_>>(), NAMES);
    let digests: BTreeSet<_> =
        manifests.iter().map(|manifest| manifest["digest"].to_string()).collect();
    assert_eq!(digests.len(), 1, "two names, one image");

    let manifest = document(&blob(&layout, &manifests[0])?)?;
    let config = document(&blob(&layout, &manifest["config"])?)?;
    let labels = json!({
        "org.opencontainers.image.title": "kubewarm",
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.revision": "0a1b",
        "org.opencontainers.image.source": "https://example.com",
        "org.opencontainers.image.licenses": "Apache-2.0",
    });
    let expected = json!({
        "User": "65532:65532", "Entrypoint": ["/kubewarm"], "Env": ["PATH=/"], "Labels": labels,
    });
    assert_eq!(config["config"], expected);
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    assert_eq!(config["architecture"], architecture);
    assert_eq!(config["created"], "1970-01-01T00:00:00Z");

    let layers = manifest["layers"].as_array().ok_or("no layers")?;
    assert_eq!(layers.len(), 1);
    let packed = blob(&layout, &layers[0])?;
    let layer = folder.path().join("layer");
    fs::copy(&packed, layer.with_extension("gz"))?;
    printed(Command::new("gunzip").arg(layer.with_extension("gz")))?;
    let unpacked_digest = format!("sha256:{}", sum(&layer)?);
    assert_eq!(config["rootfs"]["diff_ids"], json!([unpacked_digest]));
    let root = folder.path().join("root");
    unpacked(&layer, &root)?;
    assert_eq!(fs::read(root.join("kubewarm"))?, fs::read(&binary)?);
    let listed = printed(Command::new("tar").arg("-tvf").arg(&layer).env("TZ", "UTC"))?;
    let modes: Vec<_> = listed
        .lines()
        .filter_map(|line| Some((line.split_whitespace().next()?, line.rsplit(' ').next()?)))
        .collect();
    assert_eq!(modes, [("-rw-r--r--", "LICENSE"), ("-rwxr-xr-x", "kubewarm")]);
    assert!(listed.lines().all(|line| line.contains(" 0/0 ") && line.contains("1970-01-01 00:00")));
    Ok(())
}

#[test]
fn binaries_that_cannot_run_or_are_too_large_are_rejected() -> Outcome {
    let folder = tempfile::tempdir()?;
    let binary = static_program(folder.path())?;
    let archive = folder.path().join("image.tar");
    let shared = Path::new(env!("CARGO_BIN_EXE_kubewarm"));
    let output = refusal(&mut pack(shared, &archive));
    assert!(output.contains("needs shared libraries"), "{output}");
    let output = refusal(pack(&binary, &archive).env("KUBEWARM_IMAGE_LIMIT_MIB", "0"));
    assert!(output.contains("more than the limit of 0 MiB"), "{output}");
    let output = refusal(pack(&binary, &archive).arg("localhost:5000/kubewarm"));
    assert!(output.contains("has no tag"), "{output}");
    let output = refusal(pack(&binary, &archive).arg("x\",\"y:1"));
    assert!(output.contains("x\",\"y:1"), "{output}");
    assert!(!archive.exists());
    Ok(())
}

#[test]
fn the_chart_names_an_image_that_is_made() -> Outcome {
    let values = fs::read_to_string(file("charts/kubewarm/values.yaml"))?;
    let values: Value = serde_saphyr::from_str(&values)?;
    let repository = values["image"]["repository"].as_str().ok_or("no repository")?;
    // A dry run of make prints the commands with the image's names, without a build.
    let output = printed(
        Command::new("make").args(["--dry-run", "image"]).current_dir(file("")).env_remove("IMAGE"),
    )?;
    let named = format!("deploy/image/image.sh {repository}:{VERSION} {repository}:dev");
    assert!(output.lines().any(|line| line == named), "{output}");
    Ok(())
}

#[test]
fn the_untried_stage_compiles_with_the_rust_of_the_toolchain_file() -> Outcome {
    let toolchain = fs::read_to_string(file("rust-toolchain.toml"))?;
    let pinned = toolchain.lines().find_map(|line| line.strip_prefix("channel = "));
    let pinned = pinned.ok_or("no channel")?.trim_matches('"');
    let containerfile = fs::read_to_string(file("deploy/image/Containerfile"))?;
    let image = format!("FROM docker.io/library/rust:{pinned}-bookworm AS program");
    assert!(containerfile.lines().any(|line| line == image), "no line {image}");
    Ok(())
}
