//! Sealed Secrets, a controller that tests run unchanged.

use std::fs;
use std::path::PathBuf;

use crate::error::{Action, Result};
use crate::module::Module;

/// The files of the Go module, relative to `tests/sealed-secrets`.
const FILES: [(&str, &str); 2] = [
    ("go.mod", include_str!("../../sealed-secrets/go.mod")),
    ("go.sum", include_str!("../../sealed-secrets/go.sum")),
];

/// Each program, and the Go package that it is built from.
const PROGRAMS: [(&str, &str); 2] = [
    ("controller", "github.com/bitnami/sealed-secrets/cmd/controller"),
    ("kubeseal", "github.com/bitnami/sealed-secrets/cmd/kubeseal"),
];

const MODULE: Module<'_> = Module {
    name: "sealed-secrets",
    title: "Sealed Secrets",
    files: &FILES,
    programs: &PROGRAMS,
    flags: "-s -w",
};

/// The programs of Sealed Secrets, and its CRD.
#[derive(Debug, Clone)]
pub struct SealedSecrets {
    folder: PathBuf,
}

impl SealedSecrets {
    /// Returns the programs from the cache folder (`$KUBEWARM_CACHE`, else `~/.cache/kubewarm`),
    /// and builds them if they are missing.
    ///
    /// # Errors
    /// When Go is missing, a module cannot be fetched, or the build fails.
    ///
    /// # Cost
    /// Nothing if the programs are cached. Otherwise some 2 minutes on two cores, and 100 MB in the
    /// cache.
    pub fn locate_or_build() -> Result<Self> {
        Ok(Self { folder: MODULE.locate_or_build()? })
    }

    /// The controller, which has no option for a kubeconfig.
    #[must_use]
    pub fn controller(&self) -> PathBuf {
        self.folder.join("controller")
    }

    /// The command-line program that encrypts Secrets.
    #[must_use]
    pub fn kubeseal(&self) -> PathBuf {
        self.folder.join("kubeseal")
    }

    /// The CRD of the module.
    ///
    /// # Errors
    /// When Go is missing, or the module cannot be fetched.
    pub fn crd(&self) -> Result<String> {
        let module = MODULE.dependency("github.com/bitnami/sealed-secrets")?;
        let path = module.join("helm/sealed-secrets/crds/bitnami.com_sealedsecrets.yaml");
        fs::read_to_string(&path).action(|| format!("read {}", path.display()))
    }
}
