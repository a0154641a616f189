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
const MODULE: [(&str, &str); 4] = [
    ("go.mod", include_str!("../../controlplane/go.mod")),
    ("go.sum", include_str!("../../controlplane/go.sum")),
    ("cmd/kubecp/main.go", include_str!("../../controlplane/cmd/kubecp/main.go")),
    (
        "cmd/kube-controller-manager/main.go",
        include_str!("../../controlplane/cmd/kube-controller-manager/main.go"),
    ),
];

/// The files of the program with the RBAC authorizer. It has the dependencies of the control plane,
/// but is a module of its own, so that a change of the program does not build the control plane
/// again.
const AUTHORIZER_MODULE: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../controlplane/go.mod")),
    ("go.sum", include_str!("../../controlplane/go.sum")),
    ("cmd/authorizer/main.go", include_str!("../../controlplane/cmd/authorizer/main.go")),
];

/// A program of the control plane.
#[derive(Debug, Clone, Copy)]
pub enum Program {
    /// etcd and kube-apiserver.
    Kubecp,
    /// kube-controller-manager
    ControllerManager,
    /// kubectl
    Kubectl,
    /// etcdctl
    Etcdctl,
    /// etcdutl
    Etcdutl,
}

impl Program {
    /// Returns the path of the program in the cache folder (`$KUBEWARM_CACHE`, else
    /// `~/.cache/kubewarm`), and builds the program if it is missing.
    ///
    /// # Errors
    /// When Go is missing, a module cannot be fetched, or the build fails.
    ///
    /// # Cost
    /// Nothing if cached. Otherwise, all programs together take about 4 minutes on two cores, 1 GB
    /// of downloads, and 300 MB in the cache. Concurrent callers wait for one build.
    pub fn locate_or_build(self) -> Result<PathBuf> {
        let (name, package) = match self {
            Self::Kubecp => ("kubecp", "./cmd/kubecp"),
            Self::ControllerManager => ("kube-controller-manager", "./cmd/kube-controller-manager"),
            Self::Kubectl => ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
            Self::Etcdctl => ("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
            Self::Etcdutl => ("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
        };
        let module = Module {
            name,
            title: &format!("{name} of Kubernetes {KUBERNETES_VERSION}"),
            files: &MODULE,
            programs: &[(name, package)],
            flags: &linker_flags(KUBERNETES_VERSION),
        };
        Ok(module.locate_or_build()?.join(name))
    }
}

/// Returns kube-apiserver of the oldest supported Kubernetes release, and builds it if it is
/// missing.
///
/// # Errors
/// The errors of [`Program::locate_or_build`].
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

/// Returns a program that decides requests with the RBAC authorizer of kube-apiserver, and builds
/// the program if it is missing. The program reads roles, bindings and requests in JSON from
/// standard input.
///
/// # Errors
/// The errors of [`Program::locate_or_build`].
///
/// # Cost
/// Nothing if cached. Otherwise about 1 minute on two cores. After a build of the control plane,
/// some seconds, because all packages are the same.
pub fn rbac_authorizer() -> Result<PathBuf> {
    let module = Module {
        name: "authorizer",
        title: &format!("the RBAC authorizer of Kubernetes {KUBERNETES_VERSION}"),
        files: &AUTHORIZER_MODULE,
        programs: &[("authorizer", "./cmd/authorizer")],
        flags: "-s -w",
    };
    Ok(module.locate_or_build()?.join("authorizer"))
}

/// The linker's flags for the release `version`. Without them, clients and `kubectl` see version
/// 0.0.0.
pub(crate) fn linker_flags(version: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    let component = "-X k8s.io/component-base/version";
    format!(
        "-s -w {component}.gitVersion=v{version} {component}.gitMajor=1 {component}.gitMinor={minor} \
         {component}.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=v{version}"
    )
}
