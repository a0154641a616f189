//! Translates the requirements of a request's field selector into tests of stored objects. A
//! requirement can name a selectable field of the kind, or an index that a profile's target
//! declares.

use super::{authorized_scope::AuthorizedScope, kind_info::KindInfo};
use kubewarm_api::model::{
    FieldPath, FieldRequirement, IndexDefinition, InformerKey, LabelSelector, Projection, Resource,
};
use kubewarm_cache::store::{BodyPredicate, ObjectQuery};
use kubewarm_wire::{ObjectRequest, StatusError};

#[derive(Debug, Default)]
pub(super) struct FieldFilter {
    /// Tests of field values. Each test has the requirement from which kubewarm made the test, so
    /// that kubewarm omits the test if the informer's own field selector contains the requirement.
    /// `None` if the requirement names an index, because informers do not select by indexes.
    tests: Vec<(Option<FieldRequirement>, BodyPredicate)>,
    /// The indexes that the field selector names and a profile declares.
    pub(super) indexes: Vec<IndexDefinition>,
}

impl FieldFilter {
    /// Translates each requirement of the request's field selector into a test of a field. `index`
    /// returns the field path of an index that a profile declares.
    ///
    /// # Errors
    ///
    /// - 400 with the API server's message if neither the kind nor an index supports the field
    /// - the errors of `index`
    pub(super) fn resolve<'a>(
        request: &ObjectRequest,
        kind: &KindInfo,
        index: impl Fn(&str) -> Result<Option<&'a FieldPath>, StatusError>,
    ) -> Result<Self, StatusError> {
        let mut fields = Self::default();
        for requirement in request.fields.requirements() {
            let refusal = || unknown(&request.resource, kind, requirement.field());
            let test = |path, absent: &str| BodyPredicate::Field {
                path,
                absent: absent.into(),
                is_equality: requirement.is_equality(),
                value: requirement.value().into(),
            };
            let Some(name) = requirement.index_name() else {
                let served = served_field(&request.resource, kind, requirement.field());
                let (path, absent) = served.ok_or_else(refusal)?;
                fields.tests.push((Some(requirement.clone()), test(path, absent)));
                continue;
            };
            let path = index(name)?.ok_or_else(refusal)?;
            fields.tests.push((None, test(path.clone(), "")));
            fields.indexes.push(IndexDefinition { name: name.into(), path: path.clone() });
        }
        Ok(fields)
    }

    /// Whether the informer's store contains every field that the field selector tests.
    pub(super) fn is_answerable_from(&self, key: &InformerKey) -> bool {
        let is_held = |test: &BodyPredicate| match test {
            BodyPredicate::Field { path, .. } => path.is_metadata(),
            BodyPredicate::Label(_) => true,
        };
        matches!(key.projection, Projection::Full(_)) || self.tests_beyond(key).all(is_held)
    }

    pub(super) fn query(
        &self,
        request: &ObjectRequest,
        key: &InformerKey,
        authorized_scope: &AuthorizedScope,
    ) -> ObjectQuery {
        let comparisons = request.labels.comparisons().cloned().map(BodyPredicate::Label);
        ObjectQuery {
            namespace: authorized_scope.namespace().map(|namespace| (**namespace).into()),
            name: authorized_scope.name().map(Into::into),
            labels: LabelSelector::new(request.labels.requirements().cloned()),
            tests: self.tests_beyond(key).cloned().chain(comparisons).collect(),
        }
    }

    fn tests_beyond<'a>(&'a self, key: &'a InformerKey) -> impl Iterator<Item = &'a BodyPredicate> {
        let is_met = |requirement: &FieldRequirement| {
            key.fields.requirements().any(|has| has == requirement)
        };
        let tests = self
            .tests
            .iter()
            .filter(move |(requirement, _)| !requirement.as_ref().is_some_and(is_met));
        tests.map(|(_, test)| test)
    }
}

