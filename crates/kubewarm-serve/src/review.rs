//! Builds the access review (`SelfSubjectAccessReview`) for a client's request.

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReviewSpec,
};
use kubewarm_api::model::{FieldSelector, LabelSelector};
use kubewarm_client::with_selectors;
use kubewarm_wire::AccessAttributes;

/// The access review (`SelfSubjectAccessReview`) for a path that belongs to no resource, such as
/// `/version`. RBAC calls such paths `nonResourceURLs`. `verb` is the HTTP method in lower case.
pub fn path(verb: &str, path: &str) -> SelfSubjectAccessReviewSpec {
    let (path, verb) = (Some(path.to_owned()), Some(verb.to_owned()));
    SelfSubjectAccessReviewSpec {
        non_resource_attributes: Some(NonResourceAttributes { path, verb }),
        resource_attributes: None,
    }
}

/// Returns the access review for `access` to the objects that match the label selector and the
/// field selector.
pub(super) fn resource(
    access: &AccessAttributes<'_>,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> SelfSubjectAccessReviewSpec {
    let AccessAttributes { verb, group, version, resource, namespace, name } = *access;
    let text = |text: &str| Some(text.to_owned());
    // In an access review, an absent namespace means all namespaces, and an absent name means all
    // names. So an empty text becomes `None`.
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        verb: text(verb),
        group: text(group),
        version: text(version),
        resource: text(resource),
        namespace: some(namespace),
        name: some(name),
        ..ResourceAttributes::default()
    };
    SelfSubjectAccessReviewSpec {
        resource_attributes: Some(with_selectors(attributes, labels, fields)),
        non_resource_attributes: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{
        FieldRequirement, LabelRequirement, LabelSelectorOperator, NumericLabelRequirement,
    };
    use serde_json::json;
    use std::cmp::Ordering;

    #[test]
    fn objects_are_reviewed_with_name_and_selectors() {
        let wanted = |key: &str, operator, values: &[&str]| {
            LabelRequirement::new(key, operator, values.iter().copied()).unwrap()
        };
        let access = AccessAttributes {
            verb: "list",
            group: "apps",
            version: "v1",
            resource: "deployments",
            namespace: "shop",
            name: "web",
        };
        let labels = LabelSelector::new([
            wanted("app", LabelSelectorOperator::In, &["a", "b"]),
            wanted("old", LabelSelectorOperator::DoesNotExist, &[]),
        ]);
        let fields = FieldSelector::new([FieldRequirement::equal("metadata.name", "web").unwrap()]);
        let expected = json!({
            "resourceAttributes": {
                "verb": "list", "group": "apps", "version": "v1", "resource": "deployments",
                "namespace": "shop", "name": "web",
                "labelSelector": {"requirements": [
                    {"key": "app", "operator": "In", "values": ["a", "b"]},
                    {"key": "old", "operator": "DoesNotExist"},
                ]},
                "fieldSelector": {"requirements": [
                    {"key": "metadata.name", "operator": "In", "values": ["web"]},
                ]},
            },
        });
        assert_eq!(serde_json::to_value(resource(&access, &labels, &fields)).unwrap(), expected);
        let all = AccessAttributes { namespace: "", name: "", ..access };
        let compared = NumericLabelRequirement::new("n", Ordering::Less, 5).unwrap();
        let labels = LabelSelector::default().with_comparisons([compared]);
        let all = resource(&all, &labels, &FieldSelector::default());
        let expected = json!({
            "resourceAttributes":
                {"verb": "list", "group": "apps", "version": "v1", "resource": "deployments"},
        });
        assert_eq!(serde_json::to_value(all).unwrap(), expected);
    }
}
