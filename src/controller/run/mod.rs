//! Decides when the controller reconciles the profiles, and starts and stops informers accordingly.

#[cfg(test)]
mod tests;

use super::{
    cluster_view::ControllerDependencies,
    declarations::{Declarations, DeclarationsReceiver},
    profile_parser::{ClusterProfile, ProfileParser, profile_informers},
    reconcile::{ReconcileResult, Reconciler},
};
use crate::{metrics::OperatorMetrics, status::ObservedProfile};
use kubewarm_api::model::{
    BudgetCharge, InformerKey, InformerSpec, OperatorScope, ProfileMode, ValidationError,
};
use kubewarm_cache::informer::{InformerRegistry, RelistReason, plan};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// Minimum delay between two reconciliations, so that one reconciliation covers many changes, for
/// instance when many informers sync after a start of the process.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Pause after a reconciliation, as a multiple of the reconciliation's duration. The controller
/// therefore uses at most about 10% of a core.
const REST: u32 = 10;
/// Maximum delay between two reconciliations. Some changes cause no notification, for instance an
/// informer's fault for which the controller refuses the target.
const RESYNC: Duration = Duration::from_secs(10);
/// Minimum interval between two relists of profiles that only load omitted specs. A store omits
/// specs to stay within its limits. A tenant can trigger such a relist by deleting a profile, and
/// each relist transfers all profiles.
const READMIT: Duration = Duration::from_mins(2);

pub struct Controller {
    sources: ControllerDependencies,
    informers: InformerRegistry,
    declarations: watch::Sender<Option<Arc<Declarations>>>,
    reconciler: Reconciler,
    metrics: OperatorMetrics,
    started: Instant,
    /// The informers that watch CacheProfile objects.
    profile_informers: Vec<InformerSpec>,
    /// Charges that count the memory of the informers in `profile_informers` against the process's
    /// budget, so that less memory stays for other informers. No limit pauses the lists of these
    /// informers.
    _profile_informer_charges: Vec<BudgetCharge>,
    /// The informers in `profile_informers` that have been warm at least once.
    listed_informers: BTreeSet<InformerKey>,
    /// Time of the last relist of profiles whose only purpose was to load specs that the store had
    /// omitted, because it was full. The next such relist is at least [`READMIT`] later.
    last_readmission: Option<Instant>,
    parser: ProfileParser,
}

impl Controller {
    /// Creates the controller. It starts no informer before the first reconciliation.
    ///
    /// # Errors
    ///
    /// Never fails in practice: the only cause is an invalid resource name, and the resource names
    /// of CacheProfiles are valid constants.
    pub fn new(
        sources: ControllerDependencies,
        informers: InformerRegistry,
        operator_scope: OperatorScope,
        metrics: OperatorMetrics,
        started: Instant,
    ) -> Result<Self, ValidationError> {
        let profile_informers = profile_informers(&operator_scope.watched)?;
        let reconciler =
            Reconciler::new(operator_scope, sources.limits, sources.lists, sources.quota.clone());
        let charge = |informer: &InformerSpec| {
            BudgetCharge::new(
                sources.catalog.meter(&informer.key),
                Arc::clone(reconciler.process()),
            )
        };
        Ok(Self {
            informers,
            declarations: watch::Sender::default(),
            _profile_informer_charges: profile_informers.iter().map(charge).collect(),
            profile_informers,
            listed_informers: BTreeSet::new(),
            last_readmission: None,
            reconciler,
            metrics,
            started,
            parser: ProfileParser::default(),
            sources,
        })
    }

    /// Returns a receiver of what the controller decides. The last value remains readable after the
    /// controller stops.
    pub fn declarations(&self) -> DeclarationsReceiver {
        self.declarations.subscribe()
    }

    pub fn profile_informers(&self) -> Arc<[InformerKey]> {
        self.profile_informers.iter().map(|informer| informer.key.clone()).collect()
    }

    /// Reconciles until `stop` is cancelled. Returns the running informers, which the caller must
    /// stop.
    pub async fn run(mut self, stop: CancellationToken) -> InformerRegistry {
        let mut changes = self.informers.changes().subscribe();
        let mut served = self.sources.discovery.served();
        let mut subject = self.sources.subject.clone();
        let mut forecasts = self.sources.forecasts.changes();
        loop {
            let began = Instant::now();
            self.reconcile();
            let took = began.elapsed();
            self.metrics.observe_reconcile(took);
            let rest = (took * REST).max(DEBOUNCE);
            tokio::select! {
                () = stop.cancelled() => return self.informers,
                () = tokio::time::sleep(rest) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return self.informers,
                Ok(()) = changes.changed() => {}
                Ok(()) = served.changed() => {}
                Ok(()) = subject.changed() => {}
                Ok(()) = forecasts.changed() => {}
                () = tokio::time::sleep(RESYNC) => {}
            }
            changes.mark_unchanged();
        }
    }