/// The 400 for a field selector with an unsupported field. The message is the API server's message
/// for that kind. With `--forward`, kubewarm sends such a request to the API server, which supports
/// more fields.
fn unknown(resource: &Resource, kind: &KindInfo, field: &str) -> StatusError {
    let failure = match (resource.group(), resource.resource()) {
        ("batch", "jobs") => {
            StatusError::bad_request(format!("field label {field:?} not supported for Job"))
        }
        (group @ "resource.k8s.io", "resourceslices") => StatusError::bad_request(format!(
            "field label not supported for {group}/{}, Kind=ResourceSlice: {field}",
            resource.version()
        )),
        _ if resource.group_resource().has_own_field_labels() || kind.definition.is_some() => {
            StatusError::unknown_field(field)
        }
        _ => StatusError::bad_request(format!(
            "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )),
    };
    failure.specific_to_cache()
}

/// Returns the path of `field` if the API server supports `field` in field selectors. Also returns
/// the value that the API server assumes for an object without the field.
fn served_field(
    resource: &Resource,
    kind: &KindInfo,
    field: &str,
) -> Option<(FieldPath, &'static str)> {
    resource.group_resource().field_label(field).or_else(|| {
        let (_, path) = kind.selectable_fields()?.iter().find(|(name, _)| **name == *field)?;
        Some((path.clone(), ""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::{
        covering_informers::CoveringInformers,
        fixtures::{authorized_scope, informer, kind, parse_request, report, serving_index},
        serving_index::ServingIndex,
    };
    use kubewarm_wire::{MetaVersion, ObjectPart, ResponseForm};
    use std::slice;
    use tokio::time::Instant;

    fn resource(group: &str, plural: &str) -> Resource {
        let resource = kubewarm_api::model::GroupResource::new(group, plural).unwrap();
        Resource::new(resource, "v1").unwrap()
    }

    /// The error message for the field selector `fields`; empty if kubewarm accepts the selector.
    fn message(resource: &Resource, kind: &KindInfo, fields: &str) -> String {
        let (mut request, _) = parse_request("/api/v1/pods", &format!("fieldSelector={fields}"));
        request.resource = resource.clone();
        FieldFilter::resolve(&request, kind, |_| Ok(None))
            .err()
            .map_or_else(String::new, |failure| failure.message().into())
    }

    #[test]
    fn an_unsupported_field_gets_the_message_of_the_api_server() {
        let (pods, ingresses) = (resource("", "pods"), resource("networking.k8s.io", "ingresses"));
        let (events, jobs) = (resource("events.k8s.io", "events"), resource("batch", "jobs"));
        let (slices, nodes) =
            (resource("resource.k8s.io", "resourceslices"), resource("", "nodes"));
        let parts = resource("example.com", "parts");
        let (built_in, custom) = (kind(""), kind("spec.size"));
        for (resource, kind, fields, expected) in [
            (&pods, &built_in, "metadata.name%3Dx,spec.nodeName!%3Dn", ""),
            (&pods, &built_in, "spec.size%3D3", "field label not supported: spec.size"),
            (&events, &built_in, "regarding.name%3Dx,reportingController!%3Dc,type%3DNormal", ""),
            (&events, &built_in, "source%3Dx", "field label not supported: source"),
            (&jobs, &built_in, "status.successful%3D1", ""),
            (&jobs, &built_in, "x%3D1", "field label \"x\" not supported for Job"),
            (&slices, &built_in, "spec.driver%3Dd,spec.nodeName%3Dn", ""),
            (
                &slices,
                &built_in,
                "metadata.namespace%3Dn",
                "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: metadata.namespace",
            ),
            (
                &nodes,
                &built_in,
                "metadata.namespace%3D",
                "field label not supported: metadata.namespace",
            ),
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
            assert_eq!(message(resource, kind, fields), expected, "{resource} {fields}");
        }
    }

    #[test]
    fn selectors_that_the_informer_already_applies_are_not_evaluated_again() {
        let fields = "status.phase%3DPending,spec.nodeName%3Dn,metadata.name%3Dx";
        let query = format!("fieldSelector={fields}&labelSelector=app,tier%3E1");
        let (request, _) = parse_request("/api/v1/namespaces/a/pods", &query);
        let fields = FieldFilter::resolve(&request, &kind(""), |_| Ok(None)).unwrap();
        let key = informer("a", "", "status.phase=Pending");
        let query = fields.query(&request, &key, &authorized_scope(&request));
        assert_eq!((query.namespace.as_deref(), query.name.as_deref()), (Some("a"), Some("x")));
        assert_eq!(query.labels.to_string(), "app");
        let paths = query.tests.all().iter().map(|test| match test {
            BodyPredicate::Field { path, .. } => path.to_string(),
            BodyPredicate::Label(comparison) => comparison.to_string(),
        });
        assert_eq!(paths.collect::<Vec<_>>(), ["metadata.name", "spec.nodeName", "tier>1"]);
    }

    fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).unwrap()
    }

    /// Translates the field selector `fields` of a request for pods in the namespace `a`. Returns
    /// the keys of the informers that can answer this request.
    fn answering(
        serving_index: &ServingIndex,
        fields: &str,
        kind: &KindInfo,
    ) -> Result<(FieldFilter, Vec<InformerKey>), StatusError> {
        let query = format!("fieldSelector={}", fields.replace('=', "%3D"));
        let (mut request, _) = parse_request("/api/v1/namespaces/a/pods", &query);
        request.form = ResponseForm::Object(ObjectPart::Metadata(MetaVersion::V1));
        let covering = CoveringInformers::find(serving_index, &request, None, "home")?;
        let fields = FieldFilter::resolve(&request, kind, |name| covering.index(name))?;
        let now = Instant::now();
        let candidates =
            covering.with_fields(kind, &fields)?.rank_warm(|_| Some(report(now)), now).0;
        Ok((fields, candidates.into_iter().map(|candidate| candidate.key.clone()).collect()))
    }

    #[test]
    fn an_informer_serves_the_indexes_of_all_its_profiles() {
        let (in_a, all) = (informer("a", "", ""), informer("all", "", ""));
        let mut serving_index = serving_index("home", slice::from_ref(&all));
        serving_index.add("a", &in_a);
        serving_index.add("a", &all);
        serving_index.index("home", &all, "by-node", &path("spec.nodeName"));
        serving_index.index("a", &in_a, "by-app", &path("metadata.labels.app"));
        serving_index.index("a", &all, "by-tier", &path("metadata.labels.tier"));
        let built_in = kind("");
        let keys_for =
            |fields: &str| answering(&serving_index, fields, &built_in).map(|(_, keys)| keys);
        assert_eq!(keys_for("spec.nodeName=n").unwrap(), [in_a.clone(), all.clone()]);
        assert_eq!(keys_for("index.kubewarm.io/by-app=web").unwrap(), slice::from_ref(&in_a));
        assert_eq!(
            keys_for("index.kubewarm.io/by-node=n,index.kubewarm.io/by-tier!=1,spec.nodeName=n")
                .unwrap(),
            slice::from_ref(&all)
        );
        for (fields, code) in [
            ("index.kubewarm.io/by-node=n,index.kubewarm.io/by-app=web", 421),
            ("index.kubewarm.io/by-none=x", 400),
        ] {
            assert_eq!(keys_for(fields).unwrap_err().code(), code, "{fields}");
        }
        assert_eq!(
            keys_for("index.kubewarm.io/by-none=x").unwrap_err().message(),
            "field label not supported: index.kubewarm.io/by-none"
        );
    }

    #[test]
    fn conflicting_indexes_of_one_name_are_rejected() {
        let (in_a, all) = (informer("a", "", ""), informer("all", "", ""));
        let mut serving_index = serving_index("home", slice::from_ref(&all));
        serving_index.add("a", &in_a);
        serving_index.add("b", &informer("b", "", ""));
        serving_index.index("home", &all, "by-app", &path("metadata.labels.app"));
        serving_index.index("b", &informer("b", "", ""), "by-app", &path("metadata.labels.tier"));
        serving_index.index("a", &in_a, "by-app", &path("metadata.labels.app"));
        let built_in = kind("");
        assert_eq!(
            answering(&serving_index, "index.kubewarm.io/by-app=x", &built_in).unwrap().1.len(),
            2
        );
        serving_index.index("a", &in_a, "by-app", &path("metadata.labels.tier"));
        let refused =
            answering(&serving_index, "index.kubewarm.io/by-app=x", &built_in).unwrap_err();
        assert_eq!(refused.code(), 400);
        assert!(refused.message().contains("/profiles/<namespace>/<name>"), "{refused:?}");
    }

    #[test]
    fn a_metadata_informer_supports_only_indexes_of_metadata() {
        let mut metadata = informer("a", "", "");
        metadata.projection = Projection::Metadata(kubewarm_api::model::ManagedFieldsPolicy::Drop);
        let mut serving_index = serving_index("a", slice::from_ref(&metadata));
        serving_index.index("a", &metadata, "by-node", &path("spec.nodeName"));
        serving_index.index("a", &metadata, "by-owner", &path("metadata.ownerReferences[*].uid"));
        serving_index.index("a", &metadata, "by-app", &path("metadata.labels.app"));
        let built_in = kind("");
        let count_for =
            |fields: &str| answering(&serving_index, fields, &built_in).map(|(_, keys)| keys.len());
        assert_eq!(
            (
                count_for("index.kubewarm.io/by-owner=x").unwrap(),
                count_for("index.kubewarm.io/by-app!=x").unwrap()
            ),
            (1, 1)
        );
        assert_eq!(count_for("index.kubewarm.io/by-node=n").unwrap_err().code(), 421);
    }

    #[test]
    fn an_index_can_have_the_name_of_a_field() {
        let three = informer("a", "", "size=3");
        let mut serving_index = serving_index("a", slice::from_ref(&three));
        serving_index.index("a", &three, "size", &path("spec.other"));
        let parse = |fields: &str| answering(&serving_index, fields, &kind("size"));
        let (fields, keys) = parse("size=3").unwrap();
        assert_eq!((fields.indexes.len(), keys.len()), (0, 1));
        let (fields, keys) = parse("size=3,index.kubewarm.io/size=4").unwrap();
        assert_eq!((fields.indexes.len(), keys.len()), (1, 1));
    }

    #[test]
    fn indexes_become_field_tests_or_label_requirements() {
        let all = informer("all", "", "");
        let mut serving_index = serving_index("home", slice::from_ref(&all));
        serving_index.index("home", &all, "by-node", &path("spec.nodeName"));
        let built_in = kind("");
        let query = |fields: &str| {
            let (fields, _) = answering(&serving_index, fields, &built_in)?;
            let (request, _) = parse_request("/api/v1/pods", "labelSelector=tier");
            Ok::<_, StatusError>(fields.query(&request, &all, &authorized_scope(&request)))
        };
        let test = |is_equality, value: &str| BodyPredicate::Field {
            path: path("spec.nodeName"),
            absent: "".into(),
            is_equality,
            value: value.into(),
        };
        let both = query("index.kubewarm.io/by-node=n,index.kubewarm.io/by-node!=m").unwrap();
        assert_eq!(both.tests.all(), [test(false, "m"), test(true, "n")]);
        assert_eq!(both.labels.to_string(), "tier");
    }
}
