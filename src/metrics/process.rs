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
    workers: IntGaugeVec,
    alive_tasks: IntGaugeVec,
    queue_depth: IntGaugeVec,
}

impl RuntimeCollector {
    pub(super) fn new(runtime: Handle) -> prometheus::Result<Self> {
        Ok(Self {
            runtime,
            workers: descriptor::TOKIO_WORKERS.int_gauges()?,
            alive_tasks: descriptor::TOKIO_ALIVE_TASKS.int_gauges()?,
            queue_depth: descriptor::TOKIO_QUEUE_DEPTH.int_gauges()?,
        })
    }
}

impl Collector for RuntimeCollector {
    fn desc(&self) -> Vec<&Desc> {
        let all = [&self.workers, &self.alive_tasks, &self.queue_depth];
        all.into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let runtime = self.runtime.metrics();
        let figures = [
            (&self.workers, runtime.num_workers()),
            (&self.alive_tasks, runtime.num_alive_tasks()),
            (&self.queue_depth, runtime.global_queue_depth()),
        ];
        let family = |(gauge, value): (&IntGaugeVec, usize)| {
            gauge.with_label_values::<&str>(&[]).set(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.collect()
        };
        figures.into_iter().flat_map(family).collect()
    }
}
