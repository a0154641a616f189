//! What a kind can be selected by: which fields the API server knows of it, and where they are.

use super::kinds::{Kind, Origin};
use crate::{
    model::{CellKey, FieldPath, FieldRequirement, FieldSelector, Projection, Resource},
    store::{Is, Test, Than, Wanted},
    wire::{self, Failure, Objects, Selection},
};

/// A field that objects of a built-in kind are selected by.
struct Label {
    /// As it is written in a selector.
    name: &'static str,
    /// Where it is.
    path: &'static str,
    /// What it is where nothing stands there.
    absent: &'static str,
}

/// A field whose label is its path, and which is empty where nothing stands there.
const fn plain(name: &'static str, path: &'static str) -> Label {
    Label { name, path, absent: "" }
}

const fn otherwise(name: &'static str, path: &'static str, absent: &'static str) -> Label {
    Label { name, path, absent }
}

/// Of every kind.
const EVERYWHERE: &[Label] =
    &[plain("metadata.name", ".metadata.name"), plain("metadata.namespace", ".metadata.namespace")];

/// What the API server compiles in beside those, by group and plural.
/// `ToSelectableFields` of each kind's strategy in kubernetes/pkg/registry, 1.36.
const BUILT_IN: &[(&str, &str, &[Label])] = &[
    (
        "",
        "pods",
        &[
            plain("spec.nodeName", ".spec.nodeName"),
            plain("spec.host", ".spec.nodeName"),
            plain("spec.restartPolicy", ".spec.restartPolicy"),
            plain("spec.schedulerName", ".spec.schedulerName"),
            plain("spec.serviceAccountName", ".spec.serviceAccountName"),
            otherwise("spec.hostNetwork", ".spec.hostNetwork", "false"),
            plain("status.phase", ".status.phase"),
            plain("status.podIP", ".status.podIP"),
            plain("status.nominatedNodeName", ".status.nominatedNodeName"),
        ],
    ),
    (
        "",
        "events",
        &[
            plain("involvedObject.kind", ".involvedObject.kind"),
            plain("involvedObject.namespace", ".involvedObject.namespace"),
            plain("involvedObject.name", ".involvedObject.name"),
            plain("involvedObject.uid", ".involvedObject.uid"),
            plain("involvedObject.apiVersion", ".involvedObject.apiVersion"),
            plain("involvedObject.resourceVersion", ".involvedObject.resourceVersion"),
            plain("involvedObject.fieldPath", ".involvedObject.fieldPath"),
            plain("reason", ".reason"),
            plain("reportingComponent", ".reportingComponent"),
            plain("type", ".type"),
        ],
    ),
    ("", "secrets", &[plain("type", ".type")]),
    ("", "nodes", &[otherwise("spec.unschedulable", ".spec.unschedulable", "false")]),
    ("", "namespaces", &[plain("status.phase", ".status.phase")]),
    (
        "",
        "services",
        &[plain("spec.clusterIP", ".spec.clusterIP"), plain("spec.type", ".spec.type")],
    ),
    ("", "replicationcontrollers", &[otherwise("status.replicas", ".status.replicas", "0")]),
    ("apps", "replicasets", &[otherwise("status.replicas", ".status.replicas", "0")]),
    ("batch", "jobs", &[otherwise("status.successful", ".status.succeeded", "0")]),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[plain("spec.signerName", ".spec.signerName")],
    ),
];

/// Where a field is, and what it is where nothing stands there.
struct Place {
    path: FieldPath,
    absent: &'static str,
}

