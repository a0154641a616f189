//! The collections (a kind in one namespace) that writers write and readers read.

use serde_json::{Value, json};

use crate::observation::CollectionIndex;

/// A kind in one namespace.
pub(crate) struct Collection {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    pub(crate) namespace: &'static str,
    /// The prefix of the objects' keys in etcd, by which the recorder finds changes of this
    /// collection.
    prefix: &'static str,
}

/// All collections. Readers read them with `reads.consistency: Bounded`, except [`STRICT`].
pub(crate) const COLLECTIONS: [Collection; 3] = [
    Collection {
        api_version: "v1",
        kind: "ConfigMap",
        plural: "configmaps",
        namespace: "oracle",
        prefix: "/registry/configmaps/",
    },
    Collection {
        api_version: "example.com/v1",
        kind: "Part",
        plural: "parts",
        namespace: "oracle",
        prefix: "/registry/example.com/parts/",
    },
    Collection {
        api_version: "v1",
        kind: "ConfigMap",
        plural: "configmaps",
        namespace: "strict",
        prefix: "/registry/configmaps/",
    },
];

/// The collection whose profile has `reads.consistency: Strict`.
pub(crate) const STRICT: CollectionIndex = 2;

impl Collection {
    /// The path of the collection.
    pub(crate) fn path(&self) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{}/namespaces/{}/{}", self.api_version, self.namespace, self.plural)
    }

    /// An object with this content.
    pub(crate) fn object(&self, name: &str, content: &str) -> Value {
        json!({
            "apiVersion": self.api_version, "kind": self.kind,
            "metadata": {"name": name, "annotations": {"content": content}},
            "data": {"content": content},
        })
    }
}

/// The collection and the name of the object with this key in etcd.
pub(crate) fn collection_of_key(key: &str) -> Option<(CollectionIndex, &str)> {
    COLLECTIONS.iter().enumerate().find_map(|(index, collection)| {
        let rest = key.strip_prefix(collection.prefix)?;
        let name = rest.strip_prefix(collection.namespace)?.strip_prefix('/')?;
        Some((index, name))
    })
}
