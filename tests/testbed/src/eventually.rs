//! Waiting for what a cluster does in its own time.

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Waits until `look` succeeds.
///
/// # Errors
///
/// Its last answer, when time runs out.
pub fn eventually<T>(
    limit: Duration,
    mut look: impl FnMut() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() > deadline => {
                return Err(format!("not within {limit:?}: {error}").into());
            }
            Err(_) => sleep(PAUSE),
        }
    }
}
