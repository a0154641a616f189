//! Handles requests to the read API: parses, authorizes and answers each request, in this order. So
//! a caller without permission cannot find out whether kubewarm keeps an object.

use super::{
    body::{BrokenUpstream, IncomingRequest, OutgoingResponse, RequestError},
    forward::{ForwardedRequest, RequestForwarder},
    peer_stores::PeerStores,
    rejection::{no_credentials, refused_by},
    response,
    route::{ParsedRequest, Route},
    unwritten_response::ResponsePermit,
    watch_review::{ReviewedWatch, WatchReview},
    watch_session::WatchSession,
};
use crate::review;
use crate::{
    ApplierRegistry, UserReads, WatcherRegistry,
    callers::{
        AdmittedRequest, AuthenticatedCaller, CallerCredentials, CallerGate, CallerRejection,
        RequestKind,
    },
    metrics::{HandlerLabel, ReadMetrics, ResponseLabels, ResponseSource},
    reads::{ReadService, ReadSource},
};
use http::header::ACCEPT;
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReviewSpec;
use kubewarm_api::model::{FieldSelector, LabelSelector, MetricOutcome, ProfileRef, Resource};
use kubewarm_client::{KeyedPermit, ServerVersionCache};
use kubewarm_wire::{
    ApiDocument, DiscoveryForm, ObjectRequest, RequestInfo, RequestTarget, StatusError,
    WatchOptions, is_peer_store_path, render_discovery_document,
};
use std::{hash::RandomState, sync::Arc};
use tokio::{runtime::Handle, time::Instant};
use tokio_util::sync::CancellationToken;

/// The handler of all requests to the read API, and the services that this handler uses.
pub struct ReadApi {
    /// Answers gets, lists and watches from stores.
    pub reads: Arc<ReadService>,
    /// Authenticates and authorizes callers.
    pub callers: Arc<CallerGate>,
    /// The API server's version, for `/version`.
    pub version: ServerVersionCache,
    /// The runtime that sends requests to the API server.
    pub runtime: Handle,
    /// Forwards requests that kubewarm cannot answer to the API server. With `None`, kubewarm
    /// rejects such requests.
    pub forward: Option<RequestForwarder>,
    /// Serves stores to other replicas. `None` if replicas do not trust each other.
    pub peers: Option<PeerStores>,
    /// Counts requests and watches.
    pub metrics: ReadMetrics,
    /// The key of the hashes that hide the names of informers and users from clients. Each process
    /// has its own key.
    pub tag_key: RandomState,
    /// The reads of each user, for `/debug/forwarded`.
    pub user_reads: UserReads,
    /// The list of open watches, for `/debug/watchers`.
    pub watchers: WatcherRegistry,
    /// The users who read objects without managedFields and can apply them.
    pub appliers: ApplierRegistry,
    /// When this token is cancelled, all watches of clients end.
    pub stop: CancellationToken,
}

/// A response and the source of its data, or why kubewarm sends no such response.
type HandlerResult = Result<(ResponseSource, OutgoingResponse), RequestError>;

struct HandledRequest {
    handler: HandlerLabel,
    resource: Option<Resource>,
    answered: HandlerResult,
}

impl HandledRequest {
    const fn without_resource(handler: HandlerLabel, answered: HandlerResult) -> Self {
        Self { handler, resource: None, answered }
    }

    /// Replaces an error for which kubewarm would forward the same request with a token. kubewarm
    /// cannot forward a request with a client certificate, and the new error states this reason. A
    /// malformed request keeps its own error, because that message is more useful.
    fn not_forwarded(self) -> Self {
        match &self.answered {
            Err(RequestError::Status(failure))
                if failure.is_specific_to_cache() && !matches!(failure.code(), 400 | 422) =>
            {
                let failure = StatusError::cannot_forward().into();
                Self::without_resource(HandlerLabel::Forward, Err(failure))
            }
            _ => self,
        }
    }
}

