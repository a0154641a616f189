//! Handles `/debug/informers`, which returns all informers as JSON. The response has chunks, so
//! that thousands of informers need no large buffer.

use bytes::Bytes;
use kubewarm_api::model::{Identity, InformerKey, ManagedFieldsPolicy, SecretDataPolicy};
use kubewarm_cache::informer::InformerReport;
use serde::Serialize;
use std::iter::once;

/// Number of informers per chunk. The JSON of an informer has about 1 KiB.
const INFORMERS_PER_CHUNK: usize = 32;

/// Returns `{"informers":[…]}` in chunks of about 32 KiB.
pub(super) fn pieces(informers: Vec<(InformerKey, InformerReport)>) -> impl Iterator<Item = Bytes> {
    let begin = Bytes::from_static(b"{\"informers\":[\n");
    let end = Bytes::from_static(b"\n]}\n");
    let pieces = (0..informers.len()).step_by(INFORMERS_PER_CHUNK).map(move |from| {
        let mut piece = Vec::new();
        for (at, (key, report)) in informers.iter().enumerate().skip(from).take(INFORMERS_PER_CHUNK)
        {
            if at > 0 {
                piece.extend_from_slice(b",\n");
            }
            // `DebugInformer` contains only strings, numbers and lists, so its serialization cannot
            // fail.
            if serde_json::to_writer(&mut piece, &DebugInformer::of(key, report)).is_err() {
                piece.extend_from_slice(b"null");
            }
        }
        piece.into()
    });
    once(begin).chain(pieces).chain(once(end))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DebugInformer<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    scope: &'a str,
    namespace: Option<&'a str>,
    label_selector: String,
    field_selector: String,
    projection: &'a str,
    managed_fields: ManagedFieldsPolicy,
    secret_data: SecretDataPolicy,
    service_account: Option<String>,
    declared_in: Option<&'a str>,
    #[serde(flatten)]
    report: &'a InformerReport,
}

impl<'a> DebugInformer<'a> {
    fn of(key: &'a InformerKey, report: &'a InformerReport) -> Self {
        Self {
            group: key.resource.group(),
            version: key.resource.version(),
            resource: key.resource.resource(),
            scope: key.scope.as_ref(),
            namespace: key.scope.namespace(),
            label_selector: key.labels.to_string(),
            field_selector: key.fields.to_string(),
            projection: key.projection.as_ref(),
            managed_fields: key.projection.managed_fields(),
            secret_data: key.secret_data,
            service_account: match &key.identity {
                Identity::Operator => None,
                Identity::ServiceAccount { namespace, name } => Some(format!("{namespace}/{name}")),
            },
            declared_in: key.declared_in.as_deref(),
            report,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fixtures::{at, failing, key, snapshot, synced};
    use kubewarm_api::model::FaultReason;
    use kubewarm_cache::informer::UndecodableObject;
    use std::sync::Arc;

    fn json(informers: Vec<(InformerKey, InformerReport)>) -> serde_json::Value {
        let pieces: Vec<u8> = pieces(informers).flat_map(|piece| piece.to_vec()).collect();
        serde_json::from_slice(&pieces).unwrap()
    }

    #[test]
    fn any_number_of_informers_is_one_json_document() {
        for count in [0, 1, INFORMERS_PER_CHUNK, INFORMERS_PER_CHUNK + 1, 3 * INFORMERS_PER_CHUNK] {
            let many = (0..count).map(|_| snapshot(key("pods", "a"), synced())).collect();
            assert_eq!(json(many)["informers"].as_array().unwrap().len(), count);
        }
    }

    #[test]
    fn an_informer_is_shown_with_its_key_and_its_fault() {
        let undecodable =
            UndecodableObject { object: "a/bad".into(), problem: "no uid".into(), at: at(950) };
        let report = InformerReport {
            undecodable: Arc::from([undecodable]),
            ..failing(FaultReason::Forbidden, 940)
        };
        let identity = Identity::ServiceAccount { namespace: "a".into(), name: "reader".into() };
        let key = InformerKey { identity, declared_in: Some("shop".into()), ..key("pods", "a") };
        let informer = &json(vec![snapshot(key, report)])["informers"][0];
        let expected = serde_json::json!({
            "group": "", "version": "v1", "resource": "pods",
            "scope": "Namespace", "namespace": "a",
            "labelSelector": "", "fieldSelector": "",
            "projection": "Full", "managedFields": "Drop", "secretData": "Deny",
            "serviceAccount": "a/reader", "declaredIn": "shop",
            "state": "Failing", "since": "1970-01-01T00:15:00Z",
            "resourceVersion": null, "objects": 3, "bytes": 4096,
            "lastError": {
                "reason": "Forbidden", "verb": "list", "message": "no \"list\" for you",
                "time": "1970-01-01T00:16:39Z", "since": "1970-01-01T00:15:40Z", "attempts": 3,
                "nextRetry": "1970-01-01T00:16:44Z",
            },
            "warmed": null, "syncedTime": null, "accessLostTime": null, "losses": 0, "lastEventTime": null, "lacksBookmarks": false, "lastBookmarkTime": null,
            "lastProgressTime": null, "listed": 0, "expected": null, "lastRelist": null,
            "undecodable": [
                { "object": "a/bad", "problem": "no uid", "time": "1970-01-01T00:15:50Z" },
            ],
            "listLatencySeconds": null, "eventLatencySeconds": null, "readLatencySeconds": null,
        });
        assert_eq!(*informer, expected);
    }
}
