//! Limits for one caller: kubewarm answers 429 to a caller at its limit, and serves other callers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::api::{HttpReply, Served, Watch};
use crate::world::{Failure, Outcome, SOON, eventually};

/// More requests than the 100 of one caller that kubewarm handles at once, and the 256 that wait.
const CROWD: usize = 400;
/// The number of connections of these requests. A connection has at most 100 requests at once.
const CONNECTIONS: usize = 5;
const AGAIN: Duration = Duration::from_millis(100);
/// The limit of forwarded requests for one token.
const SENT_ON: usize = 256;
/// The number of requests of an earlier test that may still count against the limit of forwarded
/// requests.
const LEFT: usize = 10;
/// A path that kubewarm answers at once, to every caller.
const SHORT: &str = "/version";

/// Checks that the response has the message that the API server sends at its own limit. The message
/// for a store that is not warm differs.
fn assert_busy(reply: &HttpReply) {
    let status = reply.json();
    let error = (reply.code, &status["reason"], &status["message"]);
    let busy = json!("Too many requests, please try again later.");
    assert_eq!(error, (429, &json!("TooManyRequests"), &busy), "{reply:?}");
    let delay = reply.header("retry-after").parse();
    assert!(delay.is_ok_and(|delay: u64| (1..=30).contains(&delay)), "{reply:?}");
}

/// `token` and `other` belong to two callers who may read `waited`. A read of the path `waited`
/// waits for some seconds, so that requests accumulate.
pub(crate) fn waiting_requests_are_limited_per_caller(
    served: &Served,
    (token, other): (&str, &str),
    waited: &str,
) -> Outcome {
    // The many waiting requests have a client of their own, so that the other reads do not share
    // connections with them.
    let crowd = (0..CONNECTIONS).map(|_| served.server()).collect::<Result<Vec<_>, _>>()?;
    let reads = served.server()?;
    let is_over = AtomicBool::new(false);
    let looked = thread::scope(|scope| {
        for number in 0..CROWD {
            let (crowd, is_over) = (&crowd[number % CONNECTIONS], &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _refused_or_not = crowd.get(token, waited);
                    thread::sleep(AGAIN);
                }
            });
        }
        let looked = eventually(SOON, || {
            let (full, free) = (reads.get(token, SHORT)?, reads.get(other, SHORT)?);
            if (full.code, free.code) == (429, 200) {
                return Ok(full);
            }
            Err(format!("{full:?}, and of the other {free:?}").into())
        });
        is_over.store(true, Ordering::Relaxed);
        looked
    });
    assert_busy(&looked?);
    eventually(SOON, || match reads.get(token, SHORT)?.code {
        200 => Ok(()),
        code => Err(format!("{code}").into()),
    })
}

/// The owner of `token` may watch `sent_on`, which kubewarm forwards, and read `warm` from the
/// cache. The limit of forwarded requests applies to that caller only and leaves its other reads
/// alone.
pub(crate) fn forwarded_requests_are_limited_per_caller(
    served: &Served,
    (token, other): (&str, &str),
    (sent_on, warm): (&str, &str),
) -> Outcome {
    let reads = served.server()?;
    let watched = format!("{sent_on}?watch=true&resourceVersion=0");
    let mut open: Vec<Watch> = Vec::new();
    while open.len() <= SENT_ON {
        let watch = reads.watch(token, &watched, "application/json")?;
        if watch.code == 429 {
            break;
        }
        assert_eq!(watch.code, 200);
        open.push(watch);
    }
    assert!((SENT_ON - LEFT..=SENT_ON).contains(&open.len()), "{} watches", open.len());
    assert_busy(&reads.get(token, sent_on)?);
    assert_eq!(reads.get(token, warm)?.code, 200);
    // This 403 comes from the API server: kubewarm still forwards requests of the other caller.
    assert_eq!(reads.get(other, sent_on)?.code, 403);
    assert!(open.iter().all(|watch| !watch.is_over()), "a watch was cut off");
    drop(open);
    eventually(SOON, || match reads.get(token, sent_on)?.code {
        200 => Ok(()),
        code => Err(Failure::from(format!("{code}"))),
    })
}
