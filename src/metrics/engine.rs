//! What cells push: counters and histograms by resource.

use super::{
    OTHER,
    series::{ResourceLabels, ResourceSeries},
};
use crate::{
    informer::{Measured, Meter},
    model::Resource,
};
use parking_lot::RwLock;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// How many resources have series of their own, up to 190 each. The rest share those of `_other`.
const MAX_RESOURCES: usize = 200;

/// Counts what cells measure.
#[derive(Debug, Default)]
pub struct EngineMetrics {
    series: RwLock<Series>,
}

#[derive(Debug, Default)]
struct Series {
    own: HashMap<Resource, Arc<ResourceSeries>>,
    /// Made when the first resource finds no room.
    other: Option<Arc<ResourceSeries>>,
}

impl EngineMetrics {
    /// The series of `resource`: its own, or those of `_other` when there is no room. `None` only
    /// if they cannot be made, which the descriptors' test excludes.
    pub(super) fn series(&self, resource: &Resource) -> Option<Arc<ResourceSeries>> {
        if let Some(series) = self.series.read().of(resource) {
            return Some(series);
        }
        let mut held = self.series.write();
        if let Some(series) = held.of(resource) {
            return Some(series);
        }
        held.make(resource)
            .inspect_err(|error| tracing::error!(%resource, %error, "resource not measured"))
            .ok()
    }

    /// Ends the series of every resource that is not in `live`, and those of `_other` once
    /// everything in `live` has room.
    pub(super) fn retain(&self, live: &HashSet<&Resource>) {
        let mut held = self.series.write();
        held.own.retain(|resource, _| live.contains(resource));
        if live.len() <= MAX_RESOURCES {
            held.other = None;
        }
    }

    /// Everything that is counted, in no order.
    pub(super) fn all(&self) -> Vec<Arc<ResourceSeries>> {
        let held = self.series.read();
        held.own.values().chain(&held.other).cloned().collect()
    }
}

impl Series {
    fn of(&self, resource: &Resource) -> Option<Arc<ResourceSeries>> {
        let full = || self.other.clone().filter(|_| self.own.len() >= MAX_RESOURCES);
        self.own.get(resource).cloned().or_else(full)
    }

    fn make(&mut self, resource: &Resource) -> prometheus::Result<Arc<ResourceSeries>> {
        if self.own.len() >= MAX_RESOURCES {
            let labels = [OTHER, OTHER, OTHER].map(str::to_owned);
            let series = Arc::new(ResourceSeries::new(labels)?);
            self.other = Some(Arc::clone(&series));
            return Ok(series);
        }
        let series = Arc::new(ResourceSeries::new(labels(resource))?);
        self.own.insert(resource.clone(), Arc::clone(&series));
        Ok(series)
    }
}

impl Meter for EngineMetrics {
    fn record(&self, resource: &Resource, what: Measured) {
        if let Some(series) = self.series(resource) {
            series.record(what);
        }
    }
}

fn labels(resource: &Resource) -> ResourceLabels {
    [resource.group(), resource.version(), resource.resource()].map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GroupResource;

    fn resource(at: usize) -> Resource {
        Resource::new(GroupResource::new("x.io", &format!("kind{at}")).unwrap(), "v1").unwrap()
    }

    #[test]
    fn resources_without_room_share_one_set_of_series() {
        let metrics = EngineMetrics::default();
        let all: Vec<_> = (0..MAX_RESOURCES + 50).map(resource).collect();
        for resource in &all {
            metrics.record(resource, Measured::RolledBack);
        }
        assert_eq!(metrics.all().len(), MAX_RESOURCES + 1);
        assert_eq!(metrics.series(&all[MAX_RESOURCES]).unwrap().labels()[2], OTHER);
    }

    #[test]
    fn series_end_with_the_last_cell() {
        let metrics = EngineMetrics::default();
        let all: Vec<_> = (0..=MAX_RESOURCES).map(resource).collect();
        for resource in &all {
            metrics.record(resource, Measured::RolledBack);
        }
        metrics.retain(&all.iter().take(1).collect());
        assert_eq!(metrics.all().len(), 1);
        // A late word of a stopped cell opens them again, until the next look.
        metrics.record(&all[7], Measured::WatchStarted);
        metrics.retain(&HashSet::new());
        assert!(metrics.all().is_empty());
    }
}
