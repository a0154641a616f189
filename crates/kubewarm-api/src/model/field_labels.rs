//! Field labels (the API server's term): the fields that the API server supports in field selectors
//! of built-in resources.

use super::{FieldPath, GroupResource};

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// Fields that the API server supports in field selectors of built-in resources (field labels).
/// Each entry: the resource as `<plural>.<group>`, then its labels, separated by spaces. Each label
/// is also the path of its field in the object. The label `metadata.name` is omitted, because every
/// resource has it.
///
/// Taken from Kubernetes 1.36: `AddFieldLabelConversionFunc` in pkg/apis, and `ToSelectableFields`
/// in pkg/registry.
const OWN_LABELS: &[(&str, &str)] = &[
    (
        "pods",
        "metadata.namespace spec.nodeName spec.restartPolicy spec.schedulerName \
         spec.serviceAccountName status.phase status.podIP status.nominatedNodeName",
    ),
    (
        "events",
        "metadata.namespace involvedObject.kind involvedObject.namespace involvedObject.name \
         involvedObject.uid involvedObject.apiVersion involvedObject.resourceVersion \
         involvedObject.fieldPath reason reportingComponent type",
    ),
    (
        "events.events.k8s.io",
        "metadata.namespace regarding.kind regarding.namespace regarding.name regarding.uid \
         regarding.apiVersion regarding.resourceVersion regarding.fieldPath reason \
         reportingController type",
    ),
    ("secrets", "metadata.namespace type"),
    ("nodes", ""),
    ("namespaces", "status.phase"),
    ("services", "metadata.namespace spec.clusterIP spec.type"),
    ("replicationcontrollers", "metadata.namespace"),
    ("jobs.batch", "metadata.namespace"),
    ("certificatesigningrequests.certificates.k8s.io", "spec.signerName"),
    ("resourceslices.resource.k8s.io", "spec.nodeName spec.driver"),
];

/// More fields that field selectors of built-in resources support, which do not fit into
/// [`OWN_LABELS`]: the name in the selector differs from the path of the field, or the field has a
/// default value. Columns: resource, name, path, and the value that the API server uses if the
/// field is absent.
const OTHER_LABELS: &[(&str, &str, &str, &str)] = &[
    ("pods", "spec.host", "spec.nodeName", ""),
    ("pods", "spec.hostNetwork", "spec.hostNetwork", "false"),
    ("nodes", "spec.unschedulable", "spec.unschedulable", "false"),
    ("replicationcontrollers", "status.replicas", "status.replicas", "0"),
    ("jobs.batch", "status.successful", "status.succeeded", "0"),
];

/// The fields that the API server's watch cache indexes (`Indexers` in pkg/registry): resource and
/// path.
const INDEXED_FIELDS: &[(&str, &str)] = &[("pods", "spec.nodeName")];

impl GroupResource {
    /// The paths of the fields that kubewarm indexes in each complete store of this resource, as
    /// the API server does, because a client on each node selects by them.
    pub fn indexed_fields(&self) -> impl Iterator<Item = FieldPath> {
        let kind = self.to_string();
        let fields = INDEXED_FIELDS.iter().filter(move |(resource, _)| *resource == kind);
        fields.filter_map(|(_, path)| FieldPath::parse(path).ok())
    }

    /// Whether the API server's code lists the fields that selectors of this resource support. For
    /// all other resources, field selectors support `metadata.name`, `metadata.namespace` and the
    /// selectable fields of the resource's `CustomResourceDefinition`.
    pub fn has_own_field_labels(&self) -> bool {
        own_labels(&self.to_string()).is_some()
    }

    /// Returns the path of the field that `label` selects by, and the value that the API server
    /// uses if the field is absent. Returns `None` if the resource does not support `label`.
    pub fn field_label(&self, label: &str) -> Option<(FieldPath, &'static str)> {
        let kind = self.to_string();
        let labels = own_labels(&kind);
        let of_all = label == NAME || (label == NAMESPACE && labels.is_none());
        if of_all || labels.is_some_and(|labels| labels.split(' ').any(|other| other == label)) {
            return Some((FieldPath::parse(label).ok()?, ""));
        }
        let is_it =
            |(resource, other, ..): &&(&str, &str, _, _)| *resource == kind && *other == label;
        let (.., path, absent) = OTHER_LABELS.iter().find(is_it)?;
        Some((FieldPath::parse(path).ok()?, *absent))
    }
}

fn own_labels(kind: &str) -> Option<&'static str> {
    OWN_LABELS.iter().find(|(resource, _)| *resource == kind).map(|(_, labels)| *labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_has_a_valid_field_path() {
        let own_labels = OWN_LABELS.iter().flat_map(|(resource, labels)| {
            labels.split_whitespace().map(|label| (*resource, label))
        });
        let others = OTHER_LABELS.iter().map(|(resource, label, ..)| (*resource, *label));
        for (kind, label) in own_labels.chain(others).chain([("nodes", NAME)]) {
            let (plural, group) = kind.split_once('.').unwrap_or((kind, ""));
            let resource = GroupResource::new(group, plural).unwrap();
            assert!(
                resource.has_own_field_labels() && resource.field_label(label).is_some(),
                "{resource} {label}"
            );
        }
        let events = GroupResource::new("", "events").unwrap();
        assert_eq!(events.field_label("source"), None, "its value comes from several fields");
    }

    #[test]
    fn labels_can_have_another_path_and_a_default_value() {
        let lookup = |group: &str, plural: &str, label: &str| {
            let (path, absent) = GroupResource::new(group, plural).unwrap().field_label(label)?;
            Some((path.to_string(), absent))
        };
        let field = |path: &str, absent| Some((path.to_owned(), absent));
        assert_eq!(lookup("", "pods", "spec.host"), field("spec.nodeName", ""));
        assert_eq!(lookup("batch", "jobs", "status.successful"), field("status.succeeded", "0"));
        assert_eq!(lookup("", "nodes", NAMESPACE), None);
        assert_eq!(lookup("apps", "deployments", NAMESPACE), field("metadata.namespace", ""));
    }
}
