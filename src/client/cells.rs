//! Cells as a replica shows them on its admin address, `/debug/cells`.

use super::Error;
use crate::{
    cli::TrustArgs,
    cluster::{Trust, get, operator_client},
    model::{Identity, Target, TargetScope, ValidatedProfile},
};
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;

/// A replica's admin address.
#[derive(Clone)]
pub(super) struct Replica {
    client: Client,
    url: String,
}

/// A cell. What is not read here is left out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Cell {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
    pub(super) scope: String,
    pub(super) namespace: Option<String>,
    pub(super) label_selector: String,
    pub(super) field_selector: String,
    pub(super) projection: String,
    /// `namespace/name`; `None` is the operator.
    pub(super) service_account: Option<String>,
    pub(super) state: String,
    pub(super) since: Option<Timestamp>,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    pub(super) last_error: Option<LastError>,
    pub(super) next_retry: Option<Timestamp>,
    pub(super) synced_time: Option<Timestamp>,
    pub(super) listed: u64,
    pub(super) expected: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LastError {
    pub(super) reason: String,
    pub(super) verb: String,
    pub(super) message: String,
    pub(super) since: Option<Timestamp>,
    pub(super) attempts: u32,
}

#[derive(Deserialize)]
struct Cells {
    cells: Vec<Cell>,
}

impl Replica {
    /// Of `--operator`; asks nothing yet.
    pub(super) async fn of(url: &str, trust: &TrustArgs) -> Result<Self, Error> {
        Ok(Self { client: operator_client(url, &trusted(trust)).await?, url: url.to_owned() })
    }

    /// Every cell.
    pub(super) async fn cells(&self) -> Result<Vec<Cell>, Error> {
        let answer =
            get(&self.client, "/debug/cells").await.map_err(|fault| self.failed(&fault))?;
        answer.json::<Cells>().map(|found| found.cells).map_err(|fault| self.failed(&fault))
    }

    fn failed(&self, fault: &crate::model::Fault) -> Error {
        Error::Replica {
            url: self.url.clone(),
            message: super::text::escape(fault.message()).into_owned(),
        }
    }
}

/// How the certificate of an admin address is verified.
pub(super) fn trusted(args: &TrustArgs) -> Trust {
    let TrustArgs { operator_ca_file, operator_server_name } = args.clone();
    Trust { ca_file: operator_ca_file, server_name: operator_server_name }
}

/// Those of `cells` that a target declares. `selected` are the namespaces that its selector is known to
/// find.
pub(super) fn of_target<'c>(
    cells: &'c [Cell],
    profile: &ValidatedProfile,
    target: &Target,
    selected: &[String],
) -> Vec<&'c Cell> {
    let reader = match profile.identity() {
        Identity::Operator => None,
        Identity::ServiceAccount { namespace, name } => Some(format!("{namespace}/{name}")),
    };
    let (labels, fields) = (target.labels.to_string(), target.fields.to_string());
    let is_there = |cell: &Cell| match (&target.scope, cell.namespace.as_deref()) {
        (TargetScope::OwnNamespace, Some(namespace)) => *namespace == *profile.profile.namespace,
        (TargetScope::Namespaces(names), Some(namespace)) => {
            names.iter().any(|name| **name == *namespace)
        }
        (TargetScope::NamespaceSelector(_), Some(namespace)) => {
            selected.iter().any(|name| *name == namespace)
        }
        (TargetScope::AllNamespaces, None) => cell.scope == "AllNamespaces",
        (TargetScope::Cluster, None) => cell.scope == "Cluster",
        (_, Some(_) | None) => false,
    };
    let is_same = |cell: &&Cell| {
        cell.group == target.of.group()
            && cell.resource == target.of.resource()
            && target.version.as_deref().is_none_or(|version| *version == *cell.version)
            && cell.label_selector == labels
            && cell.field_selector == fields
            && cell.service_account == reader
            // The tables of profiles themselves are the controller's.
            && cell.projection != "Profile"
            && is_there(cell)
    };
    cells.iter().filter(is_same).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::CacheProfile;
    use serde_json::json;

    fn parsed(spec: &serde_json::Value) -> ValidatedProfile {
        let profile: CacheProfile = serde_json::from_value(json!({
            "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile",
            "metadata": {"namespace": "shop", "name": "checkout"}, "spec": spec,
        }))
        .unwrap();
        ValidatedProfile::parse(&profile).unwrap()
    }

    fn cell(namespace: Option<&str>, labels: &str, account: Option<&str>) -> Cell {
        Cell {
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
            scope: if namespace.is_some() { "Namespace" } else { "AllNamespaces" }.to_owned(),
            namespace: namespace.map(str::to_owned),
            label_selector: labels.to_owned(),
            service_account: account.map(str::to_owned),
            ..Cell::default()
        }
    }

    #[test]
    fn the_cells_of_a_target_are_those_of_its_kind_place_selectors_and_reader() {
        let cells = [
            cell(Some("shop"), "", None),
            cell(Some("orders"), "", None),
            cell(Some("shop"), "app", None),
            cell(Some("shop"), "", Some("shop/reader")),
            cell(None, "", None),
        ];
        let found = |spec: &serde_json::Value, selected: &[String]| -> Vec<usize> {
            let profile = parsed(spec);
            let of = of_target(&cells, &profile, &profile.targets[0], selected);
            let at = |cell: &&Cell| cells.iter().position(|one| one == *cell).unwrap();
            of.iter().map(at).collect()
        };
        let pods = json!({"resource": "pods"});
        let target = |scope: serde_json::Value| json!({"targets": [{"name": "pods", "resource": pods, "scope": scope}]});
        assert_eq!(found(&target(json!({"type": "OwnNamespace"})), &[]), [0]);
        let two = json!({"type": "Namespaces", "namespaces": ["shop", "orders"]});
        assert_eq!(found(&target(two), &[]), [0, 1]);
        assert_eq!(found(&target(json!({"type": "AllNamespaces"})), &[]), [4]);
        let selector = json!({"type": "NamespaceSelector", "namespaceSelector": {}});
        assert_eq!(found(&target(selector.clone()), &[]), Vec::<usize>::new());
        assert_eq!(found(&target(selector), &["orders".to_owned()]), [1]);
        let labels = json!({"targets": [{"name": "pods", "resource": pods,
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}]});
        assert_eq!(found(&labels, &[]), [2]);
        let account = json!({"serviceAccountName": "reader",
            "targets": [{"name": "pods", "resource": pods}]});
        assert_eq!(found(&account, &[]), [3]);
    }
}
