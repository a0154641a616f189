//! Maps built-in kinds to their printers.

use super::{cluster, json_view::PrintInput, network, pods, storage, workloads};
use serde_json::Value;

#[derive(Debug)]
pub(super) struct BuiltInPrinter {
    /// The plural name of the resource with its group, such as `deployments.apps`.
    pub(super) name: &'static str,
    pub(super) print: fn(&PrintInput<'_>) -> Vec<Value>,
}

impl PartialEq for BuiltInPrinter {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for BuiltInPrinter {}

impl BuiltInPrinter {
    pub(super) fn is_of_metadata(&self) -> bool {
        OF_METADATA.contains(&self.name)
    }
}

/// Kinds whose columns show metadata only, so that a store with only metadata is enough for their
/// tables.
const OF_METADATA: &[&str] =
    &["serviceaccounts", "deviceclasses.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"];

fn name_and_age(object: &PrintInput<'_>) -> Vec<Value> {
    vec![object.name(), object.age()]
}

macro_rules! all {
    ($($name:literal: $print:expr,)*) => {
        &[$(BuiltInPrinter { name: $name, print: $print }),*]
    };
}

pub(super) static ALL: &[BuiltInPrinter] = all! {
    "pods": pods::pods,
    "podtemplates": workloads::pod_templates,
    "replicationcontrollers": workloads::controllers,
    "services": network::services,
    "endpoints": network::endpoints,
    "nodes": cluster::nodes,
    "namespaces": cluster::namespaces,
    "events": cluster::events,
    "configmaps": cluster::config_maps,
    "secrets": cluster::secrets,
    "serviceaccounts": name_and_age,
    "resourcequotas": cluster::quotas,
    "persistentvolumes": storage::volumes,
    "persistentvolumeclaims": storage::claims,
    "deployments.apps": workloads::deployments,
    "replicasets.apps": workloads::replicas,
    "statefulsets.apps": workloads::stateful_sets,
    "daemonsets.apps": workloads::daemon_sets,
    "controllerrevisions.apps": workloads::controller_revisions,
    "jobs.batch": workloads::jobs,
    "cronjobs.batch": workloads::cron_jobs,
    "horizontalpodautoscalers.autoscaling": workloads::autoscalers,
    "poddisruptionbudgets.policy": workloads::disruption_budgets,
    "events.events.k8s.io": cluster::events,
    "endpointslices.discovery.k8s.io": network::endpoint_slices,
    "ingresses.networking.k8s.io": network::ingresses,
    "ingressclasses.networking.k8s.io": network::ingress_classes,
    "networkpolicies.networking.k8s.io": network::network_policies,
    "servicecidrs.networking.k8s.io": network::service_cidrs,
    "ipaddresses.networking.k8s.io": network::ip_addresses,
    "rolebindings.rbac.authorization.k8s.io": cluster::bindings,
    "clusterrolebindings.rbac.authorization.k8s.io": cluster::bindings,
    "leases.coordination.k8s.io": cluster::leases,
    "storageclasses.storage.k8s.io": storage::classes,
    "volumeattributesclasses.storage.k8s.io": storage::attributes_classes,
    "volumeattachments.storage.k8s.io": storage::attachments,
    "csinodes.storage.k8s.io": storage::csi_nodes,
    "csidrivers.storage.k8s.io": storage::csi_drivers,
    "priorityclasses.scheduling.k8s.io": cluster::priority_classes,
    "runtimeclasses.node.k8s.io": cluster::runtime_classes,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": cluster::webhooks,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": cluster::webhooks,
    "validatingadmissionpolicies.admissionregistration.k8s.io": cluster::validating_policies,
    "mutatingadmissionpolicies.admissionregistration.k8s.io": cluster::mutating_policies,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": cluster::policy_bindings,
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": cluster::policy_bindings,
    "flowschemas.flowcontrol.apiserver.k8s.io": cluster::flow_schemas,
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": cluster::priority_levels,
    "certificatesigningrequests.certificates.k8s.io": cluster::signing_requests,
    "apiservices.apiregistration.k8s.io": cluster::api_services,
    "deviceclasses.resource.k8s.io": name_and_age,
    "resourceclaims.resource.k8s.io": workloads::resource_claims,
    "resourceslices.resource.k8s.io": workloads::resource_slices,
    "resourceclaimtemplates.resource.k8s.io": name_and_age,
};

/// Finds the printer of a resource. `name` is the resource's plural name with its group, such as
/// `deployments.apps`.
pub(super) fn find(name: &str, version: &str) -> Option<&'static BuiltInPrinter> {
    // The printer of HorizontalPodAutoscalers supports only the API version `v2`, because in other
    // versions the fields for metrics have different names.
    let is_other = name.ends_with(".autoscaling") && version != "v2";
    ALL.iter().find(|known| known.name == name && !is_other)
}
