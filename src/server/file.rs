//! Files with certificates, which others replace while they are in use.

use std::{
    fs::{self, File},
    future::pending,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

/// The largest file that is read: a chain has some 5 KiB.
const MAX_FILE: u64 = 1 << 20;
/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// What tells a file from its next version: Secrets are swapped by a link, others written in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<(u64, u64, i64, i64)>);

impl Stamp {
    pub(super) fn of(path: &Path) -> Self {
        let found = fs::metadata(path).ok();
        Self(found.map(|it| (it.ino(), it.size(), it.mtime(), it.mtime_nsec())))
    }
}

/// The file's first MiB.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Has `of` look at its files again and again, if there is one, for ever.
pub(super) async fn look_after<T: Send + Sync + 'static>(of: Option<&Arc<T>>, refresh: fn(&T)) {
    let Some(of) = of else { return pending().await };
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let of = Arc::clone(of);
        // It reads files. If it broke, the next look is in 5 s.
        let _looked = spawn_blocking(move || refresh(&of)).await;
    }
}
