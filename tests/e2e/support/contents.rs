//! Compares the contents of stores with the contents of the API server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use kube::Client;
use kubewarm_api::model::{ObjectKey, ResourceVersion};
use kubewarm_cache::informer::InformerHandles;
use kubewarm_cache::store::StoreReader;
use kubewarm_wire::JsonBuffer;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::world::Failure;
use crate::writers::send;

/// The number of objects that a reader copies from a store at a time.
const PAGE: usize = 50;

/// Reads the stores page by page until `stop`, and reports an object or a store that went back to
/// an older version.
pub(crate) async fn look(tables: Vec<StoreReader>, stop: CancellationToken) -> Result<u64, String> {
    let mut seen: Vec<(Option<ResourceVersion>, HashMap<ObjectKey, ResourceVersion>)> =
        vec![Default::default(); tables.len()];
    let mut looks = 0;
    while !stop.is_cancelled() {
        for (table, (newest, objects)) in tables.iter().zip(&mut seen) {
            let mut after = None;
            loop {
                // Reads the version before the objects. So no object may be older than this
                // version.
                let version = table.version();
                if went_back(newest.as_ref(), version.as_ref()) {
                    return Err(format!("the store, from {newest:?} to {version:?}"));
                }
                *newest = version;
                let rows = table.versions(after.as_ref(), PAGE);
                for object in rows.iter().filter_map(|(key, _)| table.get(key)) {
                    let last = objects.get(&object.key);
                    if went_back(last, object.version.as_ref()) {
                        return Err(format!("{:?}: {last:?} to {:?}", object.key, object.version));
                    }
                    if let Some(version) = object.version {
                        objects.insert(object.key, version);
                    }
                }
                after = rows.last().map(|(key, _)| key.clone());
                if after.is_none() {
                    break;
                }
            }
            looks += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(looks)
}

fn went_back(last: Option<&ResourceVersion>, now: Option<&ResourceVersion>) -> bool {
    match (last, now) {
        (Some(last), Some(now)) => now.is_older_than(last),
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// The UID, the version and the stored part of the body of each object, by `namespace/name`.
pub(crate) type Contents = BTreeMap<String, (String, String, Value)>;

fn contents(mut body: Value) -> Option<(String, (String, String, Value))> {
    let object = body.as_object_mut()?;
    object.remove("apiVersion");
    object.remove("kind");
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields");
    let text = |name: &str| Some(metadata.get(name)?.as_str()?.to_owned());
    let key = format!("{}/{}", text("namespace")?, text("name")?);
    Some((key, (text("uid")?, text("resourceVersion")?, body.clone())))
}

/// The contents of a store.
pub(crate) fn read_store(table: &StoreReader) -> Result<Contents, Failure> {
    let mut all = Contents::new();
    for object in table.versions(None, usize::MAX).iter().filter_map(|(key, _)| table.get(key)) {
        let mut buffer = JsonBuffer::default();
        let json = object.body().to_json(&mut buffer).ok_or("not an object")?;
        let (key, entry) =
            contents(serde_json::from_slice(json)?).ok_or("an object without a name")?;
        assert!(key.ends_with(&format!("/{}", object.key.name)), "the key differs from the body");
        assert_eq!(object.uid.to_string(), entry.0, "the UID differs from the body");
        assert_eq!(object.version.map(|version| version.to_string()).as_ref(), Some(&entry.1));
        all.insert(key, entry);
    }
    Ok(all)
}

/// The contents of the collection at `path` on the API server.
pub(crate) async fn listed(client: &Client, path: &str) -> Result<Contents, Failure> {
    let list = send(client, "GET", path, None).await?;
    let items = list["items"].as_array().ok_or("no items")?;
    Ok(items.iter().cloned().filter_map(contents).collect())
}

/// Describes the first difference.
pub(crate) fn difference(expected: &Contents, actual: &Contents) -> String {
    let names: BTreeSet<_> = expected.keys().chain(actual.keys()).collect();
    let differs = names.into_iter().find(|name| expected.get(*name) != actual.get(*name));
    let Some(name) = differs else { return String::new() };
    format!("{name} is {:#?}, held as {:#?}", expected.get(name), actual.get(name))
}

/// The states of all informers.
pub(crate) fn states(reports: &InformerHandles) -> String {
    let all = reports.list_reports().into_iter();
    let all = all.map(|(key, report)| format!("{key} is {:?}: {:?}", report.phase, report.fault));
    all.collect::<Vec<_>>().join("; ")
}
