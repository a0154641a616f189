//! Builds all API server requests of informers, and refuses keys that must not be requested.

use http::{Request, header};
use kubewarm_api::model::{
    FaultReason, InformerKey, InformerScope, ManagedFieldsPolicy, Projection, RequestFault,
    ResourceVersion, is_dns_label,
};
use std::{fmt::Write as _, time::Duration};

/// Media type that returns names, UIDs and versions with few other fields.
const NAMES: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;drop=metadata.managedFields";

/// The requests of one informer. Path, selectors and representation never change.
#[derive(Clone, Debug)]
pub(super) struct InformerEndpoint {
    path: String,
    /// `labelSelector` and `fieldSelector`, percent-encoded, each with a leading `&`.
    selectors: String,
    accept_list: String,
    accept_watch: String,
    accept_one: String,
}

/// The part of a list to request.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListPart<'a> {
    /// The whole list in one response.
    Whole,
    /// A page of `limit` objects.
    Page {
        /// Maximum number of objects.
        limit: u32,
        /// `metadata.continue` of the previous page; empty for the first page.
        token: &'a str,
    },
}

impl ListPart<'_> {
    /// The query parameters, each with a leading `&`.
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

impl InformerEndpoint {
    /// # Errors
    ///
    /// [`FaultReason::Forbidden`] for a key that must not be requested:
    ///
    /// - The payload of Secrets without `secretData: Allow`.
    /// - A namespace whose name would change the path.
    ///
    /// The schema and the parser refuse both already. This check repeats it after the resource is
    /// resolved.
    pub(super) fn new(key: &InformerKey) -> Result<Self, RequestFault> {
        let forbidden = |message: String| Err(RequestFault::new(FaultReason::Forbidden, message));
        if key.is_guarded() {
            let message = "secrets are fetched as metadata only unless secretData is Allow";
            return forbidden(message.to_owned());
        }
        let (root, plural) = (key.resource.api_path(), key.resource.resource());
        let path = match &key.extent {
            InformerScope::Namespace(name) if !is_dns_label(name) => {
                return forbidden(format!("{name:?} is not the name of a namespace"));
            }
            InformerScope::Namespace(name) => format!("{root}/namespaces/{name}/{plural}"),
            InformerScope::AllNamespaces | InformerScope::Cluster => format!("{root}/{plural}"),
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
            // Kubernetes 1.37 supports this parameter; older servers ignore it.
            ManagedFieldsPolicy::Drop => ";drop=metadata.managedFields",
            ManagedFieldsPolicy::Keep => "",
        };
        let accept = |kind: &str| match key.projection {
            Projection::Full(_) => format!("application/json{drop}"),
            Projection::Metadata(_) => {
                format!("application/json;as={kind};g=meta.k8s.io;v=v1{drop}")
            }
        };
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let accept_one = match (key.projection, key.has_secrets()) {
            (Projection::Full(_), false) => format!("{metadata},application/json"),
            // There must be no fallback to full objects: the payload is secret, or the profile does
            // not request it.
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

    /// Builds a list request.
    ///
    /// It has no `resourceVersion`, which makes it a consistent read. Since 1.31, the API server
    /// can answer it from its watch cache.
    pub(super) fn list(&self, part: ListPart<'_>) -> Request<Vec<u8>> {
        self.get(&part.query(), &self.accept_list)
    }

    /// Builds a list of one object as metadata. The API server can send the full object instead if
    /// it supports no metadata form and the informer fetches full objects anyway.
    pub(super) fn one(&self) -> Request<Vec<u8>> {
        self.get("&limit=1", &self.accept_one)
    }

    /// Builds a list request for metadata only. The first page has exactly the version `at`;
    /// without `at`, it is a consistent read.
    pub(super) fn names(
        &self,
        at: Option<&ResourceVersion>,
        part: ListPart<'_>,
    ) -> Request<Vec<u8>> {
        let mut query = part.query();
        if let (Some(at), ListPart::Whole | ListPart::Page { token: "", .. }) = (at, part) {
            let at = encoded(at);
            let _infallible = write!(query, "&resourceVersion={at}&resourceVersionMatch=Exact");
        }
        self.get(&query, NAMES)
    }

    /// Builds a watch of the changes after `from`, with bookmarks.
    pub(super) fn watch(&self, from: &ResourceVersion, lasting: Duration) -> Request<Vec<u8>> {
        let query = format!(
            "&watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            encoded(from),
            lasting.as_secs()
        );
        self.get(&query, &self.accept_watch)
    }

    /// Builds a streaming list: a watch that starts with all objects, then sends a bookmark, and
    /// continues.
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
        // Every part is checked or percent-encoded, so parsing cannot fail. The fallback `/` would
        // return no objects.
        *request.uri_mut() = uri.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(value) = accept.parse() {
            headers.insert(header::ACCEPT, value);
        }
        // Request no compression. Kubernetes 1.37 compresses each watch event separately. In a
        // cluster network, receiving a list is faster than decompressing it.
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
        FieldRequirement, FieldSelector, GroupResource, LabelRequirement, LabelSelector,
        LabelSelectorOperator, Resource, SecretData,
    };

    fn key(group: &str, resource: &str, projection: Projection) -> InformerKey {
        InformerKey::all(
            Resource::new(GroupResource::new(group, resource).unwrap(), "v1").unwrap(),
            InformerScope::Namespace("shop".into()),
            projection,
        )
    }

    #[test]
    fn the_payload_of_secrets_is_requested_only_with_sensitive_data_allow() {
        let mut secrets = key("", "secrets", Projection::Full(ManagedFieldsPolicy::Drop));
        assert!(InformerEndpoint::new(&secrets).is_err());
        secrets.secret_data = SecretData::Allow;
        let payload = InformerEndpoint::new(&secrets).unwrap();
        // A peek requests only metadata even then.
        assert!(!payload.one().headers()[header::ACCEPT].to_str().unwrap().contains(','));
        let metadata = key("", "secrets", Projection::Metadata(ManagedFieldsPolicy::Drop));
        let endpoint = InformerEndpoint::new(&metadata).unwrap();
        let (from, second) = (ResourceVersion::from(7), Duration::from_secs(1));
        let page = |token| ListPart::Page { limit: 9, token };
        let parts = [ListPart::Whole, page(""), page("a")];
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
            // There is no second media type with which the server could return full objects.
            assert!(accept.starts_with("application/json;as=PartialObject"), "{accept}");
            assert!(!accept.contains(','), "{accept}");
        }
        // A resource with the same name in another group is not a Secret.
        assert!(
            InformerEndpoint::new(&key(
                "x.io",
                "secrets",
                Projection::Full(ManagedFieldsPolicy::Drop)
            ))
            .is_ok()
        );
    }

