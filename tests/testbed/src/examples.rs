//! The example programs of Go, `examples`.

use std::path::PathBuf;

use crate::error::Result;
use crate::module::Module;

const CONTROLLER_RUNTIME: Module<'_> = Module {
    name: "example-controller-runtime",
    title: "the example for controller-runtime",
    files: &[
        ("go.mod", include_str!("../../../examples/controller-runtime/go.mod")),
        ("go.sum", include_str!("../../../examples/controller-runtime/go.sum")),
        ("main.go", include_str!("../../../examples/controller-runtime/main.go")),
        ("cache.go", include_str!("../../../examples/controller-runtime/cache.go")),
        ("controller.go", include_str!("../../../examples/controller-runtime/controller.go")),
    ],
    programs: &[("controller-runtime", ".")],
    flags: "-s -w",
};

const CLIENT_GO: Module<'_> = Module {
    name: "example-client-go",
    title: "the example for client-go",
    files: &[
        ("go.mod", include_str!("../../../examples/client-go/go.mod")),
        ("go.sum", include_str!("../../../examples/client-go/go.sum")),
        ("main.go", include_str!("../../../examples/client-go/main.go")),
    ],
    programs: &[("client-go", ".")],
    flags: "-s -w",
};

/// An example in Go. Each is a module of its own, so that users can copy its folder.
#[derive(Debug, Clone, Copy)]
pub enum GoExample {
    /// `examples/controller-runtime`
    ControllerRuntime,
    /// `examples/client-go`
    ClientGo,
}

impl GoExample {
    /// Returns the path of the program in the cache folder, and builds the program if it is
    /// missing.
    ///
    /// # Errors
    /// When Go is missing, a module cannot be fetched, or the build fails.
    ///
    /// # Cost
    /// Nothing if cached. After a build of [`GoClients`](crate::GoClients), some seconds, because
    /// all modules are the same.
    pub fn locate_or_build(self) -> Result<PathBuf> {
        let (module, program) = match self {
            Self::ControllerRuntime => (CONTROLLER_RUNTIME, "controller-runtime"),
            Self::ClientGo => (CLIENT_GO, "client-go"),
        };
        Ok(module.locate_or_build()?.join(program))
    }
}