    /// Starts and stops informers to match the profiles, and then sends the resolved profiles to
    /// all receivers if they have changed.
    ///
    /// Changes no informer while the list of profiles is incomplete, for instance during a relist
    /// after an etcd restore.
    pub fn reconcile(&mut self) {
        self.relist_left_out_profiles();
        let served = self.sources.discovery.served().borrow().clone();
        let running = self.informers.running_informers();
        let profiles = self.read_profiles();
        if profiles.is_none() && !running.is_empty() {
            // Without all profiles, the controller cannot decide which informers to stop.
            return;
        }
        let subject = self.sources.subject.borrow().clone();
        let cluster = self.sources.snapshot(&self.informers.reports(), served.as_deref());
        let outcome = self.reconciler.reconcile(
            profiles.as_deref().unwrap_or_default(),
            &cluster,
            subject.as_ref(),
            self.started.elapsed(),
        );
        let ReconcileResult {
            mut desired,
            mut observed,
            exceeded,
            is_kind_missing,
            is_discovery_behind,
        } = outcome;
        let planned = observed.iter().map(|observed| &observed.resolved);
        let planned = planned.filter(|resolved| resolved.mode == ProfileMode::Plan).cloned();
        self.sources.forecasts.set_planned(planned);
        for observed in &mut observed {
            observed.forecast = self.sources.forecasts.get(&observed.resolved.profile);
        }
        for overrun in exceeded {
            self.metrics.count_limit_rejection(overrun.measure);
        }
        for informer in &self.profile_informers {
            desired.insert(informer.key.clone(), (informer.clone(), ProfileMode::Active));
        }
        self.informers.apply(plan(&desired, &running));
        self.sources.discovery.set_hurried(is_kind_missing);
        if is_discovery_behind {
            self.sources.discovery.refresh();
        }
        if profiles.is_some() && served.is_some() {
            self.send(observed);
        }
    }

    /// Sends the profiles to all receivers, unless the controller has already sent equal profiles.
    /// A notification therefore always means a change, and receivers need no copy of the former
    /// value.
    fn send(&self, observed: Vec<ObservedProfile>) {
        let is_sent = self.declarations.borrow().as_ref().is_some_and(|sent| sent.is_of(&observed));
        if !is_sent {
            self.declarations.send_replace(Some(Arc::new(Declarations::new(observed))));
        }
    }

    /// Relists the profiles if a store omits a spec because of its limits, and another spec was
    /// then removed from memory. The relist can store the omitted spec.
    fn relist_left_out_profiles(&mut self) {
        let is_early = self.last_readmission.is_some_and(|at| at.elapsed() < READMIT);
        if !is_early && self.sources.quota.take_freed() {
            self.last_readmission = Some(Instant::now());
            for informer in &self.profile_informers {
                self.informers.relist(&informer.key, RelistReason::Readmitted);
            }
        }
    }

    /// Returns every profile. Returns `None` until the first list of each profile informer has
    /// succeeded or failed, and at least one list has succeeded. Without all profiles, the
    /// controller would stop the informers of missing profiles.
    ///
    /// A namespace whose first list has failed does not delay the profiles of other namespaces.
    fn read_profiles(&mut self) -> Option<Vec<ClusterProfile>> {
        let reports = self.informers.reports();
        let (mut stores, mut kept) = (Vec::new(), BTreeSet::new());
        for InformerSpec { key, .. } in &self.profile_informers {
            let report = reports.get(key)?;
            if report.is_warm() {
                stores.push(self.sources.catalog.reader(key)?);
                self.listed_informers.insert(key.clone());
            } else if self.listed_informers.contains(key) {
                // Profiles of this namespace can still exist although kubewarm cannot read them
                // now. So the parser returns the profiles that it read last for this namespace.
                kept.extend(key.scope.namespace().map(Arc::from));
            } else if report.fault.is_none() {
                return None;
            }
        }
        (!stores.is_empty()).then(|| self.parser.read(&stores, &kept))
    }
}
