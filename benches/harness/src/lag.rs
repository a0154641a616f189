//! Measures the time from a write until a cache shows it to its readers.

use crate::quantile::quantile;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The annotation with the time at which the writer sent the update, in nanoseconds since the
/// epoch. Writer and readers run on one machine and share its clock.
pub const WRITTEN_AT: &str = "bench.kubewarm.io/written-at";

/// The response to `lag-stop`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lag {
    /// The median lag.
    pub p50_seconds: f64,
    /// The 99th percentile of the lag.
    pub p99_seconds: f64,
    /// The number of events.
    pub events: u64,
}

/// Collects the lag of events between start and stop.
#[derive(Debug, Default)]
pub struct LagRecorder {
    samples: Mutex<Option<Vec<f64>>>,
}

impl LagRecorder {
    /// Starts with no events.
    pub fn start(&self) {
        *self.samples.lock() = Some(Vec::new());
    }

    /// Stops and returns the result.
    pub fn stop(&self) -> Lag {
        let samples = self.samples.lock().take().unwrap_or_default();
        Lag {
            p50_seconds: quantile(&samples, 0.5),
            p99_seconds: quantile(&samples, 0.99),
            events: samples.len() as u64,
        }
    }

    /// The number of events since the start.
    pub fn seen_so_far(&self) -> u64 {
        self.samples.lock().as_ref().map_or(0, |samples| samples.len() as u64)
    }

    /// Records an object that has just become visible. `written_at` is the value of its
    /// [`WRITTEN_AT`] annotation.
    pub fn seen(&self, written_at: Option<&str>) {
        let now = Timestamp::now().as_nanosecond();
        let Some(written) = written_at.and_then(|text| text.parse::<i128>().ok()) else { return };
        if let Some(samples) = &mut *self.samples.lock() {
            #[expect(clippy::cast_precision_loss, reason = "a lag is far below 2^53 ns")]
            samples.push((now - written) as f64 / 1e9);
        }
    }

    /// As [`seen`](Self::seen), for an object in JSON or protobuf. The object is read only between
    /// start and stop.
    pub fn seen_object(&self, body: &[u8]) {
        if self.samples.lock().is_some() {
            self.seen(written_at(body));
        }
    }
}

fn written_at(body: &[u8]) -> Option<&str> {
    let key = memchr::memmem::find(body, WRITTEN_AT.as_bytes())?;
    let rest = body.get(key + WRITTEN_AT.len()..)?;
    let value = if let Some(json) = rest.strip_prefix(b"\":\"") {
        json.get(..memchr::memchr(b'"', json)?)?
    } else {
        // In protobuf, the value is field 2 of the annotation: a tag, the length and the text.
        let (length, value) = rest.strip_prefix(b"\x12")?.split_first()?;
        value.get(..usize::from(*length))?
    };
    std::str::from_utf8(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_writing_is_found_in_json_and_protobuf() {
        let body = br#"{"metadata":{"annotations":{"bench.kubewarm.io/written-at":"123"}}}"#;
        assert_eq!(written_at(body), Some("123"));
        let length = u8::try_from(WRITTEN_AT.len()).unwrap();
        let entry = [&[0x0a, length], WRITTEN_AT.as_bytes(), b"\x12\x03123\x12\x01x"].concat();
        assert_eq!(written_at(&entry), Some("123"));
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
