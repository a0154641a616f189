//! Files with certificates, which others replace while they are in use.

use super::CertificateError;
use parking_lot::{Mutex, RwLock};
use std::{
    error::Error,
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
struct Stamp(Option<(u64, u64, i64, i64)>);

impl Stamp {
    fn of(path: &Path) -> Self {
        let found = fs::metadata(path).ok();
        Self(found.map(|it| (it.ino(), it.size(), it.mtime(), it.mtime_nsec())))
    }
}

/// What some files hold, taken anew when they change.
pub(crate) struct Loaded<F: Files> {
    files: F,
    /// The files as they were when they were last tried.
    tried: Mutex<Vec<Stamp>>,
    held: RwLock<Arc<F::Held>>,
}

/// Files that hold something together.
pub(crate) trait Files {
    /// What they hold.
    type Held: ?Sized;
    /// What the log calls it.
    const NAME: &str;

    /// Where they are.
    fn paths(&self) -> Vec<&Path>;

    /// What they hold now.
    fn load(&self) -> Result<Arc<Self::Held>, CertificateError>;
}

impl<F: Files> Loaded<F> {
    /// What `files` hold.
    pub(crate) fn of(files: F) -> Result<Self, CertificateError> {
        // Before they are read: what changes meanwhile is seen at the next look.
        let tried = Mutex::new(stamps(&files));
        let held = RwLock::new(files.load()?);
        Ok(Self { files, tried, held })
    }

    pub(crate) fn files(&self) -> &F {
        &self.files
    }

    /// What they held when they could last be used.
    pub(crate) fn held(&self) -> Arc<F::Held> {
        Arc::clone(&self.held.read())
    }

    /// Takes the files if they have changed, and says what they hold now. What cannot be used changes nothing but
    /// the log, once.
    pub(crate) fn refresh(&self) -> Option<Arc<F::Held>> {
        let stamps = stamps(&self.files);
        let mut tried = self.tried.lock();
        if *tried == stamps {
            return None;
        }
        *tried = stamps;
        match self.files.load() {
            Ok(held) => {
                *self.held.write() = Arc::clone(&held);
                Some(held)
            }
            Err(error) => {
                let (error, what): (&(dyn Error + 'static), _) = (&error, F::NAME);
                tracing::warn!(error, "{what} changed and cannot be used; what was before stays");
                None
            }
        }
    }
}

fn stamps(files: &impl Files) -> Vec<Stamp> {
    files.paths().into_iter().map(Stamp::of).collect()
}

/// What the file says, in memory that was never moved: it may be a key, of which the caller wipes this.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > MAX_FILE {
        return Err(io::Error::other("it is larger than 1 MiB, which no key and no chain is"));
    }
    // One byte more, by which the end is found without growing.
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Has `of` look at its files again and again, if there is one, for ever.
pub async fn look_after<T: Send + Sync + 'static>(of: Option<&Arc<T>>, refresh: fn(&T)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        path::PathBuf,
        sync::atomic::{AtomicUsize, Ordering},
    };

    /// A text that is no longer than a byte.
    struct Letter {
        path: PathBuf,
        tries: AtomicUsize,
    }

    impl Files for Letter {
        type Held = str;
        const NAME: &str = "a letter";

        fn paths(&self) -> Vec<&Path> {
            vec![&self.path]
        }

        fn load(&self) -> Result<Arc<str>, CertificateError> {
            self.tries.fetch_add(1, Ordering::Relaxed);
            let failed = |source| CertificateError::Read { path: self.path.clone(), source };
            let text = fs::read_to_string(&self.path).map_err(failed)?;
            if text.len() > 1 {
                return Err(failed(io::ErrorKind::InvalidData.into()));
            }
            Ok(text.into())
        }
    }

    #[test]
    fn what_changes_is_taken_and_what_is_broken_is_tried_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letter");
        // As a Secret is swapped: another file, so that no clock decides whether it has changed.
        let write = |text: &str| {
            let new = folder.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, &path).unwrap();
        };
        write("a");
        let letter = Letter { path: path.clone(), tries: AtomicUsize::default() };
        let loaded = Loaded::of(letter).unwrap();
        for (text, taken, held, tries) in [
            (None, None, "a", 1),
            (Some("b"), Some("b"), "b", 2),
            (Some("long"), None, "b", 3),
            (None, None, "b", 3),
            (Some("c"), Some("c"), "c", 4),
        ] {
            text.into_iter().for_each(write);
            assert_eq!(loaded.refresh().as_deref(), taken);
            assert_eq!(&*loaded.held(), held);
            assert_eq!(loaded.files().tries.load(Ordering::Relaxed), tries, "{text:?}");
        }
    }
}
