//! The manifests, commands and programs of docs/controllers.md and docs/reading.md, as the pages show them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::GoClients;

use super::ClientsFixture;
use crate::world::{Failure, Outcome, file};

/// Pages whose steps run, in this order.
const PAGES: [&str; 2] = [CONTROLLERS, "docs/reading.md"];
pub(super) const CONTROLLERS: &str = "docs/controllers.md";
/// URL of the port-forward on the pages. The tests replace it, because a port-forward needs a pod.
const FORWARD: &str = "https://localhost:8443";
const NAMESPACE: &str = "shop";
/// Service in the kubeconfig for pods.
const SERVICE: &str = "kubewarm.kubewarm-system.svc";
/// Removes the permissions and the profile that controllers.md grants and declares.
const UNDO: &str = "kubewarm rbac settings --namespace shop --operator-namespace kubewarm-system | kubectl delete --filename -
kubectl delete cacheprofile settings --namespace shop";

/// Programs that README.md and controllers.md quote.
const GO: [&str; 4] = [
    "tests/clients/follow/followers.go",
    "tests/clients/manager/main.go",
    "tests/clients/manager/cache.go",
    "tests/clients/manager/controller.go",
];
const RUST: [&str; 1] = ["tests/clients/kube-rs/main.rs"];

/// The code blocks of a page that begin at a line's start, each with its language.
fn steps(page: &str) -> impl Iterator<Item = (&str, &str)> {
    // Text and blocks alternate.
    page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

/// The code blocks of a page in this language.
pub(super) fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    steps(page).filter(|(found, _)| *found == language).map(|(_, block)| block).collect()
}

/// The cold and the warm start find the same objects, and the pages quote the programs.
pub(super) fn the_examples_start_cold_and_warm(scene: &ClientsFixture) -> Outcome {
    let readme = fs::read_to_string(file("README.md"))?;
    let page = fs::read_to_string(file(CONTROLLERS))? + &readme;
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

/// Builds an example, and returns the path of its program.
fn example(name: &str) -> Result<PathBuf, Failure> {
    // For one package alone, Cargo would build the libraries again.
    let build = ["build", "--locked", "--quiet", "--workspace", "--example", name];
    let done = Command::new(env!("CARGO")).args(build).current_dir(file(".")).status()?;
    assert!(done.success(), "the example {name} does not build");
    let this = std::env::current_exe()?;
    let folder = this.ancestors().nth(2).ok_or("a test has no folder")?;
    Ok(folder.join("examples").join(name))
}

/// Parses a line of `warmstart`: the source and the number of objects, if the line also has a time.
fn start(line: &str) -> Option<(&str, usize)> {
    let (from, rest) = line.split_once(':')?;
    let (count, took) = rest.split_once(" objects after ")?;
    let is_time = took.starts_with(|c: char| c.is_ascii_digit()) && took.ends_with('s');
    Some((from, count.trim().parse().ok()?)).filter(|_| is_time)
}

pub(super) fn the_documented_steps_work(scene: &ClientsFixture) -> Outcome {
    let ClientsFixture { world, served, team, .. } = scene;
    let cluster = &world.cluster;
    // The reader of the pages is an administrator with a token.
    cluster.run(["create", "serviceaccount", "admin", "-n", team])?;
    let admin = ["--clusterrole=cluster-admin", &format!("--serviceaccount={team}:admin")];
    cluster.run([&["create", "clusterrolebinding", "admin"][..], &admin].concat())?;
    let kubeconfig = cluster.service_account_kubeconfig(team, "admin")?;

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
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{commands}\n{errors}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let url = served.url()?;
    let mut printed = String::new();
    for page in PAGES {
        let page = fs::read_to_string(file(page))?.replace(FORWARD, &url);
        for (language, step) in steps(&page) {
            match language {
                "yaml" => {
                    cluster.apply(step)?;
                }
                "sh" => printed += &run(step)?,
                _ => {}
            }
        }
    }
    for part in [
        "NAME",
        "configmap/red\n",
        "missing: secrets\n",
        "equal: ",
        "\"kind\": \"List\"",
        "resourceVersion",
    ] {
        assert!(printed.contains(part), "no {part:?} in {printed}");
    }
    assert!(!printed.contains("missing: configmaps"), "{printed}");
    assert_eq!(fs::read_to_string(folder.join("ca.crt"))?, fs::read_to_string(served.authority())?);
    let can_read = |name: &str| -> Result<bool, Failure> {
        let mut kubectl = Command::new(cluster.tools().program("kubectl"));
        let path = folder.join(name);
        let output =
            kubectl.arg("--kubeconfig").arg(path).args(["get", "cm", "-n", NAMESPACE]).output()?;
        Ok(output.status.success())
    };
    assert!(can_read("own.kubeconfig")?);
    // The kubeconfig that pods mount, with the test's URL and token.
    let key = r"jsonpath={.data.cache\.kubeconfig}";
    let mounted =
        cluster.run(["get", "configmap", "kubewarm-kubeconfig", "-n", NAMESPACE, "-o", key])?;
    let token = folder.join("token");
    let inside = mounted
        .replace(&format!("https://{SERVICE}"), &served.url()?)
        .replace("/etc/kubewarm/token", &token.to_string_lossy());
    assert!(inside != mounted && !inside.contains("/etc/kubewarm"), "{mounted}");
    fs::write(folder.join("mounted.kubeconfig"), inside)?;
    assert!(can_read("mounted.kubeconfig")?);
    // The next test expects that the operator has the scene's permissions only.
    run(UNDO)?;
    Ok(())
}
