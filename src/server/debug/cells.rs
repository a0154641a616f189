//! `/debug/cells`: every cell as JSON, piece by piece, so that thousands need no large buffer.

use crate::metrics::CellSnapshot;
use bytes::Bytes;
use kubewarm_api::model::{Extent, Identity, ManagedFields, Projection, SensitiveData};
use kubewarm_cache::informer::CellReport;
use serde::Serialize;

/// Cells written at a time; one takes about 1 KiB.
const CELLS_A_PIECE: usize = 32;

/// `{"cells":[…]}` in pieces of some 32 KiB.
pub(super) fn pieces(cells: Vec<CellSnapshot>) -> impl Iterator<Item = Bytes> {
    let mut rest = cells.into_iter();
    // What stands before the next cell; the brackets are written with the first and the last.
    let mut before = "{\"cells\":[\n";
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let mut piece = Vec::new();
        for cell in rest.by_ref().take(CELLS_A_PIECE) {
            piece.extend_from_slice(before.as_bytes());
            before = ",\n";
            // A view has only strings, numbers and lists of them: it always serializes.
            if serde_json::to_writer(&mut piece, &View::of(&cell)).is_err() {
                piece.extend_from_slice(b"null");
            }
        }
        if rest.len() == 0 {
            ended = true;
            if before != ",\n" {
                piece.extend_from_slice(before.as_bytes());
            }
            piece.extend_from_slice(b"\n]}\n");
        }
        Some(piece.into())
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    scope: &'static str,
    namespace: Option<&'a str>,
    label_selector: String,
    field_selector: String,
    projection: &'static str,
    managed_fields: ManagedFields,
    sensitive_data: SensitiveData,
    service_account: Option<String>,
    declared_in: Option<&'a str>,
    objects: u64,
    bytes: u64,
    #[serde(flatten)]
    report: &'a CellReport,
}

impl<'a> View<'a> {
    fn of(cell: &'a CellSnapshot) -> Self {
        let CellSnapshot { key, report, objects, bytes, undecodable: _ } = cell;
        Self {
            group: key.resource.group(),
            version: key.resource.version(),
            resource: key.resource.resource(),
            scope: scope(&key.extent),
            namespace: key.extent.namespace(),
            label_selector: key.labels.to_string(),
            field_selector: key.fields.to_string(),
            projection: match key.projection {
                Projection::Full(_) => "Full",
                Projection::MetadataOnly(_) => "MetadataOnly",
                Projection::Profile => "Profile",
            },
            managed_fields: key.projection.managed_fields(),
            sensitive_data: key.sensitive_data,
            service_account: match &key.identity {
                Identity::Operator => None,
                Identity::ServiceAccount { namespace, name } => Some(format!("{namespace}/{name}")),
            },
            declared_in: key.declared_in.as_deref(),
            objects: *objects,
            bytes: *bytes,
            report,
        }
    }
}

const fn scope(extent: &Extent) -> &'static str {
    match extent {
        Extent::Namespace(_) => "Namespace",
        Extent::AllNamespaces => "AllNamespaces",
        Extent::Cluster => "Cluster",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::sample::{at, failing, key, snapshot, synced};
    use kubewarm_api::model::{CellKey, Reason};
    use kubewarm_cache::informer::Undecodable;
    use std::sync::Arc;

    fn json(snapshots: Vec<CellSnapshot>) -> serde_json::Value {
        let pieces: Vec<u8> = pieces(snapshots).flat_map(|piece| piece.to_vec()).collect();
        serde_json::from_slice(&pieces).unwrap()
    }

    #[test]
    fn any_number_of_cells_is_one_json_document() {
        for count in [0, 1, CELLS_A_PIECE, CELLS_A_PIECE + 1, 3 * CELLS_A_PIECE] {
            let many = (0..count).map(|_| snapshot(key("pods", "a"), synced())).collect();
            assert_eq!(json(many)["cells"].as_array().unwrap().len(), count);
        }
    }

    #[test]
    fn a_cell_says_what_it_is_and_why_it_fails() {
        let undecodable =
            Undecodable { object: "a/bad".into(), problem: "no uid".into(), at: at(950) };
        let report =
            CellReport { undecodable: Arc::from([undecodable]), ..failing(Reason::Forbidden, 940) };
        let identity = Identity::ServiceAccount { namespace: "a".into(), name: "reader".into() };
        let key = CellKey { identity, declared_in: Some("shop".into()), ..key("pods", "a") };
        let cell = &json(vec![snapshot(key, report)])["cells"][0];
        let expected = serde_json::json!({
            "group": "", "version": "v1", "resource": "pods",
            "scope": "Namespace", "namespace": "a",
            "labelSelector": "", "fieldSelector": "",
            "projection": "Full", "managedFields": "Drop", "sensitiveData": "Deny",
            "serviceAccount": "a/reader", "declaredIn": "shop",
            "state": "Failing", "since": "1970-01-01T00:15:00Z",
            "resourceVersion": null, "objects": 3, "bytes": 4096,
            "lastError": {
                "reason": "Forbidden", "verb": "list", "message": "no \"list\" for you",
                "time": "1970-01-01T00:16:39Z", "since": "1970-01-01T00:15:40Z", "attempts": 3,
                "nextRetry": "1970-01-01T00:16:44Z",
            },
            "warmed": null, "syncedTime": null, "accessLostTime": null, "losses": 0, "lastEventTime": null, "lastBookmarkTime": null,
            "lastProgressTime": null, "listed": 0, "expected": null, "lastRelist": null,
            "undecodable": [
                { "object": "a/bad", "problem": "no uid", "time": "1970-01-01T00:15:50Z" },
            ],
            "listLatencySeconds": null, "eventLatencySeconds": null, "readLatencySeconds": null,
        });
        assert_eq!(*cell, expected);
    }
}
