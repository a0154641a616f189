//! Parses a read request: its target, its options and the form of its response.

#[cfg(test)]
mod tests;

use super::{
    DiscoveryForm, MediaType, ResponseForm, ResponseFormat, StatusError,
    accept::{self, NegotiatedFormat, RequestedObjects},
    is_builtin_group, options,
    query_parameters::{QueryParameter, QueryParameters},
    request_path::{ApiDocument, RequestPath, ResourcePath},
    timeout,
    watch_options::WatchOptions,
};
use kubewarm_api::model::{
    FieldSelector, LabelSelector, ObjectEncoding, ObjectKey, ProfileRef, Resource, ResourceVersion,
};
use std::{num::NonZeroU64, sync::Arc};

/// A parsed read request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The profile that a path below `/profiles/<namespace>/<name>` names. kubewarm serves such a
    /// request only from the informers of this profile.
    pub profile: Option<ProfileRef>,
    /// The discovery document or the objects that the client requests.
    pub target: RequestTarget,
}

/// The discovery document or the objects that a read request names in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// A discovery document, or `/version`. The [`DiscoveryForm`] has an effect at `/api` and
    /// `/apis` only.
    Document(ApiDocument, DiscoveryForm),
    /// Objects of one resource.
    Objects(Box<ObjectRequest>),
}

/// A get, a list or a watch of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRequest {
    /// The resource in the path.
    pub resource: Resource,
    /// The namespace in which the API server authorizes the request. `None` for all namespaces, and
    /// for cluster-scoped resources except a Namespace object: the path `/namespaces/<name>` is
    /// authorized in the namespace `<name>`.
    pub namespace: Option<Arc<str>>,
    /// The name in the path of a get. `None` for lists and watches.
    pub name: Option<Arc<str>>,
    /// The label selector. Empty for a get.
    pub labels: LabelSelector,
    /// The field selector; empty for a get. The parser does not check whether the kind supports the
    /// fields.
    pub fields: FieldSelector,
    /// The required version of the response.
    pub version_match: VersionMatch,
    /// The error for an invalid `resourceVersion` or `continue` of a list. The API server reports
    /// an unsupported field of the field selector first, so the reader of the store returns this
    /// error only after its own check of the fields. With this error, `version_match` has no
    /// meaning.
    pub version_error: Option<Box<StatusError>>,
    /// Maximum number of objects in a response, from the query parameter `limit`. `None` if the
    /// client sets no limit, or if the API server would ignore the limit.
    pub limit: Option<NonZeroU64>,
    /// The form of the response, or of each event of a watch.
    pub form: ResponseForm,
    /// The error for an unknown value of `includeObject`, for a list as one object, or for one
    /// object as a list. A get of a missing object has 404 instead, so [`Self::format`] returns
    /// this error once the objects are found.
    form_error: Option<Box<StatusError>>,
    /// What applies if the client prefers protobuf but the objects are stored in JSON: the form of
    /// the response in JSON, or 406 if the client accepts only protobuf. `None` if the client
    /// prefers JSON.
    pub form_in_json: Option<Result<ResponseForm, Box<StatusError>>>,
    /// The options of a watch; `None` for a get or a list. In a watch, `version_match` applies to
    /// the initial objects, and `limit` is always `None`.
    pub watch: Option<WatchOptions>,
}

/// The required version of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// The client set no `resourceVersion`: the response must contain all changes before the
    /// request.
    Latest,
    /// The client set `resourceVersion` to 0: the response can have any resource version.
    Any,
    /// This version or a later version.
    NotOlderThan(ResourceVersion),
    /// Exactly this version.
    Exact(ResourceVersion),
    /// The next page of a list.
    Continue {
        /// The resource version of the earlier pages of the list. `None`: the newest version.
        version: Option<ResourceVersion>,
        /// The last object of the previous page. The object can have been deleted since the
        /// previous page. If the request's path contains a namespace, the object is in that
        /// namespace.
        after: ObjectKey,
    },
}

