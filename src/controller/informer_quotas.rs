//! Limits the number of informers per profile, per namespace and in total.

use super::operator_limits::OperatorLimits;
use kubewarm_api::model::{ProfileRef, Refusal, RefusalReason};
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of informers of one profile. For more than 2,048 namespaces, one informer for all
/// namespaces costs the API server less, so such a profile must use this scope.
pub(super) const PER_PROFILE: usize = 2_048;

#[derive(Debug)]
pub(super) struct InformerQuotas<'a> {
    limits: OperatorLimits,
    operator_namespace: &'a str,
    process: usize,
    namespaces: BTreeMap<Arc<str>, usize>,
}

impl<'a> InformerQuotas<'a> {
    pub(super) fn new(limits: OperatorLimits, operator_namespace: &'a str) -> Self {
        Self { limits, operator_namespace, process: 0, namespaces: BTreeMap::new() }
    }

    /// Grants a target all of its `informers`, or none. `taken` is the number of informers that the
    /// other targets of the profile already have.
    ///
    /// An informer that several profiles share counts once for each of these profiles. Otherwise a
    /// profile could be accepted or refused because of another tenant's profile.
    ///
    /// # Errors
    ///
    /// Returns a refusal with [`RefusalReason::TooManyInformers`] if the informers would exceed the
    /// maximum number for the profile, its namespace or the process.
    pub(super) fn grant(
        &mut self,
        profile: &ProfileRef,
        taken: &mut usize,
        target: &str,
        informers: usize,
    ) -> Result<(), Refusal> {
        let refuse = |message| Err(Refusal::new(RefusalReason::TooManyInformers, message));
        if *taken + informers > PER_PROFILE {
            return refuse(format!(
                "targets[{target}].scope: {informers} informers and {taken} of other targets are more \
                 than the {PER_PROFILE} that one profile may have; use type AllNamespaces, select \
                 fewer namespaces, or split the profile"
            ));
        }
        let OperatorLimits { informers: total, namespace_informers: most, .. } = self.limits;
        let namespace = &profile.namespace;
        let of_namespace = self.namespaces.entry(Arc::clone(namespace)).or_default();
        // The operator namespace has no quota, because kubewarm trusts users who can create
        // profiles in this namespace.
        if *of_namespace + informers > most && **namespace != *self.operator_namespace {
            return refuse(format!(
                "targets[{target}]: the profiles of namespace {namespace:?} have {of_namespace} \
                 informers, and may have {most} together; remove targets or profiles there"
            ));
        }
        if self.process + informers > total {
            return refuse(format!(
                "targets[{target}]: the operator has as many informers as it may (--max-informers); \
                 have the operator's administrator raise the limit"
            ));
        }
        for sum in [taken, of_namespace, &mut self.process] {
            *sum += informers;
        }
        Ok(())
    }
}
