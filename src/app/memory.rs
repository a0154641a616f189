//! Determines the process's memory limit from `--memory-limit` or the cgroup. Divides the limit
//! between the stores of objects and the clients of the read API.

use crate::{
    cli::{CallerAuthorizationMode, RunArgs},
    controller::OperatorLimits,
    metrics::OperatorMetrics,
};
use kubewarm_serve::callers::ReaderLimits;
use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

/// Percentage of the process's memory limit for stores and informers, which need most memory.
const STORES: u64 = 75;
/// Percentage of the process's memory limit for connections, watches and responses of the read
/// API's clients. The remaining 10 % are for the program itself.
const READERS: u64 = 15;
/// Responses and RBAC rules can use `1/RESPONSES` of the memory for clients. Connections and
/// watches use the rest.
const RESPONSES: u64 = 2;
/// Large objects in responses can use `1/LARGE_OBJECTS` of the memory for responses, and so can the
/// cache of recent changes. The other half is for unwritten bytes of responses.
const LARGE_OBJECTS: usize = 4;
/// Bytes that an open watch and its connection use, rounded up: 35.3 KiB in `docs/performance.md`.
const WATCH_BYTES: usize = 36 << 10;
/// The RBAC rules of `--authorization=rbac` can use `1/RBAC_RULES` of the memory for clients, half
/// of the part for responses. With the default memory limit of the chart, this is enough for 10,000
/// bindings.
const RBAC_RULES: u64 = 4;
/// The maximum memory of RBAC rules without a memory limit, in bytes.
const MAX_RBAC_BYTES: usize = 256 << 20;
/// A cgroup limit of this number of bytes or more means "no limit": a v1 cgroup without a limit
/// reports the largest multiple of the page size.
const UNLIMITED: u64 = 1 << 60;

/// The parts of the process's memory limit. kubewarm computes their sizes once, at the start:
/// stores cannot use the memory of clients, and clients cannot use the memory of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemorySplit {
    /// Bytes for stores and informers; `None` means no limit.
    pub(super) stores: Option<u64>,
    /// Bytes for connections, watches and responses of clients; `None` means no limit.
    pub(super) readers: Option<u64>,
}

impl MemorySplit {
    /// Divides the process's memory limit, which is the value of `--memory-limit` or else the limit
    /// of the cgroup. Logs the parts for stores and for clients, and sets the metric of the store
    /// limit.
    pub(super) fn detect(args: &RunArgs, metrics: &OperatorMetrics) -> Self {
        let limit = match args.memory_limit {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => cgroup_limit(Path::new("/sys/fs/cgroup"), &own_cgroups()),
        };
        let split = Self::new(limit);
        if let Self { stores: Some(stores), readers: Some(readers) } = split {
            tracing::info!(stores, readers, "memory limit, in bytes");
            metrics.set_store_limit(stores);
        } else {
            tracing::info!("no memory limit; set --memory-limit");
        }
        split
    }

    fn new(limit: Option<u64>) -> Self {
        Self { stores: percentage_of(limit, STORES), readers: percentage_of(limit, READERS) }
    }

    /// Returns the limits for the informers and stores of profiles. The limits in bytes come from
    /// `self`, the maximum numbers of informers come from the flags.
    pub(super) fn operator_limits(self, args: &RunArgs) -> OperatorLimits {
        OperatorLimits {
            bytes: self.stores,
            namespace_bytes: percentage_of(self.stores, args.namespace_quota.into()),
            informers: args.max_informers.get(),
            namespace_informers: args.namespace_informers.get(),
        }
    }

    /// Returns the limits for the read API's clients from the flags, or else from the memory.
    pub(super) fn reader_limits(self, args: &RunArgs) -> ReaderLimits {
        let rules = match args.api.authorization {
            CallerAuthorizationMode::Reviews | CallerAuthorizationMode::SharedReviews => 0,
            CallerAuthorizationMode::Rbac => self.rbac_bytes(),
        };
        args.api.limits(self.default_reader_limits(rules))
    }

    /// Returns the maximum memory of the RBAC rules of `--authorization=rbac`, in bytes.
    pub(super) fn rbac_bytes(self) -> usize {
        let bytes = self.readers.and_then(|readers| usize::try_from(readers / RBAC_RULES).ok());
        bytes.map_or(MAX_RBAC_BYTES, |bytes| bytes.min(MAX_RBAC_BYTES))
    }

    /// Returns limits with which clients do not exceed `readers`. Responses, and the `rules` bytes
    /// of RBAC rules, get at most half of it. The other half suffices for all watches, even if each
    /// watch has its own connection.
    fn default_reader_limits(self, rules: usize) -> ReaderLimits {
        let fixed = ReaderLimits::default();
        let Some(readers) = self.readers else { return fixed };
        let half = usize::try_from(readers / RESPONSES).unwrap_or(usize::MAX);
        let watches = NonZeroUsize::new(half / WATCH_BYTES).unwrap_or(NonZeroUsize::MIN);
        let responses = half.saturating_sub(rules);
        let large_objects = responses / LARGE_OBJECTS;
        let unwritten_bytes = responses.saturating_sub(2 * large_objects);
        ReaderLimits {
            watches,
            connections: watches,
            unwritten_bytes: unwritten_bytes.min(fixed.unwritten_bytes),
            large_object_bytes: large_objects.min(fixed.large_object_bytes),
            change_cache_bytes: large_objects.min(fixed.change_cache_bytes),
            ..fixed
        }
    }
}

