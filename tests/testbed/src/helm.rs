//! The supported major versions of Helm.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::module::Module;
use crate::process::run;

/// The files of the Go module, relative to `tests/helm`.
const MODULE: [(&str, &str); 2] =
    [("go.mod", include_str!("../../helm/go.mod")), ("go.sum", include_str!("../../helm/go.sum"))];

/// Each major version, and the Go package that it is built from.
const PROGRAMS: [(&str, &str); 2] =
    [("helm-3", "helm.sh/helm/v3/cmd/helm"), ("helm-4", "helm.sh/helm/v4/cmd/helm")];

/// The linker's flags for Helm. Without them, Helm 3 renders for Kubernetes 1.20 unless it can ask
/// a cluster, and Helm 4 renders for the version of its client library.
const FLAGS: &str = "-s -w \
    -X helm.sh/helm/v3/internal/version.version=v3.21.4 \
    -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 \
    -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36 \
    -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 \
    -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=36 \
    -X helm.sh/helm/v4/internal/version.version=v4.2.4";

/// One version of Helm.
#[derive(Debug, Clone)]
pub struct Helm {
    program: PathBuf,
    home: PathBuf,
}

impl Helm {
    /// Returns Helm 3 and Helm 4 from the cache folder (`$KUBEWARM_CACHE`, else
    /// `~/.cache/kubewarm`), and builds them if they are missing. Their own files are below `home`.
    ///
    /// # Errors
    /// When Go is missing, a module cannot be fetched, or the build fails.
    ///
    /// # Cost
    /// Nothing if the programs are cached. Otherwise some 3 minutes on two cores, and 120 MB in the
    /// cache. After a build of the control plane the cost is lower, because most modules are the
    /// same.
    pub fn locate_or_build(home: &Path) -> Result<[Self; 2]> {
        let module = Module {
            name: "helm",
            title: "Helm 3 and Helm 4",
            files: &MODULE,
            programs: &PROGRAMS,
            flags: FLAGS,
        };
        let folder = module.locate_or_build()?;
        Ok(PROGRAMS.map(|(name, _)| Self { program: folder.join(name), home: home.join(name) }))
    }

    /// The name of this version: `helm-3` or `helm-4`.
    #[must_use]
    pub fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Runs Helm and returns its output. Helm finds no cluster unless an argument names a
    /// kubeconfig.
    ///
    /// # Errors
    /// With the command line and the output, if the command fails.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<String> {
        run(self.command().args(args))
    }

    /// A Helm command without a cluster. Add arguments and run it.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // The user's own Helm repositories, plugins and settings must not change the output.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("HELM_") {
                command.env_remove(variable);
            }
        }
        command
            .env("KUBECONFIG", self.home.join("no-kubeconfig"))
            .env("HELM_CACHE_HOME", self.home.join("cache"))
            .env("HELM_CONFIG_HOME", self.home.join("config"))
            .env("HELM_DATA_HOME", self.home.join("data"));
        command
    }
}
