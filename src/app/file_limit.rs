//! Raises the process's soft limit of open files, which include sockets.

/// Raises the soft limit of open files to the hard limit.
///
/// The soft limit is often 1,024 files. By default the read API (the HTTP server that serves
/// objects to clients) alone accepts hundreds or thousands of connections. Without a free file
/// descriptor, no informer can open a watch.
#[cfg(target_os = "linux")]
pub(super) fn raise() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, ?current, ?maximum, "cannot raise the number of files that may be open");
    }
}

/// Does nothing, because kubewarm raises the limit of open files only on Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn raise() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    #[test]
    fn the_limit_of_open_files_is_raised_to_the_maximum() {
        let granted = getrlimit(Resource::Nofile);
        let fewer = granted.maximum.map(|most| most - 1);
        // The limit is one file less than the maximum, so that parallel tests do not run out of
        // files.
        setrlimit(Resource::Nofile, Rlimit { current: fewer, ..granted }).unwrap();
        super::raise();
        assert_eq!(getrlimit(Resource::Nofile).current, granted.maximum);
    }
}
