//! What is remembered of a profile between two runs, and whether it runs instead of a spec that cannot be run.

use super::{
    admission::{Admission, NAMESPACE_MEBIBYTES, PROCESS_MEBIBYTES},
    intake::{Found, Unrunnable},
    settle::KnownTarget,
};
use jiff::Timestamp;
use kubewarm_api::{
    model::{Budget, Charge, Declared, Subject, ValidatedProfile},
    v1alpha1::AccessStatus,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// What is remembered of a profile between two runs.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) created: Option<Timestamp>,
    /// The newest valid generation, which is the one that runs; forgotten once a newer one, valid or
    /// not, names somebody else to read, and when it does not fit beside the specs that are held.
    pub(super) valid: Arc<ValidatedProfile>,
    spec_bytes: u64,
    /// What counts these once a newer generation cannot be run.
    kept: Option<Charge>,
    pub(super) accepted_at: Duration,
    pub(super) budget: Arc<Budget>,
    pub(super) targets: BTreeMap<Arc<str>, KnownTarget>,
    /// The roles, as long as the declared cells and the subject stay the same.
    pub(super) access: Option<(Arc<Declared>, Subject, Option<Arc<AccessStatus>>)>,
}

impl Known {
    /// Of a profile that nothing is known of yet.
    pub(super) fn new(
        found: &Found,
        valid: &Arc<ValidatedProfile>,
        budget: Arc<Budget>,
        now: Duration,
    ) -> Self {
        Self {
            created: found.created,
            valid: Arc::clone(valid),
            spec_bytes: found.spec_bytes,
            kept: None,
            accepted_at: now,
            budget,
            targets: BTreeMap::new(),
            access: None,
        }
    }

    /// Has the newest generation run, which is `valid`.
    pub(super) fn accept(
        &mut self,
        found: &Found,
        valid: &Arc<ValidatedProfile>,
        admission: &Admission,
        now: Duration,
    ) {
        if self.valid.generation != valid.generation {
            self.accepted_at = now;
            // An edit is a new chance.
            self.targets.values_mut().for_each(|state| state.limited = None);
        }
        (self.valid, self.spec_bytes) = (Arc::clone(valid), found.spec_bytes);
        self.release(admission);
    }

    /// Whether the last valid spec runs instead of one that cannot be run; else why not, for the author.
    ///
    /// Not one that is read as somebody else: nobody has been asked whether the author of the new one may
    /// see what that identity reads. Nor one that does not fit beside the specs that are held: else a tenant
    /// could have as many large specs in memory as there are profiles, by emptying one after the other.
    pub(super) fn keep(
        &mut self,
        Unrunnable { identity, .. }: &Unrunnable,
        admission: &Admission,
    ) -> Result<(), String> {
        let reader = self.valid.identity();
        let refused = match identity {
            None => {
                "the last valid generation does not run either, because it is not known as whom \
                     the newest one reads"
                    .to_owned()
            }
            Some(named) if *named != reader => format!(
                "the last valid generation was read as {reader}, whom the profile names no longer"
            ),
            Some(_) => {
                if self.kept.is_none() {
                    self.kept = admission.keep(&self.valid.profile.namespace, self.spec_bytes);
                }
                if self.kept.is_some() {
                    return Ok(());
                }
                format!(
                    "the last valid generation is not kept, since the specs that are held of one namespace \
                     may have {NAMESPACE_MEBIBYTES} MiB together, and those of all namespaces \
                     {PROCESS_MEBIBYTES} MiB"
                )
            }
        };
        self.release(admission);
        Err(refused)
    }

    fn release(&mut self, admission: &Admission) {
        if self.kept.take().is_some() {
            admission.note_freed();
        }
    }
}