/// Refuses what the kind is not selected by.
///
/// # Errors
///
/// 400, as the API server says it.
pub(super) fn check(
    resource: &Resource,
    kind: &Kind,
    selector: &FieldSelector,
) -> Result<(), Failure> {
    let unknown = selector.requirements().find(|it| place(resource, kind, it.field()).is_none());
    let Some(unknown) = unknown.map(FieldRequirement::field) else { return Ok(()) };
    let has_more = built_in(resource).is_some() || matches!(kind.origin, Origin::Custom(_));
    Err(if has_more {
        Failure::unknown_field(unknown)
    } else {
        Failure::bad_request(format!(
            "{unknown:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ))
    })
}

/// Whether the cell holds what is selected by.
pub(super) fn are_held(asked: &Objects, kind: &Kind, key: &CellKey) -> bool {
    let is_held = |it: &FieldRequirement| {
        let place = place(&asked.resource, kind, it.field());
        place.is_some_and(|place| place.path.is_metadata())
    };
    matches!(key.projection, Projection::Full(_)) || beyond(asked, key).all(is_held)
}

/// What is asked of the table of a cell.
pub(super) fn wanted(asked: &Objects, kind: &Kind, key: &CellKey) -> Wanted {
    let fields = beyond(asked, key).filter_map(|it| {
        let Place { path, absent } = place(&asked.resource, kind, it.field())?;
        let is = if it.is_equality() { Is::Equal } else { Is::Different };
        Some(Test::Field { path, absent: absent.into(), is, value: it.value().into() })
    });
    let labels = asked.labels.comparisons().iter().map(|it| {
        let than = match it.than() {
            wire::Than::Greater => Than::Greater,
            wire::Than::Less => Than::Less,
        };
        Test::Label { key: it.key().into(), than, number: it.bound() }
    });
    let name = match &asked.selection {
        Selection::Get { name } => Some(&**name),
        Selection::List => asked.fields.name(),
    };
    Wanted {
        namespace: asked.namespace.as_deref().map(Into::into),
        name: name.map(Into::into),
        labels: asked.labels.selector().clone(),
        tests: fields.chain(labels).collect(),
    }
}

/// The requirements that the cell does not meet by itself.
fn beyond<'a>(asked: &'a Objects, key: &'a CellKey) -> impl Iterator<Item = &'a FieldRequirement> {
    asked.fields.requirements().filter(|it| !key.fields.requirements().any(|has| has == *it))
}

fn place(resource: &Resource, kind: &Kind, field: &str) -> Option<Place> {
    let built_in = built_in(resource).unwrap_or_default();
    let mut labels = EVERYWHERE.iter().chain(built_in);
    if let Some(label) = labels.find(|label| label.name == field) {
        let path = FieldPath::parse(label.path).ok()?;
        return Some(Place { path, absent: label.absent });
    }
    let Origin::Custom(fields) = &kind.origin else { return None };
    let (_, path) = fields.iter().find(|(name, _)| **name == *field)?;
    Some(Place { path: path.clone(), absent: "" })
}

fn built_in(resource: &Resource) -> Option<&'static [Label]> {
    let is_it = |(group, plural, _): &&(&str, &str, &[Label])| {
        *group == resource.group() && *plural == resource.resource()
    };
    BUILT_IN.iter().find(is_it).map(|(_, _, labels)| *labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::sample::{asked, cell, kind};

    fn resource(group: &str, plural: &str) -> Resource {
        let of = crate::model::GroupResource::new(group, plural).unwrap();
        Resource::new(of, "v1").unwrap()
    }

    /// What is said of a selector; empty: it is understood.
    fn said(resource: &Resource, kind: &Kind, fields: &str) -> String {
        let (asked, _) = asked("/api/v1/pods", &format!("fieldSelector={fields}"));
        check(resource, kind, &asked.fields)
            .err()
            .map_or_else(String::new, |it| it.message().into())
    }

    #[test]
    fn what_a_kind_is_not_selected_by_is_refused_as_the_server_says_it() {
        let (pods, ingresses) = (resource("", "pods"), resource("networking.k8s.io", "ingresses"));
        let parts = resource("example.com", "parts");
        let (built_in, custom) = (kind(""), kind("spec.size"));
        for (resource, kind, fields, expected) in [
            (&pods, &built_in, "metadata.name%3Dx,spec.nodeName!%3Dn", ""),
            (&pods, &built_in, "spec.size%3D3", "field label not supported: spec.size"),
            (&parts, &custom, "spec.size%3D3,metadata.namespace%3Da", ""),
            (&parts, &custom, "spec.nodeName%3D3", "field label not supported: spec.nodeName"),
            (
                &ingresses,
                &built_in,
                "spec.size%3D3",
                "\"spec.size\" is not a known field selector: only \"metadata.name\", \
                 \"metadata.namespace\"",
            ),
        ] {
            assert_eq!(said(resource, kind, fields), expected, "{resource} {fields}");
        }
    }

    #[test]
    fn every_compiled_path_is_one() {
        for label in BUILT_IN.iter().flat_map(|(_, _, labels)| *labels).chain(EVERYWHERE) {
            assert!(FieldPath::parse(label.path).is_ok(), "{}", label.path);
        }
    }

    #[test]
    fn what_the_cell_meets_by_itself_is_not_looked_for_again() {
        let fields = "status.phase%3DPending,spec.nodeName%3Dn,metadata.name%3Dx";
        let query = format!("fieldSelector={fields}&labelSelector=app,tier%3E1");
        let (asked, _) = asked("/api/v1/namespaces/a/pods", &query);
        let wanted = wanted(&asked, &kind(""), &cell("a", "", "status.phase=Pending"));
        assert_eq!((wanted.namespace.as_deref(), wanted.name.as_deref()), (Some("a"), Some("x")));
        assert_eq!(wanted.labels.to_string(), "app");
        let paths = wanted.tests.iter().map(|test| match test {
            Test::Field { path, .. } => path.to_string(),
            Test::Label { key, .. } => key.to_string(),
        });
        assert_eq!(paths.collect::<Vec<_>>(), [".metadata.name", ".spec.nodeName", "tier"]);
    }
}
