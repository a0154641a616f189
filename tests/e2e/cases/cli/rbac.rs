//! Output of `kubewarm rbac` and its differences, with a real API server.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::operator::{NAMESPACE, Running};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World};

const PODS_AND_SECRETS: &str = "{targets: [{name: pods, resource: pods},
  {name: keys, resource: secrets, projection: {type: Metadata}}]}";

/// The exit code of `kubewarm rbac` and its output.
fn rbac(kubeconfig: &Path, args: &[&str]) -> Result<(Option<i32>, String, String), Failure> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.arg("rbac").args(args).arg("--kubeconfig").arg(kubeconfig);
    command.args(["--operator-namespace", NAMESPACE]);
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

fn manifest(world: &World, name: &str, text: &str) -> Result<String, Failure> {
    let path = world.cluster.folder().join(name);
    std::fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

#[test]
fn a_file_and_the_status_give_the_same_bytes() -> Outcome {
    let running = Running::shared()?;
    let world = &running.world;
    let namespace = world.namespace("offline")?;
    let profile = Profile::apply(world, &namespace, "web", PODS_AND_SECRETS)?;
    profile.await_manifests()?;
    let object = profile.read()?;
    let field = |name: &str| {
        let text = object.pointer(&format!("/status/access/{name}")).and_then(Value::as_str);
        text.ok_or_else(|| format!("no {name} in {object:#}"))
    };
    let status = [field("manifests")?, field("manifestsElevated")?].join("\n");

    let head = "apiVersion: kubewarm.io/v1alpha1\nkind: CacheProfile\n";
    let text = format!("{head}metadata: {{name: web, namespace: {namespace}}}\n");
    let file = manifest(world, "web.yaml", &format!("{text}spec: {PODS_AND_SECRETS}\n"))?;
    // Without `--diff`, `rbac -f FILE` reads no cluster, so an invalid kubeconfig does not matter.
    let (code, printed, stderr) = rbac(Path::new("/no/such/kubeconfig"), &["-f", &file])?;
    assert_eq!((code, &*printed), (Some(0), &*status), "{stderr}");
    let (code, printed, stderr) = rbac(world.cluster.kubeconfig(), &["web", "-n", &namespace])?;
    assert_eq!((code, &*printed), (Some(0), &*status), "{stderr}");
    Ok(())
}

#[test]
fn the_difference_names_gains_and_losses_and_sets_the_exit_code() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("diff")?;
    Profile::apply(world, &namespace, "web", PODS_AND_SECRETS)?;
    let kubeconfig = world.cluster.kubeconfig();
    let diff =
        |more: &[&str]| rbac(kubeconfig, &[&["web", "-n", &namespace, "--diff"], more].concat());
    let gains = format!(
        "+ system:serviceaccount:{NAMESPACE}:kubewarm gains list, watch on pods in namespace \
         {namespace}\n"
    );
    let secrets = gains.replace("pods", "secrets").replace('\n', " [elevated]\n");

    let (code, stdout, stderr) = diff(&[])?;
    let head = format!("web -n {namespace} (generation 1): by applying its manifests\n");
    assert_eq!((code, &*stdout), (Some(1), &*format!("{head}{gains}{secrets}")), "{stderr}");

    // An administrator has reviewed the manifests of generation 1, and applies the permissions of
    // this generation.
    let (code, stdout, stderr) = diff(&["--generation=1"])?;
    assert_eq!((code, stdout.contains(&gains)), (Some(0), true), "{stderr}");
    let (_, printed, _) = rbac(kubeconfig, &["web", "-n", &namespace, "--generation=1"])?;
    world.cluster.apply(&printed)?;
    let (code, stdout, stderr) = diff(&[])?;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.ends_with("nothing would change\n"), "{stdout}");

    // A user adds a rule by hand, and binds the role to another user whose name contains control
    // characters.
    let role = format!("kubewarm:{namespace}:web");
    let added = r#"[{"op": "add", "path": "/rules/-", "value":
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["delete"]}}]"#;
    world.cluster.run(["patch", "role", &role, "-n", &namespace, "--type=json", "-p", added])?;
    let (role_flag, user) = (format!("--role={role}"), "--user=mallory\u{1b}[2J");
    world.cluster.run(["create", "rolebinding", "mine", &role_flag, user, "-n", &namespace])?;
    let (code, stdout, stderr) = diff(&[])?;
    assert_eq!(code, Some(1), "{stderr}");
    let lost = format!(
        "- system:serviceaccount:{NAMESPACE}:kubewarm loses delete on deployments.apps in namespace \
         {namespace}\n"
    );
    let kept = format!(
        "= mallory\\u{{1b}}[2J keeps list, watch on pods in namespace {namespace} by RoleBinding \
         {namespace}/mine, which the profile does not need\n"
    );
    assert!(stdout.contains(&lost) && stdout.contains(&kept) && !stdout.contains('+'), "{stdout}");

    // The profile changes between the administrator's review and the apply.
    let spec = r#"{"spec": {"targets": [{"name": "pods", "resource": "pods"},
        {"name": "more", "resource": "services"}]}}"#;
    world.cluster.run(["patch", "cprof/web", "-n", &namespace, "--type=merge", "-p", spec])?;
    for more in [&["--diff"][..], &[]] {
        let args = [&["web", "-n", &namespace, "--generation=1"], more].concat();
        let (code, stdout, stderr) = rbac(kubeconfig, &args)?;
        assert_eq!((code, &*stdout), (Some(2), ""), "{stderr}");
        assert!(stderr.contains("is of generation 2, not 1"), "{stderr}");
    }
    // The new spec has no target for Secrets. The old spec's role for Secrets stays until a user
    // deletes it.
    let (_, stdout, _) = diff(&[])?;
    let left =
        format!("by RoleBinding {namespace}/{role}:elevated, which the profile does not need");
    assert!(
        stdout.contains(&left) && stdout.contains(&gains.replace("pods", "services")),
        "{stdout}"
    );
    Ok(())
}

