//! The one place that builds upstream URLs of cells, and that refuses to build some.

use http::{Request, header};
use kubewarm_api::model::{
    CellKey, Extent, ManagedFields, Projection, ResourceVersion, Sensitivity, is_dns_label,
};
use std::{fmt::Write as _, time::Duration};

/// Names, UIDs and versions, with little beside them.
const NAMES: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;drop=metadata.managedFields";

/// The requests of one cell: path, selectors and representation, fixed when the cell is made.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    path: String,
    /// `labelSelector` and `fieldSelector`, percent-encoded, each with a leading `&`.
    selectors: String,
    accept_list: String,
    accept_watch: String,
    accept_one: String,
}

/// A key that no request is built for. The schema and the parser refuse these too; here is the last
/// place where they can be refused, after the resource has been resolved.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Guarded {
    /// The payload of secrets without `sensitiveData: Allow`.
    #[error("secrets are fetched as metadata only unless sensitiveData is Allow")]
    Secrets,
    /// A namespace whose name would change the path; it may have come from a server.
    #[error("{0:?} is not the name of a namespace")]
    Namespace(String),
}

/// Which part of a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// All of it in one response.
    Whole,
    /// The first `limit` objects.
    First {
        /// Objects a page.
        limit: u32,
    },
    /// The next `limit` objects.
    Next {
        /// Objects a page.
        limit: u32,
        /// `metadata.continue` of the page before.
        token: &'a str,
    },
}

impl Endpoint {
    /// # Errors
    ///
    /// [`Guarded`].
    pub(super) fn new(key: &CellKey) -> Result<Self, Guarded> {
        if key.is_guarded() {
            return Err(Guarded::Secrets);
        }
        let (root, plural) = (key.resource.api_path(), key.resource.resource());
        let path = match &key.extent {
            Extent::Namespace(name) if !is_dns_label(name) => {
                return Err(Guarded::Namespace(name.to_string()));
            }
            Extent::Namespace(name) => format!("{root}/namespaces/{name}/{plural}"),
            Extent::AllNamespaces | Extent::Cluster => format!("{root}/{plural}"),
        };
        let mut selectors = String::new();
        for (name, value) in
            [("labelSelector", key.labels.to_string()), ("fieldSelector", key.fields.to_string())]
        {
            if !value.is_empty() {
                let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
                let _infallible = write!(selectors, "&{name}={value}");
            }
        }
        let drop = match key.projection.managed_fields() {
            // Kubernetes 1.37 honours it, older servers ignore it.
            ManagedFields::Drop => ";drop=metadata.managedFields",
            ManagedFields::Keep => "",
        };
        let accept = |kind: &str| match key.projection {
            Projection::Full(_) | Projection::Profile => format!("application/json{drop}"),
            Projection::MetadataOnly(_) => {
                format!("application/json;as={kind};g=meta.k8s.io;v=v1{drop}")
            }
        };
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let accept_one = match (key.projection, key.sensitivity()) {
            (Projection::Full(_) | Projection::Profile, Sensitivity::Ordinary) => {
                format!("{metadata},application/json")
            }
            // Nobody is to hold what is secret, or what was not asked for.
            (Projection::MetadataOnly(_), _) | (_, Sensitivity::Secret) => metadata.to_owned(),
        };
        Ok(Self {
            path,
            selectors,
            accept_list: accept("PartialObjectMetadataList"),
            accept_watch: accept("PartialObjectMetadata"),
            accept_one,
        })
    }

    /// A list, whole or a page of it.
    ///
    /// It names no version: so the API server answers as of now, from its cache since 1.31.
    pub(super) fn list(&self, part: Part<'_>) -> Request<Vec<u8>> {
        let query = match part {
            Part::Whole => String::new(),
            Part::First { limit } => format!("&limit={limit}"),
            Part::Next { limit, token } => {
                let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
                format!("&limit={limit}&continue={token}")
            }
        };
        self.get(&query, &self.accept_list)
    }

    /// One object of the list: its metadata, or all of it where the server knows no other form and it is
    /// what the cell fetches.
    pub(super) fn one(&self) -> Request<Vec<u8>> {
        self.get("&limit=1", &self.accept_one)
    }

    /// What the list names, metadata only: its first `limit` objects, as of the version `at`, or as new as
    /// the server can prove.
    pub(super) fn names(&self, at: Option<&ResourceVersion>, limit: u32) -> Request<Vec<u8>> {
        let mut query = format!("&limit={limit}");
        if let Some(at) = at {
            let at = encoded(at);
            let _infallible = write!(query, "&resourceVersion={at}&resourceVersionMatch=Exact");
        }
        self.get(&query, NAMES)
    }

    /// The next `limit` of them.
    pub(super) fn more_names(&self, token: &str, limit: u32) -> Request<Vec<u8>> {
        let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
        self.get(&format!("&limit={limit}&continue={token}"), NAMES)
    }

    /// A watch of what comes after `from`, with bookmarks.
    pub(super) fn watch(&self, from: &ResourceVersion, lasting: Duration) -> Request<Vec<u8>> {
        let query = format!(
            "&watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            encoded(from),
            lasting.as_secs()
        );
        self.get(&query, &self.accept_watch)
    }

