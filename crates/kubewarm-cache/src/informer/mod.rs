//! Informers: each lists and watches one resource, fills one store, and reports its state.
//!
//! The controller starts and stops informers through `InformerRegistry`. kubewarm's HTTP server for
//! clients, its metrics and the profile statuses get the state of informers from `InformerReports`.
//! `registry.rs` runs one `InformerTask` (`task.rs`) per informer, which lists (`list.rs`) and
//! watches (`watch.rs`).

mod access_check;
mod access_gate;
mod backoff;
mod budget_wait;
mod change_notifier;
mod consistency_check;
mod cut;
mod decoder;
mod digest;
mod event_delivery;
mod event_splitter;
mod frame_splitter;
mod freshness_checker;
mod json_list_splitter;
mod latency_window;
mod line_splitter;
mod list;
mod list_method;
mod list_slots;
mod list_splitter;
mod list_watch_client;
mod metadata;
mod metrics;
mod partial_item;
mod peek;
mod pending_proofs;
mod plan;
mod proof_list;
mod proof_schedule;
mod protobuf_list_splitter;
mod protobuf_support;
mod registry;
mod report;
mod request;
mod request_builder;
mod sample_page;
mod shared_informer;
mod status;
mod task;
mod task_state;
mod timing;
mod upstream_event;
mod watch;
mod watch_list;
mod watch_probe;
mod watch_stream;

pub use self::{
    access_check::{AccessCheckResult, AccessDecision},
    change_notifier::ChangeNotifier,
    consistency_check::ConsistencyResult,
    freshness_checker::{FreshnessCheckResult, FreshnessChecker},
    list_method::ListMethodSupport,
    metrics::{
        CONSISTENCY_OUTCOMES, InformerMetrics, LIST_OUTCOMES, OTHER, REQUEST_BUCKETS,
        RESOURCE_LABELS, ResourceMetrics, code_label,
    },
    plan::{DesiredInformers, InformerPlan, plan},
    registry::{InformerRegistry, InformerReports, RegistryLimits},
    report::{
        AccessLoss, DecodeStage, FirstSync, InformerFault, InformerPhase, InformerReport,
        LatencyQuantiles, ListMethod, RelistReason, RelistReport, UndecodableObject,
        UpstreamEventType, UpstreamWatchEnd,
    },
    sample_page::{
        SamplePage, SamplePageError, SampleProjection, SampleRequest, check_access,
        fetch_sample_page,
    },
    shared_informer::ListWatchAccess,
    timing::InformerTiming,
};
pub use kubewarm_api::model::Verb;
