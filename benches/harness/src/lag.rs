//! Time from a write to the moment when a subject holds it.

use crate::quantile::quantile;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The annotation in which the writer says when it sent the update, in nanoseconds since the epoch.
/// Writer and readers share one clock: they run on one machine.
pub const WRITTEN_AT: &str = "bench.kubewarm.io/written-at";

/// What a subject answers to `lag-stop`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lag {
    /// Half of the events came faster.
    pub p50_seconds: f64,
    /// All but one in a hundred came faster.
    pub p99_seconds: f64,
    /// Events seen.
    pub events: u64,
}

/// Collects the lag of events while it is switched on.
#[derive(Debug, Default)]
pub struct LagRecorder {
    samples: Mutex<Option<Vec<f64>>>,
}

impl LagRecorder {
    /// Begins anew.
    pub fn start(&self) {
        *self.samples.lock() = Some(Vec::new());
    }

    /// Ends, and says what was seen.
    pub fn stop(&self) -> Lag {
        let samples = self.samples.lock().take().unwrap_or_default();
        Lag {
            p50_seconds: quantile(&samples, 0.5),
            p99_seconds: quantile(&samples, 0.99),
            events: samples.len() as u64,
        }
    }

    /// Events seen since the start.
    pub fn seen_so_far(&self) -> u64 {
        self.samples.lock().as_ref().map_or(0, |samples| samples.len() as u64)
    }

    /// An object has just become visible; `written_at` is the value of its [`WRITTEN_AT`], if any.
    pub fn seen(&self, written_at: Option<&str>) {
        let now = Timestamp::now().as_nanosecond();
        let Some(written) = written_at.and_then(|text| text.parse::<i128>().ok()) else { return };
        if let Some(samples) = &mut *self.samples.lock() {
            #[expect(clippy::cast_precision_loss, reason = "a lag is far below 2^53 ns")]
            samples.push((now - written) as f64 / 1e9);
        }
    }

    /// As [`seen`](Self::seen), for an object in JSON, which is not read unless switched on.
    pub fn seen_json(&self, body: &[u8]) {
        if self.samples.lock().is_some() {
            self.seen(written_at(body));
        }
    }
}

fn written_at(body: &[u8]) -> Option<&str> {
    let key = memchr::memmem::find(body, WRITTEN_AT.as_bytes())?;
    let value = body.get(key + WRITTEN_AT.len()..)?.strip_prefix(b"\":\"")?;
    let end = memchr::memchr(b'"', value)?;
    std::str::from_utf8(value.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_writing_is_found_in_json() {
        let body = br#"{"metadata":{"annotations":{"bench.kubewarm.io/written-at":"123"}}}"#;
        assert_eq!(written_at(body), Some("123"));
        assert_eq!(written_at(b"{}"), None);
    }

    #[test]
    fn nothing_is_collected_before_the_start() {
        let recorder = LagRecorder::default();
        recorder.seen(Some("0"));
        assert_eq!(recorder.stop().events, 0);
        recorder.start();
        recorder.seen(Some("0"));
        assert_eq!(recorder.stop().events, 1);
    }
}
