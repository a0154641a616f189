//! Reads the parts of a `CustomResourceDefinition` that the API server's discovery documents do not
//! contain.

use super::api_client::ApiClient;
use http::StatusCode;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinitionNames, SelectableField,
};
use kube::Client;
use kubewarm_api::model::{FieldPath, GroupResource, RequestFault};
use kubewarm_wire::tables::CustomColumn;
use serde::Deserialize;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Size limit of one `CustomResourceDefinition`. A definition with long schemas has about 2 MiB.
const MAX_BYTES: usize = 8 << 20;
const TIME: Duration = Duration::from_secs(5);
/// Maximum number of printer columns of all versions of a definition together, to limit memory: a
/// column takes 1.4 KiB, and etcd's limit on an object permits 25,000. Definitions usually have
/// fewer than 50.
const MAX_COLUMNS: usize = 1_000;

/// The fields of a custom resource that field selectors can use. Each entry contains the field's
/// name in a selector and its path in the object.
pub type SelectableFields = Arc<[(Arc<str>, FieldPath)]>;

/// The parts of a `CustomResourceDefinition` that kubewarm keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrdInfo {
    /// The `kind` of a list of the custom resources, such as `OrderList`.
    pub list_kind: Arc<str>,
    /// The selectable fields, by served version.
    pub fields: BTreeMap<Arc<str>, SelectableFields>,
    /// The printer columns, by served version. At most 1,000 for all versions together; kubewarm
    /// omits further columns.
    pub columns: BTreeMap<Arc<str>, Arc<[CustomColumn]>>,
}

