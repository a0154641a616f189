//! `--metrics-auth`: the API server decides which callers may read metrics.

use std::process::Command;
use std::time::Duration;

use crate::operator::Operator;
use crate::world::{Failure, Outcome, World, eventually, file};

/// Timeout until a changed permission has an effect: access decisions count for ten seconds, the
/// rest is for a busy machine.
const REMEMBERED: Duration = Duration::from_secs(20);

/// The operator's answer to the holder of this token.
fn metrics(operator: &Operator, token: &str) -> Result<(u16, String), Failure> {
    operator.ask_with("/metrics", &format!("Authorization: Bearer {token}\r\n"))
}

/// Waits until the operator answers the holder of this token with this status code.
fn await_code(operator: &Operator, token: &str, expected: u16) -> Result<String, Failure> {
    eventually(REMEMBERED, || match metrics(operator, token)? {
        (code, body) if code == expected => Ok(body),
        (code, body) => {
            let begin: String = body.chars().take(400).collect();
            Err(format!("{code}, not {expected}: {begin}").into())
        }
    })
}

#[test]
fn metrics_are_served_to_callers_that_the_api_server_authorizes() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start_with(&world, &["--metrics-auth"])?;
    let team = world.namespace("team")?;
    world.cluster.run(["create", "serviceaccount", "scraper", "-n", &team])?;
    let token = world.cluster.run(["create", "token", "scraper", "-n", &team])?;
    let token = token.trim();

    // While kubewarm has no permission to send reviews, its answer names what is missing.
    let (code, body) = metrics(&operator, token)?;
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("`kubewarm rbac --operator --metrics-auth "), "{body}");
    assert!(
        operator.process.log().contains("reviews of callers fail; requests for metrics get 503")
    );
    let rights = file("deploy/metrics-auth.yaml");
    world.cluster.run(["apply", "-f", &rights.to_string_lossy()])?;

    let refused = await_code(&operator, token, 403)?;
    let who = format!("system:serviceaccount:{team}:scraper may not get /metrics");
    assert!(refused.starts_with(&who), "{refused}");
    let (code, body) = operator.ask("/metrics")?;
    assert_eq!(code, 401, "{body}");
    let (code, body) = metrics(&operator, "eyJhbGciOiJub25lIn0.e30.")?;
    assert_eq!(code, 401, "{body}");
    assert!(body.contains("does not accept this token"), "{body}");
    for path in ["/livez", "/readyz", "/debug/informers"] {
        assert_ne!(operator.ask(path)?.0, 401, "{path} is for probes and port-forwards");
    }

    // Grant the permission with the commands that the answer names.
    let commands = refused.lines().filter_map(|line| line.strip_prefix("kubectl "));
    let commands: Vec<_> = commands.map(|line| line.replace("NAME", "scraper")).collect();
    assert_eq!(commands.len(), 2, "{refused}");
    for command in &commands {
        world.cluster.run(command.split_whitespace())?;
    }
    let exposition = await_code(&operator, token, 200)?;
    assert!(exposition.contains("kubewarm_build_info{"), "{exposition}");

    world.cluster.run(["delete", "clusterrolebinding", "scraper"])?;
    await_code(&operator, token, 403)?;
    let log = operator.process.log();
    assert!(!log.contains(token), "a token is logged");
    assert!(log.contains("reviews of callers succeed again"), "{log}");
    Ok(())
}

#[test]
fn flags_that_need_a_cluster_role_are_rejected_by_name() -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
        .args(["run", "--metrics-auth", "--watch-namespaces", "shop"])
        .output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for word in ["--metrics-auth", "--watch-namespaces", "TokenReviews", "cluster-scoped"] {
        assert!(stderr.contains(word), "{stderr}");
    }
    Ok(())
}
