//! One absurdly large object: passed over, named, and never held.

use crate::{
    engine::{cell, quick, run},
    reply::{Reply, Step, event, list, object, quiet},
    server::Kind,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use std::process::Command;

/// How large: more than any bound, so that holding it would show.
const MIB: usize = 200;
/// The largest resident memory of this process may grow by no more.
const GROWTH_MIB: u64 = 64;

/// `text` with one member of 200 MiB in place of `"at":"{mark}"`, made as it is sent.
fn inflated(text: &str, mark: &str) -> Reply {
    let (before, after) = text.split_once(mark).unwrap();
    let (before, after) = (Bytes::from(before.to_owned()), Bytes::from(after.to_owned()));
    let filling = Bytes::from(vec![b'x'; 1 << 20]);
    let middle = stream::iter(std::iter::repeat_n(filling, MIB));
    let all = stream::iter([before]).chain(middle).chain(stream::iter([after]));
    Reply::steps(all.map(Step::Bytes))
}

/// The highest resident memory so far.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Set in the process that runs this test and nothing else: memory is that of a whole process.
const ALONE: &str = "KUBEWARM_TEST_ALONE";

#[test]
fn an_object_of_200_mib_is_named_and_costs_no_memory() {
    if std::env::var_os(ALONE).is_none() {
        let test = "memory::an_object_of_200_mib_is_named_and_costs_no_memory";
        let alone = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&alone.stdout);
        let complained = String::from_utf8_lossy(&alone.stderr);
        assert!(alone.status.success() && said.contains("1 passed"), "{said}{complained}");
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(pass_over_a_huge_object());
}

async fn pass_over_a_huge_object() {
    let pods = cell("pods");
    let before = peak_mib();
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
    let growth = peak_mib() - before;
    assert!(growth < GROWTH_MIB, "grew by {growth} MiB");
}
