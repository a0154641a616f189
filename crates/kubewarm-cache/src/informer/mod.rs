//! Informers: each lists and watches one resource, fills one store, and reports its state.
//!
//! The controller starts and stops informers through `Registry`. Readers, metrics and statuses
//! use `Reports`. Inside, `registry.rs` runs one `task.rs` per informer; `list.rs` and `watch.rs`
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
    cell::OwnAccess,
    changes::Changes,
    compare::ConsistencyResult,
    metrics::{
        CONSISTENCY_OUTCOMES, InformerMetrics, LIST_OUTCOMES, OTHER, REQUEST_BUCKETS,
        RESOURCE_LABELS, ResourceMetrics, code_label,
    },
    plan::{Desired, Plan, plan},
    proof::{Proof, Proofs},
    registry::{Bounds, Registry, Reports},
    report::{
        CellFault, CellReport, EventKind, ListMethod, Loss, Phase, Quantiles, Relist, RelistReason,
        Stage, Undecodable, Warmed, WatchEnd,
    },
    sample::{Depth, Looked, look, try_cell},
    strategy::Strategies,
    timing::Timing,
    trial::{Answer, Trial},
};
pub use kubewarm_api::model::Verb;
