//! Metrics of informers, grouped by resource.

mod resource;

pub use self::resource::{
    CONSISTENCY_OUTCOMES, LIST_OUTCOMES, REQUEST_BUCKETS, RESOURCE_LABELS, ResourceMetrics,
    code_label,
};

use kubewarm_api::model::Resource;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Label value of the Prometheus series `_other`. These series count all resources or profiles for
/// which kubewarm creates no series of their own.
pub const OTHER: &str = "_other";

/// Maximum number of resources with their own Prometheus series. Each resource has up to 195
/// series. All further resources share the series whose labels are `_other`.
const MAX_RESOURCES: usize = 200;

/// Metrics of all resources with informers.
#[derive(Debug)]
pub struct InformerMetrics {
    resources: Mutex<MetricsByResource>,
}

#[derive(Debug)]
struct MetricsByResource {
    own: HashMap<Resource, Arc<ResourceMetrics>>,
    other: Arc<ResourceMetrics>,
    /// Whether the metrics in `other` count any resource, because more than 200 resources had
    /// metrics. If not, kubewarm does not export `other`, whose series would all be zero.
    is_full: bool,
}

impl InformerMetrics {
    /// Creates the metrics of informers, without series for any resource.
    ///
    /// # Errors
    ///
    /// Fails only if a metric's name or label is invalid, which is a bug.
    pub fn new() -> prometheus::Result<Self> {
        let other = Arc::new(ResourceMetrics::new([OTHER; 3].map(str::to_owned))?);
        let resources = MetricsByResource { own: HashMap::new(), other, is_full: false };
        Ok(Self { resources: Mutex::new(resources) })
    }

    /// Returns the metrics of `resource`, and creates them if necessary. If 200 other resources
    /// have metrics already, returns the metrics that all further resources share.
    pub fn for_resource(&self, resource: &Resource) -> Arc<ResourceMetrics> {
        let mut resources = self.resources.lock();
        if let Some(metrics) = resources.own.get(resource) {
            return Arc::clone(metrics);
        }
        if resources.own.len() < MAX_RESOURCES {
            let labels = [resource.group(), resource.version(), resource.resource()];
            match ResourceMetrics::new(labels.map(str::to_owned)) {
                Ok(metrics) => {
                    let metrics = Arc::new(metrics);
                    resources.own.insert(resource.clone(), Arc::clone(&metrics));
                    return metrics;
                }
                Err(error) => tracing::error!(%resource, %error, "counted under {OTHER}"),
            }
        }
        resources.is_full = true;
        Arc::clone(&resources.other)
    }

    /// Removes the series of resources that are not in `live` and have no informer.
    ///
    /// Also removes the series `_other` if no informer uses them and `live` has at most 200
    /// resources.
    pub fn retain(&self, live: &HashSet<&Resource>) {
        let mut resources = self.resources.lock();
        resources
            .own
            .retain(|resource, metrics| live.contains(resource) || Arc::strong_count(metrics) > 1);
        let is_used = live.len() > MAX_RESOURCES || Arc::strong_count(&resources.other) > 1;
        resources.is_full &= is_used;
    }

    /// Returns the metrics of every resource that has series, in no particular order.
    pub fn all(&self) -> Vec<Arc<ResourceMetrics>> {
        let resources = self.resources.lock();
        let other = resources.is_full.then_some(&resources.other);
        resources.own.values().chain(other).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::GroupResource;

    fn resource(at: usize) -> Resource {
        Resource::new(GroupResource::new("x.io", &format!("kind{at}")).unwrap(), "v1").unwrap()
    }

    #[test]
    fn resources_beyond_the_limit_share_one_set_of_series() {
        let metrics = InformerMetrics::new().unwrap();
        let all: Vec<_> = (0..MAX_RESOURCES + 50).map(resource).collect();
        for resource in &all {
            metrics.for_resource(resource).resource_version_rollbacks.inc();
        }
        assert_eq!(metrics.all().len(), MAX_RESOURCES + 1);
        let other = metrics.for_resource(&all[MAX_RESOURCES]);
        assert_eq!(
            (other.labels()[2].as_str(), other.resource_version_rollbacks.get()),
            (OTHER, 50)
        );
    }

    #[test]
    fn series_end_with_the_last_informer() {
        let metrics = InformerMetrics::new().unwrap();
        let all: Vec<_> = (0..=MAX_RESOURCES).map(resource).collect();
        let handles: Vec<_> = all.iter().map(|resource| metrics.for_resource(resource)).collect();
        metrics.retain(&all.iter().take(1).collect());
        assert_eq!(metrics.all().len(), MAX_RESOURCES + 1, "every resource still has an informer");
        drop(handles);
        metrics.retain(&all.iter().take(1).collect());
        assert_eq!(metrics.all().len(), 1);
        metrics.retain(&HashSet::new());
        assert!(metrics.all().is_empty());
    }
}
