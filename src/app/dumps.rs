//! Keeps what the process holds out of core dumps.

/// Forbids core dumps of this process, and that others of its user read its memory: tables may hold
/// secrets. Where that is not possible, the log says so.
///
/// What the process reads of itself below `/proc` it may still read.
#[cfg(target_os = "linux")]
pub(super) fn forbid() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "cannot forbid core dumps, which may hold secrets");
    }
}

/// Other systems have no such switch.
#[cfg(not(target_os = "linux"))]
pub(super) fn forbid() {
    tracing::warn!("this system cannot forbid core dumps, which may hold secrets");
}
