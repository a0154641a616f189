//! `--authorization=rbac`: the informers of the cluster's RBAC rules, by which the read API
//! authorizes its clients.
//!
//! These informers have a registry and stores of their own, so that no profile, status or read can
//! show them.

use super::{AppError, supervise::ServiceTasks};
use crate::{metrics::OperatorMetrics, status};
use kubewarm_api::{
    manifests::LEASE,
    model::{
        GroupResource, InformerKey, InformerScope, InformerSpec, ManagedFieldsPolicy, ProfileRef,
        Projection, Resource, ValidationError,
    },
};
use kubewarm_cache::{
    informer::{
        InformerHandles, InformerMetrics, InformerRegistry, InformerTiming, RegistryLimits,
    },
    store::StoreCatalog,
};
use kubewarm_client::{ClientProvider, NamespaceBuckets};
use kubewarm_rbac::RbacKind;
use kubewarm_serve::callers::{ClusterRules, ClusterRulesWriter, MAX_RULES_AGE, RbacAuthorizer};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often an informer compares its objects with the API server's. A deletion that was lost would
/// be a permission that nobody has.
const CONSISTENCY_CHECK_PERIOD: Duration = Duration::from_mins(10);

/// What the informers of the RBAC rules need.
pub(super) struct RbacContext {
    pub(super) clients: Arc<dyn ClientProvider>,
    pub(super) informer_metrics: Arc<InformerMetrics>,
    pub(super) operator_metrics: OperatorMetrics,
    /// The maximum memory of the rules, in bytes.
    pub(super) max_bytes: usize,
    pub(super) client: kube::Client,
    pub(super) operator_namespace: Arc<str>,
    pub(super) stop: CancellationToken,
}

/// Starts the informers of the cluster's RBAC rules, and returns the authorizer that decides by
/// these rules.
pub(super) fn spawn_rbac(
    tasks: &mut ServiceTasks,
    context: RbacContext,
) -> Result<Arc<RbacAuthorizer>, AppError> {
    let RbacContext {
        clients,
        informer_metrics,
        operator_metrics,
        max_bytes,
        client,
        operator_namespace,
        stop,
    } = context;
    let informers = informers()?;
    let rules = ClusterRules::new(max_bytes);
    let kinds = informers.clone().map(|(kind, spec)| (spec.key, kind));
    let written = Arc::clone(&rules);
    let bounds = RegistryLimits {
        lists: informers.len(),
        namespace_quota: 100,
        buckets: NamespaceBuckets::default(),
    };
    let timing = InformerTiming::default();
    let registry =
        InformerRegistry::new(clients, StoreCatalog::new(), informer_metrics, bounds, timing);
    let mut registry = registry.with_sinks(move |key, writer| {
        match kinds.iter().find(|(known, _)| known == key) {
            Some((_, kind)) => {
                Box::new(ClusterRulesWriter::new(*kind, Arc::clone(&written), writer))
            }
            // The registry has no other informers.
            None => Box::new(writer),
        }
    });
    for (_, spec) in &informers {
        registry.start(spec);
    }
    let (reports, keys) = (registry.reports(), informers.map(|(_, spec)| spec.key));
    let proof = Box::new(move || proven_at(&reports, &keys));
    let authorizer = RbacAuthorizer::new(Arc::clone(&rules), proof);
    tasks.spawn("rbac rules", async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = rules.publish_changes() => {}
        }
        if let Some(fallback) = rules.fallback() {
            let reason = fallback.reason();
            tracing::error!(reason, detail = %fallback, "access reviews replace the RBAC rules until a restart");
            operator_metrics.count_rbac_fallback(reason);
            let note = format!("access reviews replace the RBAC rules until a restart: {fallback}");
            let namespace = &*operator_namespace;
            status::send_lease_event(&client, (namespace, LEASE), "RbacFallback", &note).await;
        }
        registry.shut_down().await;
        stop.cancelled().await;
    });
    Ok(authorizer)
}

/// The time before which the rules contain every change. `None` before all lists are complete, and
/// if an informer lost its access.
///
/// Calls `get_summary_for_read` for each informer, even if another one is not warm, because this
/// call makes the informer keep its staleness limit.
fn proven_at(reports: &InformerHandles, keys: &[InformerKey]) -> Option<Instant> {
    let of_informer = |key| {
        let report = reports.get_summary_for_read(key)?;
        report.current_at.filter(|_| report.is_warm())
    };
    // `None` is less than each time.
    keys.iter().map(of_informer).min().flatten()
}

/// The informers of the four RBAC kinds, in the whole cluster, with kubewarm's own identity.
fn informers() -> Result<[(RbacKind, InformerSpec); 4], ValidationError> {
    let informer = |kind: RbacKind| {
        let resource = GroupResource::new("rbac.authorization.k8s.io", kind.resource())?;
        let scope = if kind.is_namespaced() {
            InformerScope::AllNamespaces
        } else {
            InformerScope::Cluster
        };
        let projection = Projection::Full(ManagedFieldsPolicy::Drop);
        let key = InformerKey::all(Resource::new(resource, "v1")?, scope, projection);
        let mut spec = InformerSpec::new(key, ProfileRef { namespace: "".into(), name: "".into() });
        spec.settings.max_staleness = MAX_RULES_AGE;
        spec.settings.consistency_check_period = Some(CONSISTENCY_CHECK_PERIOD);
        Ok::<_, ValidationError>((kind, spec))
    };
    let [roles, role_bindings, cluster_roles, cluster_role_bindings] = RbacKind::ALL.map(informer);
    Ok([roles?, role_bindings?, cluster_roles?, cluster_role_bindings?])
}
