//! The programs of a control plane, built once from their Go modules and kept in a cache folder.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Action, Error, Result};
use crate::process::run;

/// The Kubernetes release that is built.
pub const KUBERNETES_VERSION: &str = "1.36.4";

/// The Go module, by file name below `tests/controlplane`.
const MODULE: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../controlplane/go.mod")),
    ("go.sum", include_str!("../../controlplane/go.sum")),
    ("cmd/kubecp/main.go", include_str!("../../controlplane/cmd/kubecp/main.go")),
];

/// The programs, with the packages they are built from.
const PROGRAMS: [(&str, &str); 4] = [
    ("kubecp", "./cmd/kubecp"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
    ("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
];

/// A folder with `kubecp` (etcd, kube-apiserver, kube-controller-manager), `kubectl`, `etcdctl` and
/// `etcdutl`.
#[derive(Debug, Clone)]
pub struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// The programs from the cache folder (`$KUBEWARM_CACHE`, else `~/.cache/kubewarm`), built if
    /// they are not there.
    ///
    /// # Errors
    /// When Go is missing, a module cannot be fetched, or the build fails.
    ///
    /// # Cost
    /// Nothing if cached. Otherwise about 4 minutes on two cores, 1 GB of downloads, and 250 MB in
    /// the cache; others that ask at the same time wait for this build.
    pub fn locate_or_build() -> Result<Self> {
        let cache = cache_folder()?;
        fs::create_dir_all(&cache).action(|| format!("create {}", cache.display()))?;
        let name = format!("controlplane-{:016x}", fingerprint());
        let folder = cache.join(&name);
        if folder.is_dir() {
            return Ok(Self { folder });
        }
        let lock = cache.join(format!("{name}.lock"));
        // Held until the file is closed, at the end of this function or of the process.
        let lock = fs::File::create(&lock)
            .and_then(|file| file.lock().map(|()| file))
            .action(|| format!("lock {}", lock.display()))?;
        if !folder.is_dir() {
            build(&cache, &folder)?;
        }
        drop(lock);
        Ok(Self { folder })
    }

    /// The path of one program.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn cache_folder() -> Result<PathBuf> {
    std::env::var_os("KUBEWARM_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/kubewarm")))
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        .action(|| "find a cache folder: neither KUBEWARM_CACHE nor HOME is set".to_owned())
}

/// FNV-1a over everything the build depends on: the standard library's hashes may change between
/// releases of Rust, and each change would cost a build.
fn fingerprint() -> u64 {
    let flags = linker_flags();
    MODULE
        .iter()
        .map(|(_, text)| *text)
        .chain([flags.as_str()])
        .flat_map(str::bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

/// Without the versions, clients and `kubectl` take the server for 0.0.0.
fn linker_flags() -> String {
    let v = KUBERNETES_VERSION;
    let component = "-X k8s.io/component-base/version";
    format!(
        "-s -w {component}.gitVersion=v{v} {component}.gitMajor=1 {component}.gitMinor=36 \
         {component}.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=v{v}"
    )
}

fn build(cache: &Path, folder: &Path) -> Result<()> {
    let go = Command::new("go").arg("version").output();
    if !go.is_ok_and(|output| output.status.success()) {
        return Err(Error::Missing {
            program: "go",
            remedy: "install Go 1.26 or newer (https://go.dev/dl) and put it into PATH",
        });
    }
    // Straight to the stream: the test harness would keep `eprintln!` back, and a silent wait of
    // minutes looks like a hang.
    let _ = writeln!(
        io::stderr(),
        "building Kubernetes {KUBERNETES_VERSION} into {} (once, some minutes)",
        folder.display()
    );
    let work = tempfile::Builder::new()
        .prefix(".build-")
        .tempdir_in(cache)
        .action(|| format!("create a folder in {}", cache.display()))?;
    let source = work.path().join("source");
    for (file, text) in MODULE {
        let path = source.join(file);
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text))
            .action(|| format!("write {}", path.display()))?;
    }
    let programs = work.path().join("programs");
    for (program, package) in PROGRAMS {
        run(Command::new("go")
            .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", &linker_flags(), "-o"])
            .arg(programs.join(program))
            .arg(package)
            .env("CGO_ENABLED", "0")
            // A `go.work` around the cache folder is not ours.
            .env("GOWORK", "off")
            .current_dir(&source))?;
    }
    fs::rename(&programs, folder).action(|| format!("create {}", folder.display()))
}
