//! Clients of the Kubernetes API server: connections, identities, discovery, reviews and leader election.

mod account;
mod api_client;
mod authors;
mod bucket;
mod caller;
mod client;
mod clients;
mod definition;
mod discovery;
mod expiring;
pub mod fault;
mod keyed_semaphore;
mod kubeconfig;
mod lease;
mod namespace;
mod options;
mod proxy;
mod question;
mod review;
mod source;
mod transport;
mod upstream;
mod work_queue;

pub use self::{
    account::AccountClients,
    api_client::{ApiClient, ApiRequest, ApiResponse},
    authors::fetch_account_policy_state,
    bucket::{KeyedTokenBucket, NamespaceBuckets},
    caller::{
        AuthenticationResult, AuthorizationResult, BearerCredentials, CallerInfo, CallerReviewer,
    },
    client::{ApiServerConnection, ConnectError},
    clients::ClientProvider,
    definition::{CrdInfo, SelectableFields, definition},
    discovery::{Discovery, ServedResources, is_builtin_group},
    expiring::{CacheEntry, ExpiringCache},
    keyed_semaphore::{Exhausted, KeyedPermit, KeyedSemaphore, SemaphoreUsage},
    kubeconfig::{CurrentContext, present},
    lease::{LeaderElector, LeaseState},
    namespace::{NamespaceExistence, existence, is_leaving},
    options::ConnectionOptions,
    question::{dry_run, get, get_all},
    review::{ReviewedRules, fetch_own_subject, is_allowed, may, review_rules, with_selectors},
    transport::StreamingBody,
    upstream::{UpstreamError, UpstreamProxy},
    work_queue::WorkQueue,
};
