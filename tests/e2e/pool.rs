//! A bounded pool of control planes. Several tests use the same one in succession.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::thread;

use parking_lot::{Condvar, Mutex};
use testbed::ControlPlane;

use crate::world::Failure;

/// The most control planes at once on two cores. Two of them are shared and stay.
const LIMIT: usize = 8;

/// Cluster-scoped kinds that tests write. `namespaces` comes first, because it deletes the contents
/// too.
const KINDS: &str = "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions,\
    validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas,\
    prioritylevelconfigurations,nodes,persistentvolumes";
/// Kinds that tests write into the namespaces that every cluster has.
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
    held: Option<Held>,
}

enum Held {
    Alone(ControlPlane),
    Leased(Leased),
}

/// A reusable control plane, and the objects and files that it had at first.
struct Leased {
    cluster: ControlPlane,
    objects: BTreeSet<String>,
    files: BTreeSet<OsString>,
}

impl Plane {
    /// Starts a control plane that ends with the test.
    pub(crate) fn alone(
        boot: impl FnOnce() -> Result<ControlPlane, Failure>,
    ) -> Result<Self, Failure> {
        // At the limit, an idle control plane is stopped first.
        drop(enter(|pool| if pool.running >= LIMIT { pool.idle.pop() } else { None }));
        match boot() {
            Ok(cluster) => Ok(Self { held: Some(Held::Alone(cluster)) }),
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
            Ok(leased) => Ok(Self { held: Some(Held::Leased(leased)) }),
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
        match &self.held {
            Some(Held::Alone(cluster)) => cluster,
            Some(Held::Leased(leased)) => &leased.cluster,
            None => unreachable!("a plane is used after it was dropped"),
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        match self.held.take() {
            // A failed test may have left anything behind, so its control plane is not used again.
            Some(Held::Leased(leased)) if !thread::panicking() => {
                thread::spawn(move || {
                    if leased.reset().is_ok() {
                        POOL.lock().idle.push(leased);
                        CHANGED.notify_all();
                    } else {
                        // The control plane cannot be cleaned, for instance because a pod waits for
                        // its node.
                        drop(leased);
                        end();
                    }
                });
            }
            held => {
                drop(held);
                end();
            }
        }
    }
}

/// Waits until one more control plane may run, and counts it unless `choose` returns an idle one.
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
        let files = files(cluster.folder())?;
        Ok(Self { cluster, objects, files })
    }

    /// Deletes all objects and files that did not exist at first.
    fn reset(&self) -> Result<(), Failure> {
        let found = objects(&self.cluster)?;
        for object in found.difference(&self.objects) {
            let (namespace, name) = object.split_once(' ').unwrap_or_default();
            let delete = ["delete", name, "--ignore-not-found", "--wait=false"];
            match namespace {
                "" => self.cluster.run(delete)?,
                _ => self.cluster.run([&delete[..], &["--namespace", namespace]].concat())?,
            };
        }
        for object in found.difference(&self.objects) {
            let name = object.trim_start();
            if name.starts_with("namespace/") || name.starts_with("customresourcedefinition") {
                self.cluster.run(["wait", "--for=delete", name, "--timeout=60s"])?;
            }
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
    let mut found = BTreeSet::new();
    for namespace in ["", NAMESPACES[0], NAMESPACES[1]] {
        let kinds = if namespace.is_empty() { KINDS } else { CONTENTS };
        let mut get = vec!["get", kinds, "--output=name"];
        if !namespace.is_empty() {
            get.extend(["--namespace", namespace]);
        }
        let names = cluster.run(get)?;
        found.extend(names.lines().map(|name| format!("{namespace} {name}")));
    }
    Ok(found)
}

/// The files in a control plane's folder and in its folder of logs.
fn files(folder: &Path) -> Result<BTreeSet<OsString>, Failure> {
    let mut found = BTreeSet::new();
    for (folder, prefix) in [(folder.to_owned(), ""), (folder.join("log"), "log")] {
        for entry in fs::read_dir(folder)? {
            found.insert(Path::new(prefix).join(entry?.file_name()).into_os_string());
        }
    }
    Ok(found)
}
