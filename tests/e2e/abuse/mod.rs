//! Who means ill at the read address: every request is answered or cut off, and nobody else is the worse for it.

mod connections;
mod frames;
mod peer;
mod requests;
mod strangers;

use std::error::Error;
use std::time::Duration;

use crate::api::Served;
use crate::figures::Kept;
use crate::world::Outcome;

pub(crate) use self::peer::Peer;

/// Why something cannot be tried, wherever that is noticed.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

/// Ten times what anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);
/// What the process may be larger by afterwards: ten times what it is, and far below what it was sent.
const GROWTH_KIB: u64 = 64 << 10;
/// What it may be larger by meanwhile: ten times what it is.
const PEAK_KIB: u64 = 512 << 10;

/// Does what may hurt to the one who serves, and looks how it is. The token's owner may read what is in
/// `namespace`.
pub(crate) fn hurts_nobody(served: &Served, token: &str, namespace: &str) -> Outcome {
    let peer = Peer::of(served, token)?;
    Kept::forget_peak(&served.operator)?;
    let before = Kept::read(&served.operator)?;
    requests::are_answered(&peer, namespace)?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/red");
    connections::are_cut_off(&peer, &path)?;
    let after = Kept::read(&served.operator)?;
    let most = before.resident_kib + GROWTH_KIB;
    assert!(after.resident_kib < most, "{before:?}, and {after:?} afterwards");
    let most = before.resident_kib + PEAK_KIB;
    assert!(after.peak_kib < most, "{before:?}, and {after:?} afterwards");
    let log = served.operator.process.log();
    assert!(!log.contains("panicked"), "{log}");
    assert!(!log.contains(token), "a token is logged");
    Ok(())
}
