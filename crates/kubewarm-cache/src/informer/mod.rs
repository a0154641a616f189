//! Informers: each lists and watches one resource, fills one store, and reports its state.
//!
//! The controller starts and stops informers through `InformerRegistry`. Readers, metrics and statuses
//! use `InformerReports`. Inside, `registry.rs` runs one `task.rs` per informer; `list.rs` and `watch.rs`
//! are its two activities.

mod backoff;
mod cell;
mod changes;
mod compare;
mod cut;
mod decode;
mod deliver;
mod digest;
mod endpoint;
mod event;
mod gate;
mod latency;
mod lines;
mod list;
mod list_watch;
mod metadata;
mod metrics;
mod peek;
mod plan;
mod probe;
mod proof;
mod registry;
mod report;
mod room;
mod sample;
mod slots;
mod split;
mod state;
mod status;
mod strategy;
mod stream;
mod streaming;
mod task;
mod timing;
mod trial;
mod upstream;
mod watch;

pub use self::{
    cell::ListWatchAccess,
    changes::ChangeNotifier,
    compare::ConsistencyResult,
    metrics::{
        CONSISTENCY_OUTCOMES, InformerMetrics, LIST_OUTCOMES, OTHER, REQUEST_BUCKETS,
        RESOURCE_LABELS, ResourceMetrics, code_label,
    },
    plan::{DesiredInformers, InformerPlan, plan},
    proof::{FreshnessCheck, FreshnessChecker},
    registry::{InformerRegistry, InformerReports, RegistryLimits},
    report::{
        AccessLoss, DecodeStage, FirstSync, InformerFault, InformerPhase, InformerReport,
        LatencyQuantiles, ListMethod, RelistReason, RelistReport, UndecodableObject,
        UpstreamEventType, UpstreamWatchEnd,
    },
    sample::{SampleDepth, SamplePage, check_access, look},
    strategy::ListMethodSupport,
    timing::InformerTiming,
    trial::{AccessCheck, AccessDecision},
};
pub use kubewarm_api::model::Verb;
