//! Checks the metrics of a running operator with Prometheus' linter.

use std::io::Write as _;
use std::process::{Command, Stdio};

use testbed::GoClients;

use crate::operator::Running;
use crate::profile::Profile;
use crate::world::{Outcome, SOON};

#[test]
fn the_metrics_pass_the_linter_of_prometheus() -> Outcome {
    let Running { world, operator } = Running::shared()?;
    let namespace = world.namespace("linted")?;
    let spec = "{targets: [{name: settings, resource: configmaps}]}";
    let profile = Profile::apply(world, &namespace, "web", spec)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let (code, metrics) = operator.ask("/metrics")?;
    assert_eq!(code, 200, "{metrics}");
    assert!(metrics.contains("kubewarm_objects{"), "the metrics contain no informer: {metrics}");

    let mut linter = Command::new(GoClients::locate_or_build()?.program("promlint"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    linter.stdin.take().ok_or("no standard input")?.write_all(metrics.as_bytes())?;
    let output = linter.wait_with_output()?;
    let problems = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && problems.is_empty(), "{problems}");
    Ok(())
}
