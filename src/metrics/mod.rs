//! Prometheus metrics. Each part of kubewarm updates its own counters. Each scrape computes the
//! gauges of informers and profiles.

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

/// kubewarm could not create, register or encode a metric. This is a bug, because names and labels
/// are constants.
pub use prometheus::Error as MetricsError;

use kubewarm_api::model::InformerKey;
use kubewarm_cache::informer::{InformerMetrics, InformerReport};
use kubewarm_serve::{callers::LimitUsage, certificate::ServingCertificate, metrics::ReadMetrics};
use prometheus::{
    Registry, TextEncoder,
    core::{Collector, Desc},
    process_collector::ProcessCollector,
    proto::MetricFamily,
};
use std::{collections::HashMap, sync::Arc};

#[derive(Debug)]
pub struct MetricsRegistry {
    registry: Registry,
    informers: Arc<InformerMetrics>,
    operator: OperatorMetrics,
    reads: ReadMetrics,
}

impl MetricsRegistry {
    /// Registers all counters and `kubewarm_build_info`.
    ///
    /// # Errors
    ///
    /// Returns [`MetricsError`] only if a constant name or label is invalid.
    pub fn new(build: &BuildInfo) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        build.register(&registry)?;
        let operator = OperatorMetrics::register(&registry)?;
        let reads = ReadMetrics::register(&registry)?;
        let informers = Arc::new(InformerMetrics::new()?);
        Ok(Self { registry, informers, operator, reads })
    }

    /// Returns the informers' counters. Scrapes contain these counters only after
    /// [`Self::observe_informers`] has registered them.
    pub fn informers(&self) -> Arc<InformerMetrics> {
        Arc::clone(&self.informers)
    }

    pub fn operator(&self) -> &OperatorMetrics {
        &self.operator
    }

    pub fn reads(&self) -> &ReadMetrics {
        &self.reads
    }

    /// Computes the informers' gauges from `reports` at each scrape. `reports` must return the
    /// report of every declared informer and must not block.
    ///
    /// Each scrape drops the counters of resources for which `reports` returns no informer.
    ///
    /// # Errors
    ///
    /// Returns [`MetricsError`] if called twice.
    pub fn observe_informers<F>(&self, reports: F) -> Result<(), MetricsError>
    where
        F: Fn() -> Vec<(InformerKey, InformerReport)> + Send + Sync + 'static,
    {
        let counted = self.informers();
        self.at_scrape("informers", move || informers::informer_families(&counted, &reports()))
    }

    /// Computes the profiles' gauges from `profiles` at each scrape. `profiles` must not block.
    ///
    /// # Errors
    ///
    /// Returns [`MetricsError`] if called twice.
    pub fn observe_profiles<F>(&self, profiles: F) -> Result<(), MetricsError>
    where
        F: Fn() -> Vec<ProfileSnapshot> + Send + Sync + 'static,
    {
        self.at_scrape("profiles", move || profiles::profile_families(&mut profiles()))
    }

    /// Exports the read API's limits and their current use. Each scrape calls `limits` for the
    /// current values.
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

    /// Exports the number of users who read objects without managedFields and can apply these
    /// objects, which removes the users' own fields. Each scrape calls `users`.
    ///
    /// # Errors
    ///
    /// [`MetricsError`] if called twice.
    pub fn observe_appliers<F>(&self, users: F) -> Result<(), MetricsError>
    where
        F: Fn() -> usize + Send + Sync + 'static,
    {
        self.at_scrape("appliers", move || reads::applier_families(users()))
    }

    /// Exports the time at which each of `certificates` expires. Each scrape reads this time again,
    /// so that the metric follows a renewal at once.
    ///
    /// # Errors
    ///
    /// [`MetricsError`] if called twice.
    pub fn observe_certificates(
        &self,
        certificates: Vec<(TlsListener, Arc<ServingCertificate>)>,
    ) -> Result<(), MetricsError> {
        self.at_scrape("certificates", move || reads::certificate_families(&certificates))
    }

    /// Exports the metrics `process_*`, and the metrics `tokio_*` about `runtime`.
    ///
    /// # Errors
    ///
    /// Returns [`MetricsError`] if called twice.
    pub fn observe_process(&self, runtime: tokio::runtime::Handle) -> Result<(), MetricsError> {
        self.registry.register(Box::new(ProcessCollector::for_self()))?;
        self.at_scrape("runtime", move || process::runtime_families(&runtime))
    }

    /// Adds the metrics that `gather` computes to each scrape. Log messages about a failure name
    /// these metrics `what`.
    fn at_scrape<F>(&self, what: &'static str, gather: F) -> Result<(), MetricsError>
    where
        F: Fn() -> prometheus::Result<Vec<MetricFamily>> + Send + Sync + 'static,
    {
        let name = Desc::new(what.to_owned(), what.to_owned(), Vec::new(), HashMap::new())?;
        self.registry.register(Box::new(ScrapeCollector { name, gather }))
    }

    /// Encodes all metrics in Prometheus' text format 0.0.4.
    ///
    /// # Errors
    ///
    /// Returns [`MetricsError`] only for an invalid metric.
    ///
    /// # Cost
    ///
    /// O(informers + series): about 1 ms for 40 resources and 2,000 informers.
    pub fn render(&self) -> Result<String, MetricsError> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

struct ScrapeCollector<F> {
    /// The collector's name. The registry rejects a second collector with the same name. Scrapes do
    /// not contain this name.
    name: Desc,
    gather: F,
}

impl<F> Collector for ScrapeCollector<F>
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