#[test]
fn a_role_that_others_have_bound_is_not_filled_without_a_review() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("bound")?;
    Profile::apply(world, &namespace, "web", "{targets: [{name: pods, resource: pods}]}")?;
    let role = format!("kubewarm:{namespace}:web");
    // The user may write roles. Kubernetes then demands no further permissions to create and bind
    // an empty role.
    world.cluster.apply(&format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: Role,
           metadata: {{name: '{role}', namespace: {namespace}}}, rules: []}}"
    ))?;
    let role_flag = format!("--role={role}");
    let binding = ["create", "rolebinding", "mine", &role_flag, "--user=mallory", "-n", &namespace];
    world.cluster.run(binding)?;
    let kubeconfig = world.cluster.kubeconfig();
    let (code, stdout, stderr) = rbac(kubeconfig, &["web", "-n", &namespace])?;
    assert_eq!((code, &*stdout), (Some(2), ""), "{stderr}");
    let named = format!("RoleBinding {namespace}/mine");
    assert!(stderr.contains("mallory") && stderr.contains(&named), "{stderr}");
    let (code, stdout, stderr) = rbac(kubeconfig, &["web", "-n", &namespace, "--generation=1"])?;
    assert!(code == Some(0) && stdout.contains(&role), "{stderr}");
    Ok(())
}

#[test]
fn a_status_that_grants_more_than_the_spec_needs_is_not_to_be_applied() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("forged")?;
    Profile::apply(world, &namespace, "web", PODS_AND_SECRETS)?;
    let args = ["web", "-n", &namespace, "--diff", "--generation=1"];
    let (_, printed, _) = rbac(world.cluster.kubeconfig(), &args[..3])?;
    for (verbs, expected) in [("- watch", Some(0)), ("- '*'", Some(2))] {
        let forged = printed.replace("- watch", verbs);
        let access = serde_json::json!({"status": {"access": {"manifests": forged}}}).to_string();
        let subresource = "--subresource=status";
        let target = ["patch", "cprof/web", "-n", &namespace, subresource, "--type=merge", "-p"];
        world.cluster.run(target.into_iter().chain([&*access]))?;
        let (code, stdout, stderr) = rbac(world.cluster.kubeconfig(), &args)?;
        assert_eq!(code, expected, "{stdout}{stderr}");
        assert_eq!(stdout.contains("do not apply status.access"), expected == Some(2), "{stdout}");
    }
    Ok(())
}

#[test]
fn the_subject_is_not_taken_from_a_status() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("usurped")?;
    Profile::apply(world, &namespace, "web", PODS_AND_SECRETS)?;
    let usurper = "system:serviceaccount:usurped:me";
    let access = format!(r#"{{"status": {{"access": {{"subject": "{usurper}"}}}}}}"#);
    let target = ["patch", "cprof/web", "-n", &namespace, "--subresource=status", "--type=merge"];
    world.cluster.run(target.into_iter().chain(["-p", &access]))?;
    for more in [&["--diff"][..], &["--generation=1"]] {
        let args = [&["web", "-n", &namespace], more].concat();
        let (code, stdout, stderr) = rbac(world.cluster.kubeconfig(), &args)?;
        assert_eq!((code, &*stdout), (Some(2), ""), "{stderr}");
        assert!(stderr.contains(usurper) && stderr.contains("--subject"), "{stderr}");
        let (code, stdout, stderr) =
            rbac(world.cluster.kubeconfig(), &[&args[..], &["--subject", usurper]].concat())?;
        assert_ne!(code, Some(2), "{stderr}");
        assert!(stdout.contains("usurped"), "{stdout}");
    }
    Ok(())
}

#[test]
fn a_user_who_cannot_read_roles_sees_which_permission_is_missing() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("unseen")?;
    Profile::apply(world, &namespace, "web", PODS_AND_SECRETS)?;
    let viewer = world.cluster.user_kubeconfig("viewer", None)?;
    let may = |name: &str, verb: &str, what: &str| {
        let (verb, what) = (format!("--verb={verb}"), format!("--resource={what}"));
        world.cluster.run(["create", "role", name, &verb, &what, "-n", &namespace])?;
        let role = format!("--role={name}");
        world.cluster.run(["create", "rolebinding", name, &role, "--user=viewer", "-n", &namespace])
    };
    may("profiles", "get", "cacheprofiles.kubewarm.io")?;
    let diff = || rbac(&viewer, &["web", "-n", &namespace, "--diff"]);
    let (code, _, stderr) = diff()?;
    assert_eq!(code, Some(2), "{stderr}");
    let what = format!("could not read roles.rbac.authorization.k8s.io in namespace {namespace}");
    assert!(stderr.contains(&what), "{stderr}");
    let (code, stdout, stderr) = rbac(&viewer, &["web", "-n", &namespace])?;
    assert!(code == Some(0) && stdout.contains("kind: Role"), "{stdout}{stderr}");
    let warning =
        format!("you may not list roles.rbac.authorization.k8s.io in namespace {namespace}");
    assert!(stderr.contains(&warning) && stderr.contains("already bound"), "{stderr}");
    may("roles", "list", "roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io")?;
    let (code, stdout, stderr) = diff()?;
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stdout.contains("? you may not list roles of other namespaces\n"), "{stdout}");
    assert!(stdout.contains("? you may not list clusterroles\n"), "{stdout}");
    Ok(())
}