impl ReadApi {
    pub(super) async fn handle(
        &self,
        request: IncomingRequest,
    ) -> Result<OutgoingResponse, BrokenUpstream> {
        let started_at = Instant::now();
        let accept = request.head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let status_media_type = kubewarm_wire::status_media_type(accept);
        let is_pretty = status_media_type.is_none() || response::is_pretty(&request.head);
        let HandledRequest { handler, resource, answered } = self.answer(request).await;
        let resource = resource.as_ref();
        let observe = |code, outcome, source| {
            let observed = ResponseLabels { handler, resource, code, outcome, source };
            self.metrics.observe_response(&observed, started_at.elapsed());
        };
        let (is_rejection, source, response) = match answered {
            Ok((source, response)) => (false, source, response),
            Err(RequestError::Status(failure)) => {
                let media_type = status_media_type.unwrap_or_default();
                let response = response::failure(&failure, media_type, is_pretty);
                (failure.is_rejection(), ResponseSource::Rejected, response)
            }
            Err(RequestError::Broken(broken)) => {
                observe(None, MetricOutcome::Error, ResponseSource::Bypass);
                return Err(broken);
            }
        };
        let code = response.status().as_u16();
        let outcome =
            if is_rejection { MetricOutcome::Rejected } else { MetricOutcome::of_status(code) };
        observe(Some(code), outcome, source);
        response.body().count_bytes(self.metrics.response_bytes(resource));
        Ok(response)
    }

    /// Answers from stores, from the API server, or from stores and then from the API server if no
    /// store can answer.
    async fn answer(&self, request: IncomingRequest) -> HandledRequest {
        // kubewarm never forwards this path: the API server does not serve it, and the token is not
        // for the API server.
        if is_peer_store_path(request.head.uri.path()) {
            let answered = match &self.peers {
                Some(peers) => peers.answer(&request).await,
                None => Err(StatusError::no_such_path()),
            };
            let answered = answered.map(|response| (ResponseSource::Hit, response));
            let answered = answered.map_err(RequestError::from);
            return HandledRequest::without_resource(HandlerLabel::Peer, answered);
        }
        let (forward, undeclared) = match Route::of(self.forward.as_ref(), &request) {
            Ok(Route::Cache(parsed)) => {
                let handled = self.answer_from_cache(&request, parsed, false).await;
                return if self.forward.is_some() { handled.not_forwarded() } else { handled };
            }
            Ok(Route::Forward(forward)) => (forward, None),
            Ok(Route::CacheThenForward(forward, parsed)) => {
                match self.answer_from_cache(&request, parsed, true).await {
                    HandledRequest {
                        handler,
                        resource,
                        answered: Err(RequestError::Status(failure)),
                    } if failure.is_specific_to_cache() => {
                        let is_undeclared = failure.code() == 421;
                        let resource = resource.filter(|_| is_undeclared);
                        (forward, resource.map(|resource| (handler, resource)))
                    }
                    handled => return handled,
                }
            }
            Err(failure) => {
                return HandledRequest::without_resource(
                    HandlerLabel::Forward,
                    Err(failure.into()),
                );
            }
        };
        let mut sent = ForwardedRequest { undeclared, ..ForwardedRequest::default() };
        let answered = forward.send(request, &self.callers, &self.metrics, &mut sent).await;
        if answered.as_ref().is_ok_and(|response| response.status().is_success()) {
            sent.record_success(&self.metrics, &self.user_reads);
        }
        let answered = answered.map(|response| (ResponseSource::Bypass, response));
        HandledRequest { handler: HandlerLabel::Forward, resource: sent.resource, answered }
    }

    /// Answers from stores. With `can_forward`, the caller of this method forwards a request that
    /// fails with an error that is specific to kubewarm.
    async fn answer_from_cache(
        &self,
        request: &IncomingRequest,
        parsed: ParsedRequest,
        can_forward: bool,
    ) -> HandledRequest {
        let understood = credentials(request).and_then(|credentials| Ok((credentials, parsed?)));
        let (credentials, info) = match understood {
            Ok(understood) => understood,
            Err(failure) => {
                return HandledRequest::without_resource(HandlerLabel::Other, Err(failure.into()));
            }
        };
        let handler = match &info.target {
            RequestTarget::Document(..) => HandlerLabel::Discovery,
            RequestTarget::Objects(objects) => handler_of(objects),
        };
        let resource = match &info.target {
            RequestTarget::Document(..) => None,
            RequestTarget::Objects(objects) => Some(objects.resource.clone()),
        };
        let answered = self.answer_authorized(request, &credentials, info, can_forward).await;
        HandledRequest { handler, resource, answered }
    }

