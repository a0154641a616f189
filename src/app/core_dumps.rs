//! Keeps stored objects out of core dumps, because stores can contain Secrets.

/// Disables core dumps of this process, and prevents other processes from reading its memory,
/// because stores can contain Secrets. Logs a warning if the kernel rejects these settings.
///
/// The process itself can still read its own files in `/proc`, for instance for the metrics
/// `process_*`.
#[cfg(target_os = "linux")]
pub(super) fn disable() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "cannot disable core dumps, which can contain secrets");
    }
}

/// Logs a warning, because kubewarm can disable core dumps only on Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn disable() {
    tracing::warn!("this system cannot disable core dumps, which can contain secrets");
}
