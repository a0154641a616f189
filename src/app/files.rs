//! How many files and sockets the process may have open.

/// Takes as many as it may have. At first that is often 1,024, for programs that know no more (`select`): the
/// read address alone has places for twice as many connections, and without a free one no cell can be watched.
#[cfg(target_os = "linux")]
pub(super) fn take_all() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, ?current, ?maximum, "cannot raise the number of files that may be open");
    }
}

/// On other systems whoever runs it says how many.
#[cfg(not(target_os = "linux"))]
pub(super) fn take_all() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    #[test]
    fn as_many_files_as_the_system_grants_may_be_open() {
        let granted = getrlimit(Resource::Nofile);
        let fewer = granted.maximum.map(|most| most - 1);
        // Still enough for the tests beside this one.
        setrlimit(Resource::Nofile, Rlimit { current: fewer, ..granted }).unwrap();
        super::take_all();
        assert_eq!(getrlimit(Resource::Nofile).current, granted.maximum);
    }
}
