//! metrics-server, a program that tests run unchanged.

use std::path::PathBuf;

use crate::error::Result;
use crate::module::Module;

/// The files of the Go module, relative to `tests/metrics-server`.
const FILES: [(&str, &str); 2] = [
    ("go.mod", include_str!("../../metrics-server/go.mod")),
    ("go.sum", include_str!("../../metrics-server/go.sum")),
];

const NAME: &str = "metrics-server";

/// Returns the program from the cache folder (`$KUBEWARM_CACHE`, else `~/.cache/kubewarm`), and
/// builds it if it is missing.
///
/// # Errors
/// When Go is missing, a module cannot be fetched, or the build fails.
///
/// # Cost
/// Nothing if the program is cached. Otherwise some 3 minutes on two cores, and 50 MB in the cache.
pub fn metrics_server() -> Result<PathBuf> {
    let programs = [(NAME, "sigs.k8s.io/metrics-server/cmd/metrics-server")];
    let module =
        Module { name: NAME, title: NAME, files: &FILES, programs: &programs, flags: "-s -w" };
    Ok(module.locate_or_build()?.join(NAME))
}
