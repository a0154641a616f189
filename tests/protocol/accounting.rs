//! Tests that the memory that stores report matches the growth of the process.

use crate::{
    alone::{is_alone, kib},
    engine::informer,
};
use kubewarm_api::model::{
    DecodedObject, Delta, DeltaSink as _, ReplacePolicy, ResourceVersion, Uid,
};
use kubewarm_cache::store::StoreCatalog;
use std::collections::BTreeSet;

const OBJECTS: u32 = 50_000;
/// The maximum number of attempts. In one of 30 runs, the process holds a third more memory than
/// its stores, because glibc keeps freed memory below a later allocation. A fault of the accounting
/// shows in each run.
const TRIES: usize = 3;

/// A pod of some 1.5 KB. The pods resemble each other as much as the pods of a cluster do.
fn pod(n: u32, random: &mut fastrand::Rng) -> String {
    let app = n % 200;
    let digest: String = (0..64).map(|_| char::from_digit(random.u32(..16), 16).unwrap()).collect();
    let variables: Vec<_> = (0..12)
        .map(|at| {
            format!(r#"{{"name":"SETTING_{at}","value":"value of app {app}, {}"}}"#, at * app)
        })
        .collect();
    format!(
        r#"{{"metadata":{{"name":"app-{app:03}-{n:06}","labels":{{"app":"app-{app:03}","tier":"web"}}}},"spec":{{"nodeName":"node-{}","containers":[{{"name":"main","image":"registry.example.com/app-{app}@sha256:{digest}","env":[{}]}}]}},"status":{{"phase":"Running","podIP":"10.{}.{}.{}"}}}}"#,
        random.u32(..500),
        variables.join(","),
        random.u8(..),
        random.u8(..),
        random.u8(..),
    )
}

fn fill(catalog: &StoreCatalog, kind: &str, objects: u32) -> impl Sized {
    let mut random = fastrand::Rng::with_seed(7);
    let mut writer = catalog.open(&informer(kind).key, &BTreeSet::new());
    writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
    for n in 0..objects {
        // The process also grows by memory that compression frees only later. So the test waits
        // until compression has caught up, however the kernel schedules its thread.
        if n % 1_000 == 0 {
            catalog.wait_until_settled();
        }
        let body = pod(n, &mut random);
        let name = format!("app-{:03}-{n:06}", n % 200);
        writer.apply(Delta::Upsert(DecodedObject {
            namespace: "ns".into(),
            name: name.as_str().into(),
            uid: Uid::from(random.u128(..).to_be_bytes()),
            version: ResourceVersion::parse(&(n + 1).to_string()),
            body: body.as_bytes(),
        }));
    }
    writer.apply(Delta::ListDone(ResourceVersion::parse("99999999").unwrap()));
    catalog.wait_until_settled();
    writer
}

#[test]
fn fifty_thousand_objects_are_accounted_within_a_tenth_of_what_the_process_grows_by() {
    let test = "accounting::fifty_thousand_objects_are_accounted_within_a_tenth_of_what_the_process_grows_by";
    if !is_alone(test, TRIES) {
        return;
    }
    let catalog = StoreCatalog::new();
    let before = kib("RssAnon");
    let writer = fill(&catalog, "pods", OBJECTS);
    let grown = (kib("RssAnon") - before) << 10;
    let accounted = catalog.meter(&informer("pods").key).bytes();
    drop(writer);
    assert!(grown * 10 > accounted * 9 && accounted * 10 > grown * 9, "{accounted} of {grown}");
}
