//! Decides by the field tables whether a field path can lead to a value. If it cannot, a profile's
//! status reports that the index of this path never finds an object.

use super::field_tables::{FieldCardinality, FieldType, MessageField, table};
use kubewarm_api::model::{FieldPath, MessageId};

/// Whether an object of this built-in kind can have a value at `path`. Values are scalars, as in
/// [`field_values`](super::field_values): a path that ends at an object, a list or a map has none.
///
/// Maps allow any key. A field that contains arbitrary JSON allows any path below it.
pub fn can_have_value(message: MessageId, path: &FieldPath) -> bool {
    is_in_message(message, &path.steps().collect::<Vec<_>>())
}

/// A step of a path as [`FieldPath::steps`] returns it.
type Step<'p> = (&'p str, bool);

fn is_in_message(message: MessageId, steps: &[Step<'_>]) -> bool {
    let Some((&(name, is_list), below)) = steps.split_first() else { return false };
    table(message).fields.iter().any(|field| {
        if field.is_inline() {
            is_in_value(&field.kind, false, steps)
        } else {
            field.name == name && is_in_field(field, is_list, below)
        }
    })
}

/// `is_list` states whether the step to this field has `[*]`, and `below` are the steps after it.
fn is_in_field(field: &MessageField, is_list: bool, below: &[Step<'_>]) -> bool {
    match field.shape {
        FieldCardinality::Single => is_in_value(&field.kind, is_list, below),
        // Elements with an `element_start` have members in JSON that the tables lack. So any path
        // below such an element counts as possible.
        FieldCardinality::Repeated => {
            is_list && (!field.element_start.is_empty() || is_in_value(&field.kind, false, below))
        }
        FieldCardinality::Map => {
            let Some((&(_, is_value_list), below)) = below.split_first() else { return false };
            !is_list && is_in_value(&field.kind, is_value_list, below)
        }
    }
}

fn is_in_value(kind: &FieldType, is_list: bool, below: &[Step<'_>]) -> bool {
    match kind {
        FieldType::Raw => true,
        FieldType::Message(id) => !is_list && is_in_message(*id, below),
        FieldType::List(element) => is_list && is_in_value(element, false, below),
        FieldType::String
        | FieldType::Bytes
        | FieldType::Bool
        | FieldType::Int
        | FieldType::Time
        | FieldType::MicroTime
        | FieldType::IntOrString
        | FieldType::Quantity => !is_list && below.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::message_of_kind;
    use super::*;

    fn lookup(api_version: &str, kind: &str, path: &str) -> bool {
        let message = message_of_kind(api_version, kind).unwrap();
        can_have_value(message, &FieldPath::parse(path).unwrap())
    }

    #[test]
    fn paths_to_scalars_can_have_values() {
        for (api_version, kind, path) in [
            ("v1", "Pod", "spec.nodeName"),
            ("v1", "Pod", "status.podIP"),
            ("v1", "Pod", "metadata.labels.app"),
            ("v1", "Pod", "metadata.annotations.app"),
            ("v1", "Pod", "metadata.deletionTimestamp"),
            ("v1", "Pod", "metadata.ownerReferences[*].uid"),
            ("v1", "Pod", "metadata.managedFields[*].fieldsV1.a.b[*].c"),
            ("v1", "Pod", "spec.nodeSelector.zone"),
            ("v1", "Pod", "spec.containers[*].image"),
            ("v1", "Pod", "spec.containers[*].args[*]"),
            ("v1", "Pod", "spec.containers[*].resources.limits.cpu"),
            ("v1", "Pod", "spec.containers[*].livenessProbe.httpGet.port"),
            // `configMap` is a member of an inline message (`VolumeSource`), so the path contains
            // no name of this message.
            ("v1", "Pod", "spec.volumes[*].configMap.name"),
            ("v1", "ConfigMap", "data.tone"),
            ("v1", "Secret", "data.password"),
            ("apps/v1", "ControllerRevision", "data.spec.template"),
            ("apps/v1", "StatefulSet", "spec.volumeClaimTemplates[*].kind"),
            ("certificates.k8s.io/v1", "CertificateSigningRequest", "spec.extra.key[*]"),
        ] {
            assert!(lookup(api_version, kind, path), "{kind} {path}");
        }
    }

    #[test]
    fn wrong_names_wrong_lists_and_paths_to_no_scalar_cannot_have_values() {
        for (api_version, kind, path) in [
            ("v1", "Pod", "spec.nodename"),
            ("v1", "Pod", "nodeName"),
            ("v1", "Pod", "spec.nodeName.name"),
            ("v1", "Pod", "spec.nodeName[*]"),
            ("v1", "Pod", "spec.containers.image"),
            ("v1", "Pod", "spec.containers[*].args"),
            ("v1", "Pod", "spec[*].nodeName"),
            ("v1", "Pod", "spec"),
            ("v1", "Pod", "spec.containers[*]"),
            ("v1", "Pod", "metadata.labels"),
            ("v1", "Pod", "metadata.labels[*].app"),
            ("v1", "Pod", "metadata.labels.app.name"),
            ("v1", "Pod", "metadata.label.app"),
            ("v1", "Pod", "spec.volumes[*].volumeSource.configMap.name"),
            ("v1", "ConfigMap", "data"),
            ("certificates.k8s.io/v1", "CertificateSigningRequest", "spec.extra.key"),
        ] {
            assert!(!lookup(api_version, kind, path), "{kind} {path}");
        }
    }
}
