//! OpenAPI v3 as the API server has it: its index, restricted to what is served.

use super::{
    DocumentResource, Sent,
    discovery::{JSON, sent},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All documents stand below it; a URL that leads elsewhere is not asked for.
const ROOT: &str = "/openapi/v3/";

/// The form of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchemaForm {
    /// What `kubectl explain` reads.
    #[default]
    Json,
    /// What clients that validate read.
    Protobuf,
}

/// The API server's own `/openapi/v3`: which documents there are, each of one version of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SchemaIndex {
    /// By paths without the slash before them, such as `apis/apps/v1`.
    paths: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Entry {
    /// With a hash of the document, so that it changes with it.
    #[serde(rename = "serverRelativeURL")]
    url: String,
}

/// The index as it is sent.
#[derive(Serialize)]
struct Index<'a> {
    paths: BTreeMap<&'a str, &'a Entry>,
}

impl SchemaForm {
    /// What the API server is asked for.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Protobuf => "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        }
    }
}

impl SchemaIndex {
    /// Reads what the API server answers; `None` where that is no index.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// `/openapi/v3`: of the versions that any of these is in.
    #[must_use]
    pub fn document(&self, resources: &[DocumentResource]) -> Sent {
        let served = resources.iter().filter_map(|it| {
            let (path, entry) = self.paths.get_key_value(&path(&it.group, &it.version))?;
            Some((path.as_str(), entry))
        });
        sent(JSON, &Index { paths: served.collect() })
    }

    /// Where the API server has the document of a version; `None` where it has none.
    #[must_use]
    pub fn url(&self, group: &str, version: &str) -> Option<&str> {
        let entry = self.paths.get(&path(group, version))?;
        Some(entry.url.as_str()).filter(|url| url.starts_with(ROOT))
    }
}

/// What the API server calls a document by, in the URL that it has it at; `None` where it does not.
#[must_use]
pub fn schema_hash(url: &str) -> Option<&str> {
    url.split_once("?hash=").map(|(_, hash)| hash)
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = r#"{"paths":{".well-known/openid-configuration":{"serverRelativeURL":"/openapi/v3/.well-known/openid-configuration?hash=0"},"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=A"},"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=B"},"apis/odd.example/v1":{"serverRelativeURL":"/logs"}}}"#;

    fn kind(group: &str, version: &str) -> DocumentResource {
        DocumentResource { group: group.into(), version: version.into(), ..Default::default() }
    }

    #[test]
    fn the_index_names_what_is_served_and_no_more() {
        let index = SchemaIndex::parse(INDEX.as_bytes()).unwrap();
        let pods_and_services = [kind("", "v1"), kind("", "v1"), kind("none.example", "v1")];
        let sent = index.document(&pods_and_services);
        assert_eq!(
            String::from_utf8(sent.body).unwrap(),
            "{\"paths\":{\"api/v1\":{\"serverRelativeURL\":\"/openapi/v3/api/v1?hash=A\"}}}\n"
        );
        assert_ne!(sent.etag, index.document(&[kind("apps", "v1")]).etag);
        assert_eq!(index.document(&[]).body, b"{\"paths\":{}}\n");
    }

    #[test]
    fn documents_are_asked_for_where_the_index_has_them_and_nowhere_else() {
        let index = SchemaIndex::parse(INDEX.as_bytes()).unwrap();
        assert_eq!(index.url("", "v1"), Some("/openapi/v3/api/v1?hash=A"));
        assert_eq!(index.url("apps", "v1"), Some("/openapi/v3/apis/apps/v1?hash=B"));
        assert_eq!(index.url("", "v1").and_then(schema_hash), Some("A"));
        assert_eq!(schema_hash("/openapi/v3/api/v1"), None);
        assert_eq!(index.url("apps", "v2"), None);
        assert_eq!(index.url("odd.example", "v1"), None, "that is no document");
        assert_eq!(SchemaIndex::parse(b"{}"), None);
        assert_eq!(SchemaIndex::parse(b"404 page not found"), None);
    }
}
