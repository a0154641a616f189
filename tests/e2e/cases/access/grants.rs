//! Permissions that are missing and then granted, and namespaces that are deleted.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::figures::undisturbed;
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, message, problems};
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// The time in which kubewarm must notice a lost permission: a rules review every 20 s, and a real
/// request.
const NOTICED: Duration = Duration::from_secs(30);

fn list_only(namespace: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: half, namespace: {namespace}}}
rules: [{{apiGroups: [''], resources: [configmaps], verbs: [list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: half, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: half}}
subjects: [{{kind: ServiceAccount, name: kubewarm, namespace: {NAMESPACE}}}]
"
    )
}

/// Returns how many informers of the first target are synced, and how many are not.
fn informers(profile: &Value) -> (u64, u64) {
    let count = |name: &str| {
        let pointer = format!("/status/targets/0/informers/{name}");
        profile.pointer(&pointer).and_then(Value::as_u64).unwrap_or_default()
    };
    (count("synced"), count("total") - count("synced"))
}

#[test]
fn a_refused_watch_affects_one_namespace_and_a_deleted_namespace_is_named() -> Outcome {
    let world = World::lease()?;
    let names = [world.namespace("team")?, world.namespace("team")?, world.namespace("team")?];
    let [steady, refused, doomed] = &names;
    let operator = Operator::start(&world)?;
    let spec = format!(
        "{{targets: [{{name: settings, resource: configmaps,
           scope: {{type: Namespaces, namespaces: [{}]}}}}]}}",
        names.join(", ")
    );
    let profile = Profile::apply(&world, NAMESPACE, "settings", &spec)?;
    profile.await_manifests()?;
    // The profile has every permission except `watch` in one namespace.
    profile.grant()?;
    world.cluster.run(["delete", "rolebinding", "--all", "-n", refused])?;
    world.cluster.apply(&list_only(refused))?;

    // Waits until only one namespace has a problem. Before the grants, all three namespaces had
    // one.
    profile.await_that(SOON, |profile| {
        let words = ["Forbidden", "to watch configmaps", refused.as_str()];
        match problems(profile, "settings").as_slice() {
            [one] if informers(profile) == (2, 1) => {
                words.iter().all(|word| one.contains(word)).then_some(())
            }
            _ => None,
        }
    })?;

    let before = undisturbed(&operator, steady, "configmaps")?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, SOON)?;

    world.cluster.apply(&object_with_finalizer(doomed))?;
    let history = History::of(&profile)?;
    world.cluster.run(["delete", "namespace", doomed, "--wait=false"])?;
    await_no_bindings(&world, doomed)?;
    let status = profile.await_target("settings", ("Warm", "False", "NamespaceNotFound"), SOON)?;
    let problems = problems(&status, "settings");
    assert!(
        matches!(problems.as_slice(), [problem] if problem.starts_with(&format!("{doomed}: "))),
        "{problems:#?}"
    );
    assert_eq!(informers(&status), (2, 1), "{status:#}");
    // In this time, kubewarm sends rules reviews and real requests. The roles are gone, and the
    // namespace still exists.
    std::thread::sleep(NOTICED);
    let phase = world.get("", "namespace", doomed)?;
    assert_eq!(phase["status"]["phase"], "Terminating", "the namespace still exists");
    release(&world, doomed)?;
    eventually(SOON, || {
        let left = world.cluster.run(["get", "namespaces", "--output=name"])?;
        if left.contains(doomed) { Err(left.into()) } else { Ok(()) }
    })?;
    // Kubernetes deleted the roles before the namespace. The status must not report permissions as
    // missing that only the deletion removed.
    profile.await_condition("Authorized", "True", Some("Verified"), SOON)?;
    profile.await_target("settings", ("Warm", "False", "NamespaceNotFound"), SOON)?;
    assert_eq!(undisturbed(&operator, steady, "configmaps")?, before, "it was affected");
    let statuses = history.end()?;
    assert!(statuses.len() > 1, "expected statuses from before and after the deletion");
    for state in &statuses {
        let text = state["status"].to_string();
        assert!(!text.contains("Forbidden") && !text.contains("PermissionsMissing"), "{state:#}");
        assert_eq!(state["status"]["access"].get("missing"), None, "{state:#}");
    }
    Ok(())
}

