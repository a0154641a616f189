mod quoting;
mod rejection;
mod status;
#[cfg(test)]
mod tests;

pub(super) use self::{
    quoting::{qualified, quoted},
    status::{forbidden, unsupported},
};

use self::{
    quoting::{because, push, without_html},
    status::{cause, no_details},
};
use super::{AccessAttributes, JSON};
use kube::core::response::{StatusCause, StatusDetails};
use kubewarm_api::model::{GroupResource, ResourceVersion};

/// The error that kubewarm returns for a request, as a `Status` object.
///
/// For an error that the API server has too, the message, reason and details are the API server's,
/// because clients compare them. Errors that only kubewarm has use the same format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StatusError {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Box<StatusDetails>>,
    /// `metadata.continue` of the `Status`: the token with which a client can resume an expired
    /// list.
    token: Option<String>,
    is_specific_to_cache: bool,
    is_rejection: bool,
}

impl StatusError {
    /// Returns the HTTP status code.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// Returns the field `reason` of the `Status`. The set of all values is fixed, so a metric can
    /// use them as a label.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Returns the error message for users. The message can quote the request, so escape the
    /// message for logs.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the value of the `Retry-After` header in seconds; `None` if the response has no such
    /// header. Clients retry only with this header.
    pub fn retry_after(&self) -> Option<u64> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| seconds.into())
    }

    /// Returns whether the request fails only in kubewarm and can succeed at the API server. With
    /// `--forward`, kubewarm forwards such a request instead of returning the error.
    pub fn is_specific_to_cache(&self) -> bool {
        self.is_specific_to_cache
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 400: the kind does not support the field in a field selector. The message is the API
    /// server's message for custom resources, whatever the kind is.
    pub fn unknown_field(field: &str) -> Self {
        Self::bad_request(format!("field label not supported: {field}"))
    }

    /// 401: the caller is not authenticated.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the user lacks the permission `access`. `reason` is the authorizer's reason for the
    /// denial.
    pub fn forbidden(user: &str, access: &AccessAttributes<'_>, reason: Option<&str>) -> Self {
        let AccessAttributes { verb, group, resource, namespace, name, version: _ } = *access;
        let mut message = qualified(group, resource);
        if !name.is_empty() {
            push(&mut message, format_args!(" {}", quoted(name)));
        }
        let (user, plural, api_group) = (quoted(user), quoted(resource), quoted(group));
        let within = match namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quoted(namespace)),
        };
        let sentence = format!(
            "User {user} cannot {verb} resource {plural} in API group {api_group} {within}"
        );
        push(&mut message, format_args!(" is forbidden: {}", without_html(&sentence)));
        Self::new(403, "Forbidden", because(message, reason)).with(group, resource, name)
    }

    /// 403: the user has no permission to get `path`, such as `/version`.
    pub fn forbidden_path(user: &str, path: &str, reason: Option<&str>) -> Self {
        let sentence = format!("User {} cannot get path {}", quoted(user), quoted(path));
        let message = format!("forbidden: {}", without_html(&sentence));
        Self::new(403, "Forbidden", because(message, reason)).with("", "", "")
    }

    /// 403 for the reason `why`. Use this function only if no other function of this type fits, for
    /// example if kubewarm cannot check impersonation.
    pub fn refused(why: &str) -> Self {
        Self::new(403, "Forbidden", format!("forbidden: {why}")).with("", "", "")
    }

    /// 403: only the API server can answer the request, but the request contains no bearer token.
    /// kubewarm forwards requests only with the caller's own token.
    pub fn cannot_forward() -> Self {
        let message = "the cache does not serve this request, and kubewarm forwards requests only with a bearer \
                       token; send one Authorization header with a token, or send the request to the API server";
        Self::new(403, "CannotForward", message).with("", "", "")
    }

    /// 413: the request body is larger than `most` bytes, the limit for forwarded requests.
    pub fn too_large_body(most: u64) -> Self {
        let message = format!("the body is larger than {most} bytes");
        Self::new(413, "RequestEntityTooLarge", message).with("", "", "")
    }

    /// 413: a read request has a body.
    pub fn unwanted_body() -> Self {
        Self::new(413, "RequestEntityTooLarge", "a read has no body").with("", "", "")
    }

    /// 404: the object does not exist. Clients treat this error as a deletion. So return it only if
    /// a fresh informer without selectors covers the object.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} {} not found", quoted(name)))
            .about(resource, name)
    }

    /// 404: the path names neither a resource nor a document that kubewarm serves.
    pub fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message).with("", "", "").specific_to_cache()
    }

    /// 405: kubewarm does not serve `verb`, such as `create`.
    pub fn method_not_allowed(resource: &GroupResource, verb: &str) -> Self {
        let kind = quoted(&resource.to_string());
        let message = format!("{verb} is not supported on resources of kind {kind}");
        Self::new(405, "MethodNotAllowed", message).about(resource, "").specific_to_cache()
    }

    /// 405: the path names no resource, or the Kubernetes API does not have the method.
    pub(super) fn only_get() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with("", "", "").specific_to_cache()
    }

    /// 406: kubewarm supports none of the media types that the client accepts. `supported`: the
    /// media types of the request's response.
    pub fn not_acceptable(supported: &[&str]) -> Self {
        let supported = supported.join(", ");
        let message = format!("only the following media types are accepted: {supported}");
        Self::new(406, "NotAcceptable", message).with("", "", "").specific_to_cache()
    }

    /// 406: the parameter `as` in the `Accept` header does not fit the request. It requests
    /// `PartialObjectMetadata` for a list, or `PartialObjectMetadataList` for one object.
    pub(super) fn other_shape(requested: &str, is: &str) -> Self {
        let message = format!("you requested {requested}, but the requested object {is}");
        Self::new(406, "NotAcceptable", message)
    }

    /// 406: the store contains only metadata, and the client requests complete objects.
    pub fn only_metadata(resource: &GroupResource) -> Self {
        let message = format!(
            "kubewarm keeps only metadata of {resource}; accept {JSON};as=PartialObjectMetadata;\
             g=meta.k8s.io;v=v1, or PartialObjectMetadataList, or send the request to the API server"
        );
        Self::new(406, "NotAcceptable", message).about(resource, "").specific_to_cache()
    }

    /// 410: the client requests a list at an exact resource version that the store's event log no
    /// longer contains.
    pub fn expired() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(410, "Expired", message)
    }

    /// 410: the store's event log no longer contains the resource version of the earlier pages of a
    /// list. With `token`, the client can continue the list at the newest version.
    pub fn expired_continue(token: Option<String>) -> Self {
        let mut message =
            "The provided continue parameter is too old to display a consistent list result. You can \
             start a new list without the continue parameter"
                .to_owned();
        message.push_str(if token.is_some() {
            ", or use the continue token in this response to retrieve the remainder of the results. \
             Continuing with the provided token results in an inconsistent list - objects that were \
             created, modified, or deleted between the time the first chunk was returned and now may \
             show up in the list."
        } else {
            "."
        });
        Self { token, ..Self::new(410, "Expired", message) }
    }

    /// 410: the client's watch starts at `version`, but the event log contains only the changes
    /// after `oldest`. A watch from `version` would miss the changes between both.
    pub fn too_old(version: &ResourceVersion, oldest: Option<&ResourceVersion>) -> Self {
        let oldest = oldest.map_or_else(|| "0".to_owned(), ToString::to_string);
        Self::new(410, "Expired", format!("too old resource version: {version} ({oldest})"))
    }

    /// 410: the informer has relisted after an interrupted watch, so events are missing. The client
    /// must list its objects again too.
    pub fn watch_lost() -> Self {
        Self::new(410, "Expired", "the objects were listed again; list them and watch from there")
    }

    /// 410: no profile declares the watched objects any more, or the informer was replaced after a
    /// change of its profile. The client must list its objects again, and then gets the reason.
    pub fn watch_undeclared() -> Self {
        let message =
            "a CacheProfile of these objects was deleted or changed; list the objects again";
        Self::new(410, "Expired", message)
    }

    /// 410: the store is emptied for the reason `why`. The client must list its objects again.
    pub fn watch_ended(why: &str) -> Self {
        Self::new(410, "Expired", why)
    }

    /// 421: for the reason `why`, no informer serves the requested objects. A 404 or an empty list
    /// would be wrong, because it means that the objects do not exist.
    pub fn not_cached(resource: &GroupResource, name: &str, why: &str) -> Self {
        let mut message = resource.to_string();
        if !name.is_empty() {
            push(&mut message, format_args!(" {}", quoted(name)));
        }
        push(&mut message, format_args!(" not cached: {why}; send the request to the API server"));
        Self::new(421, "NotCached", message).about(resource, name).specific_to_cache()
    }

    /// Checks combinations of options of a list or watch. Each of `rules` is a violation, or `None`
    /// if the request obeys the rule.
    ///
    /// # Errors
    ///
    /// 422 with one cause for each violated rule.
    pub(super) fn check_options(
        rules: impl IntoIterator<Item = Option<StatusCause>>,
    ) -> Result<(), Self> {
        let wrong: Vec<_> = rules.into_iter().flatten().collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let texts: Vec<_> =
            wrong.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let all = match &texts[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {all}");
        let mut failure = Self::new(422, "Invalid", message).with("meta.k8s.io", "ListOptions", "");
        failure.details_mut().causes = wrong;
        Err(failure)
    }

    /// 429: no informer of the requested objects is warm, or their relists are not complete.
    /// Clients retry after `Retry-After`.
    pub fn not_warm(resource: &GroupResource, retry_after_seconds: u64) -> Self {
        let message = format!(
            "{resource} not warm: a list waits or is under way; the status of the CacheProfile shows its progress"
        );
        Self::new(429, "TooManyRequests", message).about(resource, "").after(retry_after_seconds)
    }

    /// 429: kubewarm already handles the maximum number of concurrent requests of all clients.
    pub fn too_many_requests(retry_after_seconds: u64) -> Self {
        let message = "Too many requests, please try again later.";
        Self::new(429, "TooManyRequests", message).after(retry_after_seconds)
    }

    /// 500: a bug in kubewarm.
    pub fn internal(message: &str) -> Self {
        let mut failure =
            Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.details_mut().causes = vec![cause("", message, "")];
        failure
    }

    /// 503: kubewarm cannot complete a step that the response needs, such as the caller's access
    /// review.
    pub fn unavailable(message: &str, retry_after_seconds: u64) -> Self {
        Self::new(503, "ServiceUnavailable", message).after(retry_after_seconds)
    }

    /// 503: kubewarm cannot connect to the API server, so it has sent no part of the forwarded
    /// request.
    pub fn unreachable() -> Self {
        Self::unavailable(
            "the request cannot be forwarded: no connection to the API server; try again",
            1,
        )
    }

    /// 504: kubewarm sent the forwarded request to the API server, but received no response in
    /// time. The error has no `Retry-After`, because a retry could repeat a write.
    pub fn unanswered() -> Self {
        let message = "Timeout: the API server did not answer the forwarded request, but may have executed it";
        Self::new(504, "Timeout", message)
    }

    /// 504: the store has not reached the resource version `version`, which the client requests.
    /// `current` is the store's resource version.
    pub fn too_large_version(version: &ResourceVersion, current: &ResourceVersion) -> Self {
        let message = format!("Timeout: Too large resource version: {version}, current: {current}");
        let mut failure = Self::new(504, "Timeout", message).after(1);
        failure.details_mut().causes =
            vec![cause("ResourceVersionTooLarge", "Too large resource version", "")];
        failure
    }

    /// 504: the store is stale, or kubewarm cannot confirm that the store is current. `why`
    /// completes the message.
    pub fn stale(resource: &GroupResource, why: &str, retry_after_seconds: u64) -> Self {
        Self::new(504, "Timeout", format!("Timeout: {resource} not known to be current: {why}"))
            .about(resource, "")
            .after(retry_after_seconds)
    }

    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            token: None,
            is_specific_to_cache: false,
            is_rejection: false,
        }
    }

    /// 400: the selector exceeds a limit of kubewarm that the API server does not have. `sort` is
    /// the kind of the selector: `label` or `field`.
    pub(super) fn too_much(sort: &str, most: usize, what: &str) -> Self {
        let ask = "split the request, or send it to the API server";
        let message = format!("a {sort} selector here has at most {most} {what}; {ask}");
        Self::bad_request(message).specific_to_cache()
    }

    /// Marks the error as specific to kubewarm: the same request can succeed at the API server.
    pub fn specific_to_cache(mut self) -> Self {
        self.is_specific_to_cache = true;
        self
    }

    fn about(self, resource: &GroupResource, name: &str) -> Self {
        self.with(resource.group(), resource.resource(), name)
    }

    fn with(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details_mut();
        (details.group, details.kind, details.name) = (group.into(), kind.into(), name.into());
        self
    }

    /// Sets `Retry-After` to `seconds`, but to at least 1, because a client retries immediately
    /// after the value 0.
    fn after(mut self, seconds: u64) -> Self {
        self.details_mut().retry_after_seconds = u32::try_from(seconds.max(1)).unwrap_or(u32::MAX);
        self
    }

    fn details_mut(&mut self) -> &mut StatusDetails {
        self.details.get_or_insert_with(|| Box::new(no_details()))
    }
}
