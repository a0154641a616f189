//! Compares the objects in kubewarm's stores with the API server's objects, by UID and resource
//! version.

use crate::commands::report::{ReportRow, TextTone};
use kubewarm_api::model::{FaultReason, RequestFault, ResourceVersion};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt};

/// Namespace and name. The namespace of a cluster-scoped object is empty.
type NamespacedName = (String, String);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseObjects {
    /// Resource version of the list or of the single object.
    pub(super) version: String,
    objects: BTreeMap<NamespacedName, ObjectVersion>,
}

/// UID and resource version of an object. If both are equal, two objects with the same name are the
/// same version of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ObjectVersion {
    uid: String,
    version: ResourceVersion,
}

/// Body of a response: a list with `items`, or a single object.
#[derive(Debug, Deserialize)]
pub(super) struct ObjectOrList {
    #[serde(default)]
    metadata: ItemMetadata,
    items: Option<Vec<Self>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ItemMetadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

/// An object that differs between kubewarm's store (`ours`) and the API server (`theirs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectDifference {
    key: NamespacedName,
    ours: Option<ObjectVersion>,
    theirs: Option<ObjectVersion>,
}

impl ResponseObjects {
    /// Returns the objects of a response by namespace and name.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Malformed`] for an object without a resource version.
    pub(super) fn new(
        ObjectOrList { metadata, items }: ObjectOrList,
    ) -> Result<Self, RequestFault> {
        let version = metadata.resource_version.clone();
        let items = items.unwrap_or_else(|| vec![ObjectOrList { metadata, items: None }]);
        let mut objects = BTreeMap::new();
        for ObjectOrList { metadata, .. } in items {
            let malformed =
                || RequestFault::new(FaultReason::Malformed, "an object has no resourceVersion");
            let version =
                ResourceVersion::parse(&metadata.resource_version).ok_or_else(malformed)?;
            let key = (metadata.namespace, metadata.name);
            objects.insert(key, ObjectVersion { uid: metadata.uid, version });
        }
        Ok(Self { version, objects })
    }

    pub(super) fn count(&self) -> usize {
        self.objects.len()
    }

    /// Returns the objects that differ from `theirs`, sorted by namespace and name.
    pub(super) fn differences(&self, theirs: &Self) -> Vec<ObjectDifference> {
        let mut keys: Vec<_> = self.objects.keys().chain(theirs.objects.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let difference = |key: &NamespacedName| {
            let (ours, theirs) = (self.objects.get(key), theirs.objects.get(key));
            (ours != theirs).then(|| ObjectDifference {
                key: key.clone(),
                ours: ours.cloned(),
                theirs: theirs.cloned(),
            })
        };
        keys.into_iter().filter_map(difference).collect()
    }
}

impl ObjectDifference {
    /// Whether the object still differs after a second read of kubewarm's store (`ours`) and then
    /// of the API server (`theirs`). The difference has ended if `ours` contains the version that
    /// the API server had at the first read.
    pub(super) fn is_still(&self, ours: &ResponseObjects, theirs: &ResponseObjects) -> bool {
        let (ours, theirs) = (ours.objects.get(&self.key), theirs.objects.get(&self.key));
        match (ours, theirs) {
            (None, None) => false,
            // Only kubewarm's store still contains the object. The difference lasts if the API
            // server did not have the object at the first read either. Otherwise the object was
            // deleted after the second read of the store.
            (Some(ours), None) => {
                self.ours.as_ref().is_some_and(|then| then.uid == ours.uid) && self.theirs.is_none()
            }
            (None, Some(theirs)) => {
                self.theirs.as_ref().is_some_and(|then| then.uid == theirs.uid)
                    && self.ours.is_none()
            }
            (Some(ours), Some(theirs)) => {
                let is_behind =
                    self.theirs.as_ref().is_some_and(|then| ours.version < then.version);
                ours.version > theirs.version || (ours != theirs && is_behind)
            }
        }
    }

