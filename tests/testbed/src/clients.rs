//! Go programs for tests that read through client-go and controller-runtime.

use std::path::PathBuf;

use crate::error::Result;
use crate::module::Module;

/// The files of the Go module, relative to `tests/clients`.
const FILES: [(&str, &str); 20] = [
    ("go.mod", include_str!("../../clients/go.mod")),
    ("go.sum", include_str!("../../clients/go.sum")),
    ("apply/main.go", include_str!("../../clients/apply/main.go")),
    ("follow/main.go", include_str!("../../clients/follow/main.go")),
    ("follow/followers.go", include_str!("../../clients/follow/followers.go")),
    ("follow/protocol.go", include_str!("../../clients/follow/protocol.go")),
    ("follow/reader.go", include_str!("../../clients/follow/reader.go")),
    ("follow/seen.go", include_str!("../../clients/follow/seen.go")),
    ("follow/truth.go", include_str!("../../clients/follow/truth.go")),
    ("promlint/main.go", include_str!("../../clients/promlint/main.go")),
    ("protobuf/main.go", include_str!("../../clients/protobuf/main.go")),
    ("protobuf/fuzz.go", include_str!("../../clients/protobuf/fuzz.go")),
    ("protobuf/kinds.go", include_str!("../../clients/protobuf/kinds.go")),
    ("protobuf/messages.go", include_str!("../../clients/protobuf/messages.go")),
    ("protobuf/tables.go", include_str!("../../clients/protobuf/tables.go")),
    ("protobuf/types.go", include_str!("../../clients/protobuf/types.go")),
    ("protobuf/values.go", include_str!("../../clients/protobuf/values.go")),
    ("record/main.go", include_str!("../../clients/record/main.go")),
    ("requestinfo/main.go", include_str!("../../clients/requestinfo/main.go")),
    ("writer/main.go", include_str!("../../clients/writer/main.go")),
];

/// Each program, and the Go package that it is built from.
const PROGRAMS: [(&str, &str); 7] = [
    ("apply", "./apply"),
    ("follow", "./follow"),
    ("promlint", "./promlint"),
    ("protobuf", "./protobuf"),
    ("record", "./record"),
    ("requestinfo", "./requestinfo"),
    ("writer", "./writer"),
];

const MODULE: Module<'_> = Module {
    name: "clients",
    title: "clients of Go",
    files: &FILES,
    programs: &PROGRAMS,
    flags: "-s -w",
};

/// A folder with the Go programs.
///
/// `follow` compares informers of kubewarm with the API server, and `promlint` lints metrics.
/// `protobuf` prints field tables and random objects of the built-in kinds. `requestinfo` prints
/// the attributes that the API server authorizes. `apply` applies what it has read, and `record`
/// records Events. `writer` creates objects and reads them back, in a pod.
#[derive(Debug, Clone)]
pub struct GoClients {
    folder: PathBuf,
}

impl GoClients {
    /// Returns the programs from the cache folder (`$KUBEWARM_CACHE`, else `~/.cache/kubewarm`),
    /// and builds them if they are missing.
    ///
    /// # Errors
    /// When Go is missing, a module cannot be fetched, or the build fails.
    ///
    /// # Cost
    /// Nothing if the programs are cached. Otherwise some 2 minutes on two cores, and 80 MB in the
    /// cache. After a build of the control plane the cost is lower, because most modules are the
    /// same.
    pub fn locate_or_build() -> Result<Self> {
        Ok(Self { folder: MODULE.locate_or_build()? })
    }

    /// Returns the folder of Kubernetes' serialized sample objects in Go's module cache, and
    /// downloads the folder if it is missing. `HEAD` has the objects of this release, and `v1.35.0`
    /// of an earlier release. The files are named `<group>.<version>.<kind>.json` (and `.pb`,
    /// `.yaml`).
    ///
    /// # Errors
    /// When Go is missing, or the module cannot be fetched.
    pub fn kubernetes_testdata() -> Result<PathBuf> {
        Ok(MODULE.dependency("k8s.io/api")?.join("testdata"))
    }

    /// The path of one program.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
