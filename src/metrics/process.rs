//! Metrics of the Tokio runtime. These metrics show whether the number of tasks grows, and whether
//! tasks wait for a thread.

use prometheus::{Registry, proto::MetricFamily, register_int_gauge_with_registry};
use tokio::runtime::Handle;

pub(super) fn runtime_families(runtime: &Handle) -> prometheus::Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    let metrics = runtime.metrics();
    for (name, help, value) in [
        ("tokio_workers", "Threads of the runtime.", metrics.num_workers()),
        ("tokio_alive_tasks", "Unfinished tasks.", metrics.num_alive_tasks()),
        (
            "tokio_global_queue_depth",
            "Tasks in the runtime's global queue.",
            metrics.global_queue_depth(),
        ),
    ] {
        let gauge = register_int_gauge_with_registry!(name, help, registry)?;
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    Ok(registry.gather())
}
