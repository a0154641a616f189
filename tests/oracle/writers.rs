//! Writes objects at the API server.

use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::collection::COLLECTIONS;
use crate::request::send;

/// The number of names, which is small so that each object is created and deleted many times.
const NAMES: usize = 10;

/// The longest time in which a writer writes one collection. Afterwards it pauses, so that
/// collections are also quiet.
const BURST: Duration = Duration::from_secs(4);
const SILENCE: Duration = Duration::from_secs(16);

pub(crate) fn random_name(random: &mut fastrand::Rng) -> String {
    format!("object-{}", random.usize(..NAMES))
}

fn up_to(random: &mut fastrand::Rng, longest: Duration) -> Duration {
    longest.mul_f64(random.f64())
}

/// Creates, changes, deletes and replaces objects until `stop`. Between bursts, kinds are quiet.
pub(crate) async fn write(client: Client, mut random: fastrand::Rng, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let collection = &COLLECTIONS[random.usize(..COLLECTIONS.len())];
        let burst = tokio::time::Instant::now() + up_to(&mut random, BURST);
        while tokio::time::Instant::now() < burst && !stop.is_cancelled() {
            let name = random_name(&mut random);
            let object = collection.object(&name, &random.u64(..).to_string());
            let path = collection.path();
            let one = format!("{path}/{name}");
            let requests: &[(&str, &str)] = match random.u8(..10) {
                0..4 => &[("POST", &path)],
                4..7 => &[("PATCH", &one)],
                7..9 => &[("DELETE", &one)],
                _ => &[("DELETE", &one), ("POST", &path)],
            };
            for &(method, path) in requests {
                let body = (method != "DELETE").then_some(&object);
                // This write may fail, because another writer was faster or because the API server
                // is disturbed.
                drop(send(&client, (method, path), &[], body).await);
            }
            tokio::time::sleep(up_to(&mut random, Duration::from_millis(120))).await;
        }
        let silence = up_to(&mut random, SILENCE);
        drop(tokio::time::timeout(silence, stop.cancelled()).await);
    }
}
