//! Field labels: the fields by which the API server selects objects of its own kinds.

use super::{FieldPath, GroupResource};

/// The field labels of a kind for which the API server compiles them in. Every kind also has `metadata.name`.
struct FieldLabels {
    group: &'static str,
    plural: &'static str,
    /// Labels that are the path of their field.
    paths: &'static [&'static str],
    /// Other labels, each with its path and with the value where an object has nothing there.
    others: &'static [(&'static str, &'static str, &'static str)],
}

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// `AddFieldLabelConversionFunc` of each version in kubernetes/pkg/apis, and `ToSelectableFields` of each kind's
/// strategy in kubernetes/pkg/registry, 1.36.
const FIELD_LABELS: &[FieldLabels] = &[
    FieldLabels {
        group: "",
        plural: "pods",
        paths: &[
            NAMESPACE,
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        others: &[
            ("spec.host", "spec.nodeName", ""),
            ("spec.hostNetwork", "spec.hostNetwork", "false"),
        ],
    },
    FieldLabels {
        group: "",
        plural: "events",
        paths: &[
            NAMESPACE,
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ],
        others: &[],
    },
    FieldLabels {
        group: "events.k8s.io",
        plural: "events",
        paths: &[
            NAMESPACE,
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        others: &[],
    },
    FieldLabels { group: "", plural: "secrets", paths: &[NAMESPACE, "type"], others: &[] },
    FieldLabels {
        group: "",
        plural: "nodes",
        paths: &[],
        others: &[("spec.unschedulable", "spec.unschedulable", "false")],
    },
    FieldLabels { group: "", plural: "namespaces", paths: &["status.phase"], others: &[] },
    FieldLabels {
        group: "",
        plural: "services",
        paths: &[NAMESPACE, "spec.clusterIP", "spec.type"],
        others: &[],
    },
    FieldLabels {
        group: "",
        plural: "replicationcontrollers",
        paths: &[NAMESPACE],
        others: &[("status.replicas", "status.replicas", "0")],
    },
    FieldLabels {
        group: "batch",
        plural: "jobs",
        paths: &[NAMESPACE],
        others: &[("status.successful", "status.succeeded", "0")],
    },
    FieldLabels {
        group: "certificates.k8s.io",
        plural: "certificatesigningrequests",
        paths: &["spec.signerName"],
        others: &[],
    },
    FieldLabels {
        group: "resource.k8s.io",
        plural: "resourceslices",
        paths: &["spec.nodeName", "spec.driver"],
        others: &[],
    },
];

impl GroupResource {
    /// Whether the API server compiles in the field labels of this kind. Other kinds have `metadata.name`,
    /// `metadata.namespace` and what a `CustomResourceDefinition` adds.
    #[must_use]
    pub fn has_own_field_labels(&self) -> bool {
        self.own_field_labels().is_some()
    }

    /// The path of a field label, and the value that the API server takes where an object has nothing there. `None`
    /// where there is no such label.
    #[must_use]
    pub fn field_label(&self, label: &str) -> Option<(FieldPath, &'static str)> {
        let own = self.own_field_labels();
        let of_all = label == NAME || (label == NAMESPACE && own.is_none());
        if of_all || own.is_some_and(|own| own.paths.contains(&label)) {
            return Some((FieldPath::parse(&format!(".{label}")).ok()?, ""));
        }
        let (_, path, absent) = own?.others.iter().find(|(other, ..)| *other == label)?;
        Some((FieldPath::parse(&format!(".{path}")).ok()?, *absent))
    }

    fn own_field_labels(&self) -> Option<&'static FieldLabels> {
        let is_of = |it: &&FieldLabels| it.group == self.group() && it.plural == self.resource();
        FIELD_LABELS.iter().find(is_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_leads_to_a_field() {
        for FieldLabels { group, plural, paths, others } in FIELD_LABELS {
            let of = GroupResource::new(group, plural).unwrap();
            let others = others.iter().map(|(label, ..)| label);
            for label in paths.iter().chain(others) {
                assert!(of.field_label(label).is_some(), "{of} {label}");
            }
            assert!(of.has_own_field_labels() && of.field_label(NAME).is_some());
        }
        let events = GroupResource::new("", "events").unwrap();
        assert_eq!(events.field_label("source"), None, "several fields make it up");
    }

    #[test]
    fn a_label_may_lead_elsewhere_and_mean_a_value_that_is_not_written() {
        let found = |group: &str, plural: &str, label: &str| {
            let (path, absent) = GroupResource::new(group, plural).unwrap().field_label(label)?;
            Some((path.to_string(), absent))
        };
        let field = |path: &str, absent| Some((path.to_owned(), absent));
        assert_eq!(found("", "pods", "spec.host"), field(".spec.nodeName", ""));
        assert_eq!(found("batch", "jobs", "status.successful"), field(".status.succeeded", "0"));
        assert_eq!(found("", "nodes", NAMESPACE), None);
        assert_eq!(found("apps", "deployments", NAMESPACE), field(".metadata.namespace", ""));
    }
}