    async fn answer_authorized(
        &self,
        request: &IncomingRequest,
        credentials: &CallerCredentials,
        RequestInfo { profile, target }: RequestInfo,
        can_forward: bool,
    ) -> HandlerResult {
        let peer = request.connection.peer;
        let (first, kind) = match &target {
            RequestTarget::Document(document, _) => {
                (review::path("get", &document.path()), RequestKind::Read)
            }
            RequestTarget::Objects(objects) if objects.watch.is_some() => {
                (reviewed(objects), RequestKind::watch(request.head.uri.query()))
            }
            RequestTarget::Objects(objects) => (reviewed(objects), RequestKind::Read),
        };
        let admitted = self.callers.admit(credentials, &first, peer, kind).await;
        let mut admitted = admitted.map_err(|refused| {
            let refused = self.count(refused);
            refused_by(refused, &self.callers, |user, reason| match &target {
                RequestTarget::Document(document, _) => {
                    StatusError::forbidden_path(user, &document.path(), reason)
                }
                RequestTarget::Objects(objects) => {
                    StatusError::forbidden(user, &objects.access_attributes(), reason)
                }
            })
        })?;
        let limit_key = admitted.caller.limit_key;
        request.connection.accept(|| self.callers.acquire_connection(limit_key));
        let mut accesses = vec![first];
        if let Some(profile) = &profile {
            let access = profile_access(profile);
            let (labels, fields) = (LabelSelector::default(), FieldSelector::default());
            let review = review::resource(&access, &labels, &fields);
            let may = self.callers.authorize(&admitted.caller, &review).await;
            let forbidden =
                |user: &str, reason: Option<&str>| StatusError::forbidden(user, &access, reason);
            let authorized_at =
                may.map_err(|refused| refused_by(self.count(refused), &self.callers, forbidden))?;
            admitted.authorized_at = admitted.authorized_at.min(authorized_at);
            accesses.push(review);
        }
        match target {
            RequestTarget::Document(document, listing) => {
                let profile = profile.as_ref();
                let response = self.document(request, &document, listing, profile).await?;
                response.body().keep(self.permit(&admitted.caller, admitted.permit));
                Ok((ResponseSource::Hit, response))
            }
            RequestTarget::Objects(objects) => {
                if let Some(watching) = &objects.watch {
                    let (callers, accesses) = (Arc::clone(&self.callers), accesses.into());
                    let credentials = credentials.clone();
                    let reviewed = ReviewedWatch { callers, credentials, peer, accesses };
                    let profile = profile.as_ref();
                    let response =
                        self.watch(&objects, watching, profile, reviewed, admitted).await?;
                    return Ok((ResponseSource::Hit, response));
                }
                self.objects(request, &objects, profile.as_ref(), admitted, can_forward).await
            }
        }
    }

    async fn objects(
        &self,
        request: &IncomingRequest,
        objects: &ObjectRequest,
        profile: Option<&ProfileRef>,
        AdmittedRequest { caller, permit, .. }: AdmittedRequest,
        can_forward: bool,
    ) -> HandlerResult {
        let large = self.callers.large_object_permits(caller.limit_key);
        let answer = self.reads.read(objects, profile, &caller.name, &large, can_forward).await?;
        self.note_read(&caller, objects, Some(&answer.source));
        let from = if answer.has_waited { ResponseSource::Wait } else { ResponseSource::Hit };
        let permits = self.callers.large_response_permits(&caller);
        let (response, age) =
            response::objects(&request.head, answer, &self.tag_key, permits).await?;
        if let Some(age) = age {
            self.reads.observe_staleness(&objects.resource, age);
        }
        response.body().keep(self.permit(&caller, permit));
        Ok((from, response))
    }

    fn note_read(
        &self,
        caller: &AuthenticatedCaller,
        objects: &ObjectRequest,
        source: Option<&ReadSource>,
    ) {
        self.user_reads.count_served(handler_of(objects), &caller.user.name, Timestamp::now());
        let Some(ReadSource { informer, .. }) = source else { return };
        self.appliers.note_read(&self.callers, caller, informer, objects.namespace.as_deref());
    }

    fn count(&self, refused: CallerRejection) -> CallerRejection {
        self.metrics.count_refusal(&refused);
        refused
    }

    fn permit(&self, caller: &AuthenticatedCaller, permit: KeyedPermit) -> ResponsePermit {
        ResponsePermit::timely(permit, self.callers.unwritten_byte_permits(caller.limit_key))
    }

    async fn watch(
        &self,
        objects: &ObjectRequest,
        watching: &WatchOptions,
        profile: Option<&ProfileRef>,
        reviewed: ReviewedWatch,
        AdmittedRequest { caller, permit: request, watch: place, authorized_at }: AdmittedRequest,
    ) -> Result<OutgoingResponse, StatusError> {
        let large = self.callers.large_object_permits(caller.limit_key);
        let feed = self.reads.watch(objects, watching, profile, &caller.name, &large).await?;
        self.note_read(&caller, objects, feed.source());
        let user = &caller.user;
        let who = response::keyed_tag(&self.tag_key, (&user.name, &user.uid));
        let informer =
            feed.source().map(|source| response::keyed_tag(&self.tag_key, &source.informer));
        let entered = self.watchers.register(who, informer, objects, &feed, Timestamp::now());
        let counted = self.metrics.open_watch(&objects.resource);
        let permit =
            ResponsePermit::lasting(place, self.callers.unwritten_byte_permits(caller.limit_key));
        let watch = WatchSession {
            feed,
            review: WatchReview::new(reviewed, caller, authorized_at),
            request: Some(request),
            counted,
            _entry: entered,
            stop: self.stop.clone(),
            stop_at: None,
        };
        Ok(watch.response(&self.tag_key, permit))
    }

