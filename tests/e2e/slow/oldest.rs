//! Tests the oldest supported API server: the requests that show that a store is current work there
//! too.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::quiet::{QUIET, QuietStore};
use crate::cases::reads::strict_reads;
use crate::world::{Outcome, World};

#[test]
fn strict_reads_are_answered() -> Outcome {
    strict_reads::are_answered(World::with_oldest_apiserver()?)
}

#[test]
fn bookmarks_keep_a_quiet_store_fresh() -> Outcome {
    let store = QuietStore::start(World::with_oldest_apiserver()?)?;
    let began = Instant::now();
    while began.elapsed() < QUIET {
        store.assert_fresh()?;
        sleep(Duration::from_secs(1));
    }
    store.assert_no_read_waited()
}
