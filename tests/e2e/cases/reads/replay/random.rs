//! Sends random requests to both servers, several at a time.

use std::io::{Write as _, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::corpus::{ReplayRequest, in_protobuf};
use super::{Answer, HEADERS, Players, SOON_SAME, grammar, must_match};
use crate::api::HttpReply;
use crate::world::{Outcome, eventually};

/// The seed of the random requests. It is fixed, so that a change decides whether the test fails,
/// and not chance. To look for new differences, set the variable `REPLAY_SEED` to another number.
/// `REPLAY_REQUESTS` replaces the count.
const SEED: u64 = 1;
/// The number of clients that send requests at the same time, over connections that stay open.
const CLIENTS: usize = 4;
/// The number of differences after which random requests end. A fault of one kind makes many
/// requests differ.
const MOST_NAMED: usize = 20;

/// Draws `count` random requests, and sends them in JSON and in protobuf to both servers.
pub(crate) fn replay_random(players: &Players<'_>, a: &str, count: usize) -> Outcome {
    let seed = number("REPLAY_SEED")?.unwrap_or(SEED);
    let count = number("REPLAY_REQUESTS")?.map_or(Ok(count), usize::try_from)?;
    // The test harness hides what a passing test prints by macro.
    writeln!(stderr(), "{count} random requests with REPLAY_SEED={seed}")?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut drawn: Vec<_> = (0..count).map(|_| grammar::draw(&mut rng, a)).collect();
    let has_one_token = |request: &ReplayRequest| request.authorization.differences().is_empty();
    drawn.retain(|request| !players.forwards || has_one_token(request));
    let protobuf = in_protobuf(&drawn);
    let mut requests: Vec<_> = drawn.into_iter().chain(protobuf).collect();
    if players.forwards {
        requests.iter_mut().for_each(grammar::keep_differences_of_stores);
    }
    let (next, unnamed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run = || {
        while unnamed.lock().len() < MOST_NAMED {
            let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            if let Err(difference) = eventually(SOON_SAME, || compare_replies(players, request)) {
                unnamed.lock().push(difference.to_string());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(run);
        }
    });
    let unnamed = unnamed.into_inner();
    if unnamed.is_empty() {
        return Ok(());
    }
    Err(format!("REPLAY_SEED={seed}: these differ:\n{}", unnamed.join("\n")).into())
}

/// Reads a number from an environment variable.
fn number(variable: &str) -> Result<Option<u64>, std::num::ParseIntError> {
    std::env::var(variable).ok().map(|text| text.parse()).transpose()
}

/// Compares the answers to one request. Most answers are equal in every byte, so they need no
/// parser.
fn compare_replies(players: &Players<'_>, request: &ReplayRequest) -> Outcome {
    let replies = players.replies(request, &request.path)?;
    if is_same(&replies) {
        return Ok(());
    }
    must_match(request, &replies.each_ref().map(Answer::from))
}

fn is_same([ours, theirs]: &[HttpReply; 2]) -> bool {
    ours.code == theirs.code
        && HEADERS.iter().all(|name| ours.header(name) == theirs.header(name))
        && ours.bytes == theirs.bytes
}
