//! Tests the commands `kubewarm kubeconfig` and `kubewarm get`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::{ClientsFixture, PROFILE, SOON};
use crate::operator::NAMESPACE;
use crate::world::{Failure, Outcome, World, eventually};

/// Exit code and output of a command.
#[derive(Debug, PartialEq, Eq)]
struct CommandOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

fn output_of(command: &mut Command) -> Result<CommandOutput, Failure> {
    Ok(said_by(&command.output()?))
}

fn said_by(output: &Output) -> CommandOutput {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandOutput {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// Runs kubewarm with this kubeconfig.
fn kubewarm(who: &Path, arguments: &[&str]) -> Result<CommandOutput, Failure> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    output_of(command.args(arguments).arg("--kubeconfig").arg(who))
}

/// Runs kubectl with this kubeconfig.
fn kubectl(
    scene: &ClientsFixture,
    with: &Path,
    arguments: &[&str],
) -> Result<CommandOutput, Failure> {
    output_of(kubectl_with(scene, with).args(arguments))
}

fn kubectl_with(scene: &ClientsFixture, with: &Path) -> Command {
    let mut command = Command::new(scene.world.cluster.kubectl_program());
    command.arg("--kubeconfig").arg(with).arg("--cache-dir").arg(with.with_extension("cache"));
    command
}

#[test]
fn commands_read_from_the_cache_unchanged() -> Outcome {
    let scene = ClientsFixture::start(World::lease()?)?;
    a_kubeconfig_points_a_client_at_the_cache(&scene)?;
    get_reads_through_the_cache_and_compares(&scene)?;
    kubectl_wait_ends_when_the_condition_holds(&scene)
}

fn a_kubeconfig_points_a_client_at_the_cache(scene: &ClientsFixture) -> Outcome {
    let ClientsFixture { world, served, team, reader, profile, .. } = scene;
    let (url, authority) = (served.url()?, served.authority().to_string_lossy());
    let server = ["kubeconfig", "--cache-server", &url];
    let token = world.cluster.run(["create", "token", "reader", "-n", team])?;
    let all = ["get", "configmaps", "-n", team, "-o", "name"];
    let theirs = kubectl(scene, reader, &all)?.out;
    assert!(theirs.contains("configmap/red"), "{theirs}");
    let reads = |path: &Path| -> Outcome {
        let ours = kubectl(scene, path, &all)?;
        assert_eq!((ours.out, &*ours.err), (theirs.clone(), ""), "{}", path.display());
        Ok(())
    };

    // With `-o`, the kubeconfig goes to a file that only its owner can read. kubewarm replaces an
    // existing file only with `--overwrite`.
    let path = world.cluster.folder().join("through");
    let shown = path.to_string_lossy();
    let file = [&server[..], &["--cache-certificate-authority", &authority]].concat();
    let into = [&file[..], &["--output-file", &shown]].concat();
    let written = kubewarm(reader, &into)?;
    assert_eq!((written.code, &*written.out), (Some(0), ""), "{}", written.err);
    assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
    reads(&path)?;
    let again = kubewarm(reader, &into)?;
    assert!(again.code == Some(2) && again.err.contains("--overwrite"), "{}", again.err);
    let again = kubewarm(reader, &[&into[..], &["--overwrite"]].concat())?;
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!(kubewarm(reader, &file)?.out, fs::read_to_string(&path)?, "file and output differ");

    // The next kubeconfig has a token file, of a reader without permissions.
    let tokens = world.cluster.folder().join("token");
    fs::write(&tokens, token.trim())?;
    let tokens = tokens.to_string_lossy();
    let with_token = [&file[..], &["--token-file", &tokens]].concat();
    let made = kubewarm(world.cluster.kubeconfig(), &with_token)?;
    assert!(!made.out.contains(token.trim()) && made.out.contains(&*tokens), "{}", made.out);
    fs::write(&path, made.out)?;
    reads(&path)?;

    // The CA comes from the Secret, whose certificate is for the Service. `kubewarm kubeconfig`
    // trusts only a Secret in a namespace that the user names.
    let unnamed = kubewarm(world.cluster.kubeconfig(), &server)?;
    assert!(
        unnamed.code == Some(2) && unnamed.err.contains("pass --operator-namespace"),
        "{}",
        unnamed.err
    );
    let operator = ["--operator-namespace", NAMESPACE];
    let server = [&server[..], &operator].concat();
    let none = kubewarm(world.cluster.kubeconfig(), &server)?;
    assert!(
        none.code == Some(2) && none.err.contains("kubewarm-system/kubewarm-tls"),
        "{}",
        none.err
    );
    let from = format!("--from-file=ca.crt={authority}");
    world.cluster.run(["create", "secret", "generic", "kubewarm-tls", "-n", NAMESPACE, &from])?;
    let with_token = [&server[..], &["--token-file", &tokens]].concat();
    let by_secret = kubewarm(world.cluster.kubeconfig(), &with_token)?;
    assert!(
        by_secret.out.contains("tls-server-name: kubewarm.kubewarm-system.svc"),
        "{}",
        by_secret.out
    );
    fs::write(&path, &by_secret.out)?;
    reads(&path)?;
    let inside = kubewarm(world.cluster.kubeconfig(), &[&with_token[..1], &operator].concat())?;
    assert!(inside.out.contains("https://kubewarm.kubewarm-system.svc"), "{}", inside.out);

    // The CA comes from the ConfigMap, for a user who may not read the Secret with the private key.
    let cluster = &world.cluster;
    cluster.run(["create", "serviceaccount", "clerk", "-n", team])?;
    let clerk = cluster.service_account_kubeconfig(team, "clerk")?;
    let none = kubewarm(&clerk, &server)?;
    let named =
        none.err.contains("kubewarm-tls") && none.err.contains("kubewarm-system/kubewarm-ca");
    assert!(none.code == Some(2) && named, "{}", none.err);
    cluster.run(["create", "configmap", "kubewarm-ca", "-n", NAMESPACE, &from])?;
    let may = ["--verb=get", "--resource=configmaps", "--resource-name=kubewarm-ca"];
    cluster.run([&["create", "role", "ca", "-n", NAMESPACE][..], &may].concat())?;
    let to = ["--role=ca", &format!("--serviceaccount={team}:clerk")];
    cluster.run([&["create", "rolebinding", "ca", "-n", NAMESPACE][..], &to].concat())?;
    let by_config_map = kubewarm(&clerk, &with_token)?;
    assert_eq!(by_config_map.out, by_secret.out, "{}", by_config_map.err);
    let notice = "took the CA of ConfigMap kubewarm-system/kubewarm-ca";
    assert!(by_config_map.err.contains(notice), "{}", by_config_map.err);
    assert!(!by_secret.err.contains("ConfigMap"), "{}", by_secret.err);
    let read = [&["get", "configmaps", "-n", team][..], &server[1..]].concat();
    let read = kubewarm(&clerk, &read)?;
    assert!(read.err.contains(notice), "{}", read.err);

    // The next kubeconfig is for a single profile.
    let title = format!("{NAMESPACE}/{profile}");
    let flags = ["--cache-profile", profile, "--cache-profile-namespace", NAMESPACE];
    let of_profile = kubewarm(reader, &[&file[..], &flags].concat())?;
    assert!(of_profile.out.contains(&format!("{url}/profiles/{title}")), "{}", of_profile.out);
    fs::write(&path, &of_profile.out)?;
    reads(&path)
}

fn get_reads_through_the_cache_and_compares(scene: &ClientsFixture) -> Outcome {
    let ClientsFixture { world, served, team, reader, .. } = scene;
    let (url, authority) = (served.url()?, served.authority().to_string_lossy());
    let cache = ["--cache-server", &url, "--cache-certificate-authority", &authority, "-n", team];
    let get = |arguments: &[&str]| kubewarm(reader, &[&["get"], arguments, &cache[..]].concat());
    let names = get(&["cm", "-o", "name"])?;
    let theirs = kubectl(scene, reader, &["get", "cm", "-n", team, "-o", "name"])?;
    assert_eq!((names.code, names.out), (Some(0), theirs.out), "{}", names.err);
    let table = get(&["configmaps"])?;
    assert!(
        table.out.starts_with("NAME") && table.out.contains("red"),
        "{} {}",
        table.out,
        table.err
    );
    let one = get(&["ConfigMap", "red", "-o", "yaml"])?;
    assert!(one.out.contains("name: red"), "{} {}", one.out, one.err);
    let none = get(&["cm", "none"])?;
    assert!(none.code == Some(2) && none.err.contains("not found"), "{}", none.err);
    let unknown = get(&["deployments"])?;
    assert!(
        unknown.code == Some(2) && unknown.err.contains("no selected profile"),
        "{}",
        unknown.err
    );

    for what in [&["cm"][..], &["cm", "red"], &["cm", "none"], &["parts.example.com"]] {
        let compared = get(&[what, &["--compare"]].concat())?;
        assert_eq!(compared.code, Some(0), "{what:?}: {} {}", compared.out, compared.err);
        assert!(compared.out.starts_with("equal: "), "{}", compared.out);
        assert!(compared.out.contains("API server"), "{}", compared.out);
    }
    // The store of a paused profile does not change, so it differs from the API server after the
    // next writes.
    let paused = PROFILE.replacen('{', "{mode: Paused, ", 1);
    scene.declare(&paused)?.await_condition("Ready", "Unknown", Some("Paused"), SOON)?;
    world.cluster.run(["create", "configmap", "new", "-n", team])?;
    world.cluster.run(["delete", "configmap", "green", "-n", team])?;
    world.cluster.run(["label", "configmap", "red", "a=b", "-n", team])?;
    let compared = get(&["cm", "--compare"])?;
    assert_eq!(compared.code, Some(1), "{} {}", compared.out, compared.err);
    for line in
        ["different: 3 objects", "missing  TEAM/new", "extra    TEAM/green", "older    TEAM/red"]
    {
        let line = line.replace("TEAM", team);
        assert!(compared.out.contains(&line), "no {line} in {}", compared.out);
    }
    scene.declare(PROFILE)?.await_condition("Ready", "True", None, SOON)?;
    eventually(SOON, || {
        let compared = get(&["cm", "--compare"])?;
        if compared.code == Some(0) { Ok(()) } else { Err(compared.out.into()) }
    })
}

/// Through the cache, `kubectl wait` must end as at the API server, with the same output.
fn kubectl_wait_ends_when_the_condition_holds(scene: &ClientsFixture) -> Outcome {
    let ClientsFixture { world, served, team, reader, .. } = scene;
    let through = scene.through()?;
    let write = |arguments: &[&str]| world.cluster.run([arguments, &["-n", team]].concat());
    for name in ["changed", "deleted"] {
        write(&["create", "configmap", name, "--from-literal=word=one"])?;
    }
    let one = "--for=jsonpath={.data.word}=one";
    let two = "--for=jsonpath={.data.word}=two";
    let begin = |with: &Path, condition: &str, object: &str, timeout: &str| {
        let mut command = kubectl_with(scene, with);
        command.args(["wait", condition, object, "-n", team, timeout]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let compare = |condition: &str, object: &str, (timeout, code): (&str, i32)| -> Outcome {
        let [ours, theirs] = [&through, reader].map(|with| begin(with, condition, object, timeout));
        let [ours, theirs] = [ours?, theirs?].map(Child::wait_with_output);
        // At the deadline, client-go's reflector may log `Failed to watch`: the watch ends, and
        // client-go opens it again before it stops. This is a race in client-go, at either server.
        let without_log = |output: Output| {
            let mut result = said_by(&output);
            result.err = result
                .err
                .split_inclusive('\n')
                .filter(|line| !line.contains(" reflector.go:"))
                .collect();
            result
        };
        let [ours, theirs] = [without_log(ours?), without_log(theirs?)];
        assert_eq!(ours, theirs, "{condition} {object}");
        assert_eq!(ours.code, Some(code), "{condition} {object}: {ours:?}");
        Ok(())
    };
    eventually(SOON, || match kubectl(scene, &through, &["get", "cm/deleted", "-n", team])? {
        CommandOutput { code: Some(0), .. } => Ok(()),
        result => Err(result.err.into()),
    })?;
    let (long, short) = ("--timeout=300s", "--timeout=2s");
    compare(one, "configmap/changed", (long, 0))?;
    compare(two, "configmap/changed", (short, 1))?;
    compare("--for=delete", "configmap/deleted", (short, 1))?;

    // The condition becomes true by a write while kubectl watches, and the command ends.
    let clients = r#"kubewarm_read_watches{group="",resource="configmaps",version="v1"}"#;
    let is_watched = |times: usize| {
        eventually(SOON, || {
            let (_, metrics) = served.operator.ask("/metrics")?;
            let line = metrics.lines().find_map(|line| line.strip_prefix(clients));
            let now: usize = line.map_or("0", str::trim).parse()?;
            if now == times { Ok(()) } else { Err(format!("{now} watches").into()) }
        })
    };
    is_watched(0)?;
    let changing = begin(&through, two, "configmap/changed", long)?;
    let going = begin(&through, "--for=delete", "configmap/deleted", long)?;
    is_watched(2)?;
    write(&["patch", "configmap", "changed", "--type=merge", "-p", r#"{"data":{"word":"two"}}"#])?;
    write(&["delete", "configmap", "deleted"])?;
    for (waiting, name) in [(changing, "changed"), (going, "deleted")] {
        let ended = said_by(&waiting.wait_with_output()?);
        let expected = (Some(0), format!("configmap/{name} condition met\n"));
        assert_eq!((ended.code, ended.out), expected, "{}", ended.err);
    }
    is_watched(0)?;
    compare(two, "configmap/changed", (long, 0))?;
    compare("--for=delete", "configmap/deleted", (long, 0))
}
