//! The programs in `examples`, run by the commands in their README.md.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::GoExample;

use super::ClientsFixture;
use super::documented::{Shell, blocks};
use crate::world::{Failure, Outcome, file};

/// The lines of an example's README.md.
struct Example {
    name: &'static str,
    /// Applies what the program reads.
    prepare: String,
    /// Runs the program.
    run: String,
    printed: String,
}

impl Example {
    /// Reads the README.md. `program` replaces the launcher `launcher`, which would build the
    /// program again.
    fn read(name: &'static str, launcher: &str, program: &Path) -> Result<Self, Failure> {
        let page = fs::read_to_string(file("examples").join(name).join("README.md"))?;
        let ([commands], [printed]) = (&blocks(&page, "sh")[..], &blocks(&page, "text")[..]) else {
            return Err(format!("{name}/README.md must have one sh block and one output").into());
        };
        let Some((prepare, arguments)) = commands.split_once(launcher) else {
            return Err(format!("{name}/README.md does not run {launcher:?}").into());
        };
        let run = format!("exec '{}'{arguments}", program.display());
        Ok(Self { name, prepare: prepare.to_owned(), run, printed: (*printed).to_owned() })
    }
}

pub(super) fn the_examples_run(scene: &ClientsFixture, shell: &Shell) -> Outcome {
    let client_go = GoExample::ClientGo.locate_or_build()?;
    let kube_rs = build_kube_rs()?;
    for (name, launcher, program) in [
        ("client-go", "go run -C examples/client-go .", client_go),
        ("kube-rs", "cargo run --locked --example kube-rs --", kube_rs),
    ] {
        both_servers_return_the_same(&Example::read(name, launcher, &program)?, shell)?;
    }
    let controller = GoExample::ControllerRuntime.locate_or_build()?;
    let launcher = "go run -C examples/controller-runtime .";
    let example = Example::read("controller-runtime", launcher, &controller)?;
    the_controller_writes_a_secret(&example, scene, shell)
}

/// At both servers, the program prints the lines that the page shows, with other numbers.
fn both_servers_return_the_same(example: &Example, shell: &Shell) -> Outcome {
    shell.run(&example.prepare)?;
    let printed = shell.run(&example.run)?;
    let sources = |text| -> Vec<_> { lines(text).map(|(source, _)| source).collect() };
    assert_eq!(sources(&printed), sources(&example.printed), "{}: {printed}", example.name);
    let counts: Vec<_> = lines(&printed).map(|(_, count)| count).collect();
    assert!(counts[0] >= 2 && counts[0] == counts[1], "{}: {printed}", example.name);
    Ok(())
}

/// The source and the number of objects in each line of `from SOURCE: COUNT ConfigMaps after TIME`.
fn lines(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.lines().map(|line| {
        let parts = line.split_once(": ").and_then(|(source, rest)| {
            let (count, duration) = rest.split_once(" ConfigMaps after ")?;
            let is_duration = duration.starts_with(|first: char| first.is_ascii_digit());
            Some((source, count.parse().ok()?)).filter(|_| is_duration && duration.ends_with('s'))
        });
        parts.unwrap_or((line, 0))
    })
}

/// The controller's log has the texts of the page.
fn the_controller_writes_a_secret(
    example: &Example,
    scene: &ClientsFixture,
    shell: &Shell,
) -> Outcome {
    shell.run(&example.prepare)?;
    let texts: Vec<_> = example.printed.trim().split('…').map(str::to_owned).collect();
    assert!(texts.len() > 1, "{texts:?}");
    let command = shell.command(&example.run);
    let is_done = move |log: &str| texts.iter().all(|text| log.contains(text));
    let process = scene.world.cluster.process(example.name, &command, is_done);
    process.start()?;
    process.term()?;
    let value = "go-template={{.data.currency | base64decode}}";
    let currency = scene.world.cluster.run(["get", "secret", "red", "-n", "shop", "-o", value])?;
    assert_eq!(currency, "EUR");
    Ok(())
}

/// Builds the example for kube-rs, and returns the path of its program.
fn build_kube_rs() -> Result<PathBuf, Failure> {
    // Builds the example for the whole workspace. For one package alone, Cargo would build the
    // libraries again.
    let build = ["build", "--locked", "--quiet", "--workspace", "--example", "kube-rs"];
    let done = Command::new(env!("CARGO")).args(build).current_dir(file(".")).status()?;
    assert!(done.success(), "the example for kube-rs does not build");
    let this = env::current_exe()?;
    let folder = this.ancestors().nth(2).ok_or("a test has no folder")?;
    Ok(folder.join("examples/kube-rs"))
}
