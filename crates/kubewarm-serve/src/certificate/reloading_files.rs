//! Keeps the parsed contents of files in memory, and reads the files again when they change.

use crate::ServeError;
use parking_lot::{Mutex, RwLock};
use std::{
    error::Error,
    fs::{self, File},
    future::pending,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

/// The maximum size in bytes of a certificate, key or CA file. A certificate chain has about 5 KiB.
const MAX_FILE: u64 = 1 << 20;
/// The interval at which kubewarm checks the files for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Identifies the version of a file by inode, size and modification time. The kubelet replaces the
/// files of a mounted Secret with a symbolic link, which changes the inode. Other programs write a
/// file in place, which changes its size or time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp(Option<(u64, u64, i64, i64)>);

impl FileStamp {
    fn of(path: &Path) -> Self {
        let metadata = fs::metadata(path).ok();
        Self(metadata.map(|metadata| {
            (metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec())
        }))
    }
}

pub(crate) struct ReloadingFiles<T: ?Sized> {
    /// What the files contain, such as "certificate", for log messages.
    name: &'static str,
    paths: Vec<PathBuf>,
    load: Box<dyn Fn() -> Result<Arc<T>, ServeError> + Send + Sync>,
    last_attempt: Mutex<ReadAttempt>,
    contents: RwLock<Arc<T>>,
}

/// The last attempt to read the files.
struct ReadAttempt {
    /// The inode, size and modification time of each file.
    stamps: Vec<FileStamp>,
    is_valid: bool,
}

impl<T: ?Sized> ReloadingFiles<T> {
    pub(crate) fn new(
        name: &'static str,
        paths: Vec<PathBuf>,
        load: impl Fn() -> Result<Arc<T>, ServeError> + Send + Sync + 'static,
    ) -> Result<Self, ServeError> {
        // kubewarm records the `FileStamp`s before it reads the files. So the next check finds a
        // change that happens during the read.
        let stamps = stamps(&paths);
        let contents = RwLock::new(load()?);
        let last_attempt = Mutex::new(ReadAttempt { stamps, is_valid: true });
        Ok(Self { name, paths, load: Box::new(load), last_attempt, contents })
    }

    pub(crate) fn file(&self) -> &Path {
        self.paths.first().map_or_else(|| Path::new(""), PathBuf::as_path)
    }

    /// The last valid contents.
    pub(crate) fn contents(&self) -> Arc<T> {
        Arc::clone(&self.contents.read())
    }

    /// Replaces the contents, where no files are the source.
    pub(crate) fn replace(&self, contents: Arc<T>) {
        *self.contents.write() = contents;
    }

    /// Reads the files if they have changed, or if the last attempt failed, because its cause can
    /// be temporary, such as too many open files. Returns the new parsed contents, or `None` if
    /// there are none. While the files are invalid, kubewarm keeps the previous contents, and logs
    /// one warning for each change.
    pub(crate) fn refresh(&self) -> Option<Arc<T>> {
        let stamps = stamps(&self.paths);
        let mut last_attempt = self.last_attempt.lock();
        let has_changed = last_attempt.stamps != stamps;
        if !has_changed && last_attempt.is_valid {
            return None;
        }
        let loaded = (self.load)();
        *last_attempt = ReadAttempt { stamps, is_valid: loaded.is_ok() };
        match loaded {
            Ok(contents) => {
                *self.contents.write() = Arc::clone(&contents);
                Some(contents)
            }
            Err(error) => {
                if has_changed {
                    let (error, what): (&(dyn Error + 'static), _) = (&error, self.name);
                    tracing::warn!(
                        error,
                        "{what} changed and cannot be used; the previous contents stay in use"
                    );
                }
                None
            }
        }
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<FileStamp> {
    paths.iter().map(|path| FileStamp::of(path)).collect()
}

/// Reads a file into a buffer that is never reallocated. So a caller that reads a private key can
/// erase the only copy of the key in memory.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ServeError> {
    bytes_of(path).map_err(ServeError::of(format!("{} cannot be read", path.display())))
}

fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > MAX_FILE {
        return Err(io::Error::other("it is larger than 1 MiB, which no key and no chain is"));
    }
    // The buffer has one byte more than the file, so that `read_to_end` finds the end without a
    // reallocation.
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Calls `refresh` for `value` every 5 s. Never returns, even if `value` is `None`, so that callers
/// can use the call as a branch of `select!`.
pub async fn keep_refreshed<T: Send + Sync + 'static>(value: Option<&Arc<T>>, refresh: fn(&T)) {
    let Some(value) = value else { return pending().await };
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let value = Arc::clone(value);
        // `refresh` reads files, so a blocking-pool thread runs it. If `refresh` panics, the loop
        // calls it again after 5 s.
        let _refreshed = spawn_blocking(move || refresh(&value)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[test]
    fn changed_contents_are_used_and_invalid_contents_are_read_again_until_they_are_valid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letter");
        // Replaces the file, as the kubelet does with a mounted Secret. The file then has a new
        // inode, which shows the change even if the modification time is equal.
        let write = |text: &str| {
            let new = folder.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, &path).unwrap();
        };
        write("a");
        let tries = Arc::new(AtomicUsize::default());
        let is_unreadable = Arc::new(AtomicBool::default());
        let (counted, read) = (Arc::clone(&tries), path.clone());
        let fails = Arc::clone(&is_unreadable);
        let letter = ReloadingFiles::<str>::new("a letter", vec![path.clone()], move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let text = fs::read_to_string(&read).map_err(ServeError::of("unreadable"))?;
            if fails.load(Ordering::Relaxed) {
                return Err(ServeError::of("unreadable")("too many open files"));
            }
            if text.len() > 1 {
                return Err(ServeError::of("too long")("a letter has one byte"));
            }
            Ok(text.into())
        })
        .unwrap();
        for (text, fails, new, current, attempts) in [
            (None, false, None, "a", 1),
            (Some("b"), false, Some("b"), "b", 2),
            (None, false, None, "b", 2),
            (Some("long"), false, None, "b", 3),
            (None, false, None, "b", 4),
            (Some("c"), true, None, "b", 5),
            // The same file, without a change: the temporary cause of the failure is gone.
            (None, false, Some("c"), "c", 6),
            (None, false, None, "c", 6),
        ] {
            text.into_iter().for_each(write);
            is_unreadable.store(fails, Ordering::Relaxed);
            assert_eq!(letter.refresh().as_deref(), new);
            assert_eq!(&*letter.contents(), current);
            assert_eq!(tries.load(Ordering::Relaxed), attempts, "{text:?}");
        }
    }
}
