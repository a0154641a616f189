//! Compares the table of a watching cell with a list, now and then: a watch that leaves something out says
//! nothing of it.
//!
//! The list is of the very version that the table has, so nothing that happens meanwhile can make a difference.
//! Only names, UIDs and versions are compared.

use super::{digest::NameDigest, stream::End, task::Task};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
};
use kubewarm_api::model::{Fault, Projection, Reason};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

/// How a comparison ended: the label of `kubewarm_consistency_checks_total`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::AsRefStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Comparison {
    /// Table and list name the same.
    Equal,
    /// They do not: the cell is listed anew.
    Different,
    /// Nothing could be compared: the table lacks what did not decode, versions have no order, or the
    /// API server does not list at a version that was.
    Skipped,
    /// The API server did not answer, or refused.
    #[strum(serialize = "error")]
    Failed,
}

/// When a cell was last compared; outlives its watches.
#[derive(Debug)]
pub(super) struct Turn {
    last: Instant,
    /// Of the interval: cells that were declared together are not compared together.
    part: f64,
}

impl Turn {
    /// From now on.
    pub(super) fn new() -> Self {
        Self { last: Instant::now(), part: 0.8 + 0.4 * fastrand::f64() }
    }

    /// When the next one is due.
    fn due(&self, interval: Option<Duration>) -> Option<Instant> {
        self.last.checked_add(interval?.mul_f64(self.part))
    }
}

impl Task {
    /// Ready when the table is to be compared. Cancel safe.
    pub(super) fn comparison_due(&self) -> impl Future<Output = ()> + use<> {
        let due = self.turn.due(self.informer.tuning(|tuning| tuning.verify_interval));
        async move {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        }
    }

    /// Begins a comparison with what the table holds now, if that can be compared.
    pub(super) fn compare(&mut self) -> Fuse<BoxFuture<'static, Comparison>> {
        self.turn = Turn::new();
        let (held, version) = NameDigest::new().of_table(&self.informer.reader);
        let is_whole = self.rejected == 0
            && !self.informer.status().has_undecodable()
            && self.informer.key.projection != Projection::Profile;
        let at = version.filter(|version| is_whole && !version.is_opaque());
        let Some(at) = at.filter(|at| self.version().as_ref() == Some(at)) else {
            self.metrics.compared(Comparison::Skipped);
            return Fuse::terminated();
        };
        let (list_watch, shared) = (self.list_watch.clone(), Arc::clone(&self.shared));
        let limit = self.informer.tuning(|tuning| tuning.page_size);
        let namespace = self.namespace_of_profile();
        let comparing = async move {
            let _permit = shared.comparisons.acquire(&namespace).await;
            let payer = (&shared.buckets, &namespace);
            Comparison::of(held.is_list_at(&list_watch, &at, limit, payer).await)
        };
        comparing.boxed().fuse()
    }

    /// What a comparison that has ended means for the watch.
    pub(super) fn compared(&self, comparison: Comparison) -> Option<End> {
        self.metrics.compared(comparison);
        if comparison != Comparison::Different {
            return None;
        }
        tracing::error!(
            cell = %self.informer.key,
            version = self.version().map(|version| version.to_string()),
            "the table is not what the API server has at its version: listing anew"
        );
        Some(End::Inconsistent)
    }
}

impl Comparison {
    fn of(answer: Result<Option<bool>, Fault>) -> Self {
        match answer {
            Ok(Some(true)) => Self::Equal,
            Ok(Some(false)) => Self::Different,
            Ok(None) => Self::Skipped,
            // That version is not kept any more, or never was to be had.
            Err(fault) if matches!(fault.reason(), Reason::Gone | Reason::Unsupported) => {
                Self::Skipped
            }
            Err(fault) => {
                tracing::debug!(%fault, "nothing to compare with");
                Self::Failed
            }
        }
    }
}