impl VersionMatch {
    /// Whether the response has the objects of one given resource version. If so, the event log
    /// restores this version, which can be earlier than the store's.
    pub const fn is_earlier(&self) -> bool {
        matches!(self, Self::Exact(_) | Self::Continue { version: Some(_), .. })
    }
}

/// The permission that a request needs, with the attributes of a `SubjectAccessReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessAttributes<'a> {
    /// The Kubernetes verb of the request: `get`, `list` or `watch`.
    pub verb: &'static str,
    /// The API group. Empty for the core group.
    pub group: &'a str,
    /// The API version, such as `v1`.
    pub version: &'a str,
    /// The plural name, such as `pods`.
    pub resource: &'a str,
    /// The namespace. Empty for a request in all namespaces, and for cluster-scoped resources.
    pub namespace: &'a str,
    /// The name of the only object that the request can return. Empty if the request can return
    /// objects of all names.
    pub name: &'a str,
}

impl RequestInfo {
    /// Parses a read request. `path` and `query` are still percent-encoded; `accept` is the first
    /// `Accept` header.
    ///
    /// # Errors
    ///
    /// The API server's errors: 400, 404, 405, 406 or 422. Also 421 for subresources and for paths
    /// below `/watch/`, which kubewarm does not serve. No error depends on the objects in a store.
    pub fn parse(
        method: &str,
        path: &str,
        query: Option<&str>,
        accept: Option<&str>,
    ) -> Result<Self, StatusError> {
        let (profile, parsed) = RequestPath::parse(path)?;
        if matches!(parsed, RequestPath::Document(_)) {
            // The API server uses no other query parameter for a document. So kubewarm also ignores
            // a query that does not parse.
            let query = QueryParameters::parse(query).unwrap_or_default();
            timeout::check(query.text(QueryParameter::Timeout))?;
        }
        let what = match parsed {
            RequestPath::Objects(resource_path) => {
                let objects = objects(method, resource_path, query, accept)?;
                RequestTarget::Objects(Box::new(objects))
            }
            RequestPath::Nothing => return Err(StatusError::no_such_path()),
            _ if method != "GET" => return Err(StatusError::only_get()),
            RequestPath::Document(document @ (ApiDocument::Core | ApiDocument::Groups)) => {
                RequestTarget::Document(document, accept::discovery_form(accept)?)
            }
            RequestPath::Document(document) => {
                accept::require_plain_json(accept)?;
                RequestTarget::Document(document, DiscoveryForm::Legacy)
            }
        };
        Ok(Self { profile, target: what })
    }
}

/// Parses a request for objects. The function checks the media type, each option, and then the
/// combinations of options. The API server uses the same order, so kubewarm and the API server
/// report the same first error. Two errors that the API server reports later are in the result:
/// `version_error` and `form_error`.
fn objects(
    method: &str,
    resource_path: ResourcePath,
    query: Option<&str>,
    accept: Option<&str>,
) -> Result<ObjectRequest, StatusError> {
    let ResourcePath { resource, namespace, name, not_served, subresource: _ } = resource_path;
    let group_resource = resource.group_resource();
    if method != "GET" {
        let Some(verb) = verb(method, name.is_some()) else {
            return Err(StatusError::only_get());
        };
        return Err(StatusError::method_not_allowed(group_resource, verb));
    }
    if let Some(why) = not_served {
        return Err(StatusError::not_cached(
            group_resource,
            name.as_deref().unwrap_or_default(),
            why,
        ));
    }
    let query = QueryParameters::parse(query)?;
    let is_watch = name.is_none() && query.is_set(QueryParameter::Watch);
    let requested = RequestedObjects {
        is_list: name.is_none() && !is_watch,
        is_builtin: is_builtin_group(resource.group()),
    };
    if !is_watch {
        timeout::check(query.text(QueryParameter::Timeout))?;
    }
    let NegotiatedFormat { format: ResponseFormat { media_type, form }, shape_error } =
        accept::response_format(accept, requested)?;
    let form_in_json = match media_type {
        MediaType::Json => None,
        MediaType::Protobuf => {
            let form = accept::json_form(accept, requested);
            let form = form.and_then(|form| options::with_include_object(form, &query));
            Some(form.map_err(Box::new))
        }
    };
    let included = options::with_include_object(form, &query);
    let mut objects = ObjectRequest {
        resource,
        namespace,
        name,
        labels: LabelSelector::default(),
        fields: FieldSelector::default(),
        version_match: VersionMatch::Latest,
        version_error: None,
        limit: None,
        form: *included.as_ref().unwrap_or(&form),
        form_error: shape_error
            .or_else(|| included.err())
            .map(|failure| Box::new(failure.specific_to_cache())),
        form_in_json,
        watch: None,
    };
    match objects.name {
        Some(_) => objects.version_match = options::parse_get_version(&query)?,
        None => options::parse_list_options(&query, &mut objects)?,
    }
    match objects.form_error {
        Some(failure) if is_watch => Err(*failure),
        _ => Ok(objects),
    }
}

