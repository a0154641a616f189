//! The manifests and commands of docs/clients.md, as they stand there.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use testbed::GoClients;

use super::Scene;
use crate::world::{Failure, Outcome, file};

/// Where the page has the end of a port-forward, which takes a pod.
const FORWARD: &str = "https://localhost:8443";
const NAMESPACE: &str = "shop";
/// Of what the page grants and declares, but for what is in the namespace.
const UNDO: &str =
    "kubewarm rbac all-configmaps --namespace kubewarm-system | kubectl delete --filename -
kubectl delete cacheprofile all-configmaps --namespace kubewarm-system";

/// Programs that the page has parts of.
const GO: [&str; 2] = ["tests/clients/warmstart/main.go", "tests/clients/follow/followers.go"];
const RUST: [&str; 1] = ["tests/clients/kube-rs/main.rs"];

/// Is an example by itself.
#[path = "../../clients/kube-rs/main.rs"]
#[expect(dead_code, reason = "what reads its arguments is not called")]
mod warmstart;

/// The blocks of a page in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("\n```{language}\n");
    let parts = page.split(&begin).skip(1);
    parts.filter_map(|part| part.split("\n```\n").next()).collect()
}

/// Each start, cold and warm, comes to the same objects; and the page has what is run here.
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
    let mut example = Command::new(GoClients::locate_or_build()?.program("warmstart"));
    let output = example.args(["-namespace", &scene.team]).args([cold, &warm]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let counts: Vec<_> = said.lines().map(|line| line.split(" objects").next()).collect();
    let counts: Vec<_> = counts.iter().flatten().map(|it| it.rsplit(' ').next()).collect();
    assert!(counts.len() == 2 && counts[0] == counts[1], "{said}");

    let runtime = tokio::runtime::Runtime::new()?;
    let count = |from: &Path| runtime.block_on(warmstart::first_answer(from, Some(&scene.team)));
    assert_eq!(count(cold)?.0, count(&warm)?.0);
    Ok(())
}

pub(super) fn what_is_documented_is_what_works(scene: &Scene) -> Outcome {
    let Scene { world, served, .. } = scene;
    let cluster = &world.cluster;
    let page = fs::read_to_string(file("docs/clients.md"))?.replace(FORWARD, &served.url()?);
    for manifests in blocks(&page, "yaml") {
        cluster.apply(manifests)?;
    }
    // Whoever reads the page: an administrator with a token.
    cluster.run(["create", "serviceaccount", "admin", "-n", NAMESPACE])?;
    let admin = ["--clusterrole=cluster-admin", "--serviceaccount=shop:admin"];
    cluster.run([&["create", "clusterrolebinding", "admin"][..], &admin].concat())?;
    let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, "admin")?;

    let folder = cluster.folder().join("documented");
    fs::create_dir(&folder)?;
    let log = served.operator.process.log();
    let (_, rest) = log.split_once(r#""sha256":""#).ok_or("no SHA-256 in the log")?;
    let sha256 = rest.split('"').next().unwrap_or_default();
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
            .env("SHA256", sha256)
            .output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{commands}\n{told}");
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
    assert!(all_read("by-file.kubeconfig")? && all_read("by-sha256.kubeconfig")?);
    // What comes next takes from the operator what it was granted before.
    run(UNDO)?;
    Ok(())
}
