//! Clients of other languages, with tokens of the shortest lifetime. Their interpreters and
//! libraries are installed on this machine, and the pods mount them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use testbed::eventually;

use crate::injected::clients::{ClientPod, ClientWorkloads, WRITER_RULES};
use crate::injected::injecting_release;
use crate::object::text;
use crate::release::NAMESPACE;
use crate::world::{Failure, NodeWorld, Outcome, SOON, file, report};

/// A certificate that kubewarm renews after 80 s. The next CA signs 6 minutes after its
/// publication. The chart has no such short lifetimes.
const SHORT_LIFETIME: &str = "--certificate-lifetime=2m";
/// Another name in the certificate, for which kubewarm needs another CA.
const OTHER_NAME: &str = "--certificate-names=warm.example.com";

/// The shortest lifetime of a token that the API server grants, in seconds.
const TOKEN_SECONDS: u64 = 600;
/// Folders with programs and their libraries.
const FOLDERS: [&str; 6] =
    ["/usr", "/lib", "/lib64", "/etc/alternatives", "/etc/ssl", "/etc/java-17-openjdk"];
const PYTHON_CLIENT: &str = "kubernetes==37.0.2";
const JAVASCRIPT_CLIENT: &str = "@kubernetes/client-node@1.3.0";
const JAVA_CLIENT: &str = "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">
  <modelVersion>4.0.0</modelVersion>
  <groupId>invalid.kubewarm</groupId>
  <artifactId>writer</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.fabric8</groupId>
      <artifactId>kubernetes-client</artifactId>
      <version>7.3.1</version>
    </dependency>
    <dependency>
      <groupId>io.kubernetes</groupId>
      <artifactId>client-java</artifactId>
      <version>25.0.0</version>
    </dependency>
  </dependencies>
</project>
";

fn run(
    program: &str,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<String, Failure> {
    let mut command = Command::new(program);
    let output = command.args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{program}: {}{}", text(&output.stdout), text(&output.stderr)).into())
    }
}

/// The libraries of the clients, which this test installs once.
struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    fn install() -> Result<Self, Failure> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workload-clients");
        let done = folder.join("done");
        let wanted = format!("{PYTHON_CLIENT} {JAVASCRIPT_CLIENT} {JAVA_CLIENT}");
        if fs::read_to_string(&done).is_ok_and(|found| found == wanted) {
            return Ok(Self { folder });
        }
        fs::create_dir_all(&folder)?;
        let path = |name| folder.join(name).display().to_string();
        let python = path("python");
        run("python3", ["-m", "pip", "install", "--quiet", "--target", &python, PYTHON_CLIENT])?;
        run(
            "npm",
            ["install", "--no-fund", "--no-audit", "--prefix", &path("node"), JAVASCRIPT_CLIENT],
        )?;
        fs::write(folder.join("pom.xml"), JAVA_CLIENT)?;
        let output = format!("-DoutputDirectory={}", path("java"));
        let goal = "dependency:copy-dependencies";
        run("mvn", ["--quiet", "--batch-mode", "--file", &path("pom.xml"), goal, &output])?;
        for name in ["Writer.java", "OfficialWriter.java"] {
            let source = file("tests/clients/writer").join(name).display().to_string();
            run("javac", ["-cp", &path("java/*"), "-d", &path("classes"), &source])?;
        }
        fs::write(done, wanted)?;
        Ok(Self { folder })
    }

    /// A pod of this command with the machine's programs.
    fn pod(
        &self,
        workload: &'static str,
        prefix: &str,
        environment: (&str, &str),
        command: &[&str],
    ) -> ClientPod {
        let folder = self.folder.display().to_string();
        let sources = file("tests/clients/writer").display().to_string();
        let folders = FOLDERS.into_iter().chain([prefix, &folder, &sources]);
        let folders: Vec<_> = folders.filter(|folder| Path::new(folder).is_dir()).collect();
        let mounts = folders.iter().enumerate().map(|(index, folder)| {
            json!({"name": format!("host-{index}"), "mountPath": folder, "readOnly": true})
        });
        let volumes = folders.iter().enumerate().map(|(index, folder)| {
            // A mount does not follow links, such as `/lib`.
            let path = fs::canonicalize(folder).unwrap_or_else(|_| PathBuf::from(folder));
            json!({"name": format!("host-{index}"), "hostPath": {"path": path}})
        });
        let (variable, value) = environment;
        let container = json!({
            "name": "program",
            "image": "localhost/kubewarm:dev",
            "command": command,
            "env": [{"name": variable, "value": value}],
            "securityContext": {"runAsUser": 0},
            "volumeMounts": mounts.collect::<Vec<_>>(),
        });
        ClientPod {
            workload,
            rules: WRITER_RULES,
            spec: json!({"containers": [container], "volumes": volumes.collect::<Vec<_>>()}),
        }
    }
}

