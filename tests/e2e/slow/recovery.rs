//! The tests of `crate::recovery` after a longer outage: five minutes without an API server.

use std::time::Duration;

use crate::cases::process::recovery::{IN_STEP, recover};
use crate::world::Outcome;

const OUTAGE: Duration = Duration::from_mins(5);

#[test]
fn one_informer_resumes_after_five_minutes_without_the_api_server() -> Outcome {
    resumes(1, 1)
}

#[test]
fn two_hundred_informers_resume_after_five_minutes_without_the_api_server() -> Outcome {
    resumes(2, 100)
}

fn resumes(namespaces: usize, targets: usize) -> Outcome {
    let took = recover(namespaces, targets, &[OUTAGE])?;
    assert!(took.iter().all(|took| *took < IN_STEP), "{took:?}");
    Ok(())
}