    async fn document(
        &self,
        request: &IncomingRequest,
        document: &ApiDocument,
        listing: DiscoveryForm,
        profile: Option<&ProfileRef>,
    ) -> Result<OutgoingResponse, StatusError> {
        if *document == ApiDocument::Version {
            return self.version(request).await;
        }
        let kinds = self.reads.list_kinds(profile).await?;
        let sent = render_discovery_document(&kinds, document, listing);
        let sent = sent.ok_or_else(StatusError::no_such_path)?;
        Ok(response::document(&request.head, sent, profile.is_some()))
    }

    async fn version(&self, request: &IncomingRequest) -> Result<OutgoingResponse, StatusError> {
        let version = self.version.get(&self.runtime).await.map_err(|fault| {
            tracing::debug!(%fault, "cannot read the API server's version");
            StatusError::unavailable("the API server's version cannot be read; try again", 1)
        })?;
        Ok(response::json(&request.head, version.document()))
    }
}

fn handler_of(objects: &ObjectRequest) -> HandlerLabel {
    match (&objects.name, &objects.watch) {
        (Some(_), _) => HandlerLabel::Get,
        (None, Some(_)) => HandlerLabel::Watch,
        (None, None) => HandlerLabel::List,
    }
}

pub(super) fn credentials(request: &IncomingRequest) -> Result<CallerCredentials, StatusError> {
    let headers = request.head.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let chain = request.connection.chain.clone();
    CallerCredentials::with_chain(chain, headers).map_err(no_credentials)
}

/// The access review of a request, with the request's namespace, name and selectors. The review
/// omits selectors by indexes of profiles, because no authorizer supports these selectors. So the
/// review is about more objects, never about fewer.
fn reviewed(objects: &ObjectRequest) -> SelfSubjectAccessReviewSpec {
    review::resource(&objects.access_attributes(), &objects.labels, &objects.reviewed_fields())
}

fn profile_access(profile: &ProfileRef) -> kubewarm_wire::AccessAttributes<'_> {
    kubewarm_wire::AccessAttributes {
        verb: "get",
        group: "kubewarm.io",
        version: "v1alpha1",
        resource: "cacheprofiles",
        namespace: &profile.namespace,
        name: &profile.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The field selector in the access review of a request to `path` with the field selector
    /// `fields`.
    fn fields(path: &str, fields: &str) -> String {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("fieldSelector", fields)
            .append_pair("labelSelector", "app")
            .finish();
        let RequestTarget::Objects(objects) =
            RequestInfo::parse("GET", path, Some(&query), None).unwrap().target
        else {
            panic!("{path}")
        };
        let reviewed = reviewed(&objects).resource_attributes.unwrap();
        let labels = reviewed.label_selector.and_then(|selector| selector.requirements).unwrap();
        assert!(
            matches!(&*labels, [requirement] if requirement.key == "app" && requirement.operator == "Exists")
        );
        let fields =
            reviewed.field_selector.and_then(|selector| selector.requirements).unwrap_or_default();
        let fields = fields.iter().map(|requirement| {
            let equals = if requirement.operator == "In" { "=" } else { "!=" };
            format!(
                "{}{equals}{}",
                requirement.key,
                requirement.values.as_deref().unwrap_or_default().join("|")
            )
        });
        fields.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn selecting_by_an_index_grants_no_additional_access() {
        let (pods, parts) = ("/api/v1/pods", "/apis/example.com/v1/parts");
        for (path, asked, expected) in [
            (pods, "index.kubewarm.io/by-app=web", ""),
            (pods, "index.kubewarm.io/by-app!=web,spec.nodeName=n,x=1", "spec.nodeName=n,x=1"),
            (pods, "metadata.name=p,index.kubewarm.io/type=x", "metadata.name=p"),
            (parts, "size=3,spec.size=3", "size=3,spec.size=3"),
        ] {
            assert_eq!(fields(path, asked), expected, "{path} {asked}");
        }
    }
}
