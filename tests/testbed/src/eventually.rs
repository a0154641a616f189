//! Polls a cluster until a condition holds.

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time between two polls.
const PAUSE: Duration = Duration::from_millis(200);

/// Calls `look` until it succeeds, for at most `limit`.
///
/// # Errors
///
/// The last error of `look`, when the time runs out.
pub fn eventually<T>(
    limit: Duration,
    mut look: impl FnMut() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > deadline => {
                return Err(format!("not within {limit:?}: {error}").into());
            }
            Err(_) => sleep(PAUSE),
        }
    }
}
