//! Control planes for tests, with the `CacheProfile` resource defined.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use testbed::{Builder, ControlPlane};

pub(crate) use testbed::eventually;

use crate::authorizer::WebhookAuthorizer;
use crate::client::Reader;
use crate::pool::Plane;

/// An error that ends a test.
pub(crate) type Failure = Box<dyn Error>;

/// The result of a test.
pub(crate) type Outcome = Result<(), Failure>;

/// Timeout for what happens within seconds on an idle machine. Six tests at a time on two busy
/// processors need minutes.
pub(crate) const SOON: Duration = Duration::from_mins(10);

/// A kind that accepts any object.
pub(crate) const PARTS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: parts.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Part, plural: parts, singular: part}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// The group of users whose requests the audit log contains: the operator, and the ServiceAccounts
/// with which it reads.
const AUDITED: &str = "system:serviceaccounts";

/// A control plane with the `CacheProfile` resource. Its audit log contains the operator's requests
/// and the written profiles.
pub(crate) struct World {
    pub(crate) cluster: Plane,
    namespaces: AtomicU32,
    reader: Reader,
}

/// Which of the operator's shipped permissions a control plane has. `tests/e2e_rights.rs` compares
/// the requests in the audit log with them.
#[derive(Clone, Copy)]
enum Rights {
    ClusterWide,
    /// The Roles for `--watch-namespaces`.
    Roles,
}

impl World {
    /// The shared control plane. Tests that use it must stay in their own namespaces, and must not
    /// restart servers or change cluster-wide objects.
    pub(crate) fn shared() -> Result<&'static Self, Failure> {
        static SHARED: OnceLock<Result<World, String>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| Self::alone().map_err(|error| error.to_string()));
        shared.as_ref().map_err(|error| error.as_str().into())
    }

    /// A control plane for one test, without restrictions.
    pub(crate) fn alone() -> Result<Self, Failure> {
        Self::start(with_controllers(), Rights::ClusterWide)
    }

    /// A control plane that serves every version of every built-in kind. No controller changes the
    /// objects.
    pub(crate) fn with_all_kinds() -> Result<Self, Failure> {
        let everything =
            ["--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"];
        let builder = ControlPlane::builder().with_apiserver_args(everything);
        Self::start(builder, Rights::ClusterWide)
    }

    /// A control plane with the oldest supported API server. No controller changes the objects.
    pub(crate) fn with_oldest_apiserver() -> Result<Self, Failure> {
        Self::start(ControlPlane::builder().with_oldest_apiserver(), Rights::ClusterWide)
    }

    /// A control plane whose etcd sends progress notifications only every 10 minutes. No controller
    /// changes the objects.
    pub(crate) fn with_rare_progress() -> Result<Self, Failure> {
        Self::start(ControlPlane::builder().with_rare_progress(), Rights::ClusterWide)
    }

    /// A control plane for one test at a time. The test may change any object, but must leave
    /// processes and the audit log alone. Afterwards all its objects are deleted.
    pub(crate) fn lease() -> Result<Self, Failure> {
        let cluster = Plane::lease(|| boot(with_controllers(), Rights::ClusterWide))?;
        Ok(Self { cluster, namespaces: AtomicU32::new(0), reader: Reader::default() })
    }

    /// A control plane whose operator has only Roles.
    pub(crate) fn with_roles() -> Result<Self, Failure> {
        Self::start(with_controllers(), Rights::Roles)
    }

    /// A control plane whose API server also uses this authorization webhook.
    pub(crate) fn with_authorizer(authorizer: &WebhookAuthorizer) -> Result<Self, Failure> {
        let builder = with_controllers().with_apiserver_args(authorizer.apiserver_args());
        Self::start(builder, Rights::ClusterWide)
    }

    fn start(builder: Builder, rights: Rights) -> Result<Self, Failure> {
        let cluster = Plane::alone(|| boot(builder, rights))?;
        Ok(Self { cluster, namespaces: AtomicU32::new(0), reader: Reader::default() })
    }

    /// Defines the kind in [`PARTS`].
    pub(crate) fn define_parts(&self) -> Outcome {
        self.cluster.apply(PARTS)?;
        self.cluster.run(["wait", "--for=condition=Established", "crd/parts.example.com"])?;
        Ok(())
    }

    /// Creates a namespace whose name begins with `prefix`.
    pub(crate) fn namespace(&self, prefix: &str) -> Result<String, Failure> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{number}");
        self.cluster.run(["create", "namespace", &name])?;
        Ok(name)
    }

    /// The object at a path of the API server.
    pub(crate) fn read(&self, path: &str) -> Result<Value, Failure> {
        self.reader.get(&self.cluster, path)
    }

    /// An object, as `kubectl get … -o json` prints it.
    pub(crate) fn get(&self, namespace: &str, kind: &str, name: &str) -> Result<Value, Failure> {
        let text = self.cluster.run(["get", kind, name, "-n", namespace, "--output=json"])?;
        Ok(serde_json::from_str(&text)?)
    }
}

fn with_controllers() -> Builder {
    ControlPlane::builder().with_controller_manager()
}

/// Starts a control plane and defines `CacheProfile`.
fn boot(mut builder: Builder, rights: Rights) -> Result<ControlPlane, Failure> {
    if let Some(file) = record(rights)? {
        let profiles = ("kubewarm.io", "cacheprofiles");
        builder = builder.with_audit_log_of(AUDITED, profiles, file);
    }
    let cluster = builder.start()?;
    let crd = file("crds/kubewarm.io_cacheprofiles.yaml");
    cluster.run(["create", "-f", &crd.to_string_lossy()])?;
    // `kubectl wait` fails for a new definition that has no conditions yet, so the test repeats it.
    let established = "--for=condition=Established";
    let wait = ["wait", established, "crd/cacheprofiles.kubewarm.io", "--timeout=60s"];
    eventually(SOON, || Ok(cluster.run(wait)?))?;
    // The API server's discovery and OpenAPI documents contain the resource only a moment later.
    eventually(SOON, || Ok(cluster.run(["explain", "cprof"])?))?;
    Ok(cluster)
}

/// The file for the audit log of the next API server. After all tests, `tests/e2e_rights.rs`
/// compares the log with the shipped permissions. After a soak test, no one reads it.
fn record(rights: Rights) -> Result<Option<PathBuf>, Failure> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    static FILES: AtomicU32 = AtomicU32::new(0);
    if env!("CARGO_CRATE_NAME") != "e2e" {
        return Ok(None);
    }
    let begin = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e-requests");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok::<_, std::io::Error>(folder)
    };
    let folder = FOLDER.get_or_init(|| begin().map_err(|error| error.to_string()));
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = match rights {
        Rights::ClusterWide => format!("{number}.jsonl"),
        Rights::Roles => format!("roles-{number}.jsonl"),
    };
    Ok(Some(folder.as_ref().map_err(String::as_str)?.join(name)))
}

/// A file of the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
/// The YAML files of a folder of the repository, sorted.
pub(crate) fn yaml_files(folder: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(file(folder))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(format!("no YAML file in {folder}").into());
    }
    Ok(files)
}
