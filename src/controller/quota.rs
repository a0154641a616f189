//! How many informers profiles may have.

use super::operator_limits::OperatorLimits;
use kubewarm_api::model::{ProfileRef, Refusal, RefusalReason};
use std::{collections::BTreeMap, sync::Arc};

/// Most cells of one profile: what a selector of namespaces comes to in a large cluster. Beyond it
/// one watch of all namespaces costs less.
pub(super) const PER_PROFILE: usize = 2_048;

/// What profiles have taken in one run.
#[derive(Debug)]
pub(super) struct InformerQuotas<'a> {
    limits: OperatorLimits,
    /// The operator's namespace.
    home: &'a str,
    process: usize,
    namespaces: BTreeMap<Arc<str>, usize>,
}

impl<'a> InformerQuotas<'a> {
    /// Nobody has taken anything yet.
    pub(super) fn new(limits: OperatorLimits, home: &'a str) -> Self {
        Self { limits, home, process: 0, namespaces: BTreeMap::new() }
    }

    /// Takes `cells` for a target, all or none, beside those that its profile has `taken`. Cells that others
    /// declare too count here all the same: it must not depend on them whether a profile is accepted.
    ///
    /// # Errors
    ///
    /// [`RefusalReason::TooManyInformers`].
    pub(super) fn take(
        &mut self,
        (profile, taken): (&ProfileRef, &mut usize),
        target: &str,
        cells: usize,
    ) -> Result<(), Refusal> {
        let refuse = |message| Err(Refusal::new(RefusalReason::TooManyInformers, message));
        if *taken + cells > PER_PROFILE {
            return refuse(format!(
                "targets[{target}].scope: {cells} cells, besides {taken} of other targets, are more \
                 than the {PER_PROFILE} that one profile may have; use type AllNamespaces, select \
                 fewer namespaces, or split the profile"
            ));
        }
        let OperatorLimits { informers, namespace_informers: most, .. } = self.limits;
        let namespace = &profile.namespace;
        let of_namespace = self.namespaces.entry(Arc::clone(namespace)).or_default();
        // Whoever may write in the operator's namespace is trusted with the operator.
        if *of_namespace + cells > most && **namespace != *self.home {
            return refuse(format!(
                "targets[{target}]: the profiles of namespace {namespace:?} have {of_namespace} \
                 cells, and may have {most} together; remove targets or profiles there"
            ));
        }
        if self.process + cells > informers {
            return refuse(format!(
                "targets[{target}]: the operator has as many cells as it may (--max-informers); \
                 ask the operator's administrator for more"
            ));
        }
        for sum in [taken, of_namespace, &mut self.process] {
            *sum += cells;
        }
        Ok(())
    }
}
