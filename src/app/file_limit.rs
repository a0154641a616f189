//! Raises the limit of open files and sockets.

/// Raises the limit to the maximum that the system allows.
///
/// The default is often 1,024, for programs that use `select`. The read address alone accepts twice
/// as many connections, and without a free descriptor no watch can open.
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

/// On other systems the limit stays as it was configured.
#[cfg(not(target_os = "linux"))]
pub(super) fn raise() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    #[test]
    fn the_limit_of_open_files_is_raised_to_the_maximum() {
        let granted = getrlimit(Resource::Nofile);
        let fewer = granted.maximum.map(|most| most - 1);
        // Enough for the tests that run in parallel.
        setrlimit(Resource::Nofile, Rlimit { current: fewer, ..granted }).unwrap();
        super::raise();
        assert_eq!(getrlimit(Resource::Nofile).current, granted.maximum);
    }
}
