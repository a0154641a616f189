//! The manifests, commands and programs of docs/controllers.md and docs/reading.md, as the pages
//! show them.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ClientsFixture, examples};
use crate::operator;
use crate::world::{Failure, Outcome, World, file};

/// Pages whose steps run, in this order.
const PAGES: [&str; 2] = [CONTROLLERS, "docs/reading.md"];
pub(super) const CONTROLLERS: &str = "docs/controllers.md";
/// The URL of the port-forward that the pages show. The tests replace it by the read address,
/// because a port-forward needs a running pod.
const FORWARD: &str = "https://localhost:8443";
const NAMESPACE: &str = "shop";
/// Service in the kubeconfig for pods.
const SERVICE: &str = "kubewarm.kubewarm-system.svc";
/// Removes the permissions and the profile that controllers.md and `examples/profile.yaml` grant
/// and declare.
const UNDO: &str = "kubewarm rbac settings --namespace shop --operator-namespace kubewarm-system | kubectl delete --filename -
kubectl delete cacheprofile settings --namespace shop";

/// Programs that README.md and controllers.md quote.
const GO: [&str; 5] = [
    "benches/peers/go/manager.go",
    "examples/client-go/main.go",
    "examples/controller-runtime/main.go",
    "examples/controller-runtime/cache.go",
    "examples/controller-runtime/controller.go",
];
const RUST: [&str; 1] = ["examples/kube-rs/main.rs"];

/// The code blocks of a page that begin at a line's start, each with its language.
fn steps(page: &str) -> impl Iterator<Item = (&str, &str)> {
    // Text and blocks alternate.
    page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

/// The code blocks of a page in this language.
pub(super) fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    steps(page).filter(|(tag, _)| *tag == language).map(|(_, block)| block).collect()
}

/// The programs on the pages are parts of the examples.
#[test]
fn the_pages_quote_the_examples() -> Outcome {
    let pages = ["README.md", CONTROLLERS, "docs/uncached-controllers.md"];
    let pages = pages.into_iter().map(|page| fs::read_to_string(file(page)));
    let page = pages.collect::<Result<Vec<_>, _>>()?.concat();
    for (language, programs) in [("go", &GO[..]), ("rust", &RUST)] {
        let texts = programs.iter().map(|path| fs::read_to_string(file(path)));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let blocks = blocks(&page, language);
        assert!(!blocks.is_empty(), "nothing in {language}");
        for block in blocks {
            assert!(texts.iter().any(|text| text.contains(block)), "no program has {block}");
        }
    }
    Ok(())
}

/// A shell of the pages' reader, an administrator with a token.
pub(super) struct Shell {
    folder: PathBuf,
    path: OsString,
    kubeconfig: PathBuf,
}

impl Shell {
    fn new(scene: &ClientsFixture) -> Result<Self, Failure> {
        let ClientsFixture { world, team, .. } = scene;
        let cluster = &world.cluster;
        cluster.run(["create", "serviceaccount", "admin", "-n", team])?;
        let admin = ["--clusterrole=cluster-admin", &format!("--serviceaccount={team}:admin")];
        cluster.run([&["create", "clusterrolebinding", "admin"][..], &admin].concat())?;
        let kubeconfig = cluster.service_account_kubeconfig(team, "admin")?;

        let folder = cluster.folder().join("documented");
        fs::create_dir(&folder)?;
        symlink(file("examples"), folder.join("examples"))?;
        let programs = [Path::new(env!("CARGO_BIN_EXE_kubewarm")), cluster.kubectl_program()];
        let here = programs.into_iter().filter_map(Path::parent).map(Path::to_owned);
        let others = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(here.chain(env::split_paths(&others)))?;
        Ok(Self { folder, path, kubeconfig })
    }

    /// A command that runs these lines.
    pub(super) fn command(&self, lines: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c"])
            .arg(format!("cd '{}'\n{lines}", self.folder.display()))
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Runs these lines, and returns what they print.
    pub(super) fn run(&self, lines: &str) -> Result<String, Failure> {
        let output = self.command(lines).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{lines}\n{errors}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[test]
fn the_documented_steps_and_examples_run() -> Outcome {
    let scene = ClientsFixture::start(World::lease()?)?;
    // The chart installs the CA in both objects.
    let authority = format!("--from-file=ca.crt={}", scene.served.authority().display());
    for kind in [&["secret", "generic", "kubewarm-tls"][..], &["configmap", "kubewarm-ca"]] {
        let create = [&["create"][..], kind, &["-n", operator::NAMESPACE, &authority]].concat();
        scene.world.cluster.run(create)?;
    }
    let shell = Shell::new(&scene)?;
    the_documented_steps_run(&scene, &shell)?;
    examples::the_examples_run(&scene, &shell)
}

fn the_documented_steps_run(scene: &ClientsFixture, shell: &Shell) -> Outcome {
    let ClientsFixture { world, served, .. } = scene;
    let cluster = &world.cluster;
    let folder = &shell.folder;
    let url = served.url()?;
    let mut printed = String::new();
    for page in PAGES {
        let page = fs::read_to_string(file(page))?.replace(FORWARD, &url);
        for (language, step) in steps(&page) {
            match language {
                "yaml" => {
                    cluster.apply(step)?;
                }
                "sh" => printed += &shell.run(step)?,
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
        let mut kubectl = Command::new(cluster.kubectl_program());
        let path = folder.join(name);
        let output =
            kubectl.arg("--kubeconfig").arg(path).args(["get", "cm", "-n", NAMESPACE]).output()?;
        Ok(output.status.success())
    };
    assert!(can_read("own.kubeconfig")?);
    // The kubeconfig for pods in this ConfigMap, with the URL and token of the test instead of a
    // pod's.
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
    // Removes what the page granted and declared, because the examples begin with the permissions
    // of the scene.
    shell.run(UNDO)?;
    Ok(())
}
