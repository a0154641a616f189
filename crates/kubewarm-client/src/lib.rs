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
    account::Accounts,
    api_client::{Answer, ApiClient, ApiRequest},
    authors::author_check,
    bucket::{Buckets, KeyedBucket},
    caller::{Presented, Reviewer, User, Verdict, Who},
    client::{ConnectError, Connection},
    clients::Clients,
    definition::{Definition, SelectableFields, definition},
    discovery::{Discovery, Served, is_builtin_group},
    expiring::{CacheEntry, Expiring},
    keyed_semaphore::{Exhausted, KeyedPermit, KeyedSemaphore, SemaphoreUsage},
    kubeconfig::{Present, present},
    lease::{Elector, LeaseState},
    namespace::{Existence, existence, is_leaving},
    options::ConnectionOptions,
    question::{dry_run, get, get_all},
    review::{ReviewedRules, is_allowed, may, rules_of, whoami, with_selectors},
    transport::Piped,
    upstream::{NotSent, Upstream},
    work_queue::WorkQueue,
};
