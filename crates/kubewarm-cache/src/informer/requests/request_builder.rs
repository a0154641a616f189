//! Builds all API server requests of informers. Rejects informers that request forbidden Secret
//! payloads, or a namespace with an invalid name.

use http::{Request, header};
use kubewarm_api::model::{
    FaultReason, InformerKey, InformerScope, ManagedFieldsPolicy, Projection, RequestFault,
    ResourceVersion, is_dns_label,
};
use kubewarm_wire::PROTOBUF;
use std::{fmt::Write as _, time::Duration};

/// Media type of a list of metadata without managed fields, for requests that need only names, UIDs
/// and resource versions.
const NAMES: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;drop=metadata.managedFields";

/// Builds the requests of one informer. The path, selectors and media types of these requests never
/// change.
#[derive(Clone, Debug)]
pub(crate) struct InformerRequestBuilder {
    path: String,
    /// `labelSelector` and `fieldSelector`, percent-encoded, each with a leading `&`.
    selectors: String,
    accept_list: String,
    accept_watch: String,
    accept_one: String,
    /// Whether lists and watches accept protobuf, and JSON only if the API server does not have
    /// protobuf.
    pub(crate) can_use_protobuf: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ListPaging<'a> {
    /// The whole list in one response.
    Whole,
    /// A page of `limit` objects.
    Page {
        limit: u32,
        /// `metadata.continue` of the previous page; empty for the first page.
        token: &'a str,
    },
}

impl ListPaging<'_> {
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

impl InformerRequestBuilder {
    /// # Errors
    ///
    /// [`FaultReason::Forbidden`] if `key` has one of these faults:
    ///
    /// - It requests the payload or the managedFields of Secrets without `secretData: Allow`.
    /// - It has an invalid namespace name, which could change the request's path.
    ///
    /// The CRD schema and the profile parser already reject such profiles. This function checks
    /// again, after kubewarm has resolved the profile's resource.
    pub(crate) fn new(key: &InformerKey) -> Result<Self, RequestFault> {
        let forbidden = |message: String| Err(RequestFault::new(FaultReason::Forbidden, message));
        if key.is_guarded() {
            let message =
                "secrets are fetched as metadata without managedFields unless secretData is Allow";
            return forbidden(message.to_owned());
        }
        let (root, plural) = (key.resource.api_path(), key.resource.resource());
        let path = match &key.scope {
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
            // Since Kubernetes 1.37, the API server omits managed fields for this parameter;
            // earlier API servers ignore it.
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
            // Do not accept full objects: their payload is secret, or the profile requests only
            // metadata.
            (Projection::Metadata(_), _) | (_, true) => metadata.to_owned(),
        };
        Ok(Self {
            path,
            selectors,
            accept_list: accept("PartialObjectMetadataList"),
            accept_watch: accept("PartialObjectMetadata"),
            accept_one,
            can_use_protobuf: false,
        })
    }

    /// Builds a list request.
    ///
    /// The request has no `resourceVersion`, which makes the list a consistent read. Since
    /// Kubernetes 1.31, the API server can answer a consistent read from its watch cache.
    pub(crate) fn list(&self, part: ListPaging<'_>) -> Request<Vec<u8>> {
        self.get(&part.query(), &self.accepted(&self.accept_list))
    }

    /// Builds a list request for the first object in JSON, at exactly the resource version `at`.
    pub(crate) fn first_in_json(&self, at: &ResourceVersion) -> Request<Vec<u8>> {
        let query = format!("&limit=1&resourceVersion={}&resourceVersionMatch=Exact", encoded(at));
        self.get(&query, &self.accept_list)
    }

    /// Builds a request that lists the metadata of one object.
    ///
    /// If the informer fetches full objects other than Secrets, the request also accepts a full
    /// object. Some servers do not support metadata responses.
    pub(crate) fn one(&self) -> Request<Vec<u8>> {
        self.get("&limit=1", &self.accept_one)
    }

    /// Builds a list request for metadata only. With `at`, the first page has exactly this resource
    /// version. Without `at`, the list is a consistent read.
    pub(crate) fn names(
        &self,
        at: Option<&ResourceVersion>,
        part: ListPaging<'_>,
    ) -> Request<Vec<u8>> {
        let mut query = part.query();
        if let (Some(at), ListPaging::Whole | ListPaging::Page { token: "", .. }) = (at, part) {
            let at = encoded(at);
            let _infallible = write!(query, "&resourceVersion={at}&resourceVersionMatch=Exact");
        }
        self.get(&query, NAMES)
    }