    pub(super) fn row(&self) -> ReportRow {
        let (namespace, name) = &self.key;
        let title = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        let (word, text) = match (&self.ours, &self.theirs) {
            (None, None) => ("nowhere", title),
            (None, Some(theirs)) => ("missing", format!("{title}  {theirs}")),
            (Some(ours), None) => ("extra", format!("{title}  {ours}")),
            (Some(ours), Some(theirs)) => {
                let word = match () {
                    () if ours.uid != theirs.uid => "another",
                    () if ours.version < theirs.version => "older",
                    () => "newer",
                };
                (word, format!("{title}  {ours}, at the API server {theirs}"))
            }
        };
        ReportRow::labelled(word, TextTone::Plain, text)
    }
}

impl fmt::Display for ObjectVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {} version {}", self.uid, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(objects: &[(&str, &str, u64)]) -> ResponseObjects {
        let item = |(name, uid, version): &(&str, &str, u64)| {
            format!(
                r#"{{"metadata": {{"namespace": "a", "name": "{name}", "uid": "{uid}", "resourceVersion": "{version}"}}}}"#
            )
        };
        let items: Vec<_> = objects.iter().map(item).collect();
        let text = format!(
            r#"{{"metadata": {{"resourceVersion": "9"}}, "items": [{}]}}"#,
            items.join(",")
        );
        ResponseObjects::new(serde_json::from_str(&text).unwrap()).unwrap()
    }

    #[test]
    fn each_difference_has_a_label() {
        let ours = rows(&[("same", "1", 1), ("old", "2", 2), ("extra", "3", 3), ("again", "4", 4)]);
        let theirs =
            rows(&[("same", "1", 1), ("old", "2", 5), ("lost", "6", 6), ("again", "7", 7)]);
        let lines: Vec<_> =
            ours.differences(&theirs).iter().map(|difference| difference.row().text()).collect();
        assert_eq!(
            lines,
            [
                "another  a/again  uid 4 version 4, at the API server uid 7 version 7",
                "extra  a/extra  uid 3 version 3",
                "missing  a/lost  uid 6 version 6",
                "older  a/old  uid 2 version 2, at the API server uid 2 version 5",
            ]
        );
        assert_eq!(ours.differences(&ours), []);
    }

    #[test]
    fn a_difference_ends_when_the_cache_catches_up() {
        let still = |before: [&[(&str, &str, u64)]; 2], after: [&[(&str, &str, u64)]; 2]| {
            let [ours, theirs] = before.map(rows);
            let differences = ours.differences(&theirs);
            assert_eq!(differences.len(), 1);
            let [ours, theirs] = after.map(rows);
            differences[0].is_still(&ours, &theirs)
        };
        let (old, new, newest) = (&[("a", "1", 1)], &[("a", "1", 2)], &[("a", "1", 3)]);
        // kubewarm's store has the version of the first read of the API server, and the API server
        // has a newer version.
        assert!(!still([old, new], [new, newest]));
        assert!(still([old, new], [old, newest]));
        assert!(still([old, new], [newest, new]), "the cache is newer than the API server");
        assert!(!still([new, old], [new, new]), "written after the read of the API server");
        assert!(!still([&[], new], [&[], &[]]), "deleted between the comparisons");
        assert!(still([&[], new], [&[], newest]));
        assert!(!still([&[], new], [newest, newest]));
        assert!(still([old, &[]], [old, &[]]));
        assert!(!still([old, &[]], [&[], &[]]));
        // `other` is another object with the same name: it has another UID.
        let other = &[("a", "2", 5)];
        assert!(still([old, other], [old, other]));
        assert!(!still([old, other], [other, other]));
    }

    #[test]
    fn an_object_is_one_row_and_needs_a_version() {
        let pod =
            r#"{"kind": "Pod", "metadata": {"name": "x", "uid": "u", "resourceVersion": "7"}}"#;
        let objects = ResponseObjects::new(serde_json::from_str(pod).unwrap()).unwrap();
        assert_eq!((objects.count(), &*objects.version), (1, "7"));
        let bad = pod.replace('7', "");
        assert!(ResponseObjects::new(serde_json::from_str(&bad).unwrap()).is_err());
    }
}
