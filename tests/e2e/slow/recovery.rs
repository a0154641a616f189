//! The test of `crate::recovery` after a longer outage: five minutes without an API server.

use std::time::Duration;

use crate::cases::process::recovery::{IN_STEP, recover};
use crate::world::Outcome;

#[test]
fn two_hundred_informers_resume_after_five_minutes_without_the_api_server() -> Outcome {
    let took = recover(2, 100, &[Duration::from_mins(5)])?;
    assert!(took.iter().all(|took| *took < IN_STEP), "{took:?}");
    Ok(())
}
