//! Builds and starts a real control plane for tests and the demo.
//!
//! [`ControlPlane::builder`] starts etcd, kube-apiserver and, if requested,
//! kube-controller-manager. Each is a process of its own, so that a test can kill, freeze and
//! restart it. Each [`Program`] is built once from a Go module and kept in a cache folder. All
//! processes end when the value is dropped or its owner process ends, even if that is killed.
//!
//! ```no_run
//! # fn main() -> testbed::Result<()> {
//! let cluster = testbed::ControlPlane::builder().start()?;
//! cluster.run(["create", "namespace", "team-a"])?;
//! cluster.apiserver().kill()?;
//! cluster.apiserver().start()?;
//! # Ok(())
//! # }
//! ```

mod audit;
mod backup;
mod cert_manager;
mod clients;
mod components;
mod control_plane;
mod detached;
mod error;
mod eventually;
mod examples;
mod guard;
mod helm;
mod image;
mod kubeconfig;
mod layout;
mod metrics_server;
mod module;
mod node;
mod pki;
mod port;
mod process;
pub mod profiles;
mod program;
mod prometheus;
mod requests;
mod sealed_secrets;

pub use cert_manager::CertManager;
pub use clients::GoClients;
pub use control_plane::{Builder, ControlPlane};
pub use detached::take_down;
pub use error::{Error, Result};
pub use eventually::eventually;
pub use examples::GoExample;
pub use helm::Helm;
pub use image::static_program;
pub use metrics_server::metrics_server;
pub use node::Node;
pub use port::free_port;
pub use process::Process;
pub use program::{KUBERNETES_VERSION, Program, rbac_authorizer};
pub use prometheus::{Prometheus, Sample};
pub use requests::{PARAMETERS, Request, changed, corpus};
pub use sealed_secrets::SealedSecrets;
