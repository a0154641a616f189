//! Compares the table of a watching cell with a list, now and then: a watch that leaves something out says
//! nothing of it.
//!
//! The list is of the very version that the table has, so nothing that happens meanwhile can make a difference.
//! Only names, UIDs and versions are compared.

use super::{digest::NameDigest, endpoint::Part, stream::End, task::Task};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
};
use kubewarm_api::model::{Fault, Reason};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

/// How a comparison ended: the label of `kubewarm_consistency_checks_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
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

/// For each page of a list that is compared with a table.
const PAGE: Duration = Duration::from_mins(1);

impl Task {
    /// Ready when the table is to be compared. Cancel safe.
    pub(super) fn comparison_due(&self) -> impl Future<Output = ()> + use<> {
        let period = self.informer.tuning(|tuning| tuning.consistency_check_period);
        let due = period.and_then(|period| {
            self.compared_at.checked_add(period.mul_f64(self.compared_part))
        });
        async move {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        }
    }

    /// Begins a comparison of what the table holds now with what the API server lists at the table's version, if the
    /// table can be compared. Each request draws on the spare part of the namespace's bucket.
    pub(super) fn compare(&mut self) -> Fuse<BoxFuture<'static, Comparison>> {
        self.compared_at = Instant::now();
        let (held, version) = NameDigest::new().of_table(&self.informer.reader);
        let is_whole = self.rejected == 0 && !self.informer.status().has_undecodable();
        let at = version.filter(|version| is_whole && !version.is_opaque());
        let Some(at) = at.filter(|at| self.version().as_ref() == Some(at)) else {
            self.metrics.compared(Comparison::Skipped);
            return Fuse::terminated();
        };
        let (list_watch, shared) = (self.list_watch.clone(), Arc::clone(&self.shared));
        let limit = self.informer.tuning(|tuning| tuning.lists.page_size);
        let namespace = self.namespace_of_profile();
        let comparing = async move {
            let _permit = shared.comparisons.acquire(&namespace).await;
            let mut listed = held.empty();
            let mut token = String::new();
            loop {
                while let Err(open_at) = shared.buckets.draw_spare(&namespace, Instant::now()) {
                    sleep_until(open_at).await;
                }
                let part = Part::Page { limit, token: &token };
                let page = match listed.add_page(&list_watch, Some(&at), part, PAGE).await {
                    Ok(page) => page,
                    Err(fault) => return Comparison::failed(&fault),
                };
                if page.version().ok().as_ref() != Some(&at) {
                    return Comparison::Skipped;
                }
                if page.token.is_empty() {
                    let is_equal = held.matches(&listed);
                    return if is_equal { Comparison::Equal } else { Comparison::Different };
                }
                token = page.token;
            }
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
    fn failed(fault: &Fault) -> Self {
        // That version is not kept any more, or never was to be had.
        if matches!(fault.reason(), Reason::Gone | Reason::Unsupported) {
            return Self::Skipped;
        }
        tracing::debug!(%fault, "nothing to compare with");
        Self::Failed
    }
}
