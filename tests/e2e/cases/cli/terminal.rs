//! Profiles on a terminal: `status --watch` with and without a terminal, and kubectl.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

const STATUS: &str = r#"{"status": {"observedGeneration": 1, "warmTargets": "WARM",
  "conditions": [{"type": "Ready", "status": "False", "reason": "TargetsNotWarm", "message":
  "a message that is longer than the terminal is wide, so that it takes two lines of it",
  "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}"#;

/// A program whose output is read while it runs. Dropping the value ends the program.
struct InteractiveProgram {
    child: Child,
    output: Arc<Mutex<String>>,
}

impl InteractiveProgram {
    fn start(mut command: Command) -> Result<Self, Failure> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut stdout = child.stdout.take().ok_or("no output")?;
        let output = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&output);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                written.lock().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Ok(Self { child, output })
    }

    /// Waits until the output contains `text` and returns all output.
    fn await_text(&self, text: &str) -> Result<String, Failure> {
        eventually(SOON, || {
            let output = self.output.lock().clone();
            if output.contains(text) {
                Ok(output)
            } else {
                Err(format!("no {text} in {output:?}").into())
            }
        })
    }
}

impl Drop for InteractiveProgram {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_status(profile: &Profile<'_>, warm: &str) -> Outcome {
    let status = STATUS.replace("WARM", warm).replace('\n', "");
    let target = ["patch", "cprof/web", "-n", profile.namespace, "--subresource=status"];
    profile.world.cluster.run(target.into_iter().chain(["--type=merge", "-p", &status]))?;
    Ok(())
}

#[test]
fn a_terminal_is_redrawn_in_place_and_a_pipe_gets_lines() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("drawn")?;
    let spec = "{targets: [{name: pods, resource: pods}]}";
    let profile = Profile::apply(world, &namespace, "web", spec)?;
    set_status(&profile, "0/1")?;
    let watch = format!(
        "{} status web -n {namespace} --watch --kubeconfig {}",
        env!("CARGO_BIN_EXE_kubewarm"),
        world.cluster.kubeconfig().display()
    );

    let mut on_terminal = Command::new("script");
    // A pseudo-terminal that is 60 columns wide.
    let inside = format!("stty cols 60 rows 12; exec {watch}");
    on_terminal.args(["-qec", &inside, "/dev/null"]).env("TERM", "xterm").env("NO_COLOR", "1");
    let terminal = InteractiveProgram::start(on_terminal)?;
    let mut in_pipe = Command::new("sh");
    in_pipe.args(["-c", &format!("exec {watch}")]).env("TERM", "xterm");
    let pipe = InteractiveProgram::start(in_pipe)?;
    terminal.await_text("0/1 warm")?;
    pipe.await_text("warm=0/1")?;

    set_status(&profile, "1/1")?;
    let drawn = terminal.await_text("1/1 warm")?;
    assert_eq!(drawn.matches("\u{1b}[2J").count(), 1, "cleared once: {drawn:?}");
    assert!(drawn.matches("\u{1b}[H").count() >= 2, "drawn from the top: {drawn:?}");
    assert!(!drawn.contains("\u{1b}[3"), "colours: {drawn:?}");
    for screen in drawn.split("\u{1b}[H").skip(1) {
        let lines: Vec<_> = screen.lines().collect();
        assert!(lines.len() <= 12, "{lines:?}");
        for line in lines {
            let text = line.replace("\u{1b}[K", "").replace("\u{1b}[J", "");
            assert!(text.trim_end().chars().count() <= 60, "{text:?}");
        }
    }
    let plain = drawn.replace("\u{1b}[K", "").replace("\r\n", " ");
    assert!(
        plain.split_whitespace().collect::<Vec<_>>().join(" ").contains("takes two lines of it")
    );

    let printed = pipe.await_text("warm=1/1")?;
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    Ok(())
}

#[test]
fn kubectl_sorts_profiles_by_objects_and_memory() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("sorted")?;
    for (name, objects, memory) in
        [("large", 100, "1Gi"), ("small", 20, "9Mi"), ("some", 30, "10Mi")]
    {
        let spec = "{targets: [{name: pods, resource: pods}]}";
        Profile::apply(world, &namespace, name, spec)?;
        let status = format!(r#"{{"status": {{"objects": {objects}, "memory": "{memory}"}}}}"#);
        let patch = ["patch", "cprof", name, "-n", &namespace, "--subresource=status"];
        world.cluster.run(patch.into_iter().chain(["--type=merge", "-p", &status]))?;
    }
    for field in ["objects", "memory"] {
        let by = format!("--sort-by=.status.{field}");
        let table = world.cluster.run(["get", "cprof", "-n", &namespace, "--no-headers", &by])?;
        let names: Vec<_> = table.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, ["small", "some", "large"], "{table}");
    }
    Ok(())
}