/// Returns the Kubernetes verb for an HTTP method other than `GET`. `is_named`: the path contains
/// an object's name.
fn verb(method: &str, is_named: bool) -> Option<&'static str> {
    Some(match (method, is_named) {
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return None,
    })
}

impl ObjectRequest {
    /// Returns the encoding and the form of the response from a store whose objects have the
    /// encoding `stored`.
    ///
    /// # Errors
    ///
    /// - 400 for an unknown value of `includeObject`
    /// - 406 for a list as one object, and for one object as a list
    /// - 406 if the client accepts only protobuf, and the store has JSON
    pub fn format(&self, stored: ObjectEncoding) -> Result<ResponseFormat, StatusError> {
        if let Some(failure) = &self.form_error {
            return Err((**failure).clone());
        }
        match (&self.form_in_json, stored) {
            (None, _) => Ok(ResponseFormat::json(self.form)),
            (Some(_), ObjectEncoding::Protobuf(_)) => {
                Ok(ResponseFormat { media_type: MediaType::Protobuf, form: self.form })
            }
            (Some(Ok(form)), ObjectEncoding::Json) => Ok(ResponseFormat::json(*form)),
            (Some(Err(failure)), ObjectEncoding::Json) => Err((**failure).clone()),
        }
    }

    /// Returns the field selector for the access review, because an authorizer can permit a list
    /// for certain fields only. The result omits requirements with indexes of kubewarm's profiles,
    /// which authorizers do not support.
    pub fn reviewed_fields(&self) -> FieldSelector {
        self.fields.without_indexes()
    }

    /// Returns the permission that the request needs, by the API server's rules. A list with the
    /// field selector `metadata.name=web` needs `list` on the name `web`. A get of the Namespace
    /// object `shop` counts as a request in the namespace `shop`.
    ///
    /// Readers of a store must derive the namespace and the name of the objects from this result
    /// only. So a caller reads only objects that the access review covers.
    pub fn access_attributes(&self) -> AccessAttributes<'_> {
        let name = self.name.as_deref();
        let verb = match (name, &self.watch) {
            (Some(_), _) => "get",
            (None, Some(_)) => "watch",
            (None, None) => "list",
        };
        AccessAttributes {
            verb,
            group: self.resource.group(),
            version: self.resource.version(),
            resource: self.resource.resource(),
            namespace: self.namespace.as_deref().unwrap_or_default(),
            name: name.or_else(|| self.fields.name()).unwrap_or_default(),
        }
    }
}

impl AccessAttributes<'_> {
    /// Whether the request gets a Namespace object. The API server authorizes this request in the
    /// object's namespace, although the object is cluster-scoped.
    pub fn is_get_of_namespace_object(&self) -> bool {
        let Self { verb, group, resource, namespace, name, .. } = *self;
        (verb, group, resource) == ("get", "", "namespaces") && namespace == name
    }
}
