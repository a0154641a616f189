//! Checks that the API server serves the same CRD as this version of the program contains.

use super::super::{advice::program, report::ReportRow};
use kube::Client;
use kubewarm_api::{
    manifests,
    v1alpha1::{GROUP, VERSION},
};
use kubewarm_client::get;
use serde_json::Value;

const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cacheprofiles.kubewarm.io";

/// Returns the report row of the CRD check, and whether the API server serves CacheProfiles. If it
/// does not, `check` skips all checks that read CacheProfiles.
pub(super) async fn served(client: &Client) -> Result<(ReportRow, bool), manifests::ManifestError> {
    let apply = format!("{} crd | kubectl apply --server-side -f -", program());
    let missing = || {
        let text = format!("the API server does not serve cacheprofiles.{GROUP}/{VERSION}");
        (ReportRow::bad(text).next(apply.clone()), false)
    };
    let ours: Value = serde_saphyr::from_str(&manifests::render_crd()?)
        .map_err(|error| manifests::ManifestError::Shipped(error.into()))?;
    let fault = match get(client, CRD).await {
        Ok(answer) if answer.status == 404 => return Ok(missing()),
        Ok(answer) => match answer.json::<Value>() {
            Ok(theirs) => return Ok((of_definition(&ours, &theirs, apply), true)),
            Err(fault) => fault,
        },
        Err(fault) => fault,
    };
    // Many users can read profiles but not CRDs. For them, discovery shows whether the API server
    // serves CacheProfiles.
    let served = get(client, &format!("/apis/{GROUP}/{VERSION}")).await;
    let what = match served {
        Ok(answer) if answer.status == 404 => return Ok(missing()),
        Ok(answer) if answer.status.is_success() => {
            format!(
                "whether the installed CRD cacheprofiles.{GROUP} matches this version of kubewarm"
            )
        }
        Ok(_) | Err(_) => format!("whether cacheprofiles.{GROUP} is served"),
    };
    Ok((ReportRow::unseen(&what, &fault), true))
}

/// Compares `ours`, the CRD in this program, with `theirs`, the CRD in the cluster. `apply` is the
/// command that replaces the CRD in the cluster.
fn of_definition(ours: &Value, theirs: &Value, apply: String) -> ReportRow {
    let conditions = theirs.pointer("/status/conditions").and_then(Value::as_array);
    let is_established =
        |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
    if !conditions.into_iter().flatten().any(is_established) {
        return ReportRow::bad(
            "CustomResourceDefinition cacheprofiles.kubewarm.io is not established",
        )
        .next("kubectl describe crd cacheprofiles.kubewarm.io");
    }
    let (ours, theirs) = (&ours["spec"]["versions"], &theirs["spec"]["versions"]);
    let version = |versions: &Value| -> Option<Value> {
        versions.as_array()?.iter().find(|version| version["name"] == VERSION).cloned()
    };
    let difference = match (version(ours), version(theirs)) {
        (Some(ours), Some(theirs)) => difference(&ours, &theirs),
        (Some(_), None) | (None, _) => Some(format!(" (it has no version {VERSION})")),
    };
    match difference {
        None => ReportRow::good(format!("cacheprofiles.{GROUP}/{VERSION} is served by the definition of this version")),
        Some(at) => ReportRow::bad(format!(
            "the CustomResourceDefinition does not match this version of kubewarm: it differs at{at}"
        ))
        .next(apply),
    }
}

/// Returns the path of the first difference between two CRDs, such as ` schema properties spec`. A
/// different order of list items is also a difference.
fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    let change = json_patch::diff(ours, theirs).0.into_iter().next()?;
    Some(change.path().to_string().replace('/', " "))
}

#[cfg(test)]
mod tests {
    use super::{super::super::report::RowMark, *};
    use serde_json::json;

    #[test]
    fn another_definition_fails_with_the_path_of_the_difference() {
        let definition = |type_: &str, established: &str| {
            json!({
                "spec": {"versions": [
                    {"name": "v1alpha0"},
                    {"name": VERSION, "schema": {"properties": {"spec": {"type": type_}}}},
                ]},
                "status": {"conditions": [{"type": "Established", "status": established}]},
            })
        };
        let ours = definition("object", "True");
        let row = |theirs: &Value| of_definition(&ours, theirs, "apply".to_owned());
        assert_eq!(row(&ours).mark, RowMark::Good);
        let other = row(&definition("string", "True"));
        assert_eq!(other.mark, RowMark::Bad);
        assert!(
            other.text().ends_with("it differs at schema properties spec type"),
            "{}",
            other.text()
        );
        assert_eq!(row(&definition("object", "False")).mark, RowMark::Bad);
        assert_eq!(row(&json!({"status": ours["status"]})).mark, RowMark::Bad);
    }
}
