//! Runs the manifests and commands of docs/clients.md.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::GoClients;

use super::Scene;
use crate::world::{Failure, Outcome, file};

/// The page's address of a port-forward, which would need a pod. The test replaces it.
const FORWARD: &str = "https://localhost:8443";
const NAMESPACE: &str = "shop";
/// The DNS name of the read API inside the cluster.
const SERVICE: &str = "kubewarm.kubewarm-system.svc";
/// Commands that remove the page's permissions and profile.
const UNDO: &str =
    "kubewarm rbac all-configmaps --namespace kubewarm-system | kubectl delete --filename -
kubectl delete cacheprofile all-configmaps --namespace kubewarm-system";

/// Programs that the page quotes.
const GO: [&str; 4] = [
    "tests/clients/follow/followers.go",
    "tests/clients/manager/main.go",
    "tests/clients/manager/cache.go",
    "tests/clients/manager/controller.go",
];
const RUST: [&str; 1] = ["tests/clients/kube-rs/main.rs"];

/// The code blocks of a page in this language.
pub(super) fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("\n```{language}\n");
    let parts = page.split(&begin).skip(1);
    parts.filter_map(|part| part.split("\n```\n").next()).collect()
}

/// Each start, cold and warm, must print the same objects. The page must contain the code that runs
/// here.
pub(super) fn the_examples_start_cold_and_warm(scene: &Scene) -> Outcome {
    let page = fs::read_to_string(file("docs/clients.md"))?;
    for (language, programs) in [("go", &GO[..]), ("rust", &RUST)] {
        let texts = programs.iter().map(|path| fs::read_to_string(file(path)));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let found = blocks(&page, language);
        assert!(!found.is_empty(), "nothing in {language}");
        for block in found {
            assert!(texts.iter().any(|text| text.contains(block)), "no program has {block}");
        }
    }
    let (cold, warm) = (&scene.reader, scene.through()?);
    let mut go = Command::new(GoClients::locate_or_build()?.program("warmstart"));
    go.args(["-namespace", &scene.team]).args([cold, &warm]);
    let mut rust = Command::new(example("warmstart")?);
    rust.args([cold, &warm]).arg(&scene.team);
    for mut example in [go, rust] {
        let output = example.output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let starts: Vec<_> = stdout.lines().map(start).collect();
        let [Some(("cold, from the API server", of_all)), Some(("warm, from kubewarm", count))] =
            starts[..]
        else {
            return Err(format!("{example:?} printed:\n{stdout}").into());
        };
        assert!(count == of_all && count >= 3, "{stdout}");
    }
    Ok(())
}

/// Builds an example and returns the path of the program.
fn example(name: &str) -> Result<PathBuf, Failure> {
    // Builds the whole workspace like the tests do. A part has other features, so Cargo would
    // rebuild the libraries.
    let build = ["build", "--locked", "--quiet", "--workspace", "--example", name];
    let done = Command::new(env!("CARGO")).args(build).current_dir(file(".")).status()?;
    assert!(done.success(), "the example {name} does not build");
    let this = std::env::current_exe()?;
    let folder = this.ancestors().nth(2).ok_or("a test has no folder")?;
    Ok(folder.join("examples").join(name))
}

/// Parses an output line with a start's duration: the source, and the number of objects.
fn start(line: &str) -> Option<(&str, usize)> {
    let (from, rest) = line.split_once(':')?;
    let (count, took) = rest.split_once(" objects after ")?;
    let is_time = took.starts_with(|c: char| c.is_ascii_digit()) && took.ends_with('s');
    Some((from, count.trim().parse().ok()?)).filter(|_| is_time)
}

pub(super) fn the_documented_commands_work(scene: &Scene) -> Outcome {
    let Scene { world, served, .. } = scene;
    let cluster = &world.cluster;
    let page = fs::read_to_string(file("docs/clients.md"))?.replace(FORWARD, &served.url()?);
    for manifests in blocks(&page, "yaml") {
        cluster.apply(manifests)?;
    }
    // The reader of the page: an administrator with a token.
    cluster.run(["create", "serviceaccount", "admin", "-n", NAMESPACE])?;
    let admin = ["--clusterrole=cluster-admin", "--serviceaccount=shop:admin"];
    cluster.run([&["create", "clusterrolebinding", "admin"][..], &admin].concat())?;
    let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, "admin")?;

    let folder = cluster.folder().join("documented");
    fs::create_dir(&folder)?;
    let programs =
        [Path::new(env!("CARGO_BIN_EXE_kubewarm")).to_owned(), cluster.tools().program("kubectl")];
    let here = programs.iter().filter_map(|program| program.parent()).map(Path::to_owned);
    let others = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(here.chain(env::split_paths(&others)))?;

    let run = |commands: &str| -> Result<String, Failure> {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(&folder)
            .env("PATH", &path)
            .env("KUBECONFIG", &kubeconfig)
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{commands}\n{stderr}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let printed = blocks(&page, "sh").into_iter().map(run).collect::<Result<String, _>>()?;
    for part in ["NAME", "configmap/red\n", "equal: ", "\"kind\": \"List\"", "resourceVersion"] {
        assert!(printed.contains(part), "no {part:?} in {printed}");
    }
    assert_eq!(fs::read_to_string(folder.join("ca.crt"))?, fs::read_to_string(served.authority())?);
    let all_read = |name: &str| -> Result<bool, Failure> {
        let mut kubectl = Command::new(cluster.tools().program("kubectl"));
        let path = folder.join(name);
        let output =
            kubectl.arg("--kubeconfig").arg(path).args(["get", "cm", "-n", NAMESPACE]).output()?;
        Ok(output.status.success())
    };
    assert!(all_read("by-file.kubeconfig")?);
    // The kubeconfig for pods, with the files that a pod would have: the CA and a token.
    let key = r"jsonpath={.data.cache\.kubeconfig}";
    let mounted =
        cluster.run(["get", "configmap", "kubewarm-kubeconfig", "-n", NAMESPACE, "-o", key])?;
    let token = folder.join("token");
    let inside = mounted
        .replace(&format!("https://{SERVICE}"), &served.url()?)
        .replace("/etc/kubewarm/token", &token.to_string_lossy());
    assert!(inside != mounted && !inside.contains("/etc/kubewarm"), "{mounted}");
    fs::write(folder.join("mounted.kubeconfig"), inside)?;
    assert!(all_read("mounted.kubeconfig")?);
    // The next test needs the operator without these permissions.
    run(UNDO)?;
    Ok(())
}