    #[test]
    fn a_namespace_cannot_change_the_path() {
        let mut pods = key("", "pods", Projection::Full(ManagedFieldsPolicy::Drop));
        for name in ["", "a/../b", "..", "a?watch=1", "A", "a%2Fb"] {
            pods.extent = InformerScope::Namespace(name.into());
            let fault = InformerEndpoint::new(&pods).unwrap_err();
            assert_eq!(fault.reason(), FaultReason::Forbidden);
            assert_eq!(fault.message(), format!("{name:?} is not the name of a namespace"));
        }
    }

    #[test]
    fn selectors_cannot_add_parameters() {
        let mut pods = key("", "pods", Projection::Full(ManagedFieldsPolicy::Keep));
        pods.labels =
            LabelSelector::new([
                LabelRequirement::new("a", LabelSelectorOperator::In, ["b", "c"]).unwrap()
            ]);
        pods.fields =
            FieldSelector::new([
                FieldRequirement::new("status.phase", false, "x&watch=1#").unwrap()
            ]);
        let uri = InformerEndpoint::new(&pods).unwrap().list(ListPart::Whole).uri().to_string();
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
            InformerEndpoint::new(&key("apps", "x", Projection::Full(ManagedFieldsPolicy::Drop)))
                .unwrap();
        let parts = [
            ListPart::Whole,
            ListPart::Page { limit: 2, token: "" },
            ListPart::Page { limit: 2, token: "a+b/=" },
        ];
        let queries = parts.map(|part| endpoint.list(part).uri().query().map(str::to_owned));
        let expected = [None, Some("limit=2"), Some("limit=2&continue=a%2Bb%2F%3D")];
        assert_eq!(queries, expected.map(|query| query.map(str::to_owned)));
        let stream = endpoint.stream(Duration::from_secs(9));
        assert!(!stream.uri().query().unwrap().contains("resourceVersion="), "{stream:?}");
    }
}