/// The parts of a `CustomResourceDefinition` that kubewarm parses. kubewarm omits the schemas,
/// because their Rust types would need many times the document's bytes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RawCrd {
    spec: RawCrdSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawCrdSpec {
    group: String,
    names: CustomResourceDefinitionNames,
    versions: Vec<RawCrdVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawCrdVersion {
    name: String,
    served: bool,
    selectable_fields: Vec<SelectableField>,
    additional_printer_columns: Vec<CustomResourceColumnDefinition>,
}

/// Requests the `CustomResourceDefinition` of `resource`. The identity of `client` needs the
/// permission to `get` it.
///
/// Returns `None` if the API server has no such `CustomResourceDefinition`, for example for a
/// built-in resource or a resource of an aggregated API.
///
/// # Errors
///
/// [`RequestFault`] if the request fails.
///
/// # Cost
///
/// One request of at most 5 s.
pub async fn fetch_crd(
    client: &Client,
    resource: &GroupResource,
) -> Result<Option<CrdInfo>, RequestFault> {
    // `GroupResource` guarantees that group and resource are valid in a URL path.
    let name = format!("{}.{}", resource.resource(), resource.group());
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let request = ApiClient::new(client).get(path);
    let response = request.within(TIME).at_most(MAX_BYTES).send().await?;
    if response.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    Ok(kept(response.json()?, resource))
}

impl CrdInfo {
    /// Extracts the parts that kubewarm keeps from `applied`, a `CustomResourceDefinition`. Returns
    /// `None` if `applied` does not define `resource`.
    pub fn of(applied: serde_json::Value, resource: &GroupResource) -> Option<Self> {
        kept(serde_json::from_value(applied).ok()?, resource)
    }
}

fn kept(RawCrd { spec }: RawCrd, resource: &GroupResource) -> Option<CrdInfo> {
    if spec.group != resource.group() || spec.names.plural != resource.resource() {
        return None;
    }
    let given = spec.names.list_kind.filter(|given| !given.is_empty());
    let list_kind = given.unwrap_or_else(|| format!("{}List", spec.names.kind));
    let mut kept = CrdInfo { list_kind: list_kind.into(), ..CrdInfo::default() };
    let mut columns_left = MAX_COLUMNS;
    for version in spec.versions.into_iter().filter(|version| version.served) {
        let fields = version.selectable_fields.iter().filter_map(|field| {
            let label = field.json_path.strip_prefix('.')?;
            Some((label.into(), FieldPath::parse(label).ok()?))
        });
        let name: Arc<str> = version.name.into();
        kept.fields.insert(Arc::clone(&name), fields.collect());
        let columns = columns(&version.additional_printer_columns, columns_left);
        columns_left = columns_left.saturating_sub(columns.len());
        kept.columns.insert(name, columns);
    }
    Some(kept)
}

/// Parses the first `most` of the `additionalPrinterColumns` of a `CustomResourceDefinition`. Stops
/// at the first column that it cannot parse, as the API server does.
///
/// If the definition has no columns, returns the column `Age`, as the API server does.
fn columns(written: &[CustomResourceColumnDefinition], most: usize) -> Arc<[CustomColumn]> {
    if written.is_empty() {
        return CustomColumn::age().into_iter().collect();
    }
    written.iter().take(most).map_while(CustomColumn::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use kubewarm_api::model::FaultReason;
    use serde_json::{Value, json};
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
    ) -> Result<Option<CrdInfo>, RequestFault> {
        let service = service_fn(move |request: Request<Body>| async move {
            let path = request.uri().path();
            assert!(path.ends_with("/customresourcedefinitions/parts.example.com"), "{path}");
            let response =
                Response::builder().status(code).body(Body::from(body.as_bytes().to_vec()));
            Ok::<_, Infallible>(response.unwrap())
        });
        let resource = GroupResource::new(group, "parts").unwrap();
        fetch_crd(&Client::new(service, "default"), &resource).await
    }

    #[tokio::test]
    async fn a_definition_yields_the_list_kind_and_the_fields_and_columns_of_each_version() {
        let info = found(200, PARTS, "example.com").await.unwrap().unwrap();
        assert_eq!(&*info.list_kind, "PartCollection");
        let fields = |version: &str| info.fields.get(version).map(|all| all.to_vec());
        let color = FieldPath::parse("spec.color").unwrap();
        assert_eq!(fields("v1"), Some(vec![("spec.color".into(), color)]));
        assert_eq!((fields("v2"), fields("v0")), (Some(Vec::new()), None));
        let size = CustomResourceColumnDefinition {
            name: "Size".to_owned(),
            type_: "integer".to_owned(),
            json_path: ".spec.size".to_owned(),
            ..CustomResourceColumnDefinition::default()
        };
        let columns = |version: &str| info.columns[version].to_vec();
        assert_eq!(columns("v1"), CustomColumn::age().into_iter().collect::<Vec<_>>());
        assert_eq!(columns("v2"), CustomColumn::new(&size).into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn the_columns_of_all_versions_together_are_limited() {
        let version = |name: &str, count: usize| {
            let column = json!({"name": "a", "type": "string", "jsonPath": ".a"});
            let columns = vec![column; count];
            json!({"name": name, "served": true, "additionalPrinterColumns": columns})
        };
        let kept = |versions: [Value; 3]| {
            let names = json!({"kind": "Part", "plural": "parts"});
            let spec = json!({"group": "example.com", "names": names, "versions": versions});
            let resource = GroupResource::new("example.com", "parts").unwrap();
            let info = CrdInfo::of(json!({"spec": spec}), &resource).unwrap();
            ["v1", "v2", "v3"].map(|version| info.columns[version].len())
        };
        let usual = [version("v1", 20), version("v2", 0), version("v3", 30)];
        assert_eq!(kept(usual), [20, 1, 30]);
        // 25,000 columns are about as many as fit into the largest object that etcd permits.
        let most = [version("v1", 900), version("v2", 24_000), version("v3", 100)];
        assert_eq!(kept(most), [900, 100, 0]);
    }

    #[tokio::test]
    async fn a_missing_definition_is_none_and_a_forbidden_one_is_a_fault() {
        assert_eq!(found(404, "{}", "example.com").await, Ok(None));
        let forbidden = found(403, "{}", "example.com").await.unwrap_err();
        assert_eq!(forbidden.reason(), FaultReason::Forbidden);
        let other = r#"{"spec": {"group": "other.com", "names": {"plural": "parts"}}}"#;
        assert_eq!(
            found(200, other, "example.com").await,
            Ok(None),
            "the definition is for another group"
        );
    }
}