/// An object whose finalizer keeps a namespace in the phase Terminating.
fn object_with_finalizer(namespace: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap,
           metadata: {{name: held, namespace: {namespace}, finalizers: [example.com/held]}}}}"
    )
}

fn release(world: &World, namespace: &str) -> Outcome {
    let free = r#"{"metadata": {"finalizers": []}}"#;
    let patch = ["patch", "configmap", "held", "-n", namespace, "--type=merge", "--patch", free];
    world.cluster.run(patch)?;
    Ok(())
}

fn await_no_bindings(world: &World, namespace: &str) -> Outcome {
    eventually(SOON, || {
        let left = world.cluster.run(["get", "rolebindings", "-n", namespace, "--output=name"])?;
        if left.is_empty() { Ok(()) } else { Err(left.into()) }
    })
}

/// Records every state of a profile from now on, so that a test also sees short-lived states.
struct History {
    watch: std::process::Child,
    written: tempfile::NamedTempFile,
}

impl History {
    fn of(profile: &Profile<'_>) -> Result<Self, Failure> {
        let written = tempfile::NamedTempFile::new()?;
        let mut watch = profile.world.cluster.kubectl();
        watch.args([
            "get",
            "cprof",
            profile.name,
            "-n",
            profile.namespace,
            "--watch",
            "-o",
            "json",
        ]);
        let history = Self { watch: watch.stdout(written.reopen()?).spawn()?, written };
        eventually(SOON, || {
            if history.read()?.is_empty() { Err("no state yet".into()) } else { Ok(()) }
        })?;
        Ok(history)
    }

    /// The states that are completely written.
    fn read(&self) -> Result<Vec<Value>, Failure> {
        let text = std::fs::read_to_string(self.written.path())?;
        let states = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        Ok(states.map_while(Result::ok).collect())
    }

    /// Stops the watch and returns all states.
    fn end(mut self) -> Result<Vec<Value>, Failure> {
        self.watch.kill()?;
        self.watch.wait()?;
        self.read()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        // The watch has ended already, unless the test fails.
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}

#[test]
fn a_terminating_namespace_is_left_out_before_its_roles_are_deleted() -> Outcome {
    let world = World::lease()?;
    let (kept, doomed) = (world.namespace("team")?, world.namespace("team")?);
    for name in [&kept, &doomed] {
        world.cluster.run(["label", "namespace", name, "cached=yes"])?;
    }
    let _operator = Operator::start(&world)?;
    let spec = "{targets: [{name: settings, resource: configmaps,
        scope: {type: NamespaceSelector, namespaceSelector: {matchLabels: {cached: 'yes'}}}}]}";
    let profile = Profile::apply(&world, NAMESPACE, "settings", spec)?;
    profile.await_manifests()?;
    // The status names the roles inside the selected namespaces only after kubewarm could list
    // namespaces. So this loop grants what the status names, again and again.
    eventually(SOON, || {
        profile.grant()?;
        let object = profile.read()?;
        if informers(&object) == (2, 0) { Ok(()) } else { Err(format!("{object:#}").into()) }
    })?;
    profile.await_condition("Ready", "True", None, SOON)?;

    world.cluster.apply(&object_with_finalizer(&doomed))?;
    world.cluster.run(["delete", "namespace", &doomed, "--wait=false"])?;
    profile.await_that(SOON, |profile| (informers(profile) == (1, 0)).then_some(()))?;
    await_no_bindings(&world, &doomed)?;
    let until = Instant::now() + NOTICED;
    while Instant::now() < until {
        let object = profile.read()?;
        let shown = (informers(&object), message(&object, "Authorized"), message(&object, "Ready"));
        assert_eq!(shown.0, (1, 0), "{object:#}");
        assert!(!shown.1.contains(&doomed) && !shown.2.contains(&doomed), "{object:#}");
        std::thread::sleep(Duration::from_millis(500));
    }
    profile.await_condition("Authorized", "True", Some("Verified"), SOON)?;
    let phase = world.get("", "namespace", &doomed)?;
    assert_eq!(phase["status"]["phase"], "Terminating", "the namespace still exists");
    let manifests = profile.read()?["status"]["access"].to_string();
    assert!(manifests.contains(&kept) && !manifests.contains(&doomed), "{manifests}");

    release(&world, &doomed)
}
