//! A bounded pool of control planes, because each needs 400 MB of memory. Several tests use the
//! same control plane one after another.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::thread;

use parking_lot::{Condvar, Mutex};
use testbed::ControlPlane;

use crate::world::Failure;

/// The maximum number of concurrent control planes, for two cores. Two of them are shared and run
/// all the time.
const LIMIT: usize = 8;

/// Cluster-scoped kinds whose objects tests create, and the pool deletes. `namespaces` comes first,
/// because its deletion also deletes the contents.
const KINDS: &str = "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions,\
    validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas,\
    prioritylevelconfigurations,nodes,persistentvolumes";
/// Namespaced kinds whose objects tests create in the namespaces that every cluster has, and the
/// pool deletes.
const CONTENTS: &str = "cacheprofiles,configmaps,secrets,roles,rolebindings,serviceaccounts,pods,\
    services,deployments,resourcequotas";
const NAMESPACES: [&str; 2] = ["default", "kube-system"];

struct Pool {
    running: usize,
    idle: Vec<Leased>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { running: 0, idle: Vec::new() });
static CHANGED: Condvar = Condvar::new();

/// A control plane that counts against the limit.
pub(crate) struct Plane {
    // `None` only while the value is dropped.
    cluster: Option<Held>,
}

enum Held {
    Alone(ControlPlane),
    Leased(Leased),
}

/// A reusable control plane, and the objects and files that it had before the first test.
struct Leased {
    cluster: ControlPlane,
    objects: BTreeSet<String>,
    /// The kinds' definitions, each with its generation, which changes if a test edits a
    /// definition.
    definitions: String,
    files: BTreeSet<OsString>,
}

impl Plane {
    /// Starts a control plane that ends with the test.
    pub(crate) fn alone(
        boot: impl FnOnce() -> Result<ControlPlane, Failure>,
    ) -> Result<Self, Failure> {
        // At the limit, the pool first stops an idle control plane.
        drop(enter(|pool| if pool.running >= LIMIT { pool.idle.pop() } else { None }));
        match boot() {
            Ok(cluster) => Ok(Self { cluster: Some(Held::Alone(cluster)) }),
            Err(error) => {
                end();
                Err(error)
            }
        }
    }

    /// Returns a control plane that the next test can use again.
    pub(crate) fn lease(
        boot: impl FnOnce() -> Result<ControlPlane, Failure>,
    ) -> Result<Self, Failure> {
        let idle = enter(|pool| pool.idle.pop());
        let leased = idle.map_or_else(|| boot().and_then(Leased::new), Ok);
        match leased {
            Ok(leased) => Ok(Self { cluster: Some(Held::Leased(leased)) }),
            Err(error) => {
                end();
                Err(error)
            }
        }
    }
}

impl Deref for Plane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        match &self.cluster {
            Some(Held::Alone(cluster)) => cluster,
            Some(Held::Leased(leased)) => &leased.cluster,
            None => unreachable!("a plane is used after it was dropped"),
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        match self.cluster.take() {
            // A failed test may have left anything behind, so its control plane is not used again.
            Some(Held::Leased(leased)) if !thread::panicking() => {
                thread::spawn(move || {
                    if leased.reset().is_ok() {
                        POOL.lock().idle.push(leased);
                        CHANGED.notify_all();
                    } else {
                        // The control plane cannot be cleaned, for instance because a pod waits for
                        // its node, or because the test has edited the definition of CacheProfile.
                        drop(leased);
                        end();
                    }
                });
            }
            cluster => {
                drop(cluster);
                end();
            }
        }
    }
}

/// Waits until the limit permits one more control plane, and counts it. If `choose` returns an idle
/// control plane, this control plane is already counted.
fn enter(choose: impl FnOnce(&mut Pool) -> Option<Leased>) -> Option<Leased> {
    let mut pool = POOL.lock();
    CHANGED.wait_while(&mut pool, |pool| pool.running >= LIMIT && pool.idle.is_empty());
    let chosen = choose(&mut pool);
    pool.running += usize::from(chosen.is_none());
    chosen
}

fn end() {
    POOL.lock().running -= 1;
    CHANGED.notify_all();
}

impl Leased {
    fn new(cluster: ControlPlane) -> Result<Self, Failure> {
        let objects = objects(&cluster)?;
        let definitions = definitions(&cluster)?;
        let files = files(cluster.folder())?;
        Ok(Self { cluster, objects, definitions, files })
    }

    /// Deletes all objects and files that did not exist before the first test. Fails if a
    /// definition that existed was edited. An API server serves a restored definition only a moment
    /// later, which the next test would notice.
    fn reset(&self) -> Result<(), Failure> {
        let objects = objects(&self.cluster)?;
        for object in objects.difference(&self.objects) {
            let (namespace, name) = object.split_once(' ').unwrap_or_default();
            let delete = ["delete", name, "--ignore-not-found", "--wait=false"];
            match namespace {
                "" => self.cluster.run(delete)?,
                _ => self.cluster.run([&delete[..], &["--namespace", namespace]].concat())?,
            };
        }
        for object in objects.difference(&self.objects) {
            let name = object.trim_start();
            if name.starts_with("namespace/") || name.starts_with("customresourcedefinition") {
                self.cluster.run(["wait", "--for=delete", name, "--timeout=60s"])?;
            }
        }
        if definitions(&self.cluster)? != self.definitions {
            return Err("a definition has been edited".into());
        }
        for path in files(self.cluster.folder())?.difference(&self.files) {
            let path = self.cluster.folder().join(path);
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        Ok(())
    }
}

/// Each object as its namespace, a space, and `kind/name`.
fn objects(cluster: &ControlPlane) -> Result<BTreeSet<String>, Failure> {
    let mut objects = BTreeSet::new();
    for namespace in ["", NAMESPACES[0], NAMESPACES[1]] {
        let kinds = if namespace.is_empty() { KINDS } else { CONTENTS };
        let mut get = vec!["get", kinds, "--output=name"];
        if !namespace.is_empty() {
            get.extend(["--namespace", namespace]);
        }
        let names = cluster.run(get)?;
        objects.extend(names.lines().map(|name| format!("{namespace} {name}")));
    }
    Ok(objects)
}

fn definitions(cluster: &ControlPlane) -> Result<String, Failure> {
    let columns = "--output=custom-columns=NAME:.metadata.name,GENERATION:.metadata.generation";
    Ok(cluster.run(["get", "customresourcedefinitions", columns])?)
}

/// The files in a control plane's folder and in its folder of logs.
fn files(folder: &Path) -> Result<BTreeSet<OsString>, Failure> {
    let mut files = BTreeSet::new();
    for (folder, prefix) in [(folder.to_owned(), ""), (folder.join("log"), "log")] {
        for entry in fs::read_dir(folder)? {
            files.insert(Path::new(prefix).join(entry?.file_name()).into_os_string());
        }
    }
    Ok(files)
}