    /// A watch that begins with everything there is, marks its end, and goes on.
    pub(super) fn stream(&self, lasting: Duration) -> Request<Vec<u8>> {
        let query = format!(
            "&watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
             &resourceVersionMatch=NotOlderThan&timeoutSeconds={}",
            lasting.as_secs()
        );
        self.get(&query, &self.accept_watch)
    }

    fn get(&self, query: &str, accept: &str) -> Request<Vec<u8>> {
        let query = format!("{query}{}", self.selectors);
        let query = query.strip_prefix('&').unwrap_or_default();
        let uri =
            if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) };
        let mut request = Request::new(Vec::new());
        // Every part is checked or percent-encoded, so this parses; if it did not, the request
        // would go to `/`, which lists nothing.
        *request.uri_mut() = uri.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(value) = accept.parse() {
            headers.insert(header::ACCEPT, value);
        }
        // Kubernetes 1.37 compresses each watch event by itself; and a list is received faster than
        // it is decompressed on the networks of a cluster.
        headers.insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static("identity"));
        request
    }
}

fn encoded(version: &ResourceVersion) -> String {
    form_urlencoded::byte_serialize(version.to_string().as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{
        FieldRequirement, FieldSelector, GroupResource, LabelRequirement, LabelSelector, Operator,
        Resource, SensitiveData,
    };

    fn key(group: &str, resource: &str, projection: Projection) -> CellKey {
        CellKey::all(
            Resource::new(GroupResource::new(group, resource).unwrap(), "v1").unwrap(),
            Extent::Namespace("shop".into()),
            projection,
        )
    }

    #[test]
    fn the_payload_of_secrets_needs_leave() {
        let mut secrets = key("", "secrets", Projection::Full(ManagedFields::Drop));
        assert!(Endpoint::new(&secrets).is_err());
        secrets.sensitive_data = SensitiveData::Allow;
        let payload = Endpoint::new(&secrets).unwrap();
        // One is peeked at without it all the same.
        assert!(!payload.one().headers()[header::ACCEPT].to_str().unwrap().contains(','));
        let metadata = key("", "secrets", Projection::MetadataOnly(ManagedFields::Drop));
        let endpoint = Endpoint::new(&metadata).unwrap();
        let (from, second) = (ResourceVersion::from(7), Duration::from_secs(1));
        let parts = [Part::Whole, Part::First { limit: 9 }, Part::Next { limit: 9, token: "a" }];
        let lists = parts.map(|part| endpoint.list(part));
        let others = [
            endpoint.one(),
            endpoint.names(Some(&from), 9),
            endpoint.watch(&from, second),
            endpoint.stream(second),
        ];
        for request in lists.into_iter().chain(others) {
            let accept = request.headers()[header::ACCEPT].to_str().unwrap();
            // The only way: no second choice, by which the server could send all of it.
            assert!(accept.starts_with("application/json;as=PartialObject"), "{accept}");
            assert!(!accept.contains(','), "{accept}");
        }
        // A resource of the same name in another group is none of the core group's secrets.
        assert!(
            Endpoint::new(&key("x.io", "secrets", Projection::Full(ManagedFields::Drop))).is_ok()
        );
    }

    #[test]
    fn a_namespace_cannot_change_the_path() {
        let mut pods = key("", "pods", Projection::Full(ManagedFields::Drop));
        for name in ["", "a/../b", "..", "a?watch=1", "A", "a%2Fb"] {
            pods.extent = Extent::Namespace(name.into());
            assert_eq!(Endpoint::new(&pods).unwrap_err(), Guarded::Namespace(name.to_owned()));
        }
    }

    #[test]
    fn selectors_cannot_add_parameters() {
        let mut pods = key("", "pods", Projection::Full(ManagedFields::Keep));
        pods.labels =
            LabelSelector::new([LabelRequirement::new("a", Operator::In, ["b", "c"]).unwrap()]);
        pods.fields =
            FieldSelector::new([
                FieldRequirement::new("status.phase", false, "x&watch=1#").unwrap()
            ]);
        let uri = Endpoint::new(&pods).unwrap().list(Part::Whole).uri().to_string();
        assert_eq!(
            uri,
            "/api/v1/namespaces/shop/pods?labelSelector=a+in+%28b%2Cc%29\
             &fieldSelector=status.phase%21%3Dx%5C%26watch%5C%3D1%23"
                .replace("%5C%26", "%26")
        );
    }

    #[test]
    fn every_list_is_a_consistent_read() {
        let endpoint =
            Endpoint::new(&key("apps", "x", Projection::Full(ManagedFields::Drop))).unwrap();
        let parts =
            [Part::Whole, Part::First { limit: 2 }, Part::Next { limit: 2, token: "a+b/=" }];
        let queries = parts.map(|part| endpoint.list(part).uri().query().map(str::to_owned));
        let expected = [None, Some("limit=2"), Some("limit=2&continue=a%2Bb%2F%3D")];
        assert_eq!(queries, expected.map(|query| query.map(str::to_owned)));
        let stream = endpoint.stream(Duration::from_secs(9));
        assert!(!stream.uri().query().unwrap().contains("resourceVersion="), "{stream:?}");
    }
}