    /// Builds a watch of the changes after resource version `from`, with bookmarks. `lasting` is
    /// the watch's `timeoutSeconds`.
    pub(crate) fn watch(&self, from: &ResourceVersion, lasting: Duration) -> Request<Vec<u8>> {
        let query = format!(
            "&watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            encoded(from),
            lasting.as_secs()
        );
        self.get(&query, &self.accepted(&self.accept_watch))
    }

    /// Builds a streaming list: a watch that first sends all objects and a bookmark, then sends
    /// changes. `lasting` is the watch's `timeoutSeconds`.
    pub(crate) fn stream(&self, lasting: Duration) -> Request<Vec<u8>> {
        let query = format!(
            "&watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
             &resourceVersionMatch=NotOlderThan&timeoutSeconds={}",
            lasting.as_secs()
        );
        self.get(&query, &self.accepted(&self.accept_watch))
    }

    /// Returns the media types of a request. `json` is the media type of JSON.
    fn accepted(&self, json: &str) -> String {
        match json.strip_prefix("application/json") {
            Some(parameters) if self.can_use_protobuf => format!("{PROTOBUF}{parameters},{json}"),
            _ => json.to_owned(),
        }
    }

    fn get(&self, query: &str, accept: &str) -> Request<Vec<u8>> {
        let query = format!("{query}{}", self.selectors);
        let query = query.strip_prefix('&').unwrap_or_default();
        let uri =
            if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) };
        let mut request = Request::new(Vec::new());
        // Each part of the URI is checked or percent-encoded, so parsing cannot fail. If it failed,
        // the request would go to `/` and return no objects.
        *request.uri_mut() = uri.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(value) = accept.parse() {
            headers.insert(header::ACCEPT, value);
        }
        // Request no compression, because in a cluster network, receiving a list takes less time
        // than decompressing it. An API server of Kubernetes 1.37 would also compress each watch
        // event separately.
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
        LabelSelectorOperator, Resource, SecretDataPolicy,
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
        assert!(InformerRequestBuilder::new(&secrets).is_err());
        // managedFields contain the names of the data's keys.
        let with_fields = key("", "secrets", Projection::Metadata(ManagedFieldsPolicy::Keep));
        assert!(InformerRequestBuilder::new(&with_fields).is_err());
        secrets.secret_data = SecretDataPolicy::Allow;
        let payload = InformerRequestBuilder::new(&secrets).unwrap();
        // The request for one object accepts only metadata, even if the informer fetches whole
        // Secrets.
        assert!(!payload.one().headers()[header::ACCEPT].to_str().unwrap().contains(','));
        let metadata = key("", "secrets", Projection::Metadata(ManagedFieldsPolicy::Drop));
        let endpoint = InformerRequestBuilder::new(&metadata).unwrap();
        let (from, second) = (ResourceVersion::from(7), Duration::from_secs(1));
        let page = |token| ListPaging::Page { limit: 9, token };
        let parts = [ListPaging::Whole, page(""), page("a")];
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
            // Each request must accept only metadata. With a second media type, the API server
            // could return full objects.
            assert!(accept.starts_with("application/json;as=PartialObject"), "{accept}");
            assert!(!accept.contains(','), "{accept}");
        }
        // A resource named `secrets` in another API group does not contain Kubernetes Secrets.
        assert!(
            InformerRequestBuilder::new(&key(
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
            pods.scope = InformerScope::Namespace(name.into());
            let fault = InformerRequestBuilder::new(&pods).unwrap_err();
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
            FieldSelector::new(
                [FieldRequirement::not_equal("status.phase", "x&watch=1#").unwrap()],
            );
        let uri =
            InformerRequestBuilder::new(&pods).unwrap().list(ListPaging::Whole).uri().to_string();
        assert_eq!(
            uri,
            "/api/v1/namespaces/shop/pods?labelSelector=a+in+%28b%2Cc%29\
             &fieldSelector=status.phase%21%3Dx%5C%26watch%5C%3D1%23"
                .replace("%5C%26", "%26")
        );
    }

    #[test]
    fn every_list_is_a_consistent_read() {
        let endpoint = InformerRequestBuilder::new(&key(
            "apps",
            "x",
            Projection::Full(ManagedFieldsPolicy::Drop),
        ))
        .unwrap();
        let parts = [
            ListPaging::Whole,
            ListPaging::Page { limit: 2, token: "" },
            ListPaging::Page { limit: 2, token: "a+b/=" },
        ];
        let queries = parts.map(|part| endpoint.list(part).uri().query().map(str::to_owned));
        let expected = [None, Some("limit=2"), Some("limit=2&continue=a%2Bb%2F%3D")];
        assert_eq!(queries, expected.map(|query| query.map(str::to_owned)));
        let stream = endpoint.stream(Duration::from_secs(9));
        assert!(!stream.uri().query().unwrap().contains("resourceVersion="), "{stream:?}");
    }
}
