//! Access checks: one minimal list and one minimal watch show whether the API server permits both
//! verbs.

use super::list_watch_client::ListWatchClient;
use crate::informer::task::session::missing_namespace;
use kubewarm_api::model::{
    FaultReason, InformerKey, NamespaceCheckPolicy, RequestFault, ResourceVersion, Verb,
};
use kubewarm_client::fetch_namespace_existence;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Time limit for each request of an access check. The API server itself would end a slow request
/// only after 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// `timeoutSeconds` of an access check's watch. kubewarm closes this watch when the response
/// headers have arrived, because the API server sends them only after it has authorized the watch.
const WATCH_TIMEOUT: Duration = Duration::from_secs(1);
/// Resource version from which an access check watches if its list returned no version, for example
/// because the API server rejected the list.
///
/// The etcd of every cluster has compacted version 1. The API server authorizes a watch from this
/// version, and then rejects the watch with 410.
const COMPACTED_VERSION: u64 = 1;

/// Result of one request of an access check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    /// The API server authorized the request.
    Allowed,
    /// The informer's identity has no access ([`FaultReason::is_access_denied`]), or the informer's
    /// namespace does not exist.
    Refused(RequestFault),
    /// The API server's response does not show whether the request is permitted. Examples are a
    /// timeout, a 5xx, and a resource that the API server does not serve.
    Undecided(RequestFault),
}

/// The result of an access check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessCheckResult {
    /// When kubewarm sent the check's first request. The result is evidence of access at this time.
    pub sent: Instant,
    /// Number of requests that kubewarm sent, at most three: the list, the watch, and a lookup of
    /// the namespace.
    pub requests: usize,
    /// Whether the list is permitted.
    pub list: AccessDecision,
    /// Whether the watch is permitted.
    pub watch: AccessDecision,
}

impl AccessCheckResult {
    /// Lists the metadata of one object, and opens a watch from the list's version. Both requests
    /// have the informer's path and selectors.
    ///
    /// If the list is `Refused`, kubewarm still sends the watch, because RBAC can grant either verb
    /// alone. If the list is `Undecided`, kubewarm sends no watch, which would fail for the same
    /// reason.
    ///
    /// # Cost
    ///
    /// Two requests of at most 20 s each. After a 401 or 403 in a namespace, a third request checks
    /// whether the namespace exists, because a namespace's Roles disappear with it. If `key` has an
    /// invalid namespace or requests a forbidden Secret payload, kubewarm sends no request.
    pub async fn run(
        client: &Arc<kube::Client>,
        key: &InformerKey,
        check: NamespaceCheckPolicy,
    ) -> Self {
        let sent = Instant::now();
        let list_watch = match ListWatchClient::new(client, key) {
            Ok(list_watch) => list_watch,
            Err(fault) => {
                let refused = || AccessDecision::Refused(fault.clone());
                return Self { sent, requests: 0, list: refused(), watch: refused() };
            }
        };
        let peek = list_watch.peek(REQUEST_TIMEOUT).await;
        let version = peek.as_ref().ok().and_then(|meta| meta.version().ok());
        let list = peek.map_or_else(AccessDecision::from_fault, |_| AccessDecision::Allowed);
        if let AccessDecision::Undecided(fault) = &list {
            let watch = AccessDecision::Undecided(fault.clone());
            return Self { sent, requests: 1, list, watch };
        }
        let version = version.unwrap_or_else(|| ResourceVersion::from(COMPACTED_VERSION));
        let opened = list_watch
            .open(REQUEST_TIMEOUT, |endpoint| endpoint.watch(&version, WATCH_TIMEOUT))
            .await;
        let watch = match opened {
            Ok(_ended_by_dropping) => AccessDecision::Allowed,
            // The API server authorizes a watch before it checks the version, so a 410 shows that
            // the watch is permitted.
            Err(fault) if fault.reason() == FaultReason::Gone => AccessDecision::Allowed,
            Err(fault) => AccessDecision::from_fault(fault),
        };
        let mut access_check = Self { sent, requests: 2, list, watch };
        if let (Some(_), NamespaceCheckPolicy::Require, Some(name)) =
            (access_check.refusal(), check, key.scope.namespace())
        {
            access_check.requests += 1;
            if let Some(fault) =
                missing_namespace(&key.scope, fetch_namespace_existence(client, name).await)
            {
                access_check.refuse_for(&fault);
            }
        }
        access_check
    }

    /// Returns the rejected verb and the API server's reason. If both verbs are rejected, returns
    /// `List`.
    pub fn refusal(&self) -> Option<(Verb, &RequestFault)> {
        fn refused(verb: Verb, decision: &AccessDecision) -> Option<(Verb, &RequestFault)> {
            match decision {
                AccessDecision::Refused(fault) => Some((verb, fault)),
                AccessDecision::Allowed | AccessDecision::Undecided(_) => None,
            }
        }
        refused(Verb::List, &self.list).or_else(|| refused(Verb::Watch, &self.watch))
    }

    fn refuse_for(&mut self, fault: &RequestFault) {
        for decision in [&mut self.list, &mut self.watch] {
            if matches!(decision, AccessDecision::Refused(_)) {
                *decision = AccessDecision::Refused(fault.clone());
            }
        }
    }
}

impl AccessDecision {
    /// Returns the fault of an `Undecided` result, otherwise `None`.
    pub fn undecided_fault(&self) -> Option<&RequestFault> {
        match self {
            Self::Undecided(fault) => Some(fault),
            Self::Allowed | Self::Refused(_) => None,
        }
    }

    fn from_fault(fault: RequestFault) -> Self {
        if fault.reason().is_access_denied() {
            Self::Refused(fault)
        } else {
            Self::Undecided(fault)
        }
    }
}
