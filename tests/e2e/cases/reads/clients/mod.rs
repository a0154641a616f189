//! Unmodified clients against the read API, compared with the API server.

mod applied;
mod commands;
mod documented;
mod examples;
mod go;
mod kube_rs;
mod manager;
mod rotated;
mod troubles;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::api::{Served, let_read};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, PARTS, SOON, World};

/// The clients' profile, in the operator's namespace, so that it serves every namespace.
const PROFILE: &str = "{freshness: {maxStalenessSeconds: 600}, targets: [
  {name: settings, resource: configmaps, scope: {type: AllNamespaces}},
  {name: parts, group: example.com, resource: parts, scope: {type: AllNamespaces}}]}";

/// The world of a test: an operator that serves reads, and a user who may read everything.
struct ClientsFixture {
    world: World,
    served: Served,
    profile: &'static str,
    /// A namespace with some objects.
    team: String,
    /// The reader's kubeconfig for the API server, with a token.
    reader: PathBuf,
    token: String,
}

impl ClientsFixture {
    fn start(world: World) -> Result<Self, Failure> {
        let served = Served::start(&world, &[])?;
        let (team, reader) = create_reader(&world)?;
        let token =
            world.cluster.run(["create", "token", "reader", "-n", &team])?.trim().to_owned();
        for name in ["red", "green", "blue"] {
            world.cluster.run(["create", "configmap", name, "-n", &team])?;
        }
        let scene = Self { profile: "clients", world, served, team, reader, token };
        scene.declare(PROFILE)?.await_condition("Ready", "True", None, SOON)?;
        Ok(scene)
    }

    /// The reader's kubeconfig for the cache.
    fn through(&self) -> Result<PathBuf, Failure> {
        kubeconfig(&self.served, &self.reader)
    }

    /// Applies this spec as the profile.
    fn declare(&self, spec: &str) -> Result<Profile<'_>, Failure> {
        Profile::apply(&self.world, NAMESPACE, self.profile, spec)
    }
}

/// Lets the operator read the kinds of [`PROFILE`], and creates a namespace with a reader of all
/// kinds. Returns the namespace and the reader's kubeconfig for the API server.
fn create_reader(world: &World) -> Result<(String, PathBuf), Failure> {
    Operator::grant_reading(world)?;
    world.cluster.apply(PARTS)?;
    let team = world.namespace("team")?;
    world.cluster.run(["create", "serviceaccount", "reader", "-n", &team])?;
    let_read(world, (&team, "reader"), None)?;
    let reader = world.cluster.service_account_kubeconfig(&team, "reader")?;
    Ok((team, reader))
}

/// Writes a kubeconfig for the cache next to `user`, with the same user.
fn kubeconfig(served: &Served, user: &Path) -> Result<PathBuf, Failure> {
    let path = user.with_extension("through-the-cache");
    write_kubeconfig(&served.url()?, served.authority(), user, &path)?;
    Ok(path)
}

/// Writes a kubeconfig for the server at `url`, with the CAs in the file `authority` and the user
/// of the kubeconfig `user`.
fn write_kubeconfig(url: &str, authority: &Path, user: &Path, path: &Path) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
        .args(["kubeconfig", "--overwrite", "--cache-server", url, "--output-file"])
        .arg(path)
        .arg("--cache-certificate-authority")
        .arg(authority)
        .arg("--kubeconfig")
        .arg(user)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into())
}
