//! Prometheus metrics: what happens is pushed, what is the case is read at each scrape.

mod build;
mod callers;
mod cells;
mod descriptor;
mod engine;
mod label;
mod markdown;
mod operator;
mod process;
mod profiles;
mod reads;
mod series;
mod snapshot;

pub use self::{
    build::BuildInfo,
    callers::CallerMetrics,
    descriptor::{Descriptor, Keyed, Kind, all},
    engine::EngineMetrics,
    markdown::{SERIES_OF_40_RESOURCES_AND_20_PROFILES, markdown, most_series},
    operator::{Leadership, OperatorMetrics, ReconcileTimer, Reconciled, StatusWrite},
    reads::{CacheUse, Handler, Method, ReadMetrics, WatchClosed, Watching},
    snapshot::{CellSnapshot, ConditionSnapshot, ConditionStatus, ProfileSnapshot, TargetState},
};

use self::{cells::CellCollector, process::RuntimeCollector, profiles::ProfileCollector};
use prometheus::{Registry, TextEncoder, process_collector::ProcessCollector};
use std::sync::Arc;

/// The value of a label whose own value found no room.
const OTHER: &str = "_other";

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    engine: Arc<EngineMetrics>,
    operator: OperatorMetrics,
    reads: ReadMetrics,
    callers: CallerMetrics,
}

/// A metric could not be made, registered or written. A bug: names and labels are constants.
#[derive(Debug, thiserror::Error)]
#[error("metrics: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

impl Metrics {
    /// Makes the metrics that are pushed, and `kubewarm_build_info`.
    ///
    /// # Errors
    ///
    /// [`MetricsError`], never with the descriptors as they are committed.
    pub fn new(build: &BuildInfo) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        build.register(&registry)?;
        let operator = OperatorMetrics::register(&registry)?;
        let reads = ReadMetrics::register(&registry)?;
        let callers = CallerMetrics::register(&registry)?;
        Ok(Self { registry, engine: Arc::default(), operator, reads, callers })
    }

    /// Where cells report. Its series appear once [`Self::observe_cells`] has been called.
    #[must_use]
    pub fn engine(&self) -> Arc<EngineMetrics> {
        Arc::clone(&self.engine)
    }

    /// Where the controller, the status writer and the lease report.
    #[must_use]
    pub fn operator(&self) -> &OperatorMetrics {
        &self.operator
    }

    /// Where the read API reports.
    #[must_use]
    pub fn reads(&self) -> &ReadMetrics {
        &self.reads
    }

    /// Where decisions about callers are reported.
    #[must_use]
    pub fn callers(&self) -> &CallerMetrics {
        &self.callers
    }

    /// Reads `cells` at each scrape. Must return every declared cell, and must not block.
    ///
    /// Whatever was pushed for a resource ends with its last cell: series of resources that
    /// `cells` does not name are dropped at the next scrape.
    ///
    /// # Errors
    ///
    /// [`MetricsError`] if called twice.
    pub fn observe_cells<F>(&self, cells: F) -> Result<(), MetricsError>
    where
        F: Fn() -> Vec<CellSnapshot> + Send + Sync + 'static,
    {
        let collector = CellCollector::new(self.engine(), cells)?;
        Ok(self.registry.register(Box::new(collector))?)
    }

    /// Reads `profiles` at each scrape. Must not block.
    ///
    /// # Errors
    ///
    /// [`MetricsError`] if called twice.
    pub fn observe_profiles<F>(&self, profiles: F) -> Result<(), MetricsError>
    where
        F: Fn() -> Vec<ProfileSnapshot> + Send + Sync + 'static,
    {
        let collector = ProfileCollector::new(profiles)?;
        Ok(self.registry.register(Box::new(collector))?)
    }

    /// Adds `process_*`, and `tokio_*` of `runtime`.
    ///
    /// # Errors
    ///
    /// [`MetricsError`] if called twice.
    pub fn observe_process(&self, runtime: tokio::runtime::Handle) -> Result<(), MetricsError> {
        self.registry.register(Box::new(ProcessCollector::for_self()))?;
        Ok(self.registry.register(Box::new(RuntimeCollector::new(runtime)?))?)
    }

    /// Everything, in Prometheus' text format 0.0.4.
    ///
    /// # Errors
    ///
    /// [`MetricsError`], never for what this layer makes.
    ///
    /// # Cost
    ///
    /// O(cells + series): about 1 ms for 40 resources and 2,000 cells.
    pub fn render(&self) -> Result<String, MetricsError> {
        Ok(TextEncoder::new().encode_to_string(&self.registry.gather())?)
    }
}
