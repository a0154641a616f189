//! How much memory the process may take: the flag, else the cgroup that it runs in.

use crate::{cli::RunArgs, controller::MemoryBounds, metrics::OperatorMetrics};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Percent of the cgroup's limit that tables may take: the rest is for code, buffers and requests.
const SHARE: u64 = 75;
/// A v1 cgroup without a limit says the largest number of whole pages instead.
const UNLIMITED: u64 = 1 << 60;

/// What the tables may take: all together, which log and metrics are told, and those of one namespace.
pub(super) fn bounds(args: &RunArgs, metrics: &OperatorMetrics) -> MemoryBounds {
    let found = || cgroup_limit(Path::new("/sys/fs/cgroup"), &own_cgroups());
    let process = match args.memory_limit {
        Some(0) => None,
        Some(limit) => Some(limit),
        None => found().map(|limit| limit / 100 * SHARE),
    };
    if let Some(limit) = process {
        tracing::info!(bytes = limit, "memory limit of the tables");
        metrics.set_memory_limit(limit);
    } else {
        tracing::info!("no memory limit of the tables; set --memory-limit");
    }
    MemoryBounds { process, namespace: part(process, args.namespace_share.into()) }
}

/// What one namespace may take of `process`; whoever may take all of it has no bound of its own.
fn part(process: Option<u64>, percent: u64) -> Option<u64> {
    process.filter(|_| percent < 100).map(|limit| limit / 100 * percent)
}

fn own_cgroups() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// The smallest memory limit of a cgroup (v2, else v1) and those above it; `cgroups` is what
/// `/proc/self/cgroup` says. In a container the own cgroup is mounted as the root.
fn cgroup_limit(root: &Path, cgroups: &str) -> Option<u64> {
    let entry = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some((controllers.to_owned(), path.trim_start_matches('/').to_owned()))
    };
    let entries: Vec<_> = cgroups.lines().filter_map(entry).collect();
    let is_memory = |controllers: &str| controllers.split(',').any(|one| one == "memory");
    let of = |is: &dyn Fn(&str) -> bool| {
        entries.iter().find(|(controllers, _)| is(controllers)).map(|(_, path)| path.as_str())
    };
    let v1 = root.join("memory");
    smallest(root, of(&str::is_empty).unwrap_or_default(), "memory.max")
        .or_else(|| smallest(&v1, of(&is_memory).unwrap_or_default(), "memory.limit_in_bytes"))
}

/// The smallest number in `file` of `path` below `root` and of every folder up to `root`.
fn smallest(root: &Path, path: &str, file: &str) -> Option<u64> {
    let own: PathBuf = root.join(path);
    let folders = own.ancestors().take_while(|folder| folder.starts_with(root));
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
    fn the_smallest_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "kubepods/memory.max", "4096\n");
        write(root, "kubepods/pod/memory.max", "max\n");
        assert_eq!(cgroup_limit(root, "0::/kubepods/pod\n"), Some(4096));
        assert_eq!(cgroup_limit(root, "0::/other\n"), None);
        write(root, "memory.max", "1024");
        assert_eq!(cgroup_limit(root, "0::/"), Some(1024), "as seen in a container");
    }

    #[test]
    fn version_1_has_a_folder_of_its_own_and_a_number_for_none() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let cgroups = "9:cpu:/x\n8:memory,hugetlb:/docker/a\n";
        write(root, "memory/docker/a/memory.limit_in_bytes", "9223372036854771712");
        assert_eq!(cgroup_limit(root, cgroups), None);
        write(root, "memory/docker/a/memory.limit_in_bytes", "2048");
        assert_eq!(cgroup_limit(root, cgroups), Some(2048));
    }

    #[test]
    fn a_namespace_that_may_take_everything_has_no_bound_of_its_own() {
        let parts = [(Some(1_000), 25), (Some(1_000), 100), (None, 25)].map(|(l, p)| part(l, p));
        assert_eq!(parts, [Some(250), None, None]);
    }

    #[test]
    fn nonsense_is_no_limit() {
        assert_eq!(cgroup_limit(Path::new("/nowhere"), "x\n::\n"), None);
    }
}
