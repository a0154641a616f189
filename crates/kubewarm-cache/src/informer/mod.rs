//! Informers: each lists and watches one resource, fills one store, and reports its state.
//!
//! The controller starts and stops informers through `InformerRegistry`. kubewarm's HTTP server for
//! clients, its metrics and the profile statuses get the state of informers from `InformerHandles`.
//! `registry.rs` runs one `InformerTask` per informer.
//!
//! - `task` lists and watches, and decides what to send next.
//! - `requests` builds and sends requests, and limits them. `kubewarm_wire::upstream` parses the
//!   responses.
//! - `report` has the state that statuses, metrics and clients see.

mod plan;
mod registry;
mod report;
mod requests;
mod shared_informer;
mod task;
mod timing;

pub use self::{
    plan::{DesiredInformers, InformerChanges, plan},
    registry::{InformerHandles, InformerRegistry, PeerStore, RegistryLimits},
    report::{
        DecodeStage, FirstSync, FirstSyncMethod, InformerFault, InformerPhase, InformerReport,
        KEPT_BY_BOOKMARKS, LatencyQuantiles, ListMethod, RelistReason, RelistReport,
        UndecodableObject, UpstreamWatchEnd,
        access_counter::AccessCounter,
        change_notifier::ChangeNotifier,
        metrics::{
            CONSISTENCY_OUTCOMES, InformerMetrics, LIST_OUTCOMES, OTHER, REQUEST_BUCKETS,
            RESOURCE_LABELS, ResourceMetrics, code_label,
        },
        own_requests::{OwnRequests, VerbResults},
        permission_state::{InformerPermission, PermissionDenial, PermissionState},
    },
    requests::{
        access_check::{AccessCheckResult, AccessDecision},
        freshness_checker::{FreshnessCheckResult, FreshnessChecker},
        list_method::ListMethodSupport,
        sample_page::{
            SamplePage, SamplePageError, SampleProjection, SampleRequest, check_access,
            fetch_sample_page,
        },
    },
    task::consistency_check::ConsistencyResult,
    timing::InformerTiming,
};
pub use kubewarm_api::model::Verb;
