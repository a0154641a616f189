//! The runtime's own figures: whether tasks end, and whether they wait for a thread.

use super::descriptor;
use prometheus::{
    IntGaugeVec,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::runtime::Handle;

/// Reads the runtime at each scrape.
#[derive(Debug)]
pub(super) struct RuntimeCollector {
    runtime: Handle,
    descs: Vec<Desc>,
}

impl RuntimeCollector {
    pub(super) fn new(runtime: Handle) -> prometheus::Result<Self> {
        let descriptors = [
            descriptor::TOKIO_WORKERS,
            descriptor::TOKIO_ALIVE_TASKS,
            descriptor::TOKIO_QUEUE_DEPTH,
        ];
        let descs =
            descriptors.iter().map(descriptor::Descriptor::desc).collect::<Result<_, _>>()?;
        Ok(Self { runtime, descs })
    }
}

impl Collector for RuntimeCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let runtime = self.runtime.metrics();
        let figures = [
            (descriptor::TOKIO_WORKERS, runtime.num_workers()),
            (descriptor::TOKIO_ALIVE_TASKS, runtime.num_alive_tasks()),
            (descriptor::TOKIO_QUEUE_DEPTH, runtime.global_queue_depth()),
        ];
        let family = |(descriptor, value): (descriptor::Descriptor, usize)| {
            let gauge: IntGaugeVec = descriptor.int_gauges().ok()?;
            let none: [&str; 0] = [];
            gauge
                .get_metric_with_label_values(&none)
                .ok()?
                .set(i64::try_from(value).unwrap_or(i64::MAX));
            Some(gauge.collect())
        };
        figures.into_iter().filter_map(family).flatten().collect()
    }
}
