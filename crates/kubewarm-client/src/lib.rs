//! Clients of the Kubernetes API server: connections, ServiceAccount tokens, discovery,
//! TokenReviews, access reviews and leader election.

mod account;
mod account_policy;
mod api_client;
mod caller;
mod client_provider;
mod command_request;
mod config_source;
mod connection;
mod context_user;
mod crd;
mod discovery;
mod expiring_cache;
pub mod fault;
mod keyed_semaphore;
mod keyed_token_bucket;
mod kubeconfig;
mod lease;
mod namespace;
mod options;
mod peer_replicas;
mod proxy;
mod review;
mod server_reachability;
mod server_version;
mod stream_connector;
mod transport;
mod upstream_proxy;
mod work_queue;

pub use self::{
    account::AccountClients,
    account_policy::fetch_account_policy_enforcement,
    api_client::{ApiClient, ApiRequest, ApiResponse},
    caller::{
        AuthenticationResult, AuthorizationResult, BearerCredentials, CallerInfo, CallerReviewer,
    },
    client_provider::ClientProvider,
    command_request::{dry_run, get, get_all},
    connection::{ApiServerConnection, ConnectError},
    context_user::{ContextUser, load_context_user},
    crd::{CrdInfo, SelectableFields, fetch_crd},
    discovery::{Discovery, ServedResources, is_builtin_group},
    expiring_cache::{CacheEntry, ExpiringCache},
    keyed_semaphore::{KeyedAcquireError, KeyedPermit, KeyedSemaphore, SemaphoreUsage},
    keyed_token_bucket::{KeyedTokenBucket, NamespaceBuckets},
    kubeconfig::{kubeconfig_cluster, single_context_kubeconfig},
    lease::{LeaderElector, LeaseState},
    namespace::{NamespaceExistence, fetch_namespace_existence, is_terminating},
    options::ConnectionOptions,
    peer_replicas::{NEWLY_READY, PeerOptions, PeerReplica, PeerReplicas},
    review::{
        ReviewedRules, fetch_own_subject, is_allowed, is_permitted, review_rules,
        service_account_groups, with_selectors,
    },
    server_reachability::ServerReachability,
    server_version::{ServerVersion, ServerVersionCache},
    stream_connector::StreamConnector,
    transport::StreamingBody,
    upstream_proxy::{UpstreamError, UpstreamProxy},
    work_queue::WorkQueue,
};
