//! cert-manager's controllers, which tests run unchanged.

use std::fs;
use std::path::PathBuf;

use crate::error::{Action, Result};
use crate::module::Module;

/// The files of the Go module, relative to `tests/cert-manager`.
const FILES: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../cert-manager/go.mod")),
    ("go.sum", include_str!("../../cert-manager/go.sum")),
    ("main.go", include_str!("../../cert-manager/main.go")),
];

const MODULE: Module<'_> = Module {
    name: "cert-manager",
    title: "cert-manager",
    files: &FILES,
    programs: &[("cert-manager", ".")],
    flags: "-s -w",
};

/// cert-manager's controllers and CRDs.
#[derive(Debug, Clone)]
pub struct CertManager {
    folder: PathBuf,
}

impl CertManager {
    /// Returns the program from the cache folder (`$KUBEWARM_CACHE`, else `~/.cache/kubewarm`), and
    /// builds it if it is missing.
    ///
    /// # Errors
    /// When Go is missing, a module cannot be fetched, or the build fails.
    ///
    /// # Cost
    /// Nothing if the program is cached. Otherwise some 3 minutes on two cores.
    pub fn locate_or_build() -> Result<Self> {
        Ok(Self { folder: MODULE.locate_or_build()? })
    }

    /// The program.
    #[must_use]
    pub fn controller(&self) -> PathBuf {
        self.folder.join("cert-manager")
    }

    /// The CRDs of the module.
    ///
    /// # Errors
    /// When Go is missing, or the module cannot be fetched.
    pub fn crds(&self) -> Result<String> {
        let module = MODULE.dependency("github.com/cert-manager/cert-manager")?;
        let mut crds = String::new();
        for kind in [
            "acme.cert-manager.io_challenges",
            "acme.cert-manager.io_orders",
            "cert-manager.io_certificaterequests",
            "cert-manager.io_certificates",
            "cert-manager.io_clusterissuers",
            "cert-manager.io_issuers",
        ] {
            let path = module.join(format!("deploy/crds/{kind}.yaml"));
            let crd = fs::read_to_string(&path).action(|| format!("read {}", path.display()))?;
            crds.push_str("---\n");
            crds.push_str(&crd);
        }
        Ok(crds)
    }
}