/// Returns `percent` % of `limit`. For 100 % it returns `None`, which means no separate limit.
fn percentage_of(limit: Option<u64>, percent: u64) -> Option<u64> {
    limit.filter(|_| percent < 100).map(|limit| limit / 100 * percent)
}

fn own_cgroups() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Returns the smallest memory limit of the process's cgroup and its parents. Uses cgroup v2, or
/// cgroup v1 if v2 has no limit.
///
/// `cgroups` is the content of `/proc/self/cgroup`. `root` is the mounted cgroup file system, which
/// in a container is the container's own cgroup.
fn cgroup_limit(root: &Path, cgroups: &str) -> Option<u64> {
    let entry = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some((controllers.to_owned(), path.trim_start_matches('/').to_owned()))
    };
    let entries: Vec<_> = cgroups.lines().filter_map(entry).collect();
    let is_memory =
        |controllers: &str| controllers.split(',').any(|controller| controller == "memory");
    let cgroup = |is: &dyn Fn(&str) -> bool| {
        entries.iter().find(|(controllers, _)| is(controllers)).map(|(_, path)| path.as_str())
    };
    let v1 = root.join("memory");
    smallest_limit(root, cgroup(&str::is_empty).unwrap_or_default(), "memory.max").or_else(|| {
        smallest_limit(&v1, cgroup(&is_memory).unwrap_or_default(), "memory.limit_in_bytes")
    })
}

/// Returns the smallest number in the files named `file` in the folder `path` and in its parents up
/// to `root`.
fn smallest_limit(root: &Path, path: &str, file: &str) -> Option<u64> {
    let cgroup: PathBuf = root.join(path);
    let folders = cgroup.ancestors().take_while(|folder| folder.starts_with(root));
    let limits = folders.filter_map(|folder| {
        let text = fs::read_to_string(folder.join(file)).ok()?;
        text.trim().parse::<u64>().ok().filter(|&limit| limit < UNLIMITED)
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_smallest_limit_of_a_cgroup_and_its_parents_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "kubepods/memory.max", "4096\n");
        write(root, "kubepods/pod/memory.max", "max\n");
        assert_eq!(cgroup_limit(root, "0::/kubepods/pod\n"), Some(4096));
        assert_eq!(cgroup_limit(root, "0::/other\n"), None);
        write(root, "memory.max", "1024");
        assert_eq!(cgroup_limit(root, "0::/"), Some(1024), "in a container");
    }

    #[test]
    fn cgroup_v1_has_its_own_folder_and_a_number_for_no_limit() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let cgroups = "9:cpu:/x\n8:memory,hugetlb:/docker/a\n";
        write(root, "memory/docker/a/memory.limit_in_bytes", "9223372036854771712");
        assert_eq!(cgroup_limit(root, cgroups), None);
        write(root, "memory/docker/a/memory.limit_in_bytes", "2048");
        assert_eq!(cgroup_limit(root, cgroups), Some(2048));
    }

    #[test]
    fn a_namespace_share_of_100_percent_is_no_limit() {
        let parts =
            [(Some(1_000), 25), (Some(1_000), 100), (None, 25)].map(|(l, p)| percentage_of(l, p));
        assert_eq!(parts, [Some(250), None, None]);
    }

    #[test]
    fn the_limit_is_split_between_stores_readers_and_the_program() {
        let split = MemorySplit::new(Some(64 << 20));
        let (stores, readers) = (split.stores.unwrap(), split.readers.unwrap());
        assert_eq!((stores >> 20, readers >> 20), (47, 9));
        assert!(
            (64 << 20) - stores - readers >= (64 << 20) / 10,
            "the program keeps a tenth of the limit"
        );
        assert_eq!(MemorySplit::new(None), MemorySplit { stores: None, readers: None });
    }

    #[test]
    fn the_default_limits_of_readers_follow_the_memory_limit() {
        for (limit, watches, connections, bytes) in [
            // The table in docs/limits.md has the numbers of watches and connections.
            (Some(256 << 20), 546, 546, [9, 4, 4]),
            (Some(512 << 20), 1_092, 1_092, [19, 9, 9]),
            (Some(1 << 30), 2_184, 2_184, [38, 19, 19]),
            (Some(1 << 10), 1, 1, [0, 0, 0]),
            (None, 4_096, 1_024, [64, 64, 32]),
        ] {
            let limits = MemorySplit::new(limit).default_reader_limits(0);
            let counts = (limits.watches.get(), limits.connections.get());
            assert_eq!(counts, (watches, connections), "{limit:?}");
            let of_responses =
                [limits.unwritten_bytes, limits.large_object_bytes, limits.change_cache_bytes];
            assert_eq!(of_responses.map(|bytes| bytes >> 20), bytes, "{limit:?}");
        }
    }

    #[test]
    fn rbac_rules_and_responses_together_use_half_of_the_memory_for_clients() {
        let split = MemorySplit::new(Some(256 << 20));
        let responses = |rules| {
            let limits = split.default_reader_limits(rules);
            limits.unwritten_bytes + limits.large_object_bytes + limits.change_cache_bytes
        };
        let rules = split.rbac_bytes();
        assert_eq!(rules >> 20, 9);
        assert_eq!(responses(rules), responses(0) - rules);
        assert_eq!(MemorySplit::new(None).rbac_bytes(), MAX_RBAC_BYTES);
    }

    #[test]
    fn a_malformed_cgroup_file_is_no_limit() {
        assert_eq!(cgroup_limit(Path::new("/nowhere"), "x\n::\n"), None);
    }
}
