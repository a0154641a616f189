//! The one place that builds upstream URLs of cells, and that refuses to build some.

use http::{Request, header};
use kubewarm_api::model::{
    CellKey, Extent, Fault, ManagedFields, Projection, Reason, ResourceVersion, is_dns_label,
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

/// Which part of a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// All of it in one response.
    Whole,
    /// A page of `limit` objects.
    Page {
        /// Objects a page.
        limit: u32,
        /// `metadata.continue` of the page before; empty for the first one.
        token: &'a str,
    },
}

impl Part<'_> {
    /// The parameters of a list, each with a leading `&`.
    fn query(self) -> String {
        match self {
            Self::Whole => String::new(),
            Self::Page { limit, token: "" } => format!("&limit={limit}"),
            Self::Page { limit, token } => {
                let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
                format!("&limit={limit}&continue={token}")
            }
        }
    }
}

impl Endpoint {
    /// # Errors
    ///
    /// [`Reason::Forbidden`] for a key that no request is built for: the payload of secrets without
    /// `secretData: Allow`, and a namespace whose name would change the path. The schema and the parser refuse
    /// these too. Only here can they be refused after the resource has been resolved.
    pub(super) fn new(key: &CellKey) -> Result<Self, Fault> {
        let forbidden = |message: String| Err(Fault::new(Reason::Forbidden, message));
        if key.is_guarded() {
            let message = "secrets are fetched as metadata only unless secretData is Allow";
            return forbidden(message.to_owned());
        }
        let (root, plural) = (key.resource.api_path(), key.resource.resource());
        let path = match &key.extent {
            Extent::Namespace(name) if !is_dns_label(name) => {
                return forbidden(format!("{name:?} is not the name of a namespace"));
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
            Projection::Full(_) => format!("application/json{drop}"),
            Projection::Metadata(_) => {
                format!("application/json;as={kind};g=meta.k8s.io;v=v1{drop}")
            }
        };
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let accept_one = match (key.projection, key.holds_secrets()) {
            (Projection::Full(_), false) => format!("{metadata},application/json"),
            // Nobody is to hold what is secret, or what was not asked for.
            (Projection::Metadata(_), _) | (_, true) => metadata.to_owned(),
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
        self.get(&part.query(), &self.accept_list)
    }

    /// One object of the list: its metadata, or all of it where the server knows no other form and it is
    /// what the cell fetches.
    pub(super) fn one(&self) -> Request<Vec<u8>> {
        self.get("&limit=1", &self.accept_one)
    }

    /// The same part as metadata only. Its first page is as of the version `at`, or as new as the server can prove.
    pub(super) fn names(&self, at: Option<&ResourceVersion>, part: Part<'_>) -> Request<Vec<u8>> {
        let mut query = part.query();
        if let (Some(at), Part::Whole | Part::Page { token: "", .. }) = (at, part) {
            let at = encoded(at);
            let _infallible = write!(query, "&resourceVersion={at}&resourceVersionMatch=Exact");
        }
        self.get(&query, NAMES)
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
        Resource, SecretData,
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
        secrets.secret_data = SecretData::Allow;
        let payload = Endpoint::new(&secrets).unwrap();
        // One is peeked at without it all the same.
        assert!(!payload.one().headers()[header::ACCEPT].to_str().unwrap().contains(','));
        let metadata = key("", "secrets", Projection::Metadata(ManagedFields::Drop));
        let endpoint = Endpoint::new(&metadata).unwrap();
        let (from, second) = (ResourceVersion::from(7), Duration::from_secs(1));
        let page = |token| Part::Page { limit: 9, token };
        let parts = [Part::Whole, page(""), page("a")];
        let lists = parts.map(|part| endpoint.list(part));
        let others = [
            endpoint.one(),
            endpoint.names(Some(&from), page("")),
            endpoint.names(Some(&from), page("a")),
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
            let fault = Endpoint::new(&pods).unwrap_err();
            assert_eq!(fault.reason(), Reason::Forbidden);
            assert_eq!(fault.message(), format!("{name:?} is not the name of a namespace"));
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
        let parts = [
            Part::Whole,
            Part::Page { limit: 2, token: "" },
            Part::Page { limit: 2, token: "a+b/=" },
        ];
        let queries = parts.map(|part| endpoint.list(part).uri().query().map(str::to_owned));
        let expected = [None, Some("limit=2"), Some("limit=2&continue=a%2Bb%2F%3D")];
        assert_eq!(queries, expected.map(|query| query.map(str::to_owned)));
        let stream = endpoint.stream(Duration::from_secs(9));
        assert!(!stream.uri().query().unwrap().contains("resourceVersion="), "{stream:?}");
    }
}
