//! Tests the kubectl plugin: krew's archive and manifest, and completion in bash.

#![expect(clippy::expect_used, reason = "a test may panic")]

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn yaml(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("the file can be read");
    serde_saphyr::from_str(&text).expect("it is YAML")
}

#[test]
fn a_krew_archive_matches_its_manifest_and_is_reproducible() {
    let folder = tempfile::tempdir().expect("a folder");
    // A small script stands for the binary, because compressing the binary with its symbols would
    // take a minute.
    let binary = folder.path().join("kubewarm");
    let kubewarm = env!("CARGO_BIN_EXE_kubewarm");
    let script = format!("#!/usr/bin/env bash\nexec -a \"$0\" '{kubewarm}' \"$@\"\n");
    fs::write(&binary, script).expect("the file can be written");
    let pack = |name: &str| {
        let into = folder.path().join(name);
        let output = Command::new(in_repository("deploy/krew/package.sh"))
            .arg(&binary)
            .args([env!("CARGO_PKG_VERSION"), "https://example.com/v1/"])
            .arg(&into)
            .output()
            .expect("bash and tar are there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        into
    };
    let into = pack("one");
    let manifest = yaml(&into.join("warm.yaml"));
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!(manifest["metadata"]["name"], "warm");
    assert_eq!(manifest["spec"]["version"], concat!("v", env!("CARGO_PKG_VERSION")));
    // krew's index has these requirements for a manifest.
    let short = manifest["spec"]["shortDescription"].as_str().expect("a text");
    assert!(short.len() <= 50 && !short.ends_with('.'), "{short}");

    let platform = &manifest["spec"]["platforms"][0];
    let uri = platform["uri"].as_str().expect("a URL");
    let archive = uri.strip_prefix("https://example.com/v1/").expect("below the URL");
    let sum = |folder: &Path| {
        let output = Command::new("sha256sum").arg(folder.join(archive)).output();
        let output = output.expect("sha256sum is there").stdout;
        String::from_utf8_lossy(&output).split_whitespace().next().unwrap_or_default().to_owned()
    };
    assert_eq!(platform["sha256"], sum(&into));
    assert_eq!(sum(&into), sum(&pack("two")), "another archive of the same binary");

    // Unpacks and links the binary as krew does.
    let unpacked = folder.path().join("unpacked");
    fs::create_dir(&unpacked).expect("a folder");
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(into.join(archive)).arg("-C").arg(&unpacked);
    assert!(tar.status().expect("tar is there").success());
    assert!(unpacked.join("LICENSE").exists());
    let run = |name: &str, arguments: &[&str]| {
        let output = Command::new(unpacked.join(name)).args(arguments).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let bin = platform["bin"].as_str().expect("a name");
    assert!(run(bin, &["status", "--help"]).contains("Usage: kubectl warm status"));
}

/// The completions that bash offers for this command line.
fn offered(line: &[&str]) -> Vec<String> {
    let binary = Path::new(env!("CARGO_BIN_EXE_kubewarm"));
    let script = "source <(kubewarm completion bash)
        COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
        _kubewarm kubewarm \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let path = format!(
        "{}:{}",
        binary.parent().expect("a folder").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("bash")
        .args(["-c", script, "bash"])
        .args(line)
        .env("PATH", path)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .output()
        .expect("bash is there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_what_is_typed() {
    assert_eq!(offered(&["kubewarm", "kubec"]), ["kubeconfig"]);
    assert_eq!(offered(&["kubewarm", "status", "--all"]), ["--all-namespaces"]);
    assert_eq!(offered(&["kubewarm", "status", "-o", "ya"]), ["yaml"]);
}
