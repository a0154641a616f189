//! Tests `--forward` with writes that the API server itself authenticates, with connections that
//! break during a write, and with the list of forwarded reads.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use testbed::GoClients;

use crate::api::{Served, Server, account, bind, kubeconfig};
use crate::cutter;
use crate::figures::Exposition;
use crate::operator::Operator;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Longer than the 10 s for which kubewarm caches a TokenReview.
const SILENCE: Duration = Duration::from_secs(11);

/// A ServiceAccount that may do everything in its namespace.
struct Writer {
    token: String,
    /// The path of the namespace's `ConfigMaps`.
    path: String,
    user: String,
}

impl Writer {
    fn new(world: &World) -> Result<Self, Failure> {
        let namespace = world.namespace("team")?;
        let token = account(world, &namespace, "writer")?;
        bind(world, "admin", (&namespace, "writer"), Some(&namespace))?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        Ok(Self { token, path, user: format!("system:serviceaccount:{namespace}:writer") })
    }

    fn create(&self, reads: &Server, name: &str) -> Result<u16, Failure> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        Ok(reads.write(&self.token, ("POST", &self.path), &object)?.code)
    }
}

/// The number of TokenReviews and SubjectAccessReviews that kubewarm has sent to the API server.
fn reviews(served: &Served) -> Result<f64, Failure> {
    let sent = ["source=\"api_server\""];
    Ok(Exposition::read(&served.operator)?.sum("kubewarm_read_authorizations_total", &sent))
}

/// Waits until the metrics count more than `count` requests with these labels.
fn await_requests(served: &Served, labels: &[&str], count: f64) -> Outcome {
    eventually(SOON, || {
        let metrics = Exposition::read(&served.operator)?;
        if metrics.sum("kubewarm_read_requests_total", labels) > count {
            return Ok(());
        }
        Err(format!("{metrics:?}").into())
    })
}

#[test]
fn a_forwarded_write_sends_no_review_and_undeclared_reads_are_named() -> Outcome {
    let world = World::lease()?;
    let served = Served::start(&world, &["--forward"])?;
    let (reads, writer) = (served.server()?, Writer::new(&world)?);
    eventually(SOON, || match writer.create(&reads, "first")? {
        201 | 409 => Ok(()),
        code => Err(format!("code {code}").into()),
    })?;
    let before = reviews(&served)?;
    sleep(SILENCE);
    assert_eq!(writer.create(&reads, "second")?, 201);
    assert!((reviews(&served)? - before).abs() < 0.5, "a write sends no review");
    let refused = reads.write("made-up", ("POST", &writer.path), &json!({}))?;
    assert_eq!((refused.code, &refused.json()["reason"]), (401, &json!("Unauthorized")));

    for path in [writer.path.clone(), format!("{}/first", writer.path)] {
        eventually(SOON, || match reads.get(&writer.token, &path)?.code {
            200 => Ok(()),
            code => Err(format!("code {code}").into()),
        })?;
    }
    let (code, shown) = served.operator.ask("/debug/forwarded")?;
    let shown: Value = serde_json::from_str(&shown)?;
    let entries = shown["forwarded"].as_array().ok_or("no list")?;
    assert_eq!((code, entries.len()), (200, 1), "{shown:#}");
    let entry = &entries[0];
    let names = (&entry["group"], &entry["resource"], &entry["user"]);
    assert_eq!(names, (&json!(""), &json!("configmaps"), &json!(writer.user)), "{shown:#}");
    assert_eq!((&entry["gets"], &entry["lists"]), (&json!(1), &json!(1)), "{shown:#}");
    let labels = ["handler=\"forward\"", "resource=\"configmaps\""];
    // kubewarm renders the metrics at most once a second.
    await_requests(&served, &labels, 3.5)
}

#[test]
fn a_connection_that_breaks_during_a_write_breaks_the_clients_connection_too() -> Outcome {
    let world = World::lease()?;
    let is_armed = Arc::new(AtomicBool::new(false));
    Operator::grant_rights(&world)?;
    let kubeconfig = cutter::breaker(&world, &is_armed)?;
    let served = Served::start_through(&world, &kubeconfig, &["--forward"])?;
    let (reads, writer) = (served.server()?, Writer::new(&world)?);
    eventually(SOON, || match writer.create(&reads, "first")? {
        201 | 409 => Ok(()),
        code => Err(format!("code {code}").into()),
    })?;
    is_armed.store(true, Ordering::SeqCst);
    let broken = writer.create(&reads, "broken");
    is_armed.store(false, Ordering::SeqCst);
    assert!(broken.is_err(), "{broken:?}");
    // The API server has executed the write, but its response was lost. So neither kubewarm nor a
    // client may repeat the write by itself.
    let api = Server::api(&world)?;
    assert_eq!(api.get(&writer.token, &format!("{}/broken", writer.path))?.code, 200);
    let labels = ["handler=\"forward\"", "code=\"none\""];
    await_requests(&served, &labels, 0.5)?;
    eventually(SOON, || match writer.create(&reads, "later")? {
        201 | 409 => Ok(()),
        code => Err(format!("code {code}").into()),
    })
}

/// The number of Kubernetes Events that client-go's recorder sends, and the number after which the
/// connection breaks.
const EVENTS: usize = 20;
const BREAKS_AFTER: usize = 5;
/// How long each connection breaks at its next request. The recorder repeats a failed Event after
/// up to 10 s.
const BROKEN: Duration = Duration::from_secs(1);

/// client-go's recorder drops an Event if the response is an error with a `Status`, but sends it
/// again after a broken connection. So kubewarm must break the connection.
#[test]
fn no_event_of_a_recorder_is_lost_when_connections_break() -> Outcome {
    let world = World::lease()?;
    let is_armed = Arc::new(AtomicBool::new(false));
    Operator::grant_rights(&world)?;
    let through = cutter::breaker(&world, &is_armed)?;
    let served = Served::start_through(&world, &through, &["--forward"])?;
    let namespace = world.namespace("team")?;
    let token = account(&world, &namespace, "recorder")?;
    bind(&world, "cluster-admin", (&namespace, "recorder"), Some(&namespace))?;
    let kubeconfig = kubeconfig(&world, &served.url()?, served.authority(), &token)?;
    let mut recorder = Command::new(GoClients::locate_or_build()?.program("record"))
        .args(["-namespace", &namespace, "-count", &EVENTS.to_string()])
        .arg(kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = recorder.stdout.take().ok_or("no output")?;
    for (number, line) in BufReader::new(output).lines().take(EVENTS).enumerate() {
        line?;
        if number == BREAKS_AFTER {
            is_armed.store(true, Ordering::SeqCst);
            sleep(BROKEN);
            is_armed.store(false, Ordering::SeqCst);
        }
    }
    let (api, path) = (Server::api(&world)?, format!("/api/v1/namespaces/{namespace}/events"));
    let path = format!("{path}?fieldSelector=reason%3DRecorded");
    eventually(SOON, || {
        let events = api.get(&token, &path)?.json();
        match events["items"].as_array().map_or(0, Vec::len) {
            EVENTS => Ok(()),
            count => Err(format!("{count} of {EVENTS} events").into()),
        }
    })?;
    // The program ends when its standard input ends, even if the test fails.
    drop(recorder.stdin.take());
    assert!(recorder.wait()?.success());
    let broken = ["handler=\"forward\"", "code=\"none\""];
    await_requests(&served, &broken, 0.5)
}
