//! The programs of a control plane.

use std::path::PathBuf;

use crate::error::Result;
use crate::module::Module;

/// The Kubernetes release that is built.
pub const KUBERNETES_VERSION: &str = "1.36.4";

/// The oldest Kubernetes release that kubewarm supports.
const OLDEST_KUBERNETES_VERSION: &str = "1.32.13";

/// The files of the Go module of the oldest kube-apiserver, relative to `tests/oldest-apiserver`.
const OLDEST_MODULE: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../oldest-apiserver/go.mod")),
    ("go.sum", include_str!("../../oldest-apiserver/go.sum")),
    ("main.go", include_str!("../../oldest-apiserver/main.go")),
];

/// The files of the Go module, relative to `tests/controlplane`.
const MODULE: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../controlplane/go.mod")),
    ("go.sum", include_str!("../../controlplane/go.sum")),
    ("cmd/kubecp/main.go", include_str!("../../controlplane/cmd/kubecp/main.go")),
];

/// Each program, and the Go package that it is built from.
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
    /// Returns the programs from the cache folder (`$KUBEWARM_CACHE`, else `~/.cache/kubewarm`), and builds
    /// them if they are missing.
    ///
    /// # Errors
    /// When Go is missing, a module cannot be fetched, or the build fails.
    ///
    /// # Cost
    /// Nothing if cached. Otherwise about 4 minutes on two cores, 1 GB of downloads, and 250 MB in the
    /// cache. Concurrent callers wait for one build.
    pub fn locate_or_build() -> Result<Self> {
        let module = Module {
            name: "controlplane",
            title: &format!("Kubernetes {KUBERNETES_VERSION}"),
            files: &MODULE,
            programs: &PROGRAMS,
            flags: &linker_flags(KUBERNETES_VERSION),
        };
        Ok(Self { folder: module.locate_or_build()? })
    }

    /// Returns kube-apiserver of the oldest supported Kubernetes release, and builds it if it is missing.
    ///
    /// # Errors
    /// The errors of [`Self::locate_or_build`].
    ///
    /// # Cost
    /// Nothing if cached. Otherwise about 4 minutes on two cores.
    pub(crate) fn oldest_apiserver() -> Result<PathBuf> {
        let module = Module {
            name: "oldest-apiserver",
            title: &format!("kube-apiserver {OLDEST_KUBERNETES_VERSION}"),
            files: &OLDEST_MODULE,
            programs: &[("kube-apiserver", ".")],
            flags: &linker_flags(OLDEST_KUBERNETES_VERSION),
        };
        Ok(module.locate_or_build()?.join("kube-apiserver"))
    }

    /// The path of one program.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The linker's flags for the release `version`. Without them, clients and `kubectl` see version 0.0.0.
pub(crate) fn linker_flags(version: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    let component = "-X k8s.io/component-base/version";
    format!(
        "-s -w {component}.gitVersion=v{version} {component}.gitMajor=1 {component}.gitMinor={minor} \
         {component}.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=v{version}"
    )
}
