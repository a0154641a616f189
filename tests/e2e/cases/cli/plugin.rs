//! Output of `check` and `status --target` with a real API server and a running operator.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World};

/// The flag that printed commands contain if the user did not name the operator namespace.
const UNNAMED: &str = "--operator-namespace NAMESPACE";

/// Exit code, standard output and standard error.
type PluginOutput = (Option<i32>, String, String);

fn kubewarm(kubeconfig: &Path, args: &[&str]) -> Result<PluginOutput, Failure> {
    let output = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
        .args(args)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

#[track_caller]
fn assert_lines(stdout: &str, lines: &[&str]) {
    for line in lines {
        assert!(stdout.lines().any(|row| row.starts_with(line)), "no line {line:?} in\n{stdout}");
    }
}

#[test]
fn check_before_installation_reports_what_the_user_can_create() -> Outcome {
    let world = World::shared()?;
    let install = ["check", "--pre", "--operator-namespace", "nowhere"];
    let (code, stdout, stderr) = kubewarm(world.cluster.kubeconfig(), &install)?;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let server = world.cluster.server_url();
    assert_lines(
        &stdout,
        &[
            &format!("✔ {server} answers, version v1.36"),
            "✔ authenticates you as admin",
            "✔ authorizes with ",
            "✔ streams lists",
            "✔ CustomResourceDefinition cacheprofiles.kubewarm.io is there already",
            "✔ you may create Namespace nowhere",
            "✔ you may create Role kubewarm in namespace nowhere",
            "✔ you may create Deployments in namespace nowhere",
            "nothing is wrong",
        ],
    );
    assert!(world.cluster.run(["get", "namespace", "nowhere"]).is_err(), "check created it");

    let plain = world.cluster.user_kubeconfig("plain-user", None)?;
    let (code, stdout, stderr) = kubewarm(&plain, &install)?;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert_lines(
        &stdout,
        &[
            "✗ you may not create CustomResourceDefinition cacheprofiles.kubewarm.io: ",
            "    kubewarm crd | kubectl apply --server-side -f - # as an administrator",
            "✗ you may not create ClusterRole kubewarm: ",
            "    kubewarm check --pre --operator-namespace nowhere --watch-namespaces NAMESPACE # without them",
            "? not checked: the API server's authorizers: ",
            "? not checked: whether it streams lists: ",
        ],
    );
    let without = [&install[..], &["--watch-namespaces", "nowhere"]].concat();
    let (_, stdout, _) = kubewarm(&plain, &without)?;
    assert!(!stdout.contains("ClusterRole"), "{stdout}");
    Ok(())
}

#[test]
fn an_unreachable_api_server_is_a_failed_check() -> Outcome {
    let world = World::shared()?;
    let text = std::fs::read_to_string(world.cluster.kubeconfig())?;
    let elsewhere = tempfile::NamedTempFile::new()?;
    std::fs::write(&elsewhere, text.replace(&world.cluster.server_url(), "https://127.0.0.1:9"))?;
    let (code, stdout, stderr) = kubewarm(elsewhere.path(), &["check"])?;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert_lines(
        &stdout,
        &[
            "✗ cannot read the version of https://127.0.0.1:9: ",
            "    kubectl cluster-info",
            "1 of 1 checks failed",
        ],
    );
    Ok(())
}

#[test]
fn problems_are_found_explained_and_fixed_by_the_printed_commands() -> Outcome {
    let world = World::lease()?;
    let admin = world.cluster.kubeconfig();
    let (code, stdout, stderr) = kubewarm(admin, &["check"])?;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert_lines(
        &stdout,
        &[
            "✔ cacheprofiles.kubewarm.io/v1alpha1 is served by the definition of this version",
            "✗ no replica has led yet",
        ],
    );

    let operator = Operator::start(&world)?;
    let namespace = world.namespace("checked")?;
    let profile = Profile::apply(
        &world,
        &namespace,
        "web",
        "{targets: [{name: settings, resource: configmaps}]}",
    )?;
    profile.await_condition("Ready", "False", Some("PermissionsMissing"), SOON)?;
    let (code, stdout, stderr) = kubewarm(admin, &["check"])?;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    let rbac = format!("    kubewarm rbac web -n {namespace} {UNNAMED} --diff --generation=1 &&");
    assert_lines(
        &stdout,
        &[
            "✔ kubewarm leads, and renewed the Lease ",
            "✔ system:serviceaccount:kubewarm-system:kubewarm has all ",
            "! no admission policy limits profiles",
            &format!(
                "✗ web -n {namespace}: PermissionsMissing: target \"settings\": not allowed to list and \
                      watch configmaps"
            ),
            &rbac,
        ],
    );

    explained(&world, &profile)?;

    let review = ["rbac", "web", "-n", &namespace, "--generation=1"];
    let (code, _, stderr) = kubewarm(admin, &review)?;
    assert_eq!(code, Some(2), "the operator namespace is not named: {stderr}");
    assert!(stderr.contains("pass --operator-namespace"), "{stderr}");
    let review = [&review[..], &["--operator-namespace", NAMESPACE]].concat();
    let (code, diff, stderr) = kubewarm(admin, &[&review[..], &["--diff"]].concat())?;
    assert_eq!(code, Some(0), "{diff}{stderr}");
    let (_, manifests, _) = kubewarm(admin, &review)?;
    world.cluster.apply(&manifests)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let (code, stdout, stderr) = kubewarm(admin, &["check", "web", "-n", &namespace])?;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_lines(&stdout, &[&format!("✔ web -n {namespace} is ready, 1/1 targets are warm")]);
    let (code, stdout, _) =
        kubewarm(admin, &["status", "web", "-n", &namespace, "--target", "settings"])?;
    assert_eq!(code, Some(0), "{stdout}");
    assert!(
        stdout.starts_with(&format!("web -n {namespace} --target settings  warm\n")),
        "{stdout}"
    );

    // Three faults for `check`: the operator lacks a permission, the CRD is older than the program,
    // and no replica holds the lease.
    world.cluster.run(["delete", "rolebinding", "kubewarm", "-n", NAMESPACE])?;
    let older = r#"[{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/0"}]"#;
    world.cluster.run(["patch", "crd/cacheprofiles.kubewarm.io", "--type=json", "-p", older])?;
    operator.process.kill()?;
    std::thread::sleep(Duration::from_secs(16));
    let (code, stdout, stderr) = kubewarm(admin, &["check"])?;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert_lines(
        &stdout,
        &[
            "✗ the CustomResourceDefinition does not match this version of kubewarm: it differs at \
             additionalPrinterColumns",
            "    kubewarm crd | kubectl apply --server-side -f -",
            "✗ system:serviceaccount:kubewarm-system:kubewarm may not update leases.coordination.k8s.io in \
             namespace kubewarm-system",
            &format!("    kubewarm rbac --operator {UNNAMED} | kubectl apply -f -"),
            "✗ no replica leads: kubewarm last renewed the Lease ",
        ],
    );
    Ok(())
}

/// Checks the output of `status --target` for a profile that lacks permissions.
fn explained(world: &World, profile: &Profile<'_>) -> Outcome {
    let (admin, namespace) = (world.cluster.kubeconfig(), profile.namespace);
    let subject = "system:serviceaccount:kubewarm-system:kubewarm";
    let arguments = |target| ["status", "web", "-n", namespace, "--target", target];
    let (code, stdout, stderr) = kubewarm(admin, &arguments("settings"))?;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(
        stdout.starts_with(&format!("web -n {namespace} --target settings  not warm\n")),
        "{stdout}"
    );
    assert_lines(
        &stdout,
        &[
            "  informers     0 of 1 synced: 1 forbidden; 0 objects",
            "  Warm          False, Forbidden, for ",
            &format!("  problem       {namespace}: Forbidden: not allowed to list configmaps"),
            &format!(
                "  missing       list, watch on configmaps in namespace {namespace}, for {subject}"
            ),
            &format!("  granted by    Role kubewarm:{namespace}:web in namespace {namespace}"),
            "    - apiGroups: ['']",
            "      resources: [configmaps]",
            "      verbs: [list, watch]",
            &format!("    kubewarm rbac web -n {namespace} {UNNAMED} --diff --generation=1 &&"),
        ],
    );
    let (code, _, stderr) = kubewarm(admin, &arguments("nothing"))?;
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("has no target nothing; it has settings"), "{stderr}");
    Ok(())
}
