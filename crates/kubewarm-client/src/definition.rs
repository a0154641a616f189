//! What a `CustomResourceDefinition` says of its kind that discovery does not.

use super::api_client::ApiClient;
use http::StatusCode;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinitionNames, SelectableField,
};
use kube::Client;
use kubewarm_api::model::{Fault, FieldPath, GroupResource};
use kubewarm_wire::tables::Column;
use serde::Deserialize;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Definitions with long schemas have some 2 MiB.
const MAX_BYTES: usize = 8 << 20;
const TIME: Duration = Duration::from_secs(5);

/// Fields that objects can be selected by: as they are written in a selector, and where they are.
pub type SelectableFields = Arc<[(Arc<str>, FieldPath)]>;

/// What is kept of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// The kind of a list of its objects.
    pub list_kind: Arc<str>,
    /// By version, what its objects can be selected by.
    pub fields: BTreeMap<Arc<str>, SelectableFields>,
    /// By version, what its objects are printed in.
    pub columns: BTreeMap<Arc<str>, Arc<[Column]>>,
}

/// A `CustomResourceDefinition` without its schemas: as types those would take many times the document's bytes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    group: String,
    names: CustomResourceDefinitionNames,
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Version {
    name: String,
    served: bool,
    selectable_fields: Vec<SelectableField>,
    additional_printer_columns: Vec<CustomResourceColumnDefinition>,
}

/// Looks the definition of a kind up, as the identity of `client`, which needs `get` on it; `None` if
/// there is none.
///
/// # Errors
///
/// The fault of the request.
///
/// # Cost
///
/// One request of at most 5 s.
pub async fn definition(client: &Client, of: &GroupResource) -> Result<Option<Definition>, Fault> {
    // Both are names that cannot change a path: the type says so.
    let name = format!("{}.{}", of.resource(), of.group());
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let request = ApiClient::new(client).get(path);
    let answer = request.within(TIME).at_most(MAX_BYTES).send().await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    Ok(kept(answer.json()?, of))
}

impl Definition {
    /// What `applied`, a `CustomResourceDefinition`, says of this kind; `None` if it is not of it.
    #[must_use]
    pub fn of(applied: serde_json::Value, of: &GroupResource) -> Option<Self> {
        kept(serde_json::from_value(applied).ok()?, of)
    }
}

/// `None` for one that is not of this kind, whatever its name says.
fn kept(Object { spec }: Object, of: &GroupResource) -> Option<Definition> {
    if spec.group != of.group() || spec.names.plural != of.resource() {
        return None;
    }
    let given = spec.names.list_kind.filter(|given| !given.is_empty());
    let list_kind = given.unwrap_or_else(|| format!("{}List", spec.names.kind));
    let mut kept = Definition { list_kind: list_kind.into(), ..Definition::default() };
    for version in spec.versions.into_iter().filter(|version| version.served) {
        let fields = version.selectable_fields.iter().filter_map(|field| {
            let label = field.json_path.strip_prefix('.')?;
            Some((label.into(), FieldPath::parse(label).ok()?))
        });
        let name: Arc<str> = version.name.into();
        kept.fields.insert(Arc::clone(&name), fields.collect());
        kept.columns.insert(name, columns(&version.additional_printer_columns));
    }
    Some(kept)
}

/// Up to one that cannot be read; where there are none, that which the API server adds.
fn columns(written: &[CustomResourceColumnDefinition]) -> Arc<[Column]> {
    if written.is_empty() {
        return Column::age().into_iter().collect();
    }
    written.iter().map_while(Column::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use kubewarm_api::model::Reason;
    use std::convert::Infallible;
    use tower::service_fn;

    const PARTS: &str = r#"{"spec": {"group": "example.com",
        "names": {"kind": "Part", "listKind": "PartCollection", "plural": "parts"},
        "versions": [
            {"name": "v1", "served": true, "selectableFields": [{"jsonPath": ".spec.color"}]},
            {"name": "v2", "served": true, "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Odd", "type": "string", "jsonPath": ".spec["},
                {"name": "Behind", "type": "string", "jsonPath": ".spec.size"}]},
            {"name": "v0", "served": false, "selectableFields": [{"jsonPath": ".spec.old"}]}]}}"#;

    async fn found(
        code: u16,
        body: &'static str,
        group: &str,
    ) -> Result<Option<Definition>, Fault> {
        let service = service_fn(move |request: Request<Body>| async move {
            let path = request.uri().path();
            assert!(path.ends_with("/customresourcedefinitions/parts.example.com"), "{path}");
            let answer =
                Response::builder().status(code).body(Body::from(body.as_bytes().to_vec()));
            Ok::<_, Infallible>(answer.unwrap())
        });
        let of = GroupResource::new(group, "parts").unwrap();
        definition(&Client::new(service, "default"), &of).await
    }

    #[tokio::test]
    async fn lists_have_the_kind_that_the_definition_says_and_fields_are_of_a_version() {
        let found = found(200, PARTS, "example.com").await.unwrap().unwrap();
        assert_eq!(&*found.list_kind, "PartCollection");
        let fields = |version: &str| found.fields.get(version).map(|all| all.to_vec());
        let color = FieldPath::parse("spec.color").unwrap();
        assert_eq!(fields("v1"), Some(vec![("spec.color".into(), color)]));
        assert_eq!((fields("v2"), fields("v0")), (Some(Vec::new()), None));
        let size = CustomResourceColumnDefinition {
            name: "Size".to_owned(),
            type_: "integer".to_owned(),
            json_path: ".spec.size".to_owned(),
            ..CustomResourceColumnDefinition::default()
        };
        let columns = |version: &str| found.columns[version].to_vec();
        assert_eq!(columns("v1"), Column::age().into_iter().collect::<Vec<_>>());
        assert_eq!(columns("v2"), Column::new(&size).into_iter().collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_has_no_definition_is_none_and_what_may_not_be_seen_a_fault() {
        assert_eq!(found(404, "{}", "example.com").await, Ok(None));
        let forbidden = found(403, "{}", "example.com").await.unwrap_err();
        assert_eq!(forbidden.reason(), Reason::Forbidden);
        let other = r#"{"spec": {"group": "other.com", "names": {"plural": "parts"}}}"#;
        assert_eq!(found(200, other, "example.com").await, Ok(None), "of another group");
    }
}
