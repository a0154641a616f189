//! Attacks on the read address. The server answers or closes every request, and other clients are
//! unaffected.

mod connections;
mod frames;
mod peer;
mod requests;
mod unauthenticated;

use std::error::Error;
use std::time::Duration;

use crate::api::Served;
use crate::figures::Kept;
use crate::world::Outcome;

pub(crate) use self::peer::Peer;

/// An error that can cross threads: the attack could not run.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

/// Timeout for an attack: ten times what any of them takes.
const PATIENCE: Duration = Duration::from_mins(1);
/// Limit for the memory that the process still uses in addition after the attacks: ten times the
/// measured value, but far fewer than the sent bytes.
const GROWTH_KIB: u64 = 64 << 10;
/// Limit for the growth of the process during the attacks: ten times the measured value.
const PEAK_KIB: u64 = 512 << 10;

/// Attacks the server and then checks its memory and log. The owner of `token` may read everything
/// in `namespace`.
pub(crate) fn check_other_clients_are_unaffected(
    served: &Served,
    token: &str,
    namespace: &str,
) -> Outcome {
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
