use super::{
    known_target::KnownTarget,
    profile_parser::{ClusterProfile, InvalidProfile},
    quota::ProfileQuota,
};
use jiff::Timestamp;
use kubewarm_api::{
    model::{Budget, BudgetCharge, ResolvedProfile, Subject, ValidatedProfile},
    v1alpha1::AccessStatus,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

#[derive(Debug)]
pub(super) struct KnownProfile {
    pub(super) created: Option<Timestamp>,
    /// The profile's newest valid generation, from which the controller derives the informers.
    /// These informers stop if a newer, invalid generation names another identity. They also stop
    /// if the last valid spec does not fit into the limits for stored specs.
    pub(super) valid: Arc<ValidatedProfile>,
    /// Memory of the profile without its status, informers and stores, in bytes. The limits for
    /// stored specs count this memory.
    memory: u64,
    /// Counts the spec of `valid` against the limits for stored specs. `None` while the newest
    /// generation is valid, because the store of profiles then already counts this spec.
    last_valid_charge: Option<BudgetCharge>,
    pub(super) accepted_at: Duration,
    pub(super) budget: Arc<Budget>,
    /// The state of each target, by the target's name. The states are boxed because each node of
    /// the map has space for eleven values. Without boxes, a profile with one target would take 11
    /// KiB.
    pub(super) targets: BTreeMap<Arc<str>, Box<KnownTarget>>,
    /// The cached `status.access`, so that a reconciliation need not compute it again. The first
    /// two values are the resolved profile and the operator's identity from which `status.access`
    /// was computed.
    pub(super) access: Option<(Arc<ResolvedProfile>, Subject, Option<Arc<AccessStatus>>)>,
}

impl KnownProfile {
    pub(super) fn new(
        profile: &ClusterProfile,
        valid: &Arc<ValidatedProfile>,
        budget: Arc<Budget>,
        now: Duration,
    ) -> Self {
        Self {
            created: profile.created,
            valid: Arc::clone(valid),
            memory: profile.memory,
            last_valid_charge: None,
            accepted_at: now,
            budget,
            targets: BTreeMap::new(),
            access: None,
        }
    }

    /// Replaces the last valid generation of the profile by `valid`, the newest generation.
    pub(super) fn accept(
        &mut self,
        profile: &ClusterProfile,
        valid: &Arc<ValidatedProfile>,
        quota: &ProfileQuota,
        now: Duration,
    ) {
        if self.valid.generation != valid.generation {
            self.accepted_at = now;
            // After an edit, the targets that a limit stopped run again, because the edit can have
            // reduced their objects.
            self.targets.values_mut().for_each(|state| state.limited = None);
        }
        (self.valid, self.memory) = (Arc::clone(valid), profile.memory);
        self.release(quota);
    }

    /// Keeps the last valid generation running while the newest generation is invalid.
    ///
    /// The invalid spec must name the same identity as the last valid spec. Otherwise the author of
    /// the invalid spec could read with an identity that no admission policy has permitted for this
    /// author.
    ///
    /// The last valid spec must also fit into the limits for stored specs. Otherwise a tenant could
    /// fill the memory: with one large spec per profile, each replaced by a small invalid spec.
    ///
    /// # Errors
    ///
    /// Returns a message for the author that explains why the last valid generation stops.
    pub(super) fn keep_last_valid(
        &mut self,
        InvalidProfile { identity, .. }: &InvalidProfile,
        quota: &ProfileQuota,
    ) -> Result<(), String> {
        let reader = self.valid.identity();
        let refused = match identity {
            None => {
                "the last valid generation does not run either, because the identity of the newest \
                     generation cannot be determined"
                    .to_owned()
            }
            Some(named) if *named != reader => format!(
                "the last valid generation used {reader}, and the newest one names another identity"
            ),
            Some(_) => {
                if self.last_valid_charge.is_none() {
                    self.last_valid_charge = quota.keep(&self.valid.profile.namespace, self.memory);
                }
                if self.last_valid_charge.is_some() {
                    return Ok(());
                }
                "the last valid generation is not kept, because it does not fit into the memory for \
                 profiles, half of the memory for stores"
                    .to_owned()
            }
        };
        self.release(quota);
        Err(refused)
    }

    fn release(&mut self, quota: &ProfileQuota) {
        if self.last_valid_charge.take().is_some() {
            quota.note_freed();
        }
    }
}
