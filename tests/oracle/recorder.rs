//! Records what etcd stores, with a watch of etcd itself.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubewarm_wire::protobuf::MAGIC;
use parking_lot::Mutex;
use serde_json::Value;
use testbed::ControlPlane;

use crate::api::protobuf_json;
use crate::collection::collection_of_key;
use crate::history::{Digests, Epoch, EtcdChange, EtcdHistory};
use crate::observation::{Form, Millis, digest};
use crate::world::{Failure, Outcome, SOON, eventually};

/// The time since the run began.
#[derive(Clone, Copy)]
pub(crate) struct RunClock(Instant);

impl RunClock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Millis {
        self.at(Instant::now())
    }

    pub(crate) fn at(self, time: Instant) -> Millis {
        u64::try_from(time.duration_since(self.0).as_millis()).unwrap_or(u64::MAX)
    }
}

/// A running `etcdctl watch`. It is killed when this value is dropped.
pub(crate) struct EtcdRecorder {
    clock: RunClock,
    history: Arc<Mutex<EtcdHistory>>,
    watch: Option<(Child, JoinHandle<()>)>,
}

impl EtcdRecorder {
    /// Records all changes since etcd's first revision.
    pub(crate) fn start(cluster: &ControlPlane, clock: RunClock) -> Result<Self, Failure> {
        let mut recorder = Self { clock, history: Arc::default(), watch: None };
        recorder.begin_epoch(cluster, 0)?;
        Ok(recorder)
    }

    /// Ends the current epoch, because etcd is about to be restored. The API server must not run.
    pub(crate) fn end_epoch(&mut self, cluster: &ControlPlane) -> Outcome {
        let ended = self.clock.now();
        self.catch_up(cluster)?;
        self.stop();
        if let Some(epoch) = self.history.lock().epochs.last_mut() {
            epoch.ended = Some(ended);
        }
        Ok(())
    }

    /// Waits until the recorder has received every change that etcd has stored.
    pub(crate) fn catch_up(&self, cluster: &ControlPlane) -> Outcome {
        let stored: u64 = cluster.etcd_revision()?.parse()?;
        eventually(SOON, || {
            let head = self.history.lock().epochs.last().map_or(0, |epoch| epoch.head);
            if head >= stored { Ok(()) } else { Err(format!("recorded {head} of {stored}").into()) }
        })
    }

    /// Begins an epoch after an etcd restore of a snapshot with the last revision `base`.
    pub(crate) fn begin_epoch(&mut self, cluster: &ControlPlane, base: u64) -> Result<(), Failure> {
        let number = {
            let mut history = self.history.lock();
            // The restored API server can answer before the recorder starts. So the epoch begins
            // when the previous epoch ended.
            let began = history.epochs.last().and_then(|last| last.ended).unwrap_or_default();
            history.epochs.push(Epoch { base, began, head: base, ..Epoch::default() });
            history.epochs.len() - 1
        };
        let mut command = cluster.etcdctl()?;
        // The prefix is empty, because the API server's own keys are outside `/registry/`, and
        // their revisions count too.
        command.args(["watch", "--prefix", "", "--write-out=json"]);
        command.arg(format!("--rev={}", base + 1));
        let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let lines = watch.stdout.take().ok_or("no output of etcdctl")?;
        let (history, clock) = (Arc::clone(&self.history), self.clock);
        let thread = thread::spawn(move || record(lines, &history, number, clock));
        self.watch = Some((watch, thread));
        Ok(())
    }

    /// The last revision of each collection in the current epoch.
    pub(crate) fn last_changes(&self) -> Vec<u64> {
        let history = self.history.lock();
        let last = |collection| {
            let timelines = history.timelines(collection);
            timelines
                .last()
                .and_then(|timeline| timeline.changes.last())
                .map_or(0, |change| change.revision)
        };
        (0..crate::collection::COLLECTIONS.len()).map(last).collect()
    }

    /// Ends the recording.
    pub(crate) fn finish(mut self) -> EtcdHistory {
        self.stop();
        self.history.lock().clone()
    }

    fn stop(&mut self) {
        if let Some((mut watch, thread)) = self.watch.take() {
            // The process may have ended by itself.
            let _ = watch.kill();
            let _ = watch.wait();
            // The thread ends when the process's output ends.
            let _ = thread.join();
        }
    }
}

impl Drop for EtcdRecorder {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads the output of `etcdctl watch`, one response per line.
fn record(lines: ChildStdout, history: &Mutex<EtcdHistory>, epoch: usize, clock: RunClock) {
    for line in BufReader::new(lines).lines().map_while(Result::ok) {
        let known = clock.now();
        let Ok(response) = serde_json::from_str::<Value>(&line) else { continue };
        let events = response["Events"].as_array().map_or(&[][..], Vec::as_slice);
        let mut history = history.lock();
        let Some(epoch) = history.epochs.get_mut(epoch) else { return };
        for event in events {
            let Some(revision) = event["kv"]["mod_revision"].as_u64() else { continue };
            epoch.head = epoch.head.max(revision);
            match change(event, revision, known) {
                Ok(change) => epoch.changes.extend(change),
                Err(_) => epoch.undecodable += 1,
            }
        }
    }
}

/// The change of an event. `None` if its object belongs to no collection.
fn change(event: &Value, revision: u64, known: Millis) -> Result<Option<EtcdChange>, Failure> {
    let bytes = |field: &str| STANDARD.decode(event["kv"][field].as_str().unwrap_or_default());
    let key = bytes("key")?;
    let object = std::str::from_utf8(&key).ok().and_then(collection_of_key);
    let Some((collection, name)) = object else { return Ok(None) };
    // etcd's JSON omits the event type 0, which is a put. The type 1 is a deletion.
    let is_deletion = event["type"].as_u64() == Some(1);
    let content = if is_deletion { None } else { Some(digests(&bytes("value")?)?) };
    Ok(Some(EtcdChange { revision, known, collection, name: name.to_owned(), content }))
}

fn digests(stored: &[u8]) -> Result<Digests, Failure> {
    let object = if stored.starts_with(MAGIC) {
        protobuf_json(stored).ok_or("an object that is no protobuf")?
    } else {
        serde_json::from_slice(stored)?
    };
    Ok(Digests { whole: digest(&object, Form::Whole), metadata: digest(&object, Form::Metadata) })
}
