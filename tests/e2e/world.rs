//! Where the tests take place: control planes with the `CacheProfile` resource in them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use testbed::{Builder, ControlPlane};

pub(crate) use testbed::eventually;

use crate::authorizer::Authorizer;
use crate::client::Reader;
use crate::pool::Plane;

/// Why a test cannot go on.
pub(crate) type Failure = Box<dyn Error>;

/// What a test ends with.
pub(crate) type Outcome = Result<(), Failure>;

/// A kind that takes any object.
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

/// The operator, and the accounts that read for it.
const AUDITED: &str = "system:serviceaccounts";

/// A control plane that knows `CacheProfiles`. Its audit log has the operator's requests, and the profiles
/// that were written.
pub(crate) struct World {
    pub(crate) cluster: Plane,
    namespaces: AtomicU32,
    reader: Reader,
}

/// Which of the shipped rights the operator has: its requests are compared with these.
#[derive(Clone, Copy)]
enum Rights {
    ClusterWide,
    /// Those of `--watch-namespaces`.
    Roles,
}

impl World {
    /// The control plane of all tests that disturb no other: no restarts, nothing cluster-wide, and
    /// namespaces of their own.
    pub(crate) fn shared() -> Result<&'static Self, Failure> {
        static SHARED: OnceLock<Result<World, String>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| Self::alone().map_err(|error| error.to_string()));
        shared.as_ref().map_err(|error| error.as_str().into())
    }

    /// A control plane for one test, which may do anything to it.
    pub(crate) fn alone() -> Result<Self, Failure> {
        Self::start(ControlPlane::builder(), Rights::ClusterWide)
    }

    /// A control plane for one test at a time: it may change any object, and leaves processes and audit log
    /// alone. The next test gets it as it was new.
    pub(crate) fn lease() -> Result<Self, Failure> {
        let cluster = Plane::lease(|| boot(ControlPlane::builder(), Rights::ClusterWide))?;
        Ok(Self { cluster, namespaces: AtomicU32::new(0), reader: Reader::default() })
    }

    /// One whose operator has no more than Roles.
    pub(crate) fn with_roles() -> Result<Self, Failure> {
        Self::start(ControlPlane::builder(), Rights::Roles)
    }

    /// One whose API server asks this webhook, too.
    pub(crate) fn with_authorizer(authorizer: &Authorizer) -> Result<Self, Failure> {
        let builder = ControlPlane::builder().with_apiserver_args(authorizer.apiserver_args());
        Self::start(builder, Rights::ClusterWide)
    }

    fn start(builder: Builder, rights: Rights) -> Result<Self, Failure> {
        let cluster = Plane::alone(|| boot(builder, rights))?;
        Ok(Self { cluster, namespaces: AtomicU32::new(0), reader: Reader::default() })
    }

    /// Makes [`PARTS`] a kind that the server knows.
    pub(crate) fn define_parts(&self) -> Outcome {
        self.cluster.apply(PARTS)?;
        self.cluster.run(["wait", "--for=condition=Established", "crd/parts.example.com"])?;
        Ok(())
    }

    /// A new namespace whose name begins like this.
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

    /// An object, as `kubectl get … -o json` shows it.
    pub(crate) fn get(&self, namespace: &str, kind: &str, name: &str) -> Result<Value, Failure> {
        let text = self.cluster.run(["get", kind, name, "-n", namespace, "--output=json"])?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Starts a control plane and defines `CacheProfile`.
fn boot(builder: Builder, rights: Rights) -> Result<ControlPlane, Failure> {
    let mut builder = builder.with_controller_manager();
    if let Some(file) = record(rights)? {
        let profiles = ("kubewarm.io", "cacheprofiles");
        builder = builder.with_audit_log_of(AUDITED, profiles, file);
    }
    let cluster = builder.start()?;
    let crd = file("crds/kubewarm.io_cacheprofiles.yaml");
    cluster.run(["create", "-f", &crd.to_string_lossy()])?;
    // One that is so new that it has no conditions yet is an error for kubectl.
    let established = "--for=condition=Established";
    let wait = ["wait", established, "crd/cacheprofiles.kubewarm.io", "--timeout=60s"];
    eventually(Duration::from_secs(30), || Ok(cluster.run(wait)?))?;
    // Discovery and OpenAPI follow a moment later.
    eventually(Duration::from_secs(30), || Ok(cluster.run(["explain", "cprof"])?))?;
    Ok(cluster)
}

/// Where the next API server writes down what the operator asks for. When all have ended,
/// `tests/e2e_rights.rs` compares it with the shipped rights. Nobody does so after a soak.
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
/// The YAML files of a folder of the repository, in order.
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
