//! More at once than one caller may have: whoever has as much is told to come later, and nobody else is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::api::{Reply, Served, Watch};
use crate::world::{Failure, Outcome, eventually};

const SOON: Duration = Duration::from_secs(30);
/// More requests than one caller may have under way (100).
const CROWD: usize = 120;
const AGAIN: Duration = Duration::from_millis(100);
/// Requests that are sent on with one token.
const SENT_ON: usize = 256;
/// Of these, what an earlier test may not have given back yet.
const LEFT: usize = 10;
/// Answered at once, to anybody.
const SHORT: &str = "/version";

/// The same words as from the API server, which are not those of a cell that is not warm.
fn assert_busy(reply: &Reply) {
    let status = reply.json();
    let told = (reply.code, &status["reason"], &status["message"]);
    let busy = json!("Too many requests, please try again later.");
    assert_eq!(told, (429, &json!("TooManyRequests"), &busy), "{reply:?}");
    assert_eq!(reply.header("retry-after"), "1", "{reply:?}");
}

/// Of `token` and `other`, two callers who may read `waited`: that is waited for, for some seconds.
pub(crate) fn who_waits_leaves_some(
    served: &Served,
    (token, other): (&str, &str),
    waited: &str,
) -> Outcome {
    // Connections of the crowd's are no others'.
    let (crowd, reads) = (served.server()?, served.server()?);
    let is_over = AtomicBool::new(false);
    let looked = thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
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

/// Of `token` and `other`, two callers, the first of whom may watch `sent_on`, which is not warm, and read `warm`, which
/// is. What is sent on for somebody is bounded, and takes up nothing else.
pub(crate) fn who_has_much_sent_on_leaves_some(
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
    // It is the API server's answer.
    assert_eq!(reads.get(other, sent_on)?.code, 403);
    assert!(open.iter().all(|watch| !watch.is_over()), "a watch was cut off");
    drop(open);
    eventually(SOON, || match reads.get(token, sent_on)?.code {
        200 => Ok(()),
        code => Err(Failure::from(format!("{code}"))),
    })
}
