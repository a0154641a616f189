//! Prometheus metrics: what happens is pushed, what is the case is read at each scrape.

mod build;
mod informers;
mod operator;
mod process;
mod profiles;
mod reads;

pub use self::{
    build::BuildInfo,
    operator::{
        ACCESS_CHECK_OUTCOMES, AUTHORIZATION_OUTCOMES, OperatorMetrics, STATUS_WRITE_OUTCOMES,
    },
    profiles::{CONDITION_STATUSES, ProfileSnapshot, TargetState},
    reads::TlsListener,
};

/// A metric could not be made, registered or written. A bug: names and labels are constants.
pub use prometheus::Error as MetricsError;

use kubewarm_api::model::CellKey;
use kubewarm_cache::informer::{CellReport, InformerMetrics};
use kubewarm_serve::{callers::LimitUsage, certificate::Certificate, metrics::ReadMetrics};
use prometheus::{
    Registry, TextEncoder,
    core::{Collector, Desc},
    process_collector::ProcessCollector,
    proto::MetricFamily,
};
use std::{collections::HashMap, sync::Arc};

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    informers: Arc<InformerMetrics>,
    operator: OperatorMetrics,
    reads: ReadMetrics,
}

impl Metrics {
    /// Makes the metrics that are pushed, and `kubewarm_build_info`.
    ///
    /// # Errors
    ///
    /// [`MetricsError`], never with the names and labels as they are committed.
    pub fn new(build: &BuildInfo) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        build.register(&registry)?;
        let operator = OperatorMetrics::register(&registry)?;
        let reads = ReadMetrics::register(&registry)?;
        let informers = Arc::new(InformerMetrics::new()?);
        Ok(Self { registry, informers, operator, reads })
    }

    /// The metrics that informers count. Their series appear once [`Self::observe_informers`] has been called.
    #[must_use]
    pub fn informers(&self) -> Arc<InformerMetrics> {
        Arc::clone(&self.informers)
    }

    /// Where the controller, the status writer, the lease and decisions about callers report.
    #[must_use]
    pub fn operator(&self) -> &OperatorMetrics {
        &self.operator
    }

    /// Where the read API reports.
    #[must_use]
    pub fn reads(&self) -> &ReadMetrics {
        &self.reads
    }

    /// Calls `reports` at each scrape. It must return every declared informer, and must not block.
    ///
    /// The series of a resource end with its last informer, at the next scrape.
    ///
    /// # Errors
    ///
    /// [`MetricsError`] if called twice.
    pub fn observe_informers<F>(&self, reports: F) -> Result<(), MetricsError>
    where
        F: Fn() -> Vec<(CellKey, CellReport)> + Send + Sync + 'static,
    {
        let counted = self.informers();
        self.at_scrape("informers", move || informers::informer_families(&counted, &reports()))
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
        self.at_scrape("profiles", move || profiles::profile_families(&mut profiles()))
    }

    /// Reads the `limits` of the read API at each scrape.
    ///
    /// # Errors
    ///
    /// [`MetricsError`] if called twice.
    pub fn observe_read_limits<F>(&self, limits: F) -> Result<(), MetricsError>
    where
        F: Fn() -> Vec<LimitUsage> + Send + Sync + 'static,
    {
        self.at_scrape("read_limits", move || reads::limit_families(&limits()))
    }

    /// Reads the expiry of `certificates` at each scrape, so that a renewed certificate shows at once.
    ///
    /// # Errors
    ///
    /// [`MetricsError`] if called twice.
    pub fn observe_certificates(
        &self,
        certificates: Vec<(TlsListener, Arc<Certificate>)>,
    ) -> Result<(), MetricsError> {
        self.at_scrape("certificates", move || reads::certificate_families(&certificates))
    }

    /// Adds `process_*`, and `tokio_*` of `runtime`.
    ///
    /// # Errors
    ///
    /// [`MetricsError`] if called twice.
    pub fn observe_process(&self, runtime: tokio::runtime::Handle) -> Result<(), MetricsError> {
        self.registry.register(Box::new(ProcessCollector::for_self()))?;
        self.at_scrape("runtime", move || process::runtime_families(&runtime))
    }

    /// Adds what `gather` makes at each scrape; `what` names it in the log.
    fn at_scrape<F>(&self, what: &'static str, gather: F) -> Result<(), MetricsError>
    where
        F: Fn() -> prometheus::Result<Vec<MetricFamily>> + Send + Sync + 'static,
    {
        let name = Desc::new(what.to_owned(), what.to_owned(), Vec::new(), HashMap::new())?;
        self.registry.register(Box::new(AtScrape { name, gather }))
    }

    /// Everything, in Prometheus' text format 0.0.4.
    ///
    /// # Errors
    ///
    /// [`MetricsError`], never for what this layer makes.
    ///
    /// # Cost
    ///
    /// O(informers + series): about 1 ms for 40 resources and 2,000 informers.
    pub fn render(&self) -> Result<String, MetricsError> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// Families that are made at each scrape.
struct AtScrape<F> {
    /// Only so that it is not registered twice: the families have names of their own.
    name: Desc,
    gather: F,
}

impl<F> Collector for AtScrape<F>
where
    F: Fn() -> prometheus::Result<Vec<MetricFamily>> + Send + Sync,
{
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.name]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.gather)().unwrap_or_else(|error| {
            tracing::error!(what = self.name.fq_name, %error, "not measured");
            Vec::new()
        })
    }
}