/// The writers of other languages.
fn writers(libraries: &Libraries) -> Result<Vec<ClientPod>, Failure> {
    let path = |name| libraries.folder.join(name).display().to_string();
    let source = |name| file("tests/clients/writer").join(name).display().to_string();
    let prefix = run("python3", ["-c", "import sys; print(sys.base_prefix)"])?;
    let python = format!("{prefix}/bin/python3");
    let java = format!("{}:{}", path("java/*"), path("classes"));
    Ok(vec![
        libraries.pod(
            "deployment/python",
            &prefix,
            ("PYTHONPATH", &path("python")),
            &[&python, &source("writer.py"), "python"],
        ),
        libraries.pod(
            "deployment/javascript",
            "",
            ("NODE_PATH", &path("node/node_modules")),
            &["/usr/bin/node", &source("writer.mjs"), "javascript"],
        ),
        libraries.pod(
            "deployment/java",
            "",
            ("JAVA_TOOL_OPTIONS", "-Xmx256m"),
            &["/usr/bin/java", "-cp", &java, "Writer", "java"],
        ),
        libraries.pod(
            "deployment/official-java",
            "",
            ("JAVA_TOOL_OPTIONS", "-Xmx256m"),
            &["/usr/bin/java", "-cp", &java, "OfficialWriter", "official-java"],
        ),
        libraries.pod(
            "deployment/curl",
            "",
            ("PATH", "/usr/bin"),
            &["/usr/bin/sh", &source("writer.sh"), "curl"],
        ),
    ])
}

impl ClientWorkloads<'_> {
    /// Gives the pods tokens of this lifetime.
    fn shorten_tokens(&self, seconds: u64) -> Outcome {
        self.each(|client| {
            let what = format!("{} --namespace={}", client.workload, self.namespace);
            let volumes = self.world.get(&what)?["spec"]["template"]["spec"]["volumes"].clone();
            let mut volumes = volumes.as_array().into_iter().flatten();
            let is_token = |volume: &Value| {
                !volume["projected"]["sources"][0]["serviceAccountToken"].is_null()
            };
            let index = volumes.position(is_token).ok_or("no token among the volumes")?;
            let field = format!(
                "/spec/template/spec/volumes/{index}/projected/sources/0/serviceAccountToken/\
                 expirationSeconds"
            );
            let patch = json!([{"op": "replace", "path": field, "value": seconds}]);
            self.world.run(&format!("patch {what} --type=json --patch={patch}"))?;
            client.await_rollout()
        })
    }
}

/// The CA that signs kubewarm's certificate now.
fn signing_authority(world: &NodeWorld) -> Result<String, Failure> {
    let secret = world.get(&format!("secret kubewarm-ca --namespace={NAMESPACE}"))?;
    Ok(text(&secret, "/data/signing-ca.crt").to_owned())
}

/// Replaces kubewarm's flags for its certificate, and waits until its pods are new.
fn set_certificate_flags(world: &NodeWorld, flags: &[&str]) -> Outcome {
    let deployment = format!("deployment kubewarm --namespace={NAMESPACE}");
    let kubewarm = world.get(&deployment)?;
    let args = kubewarm.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    let args = args.into_iter().flatten().filter_map(Value::as_str);
    let replaced = ["--certificate-lifetime", "--certificate-names"];
    let others = args.filter(|arg| !replaced.iter().any(|flag| arg.starts_with(flag)));
    let args: Vec<_> = others.chain(flags.iter().copied()).collect();
    let field = "/spec/template/spec/containers/0/args";
    let patch = json!([{"op": "replace", "path": field, "value": args}]);
    world.cluster().run(
        ["patch", "--type=json", &format!("--patch={patch}")]
            .into_iter()
            .chain(deployment.split(' ')),
    )?;
    world.run(&format!("rollout status {deployment} --timeout=600s"))?;
    Ok(())
}

/// Lets kubewarm publish another CA, and waits until the bundle of this namespace contains it.
fn publish_next_authority(world: &NodeWorld, namespace: &str) -> Outcome {
    let bundle = || -> Result<String, Failure> {
        let bundle = world.get(&format!("configmap kubewarm-api-ca --namespace={namespace}"))?;
        Ok(text(&bundle, "/data/ca.crt").to_owned())
    };
    let before = bundle()?;
    set_certificate_flags(world, &[SHORT_LIFETIME, OTHER_NAME])?;
    eventually(SOON, || match bundle()? {
        now if now == before => Err("no other CA in the bundle".into()),
        _ => Ok(()),
    })
}

/// Each client outlives the tokens and the CA with which it started.
#[test]
fn clients_of_seven_libraries_outlive_their_tokens_and_cas() -> Outcome {
    let test = "clients_of_seven_libraries_outlive_their_tokens_and_cas";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let world = &world;
    let libraries = Libraries::install()?;
    let release = injecting_release(world)?;
    set_certificate_flags(world, &[SHORT_LIFETIME])?;
    let mut writers = writers(&libraries)?;
    writers.extend(ClientPod::go_and_rust(world)?);
    let clients = ClientWorkloads::start(world, "polyglot", &writers)?;
    clients.inject()?;
    let first = signing_authority(world)?;
    publish_next_authority(world, clients.namespace)?;
    // This also replaces the pods, so all clients have read the bundle with the next CA.
    clients.shorten_tokens(TOKEN_SECONDS)?;
    clients.await_batch()?;
    let pods = clients.writer_pods()?;
    clients.work_through_restarts(&release)?;
    // The first token of each pod has expired then.
    sleep(Duration::from_secs(TOKEN_SECONDS + 60));
    eventually(SOON, || match signing_authority(world)? {
        now if now == first => Err("the first CA signs".into()),
        _ => Ok(()),
    })?;
    clients.await_batch()?;
    // Each client connects again, and the certificate is one of the next CA.
    clients.work_through_restarts(&release)?;
    assert_eq!(clients.writer_pods()?, pods, "no writer ended");
    report(&format!("{test}: {}", clients.check_objects()?))?;
    clients.delete()
}
