//! Tests that one extremely large object is skipped and reported, and never held in memory.

use crate::{
    alone::{is_alone, kib},
    engine::{informer, quick, run},
    reply::{BodyStep, Reply, event, list, object, quiet},
    server::Kind,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};

/// The size of the object, in MiB. It exceeds every limit, and a copy in memory would be
/// measurable.
const MIB: usize = 200;
/// The limit for the growth of this process' largest resident memory.
const GROWTH_MIB: u64 = 64;

/// Sends `text`, in which a member of 200 MiB replaces `"at":"{mark}"`. The server generates this
/// member while it sends the response, so the process never has it in memory.
fn inflated(text: &str, mark: &str) -> Reply {
    let (before, after) = text.split_once(mark).unwrap();
    let (before, after) = (Bytes::from(before.to_owned()), Bytes::from(after.to_owned()));
    let filling = Bytes::from(vec![b'x'; 1 << 20]);
    let middle = stream::iter(std::iter::repeat_n(filling, MIB));
    let all = stream::iter([before]).chain(middle).chain(stream::iter([after]));
    Reply::steps(all.map(BodyStep::Bytes))
}

#[test]
fn an_object_of_200_mib_is_named_and_costs_no_memory() {
    if !is_alone("memory::an_object_of_200_mib_is_named_and_costs_no_memory", 1) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(pass_over_a_huge_object());
}

async fn pass_over_a_huge_object() {
    let pods = informer("pods");
    let before = kib("VmHWM") / 1024;
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::List, _) => {
            let items = [object("a", 1, 3), object("huge", 2, 4), object("z", 3, 5)];
            inflated(&list(7, &items), "\"at\":\"4\"")
        }
        (Kind::Watch, 0) => {
            let lines = [
                event("ADDED", object("m", 4, 8)),
                event("MODIFIED", object("z", 3, 9)).replace("\"at\":\"9\"", "MARK"),
                event("ADDED", object("n", 5, 10)),
            ];
            inflated(&(lines.join("\n") + "\n"), "MARK")
        }
        _ => quiet(asked),
    })
    .await;
    let listed = engine.until(&pods.key, |report| report.warmed.is_some()).await;
    assert_eq!(&*listed.undecodable[0].object, "ns/huge");
    let report = engine.until_shown(&pods.key, &["a@3", "m@8", "n@10"]).await;
    assert!(report.undecodable.iter().any(|what| &*what.object == "ns/z"), "{report:?}");
    assert_eq!(server.count(Kind::List), 1);
    let growth = kib("VmHWM") / 1024 - before;
    assert!(growth < GROWTH_MIB, "grew by {growth} MiB");
}
