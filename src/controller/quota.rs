//! How many informers profiles may have.

use kubewarm_api::model::{Refusal, RefusalReason};
use std::{collections::BTreeMap, sync::Arc};

/// Most cells of one profile: what a selector of namespaces comes to in a large cluster. Beyond it
/// one watch of all namespaces costs less.
pub(super) const PER_PROFILE: usize = 2_048;

/// How many informers there may be. Profiles are easily made by the thousand, and each informer is a watch of
/// the API server's and a connection to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InformerLimits {
    /// Of all profiles together.
    pub process: usize,
    /// Of the profiles of one namespace, other than the operator's own.
    pub namespace: usize,
}

/// What the profiles of each namespace have taken in one run.
#[derive(Debug)]
pub(super) struct InformerQuotas {
    limits: InformerLimits,
    process: usize,
    namespaces: BTreeMap<Arc<str>, usize>,
}

/// What one profile may still take.
#[derive(Debug)]
pub(super) struct InformerQuota<'a> {
    limits: InformerLimits,
    profile: usize,
    process: &'a mut usize,
    namespace: Option<(&'a str, &'a mut usize)>,
}

impl InformerQuotas {
    /// Nobody has taken anything yet.
    pub(super) fn new(limits: InformerLimits) -> Self {
        Self { limits, process: 0, namespaces: BTreeMap::new() }
    }

    /// For the next profile of `namespace`. Those of the operator's own namespace have no bound in
    /// common: whoever may write there is trusted with the operator.
    pub(super) fn of<'a>(
        &'a mut self,
        namespace: &'a Arc<str>,
        operators: &str,
    ) -> InformerQuota<'a> {
        let Self { limits, process, namespaces } = self;
        let taken = (**namespace != *operators)
            .then(|| (&**namespace, namespaces.entry(Arc::clone(namespace)).or_default()));
        InformerQuota { limits: *limits, profile: 0, process, namespace: taken }
    }
}

impl InformerQuota<'_> {
    /// Takes `cells` for a target, all or none. Cells that others declare too count here all the
    /// same: it must not depend on them whether a profile is accepted.
    ///
    /// # Errors
    ///
    /// [`RefusalReason::TooManyCells`].
    pub(super) fn take(&mut self, target: &str, cells: usize) -> Result<(), Refusal> {
        let refuse = |message| Err(Refusal::new(RefusalReason::TooManyCells, message));
        if self.profile + cells > PER_PROFILE {
            let taken = self.profile;
            return refuse(format!(
                "targets[{target}].scope: {cells} cells, besides {taken} of other targets, are more \
                 than the {PER_PROFILE} that one profile may have; use type AllNamespaces, select \
                 fewer namespaces, or split the profile"
            ));
        }
        let InformerLimits { process, namespace: most } = self.limits;
        if let Some((namespace, taken)) = &self.namespace
            && **taken + cells > most
        {
            return refuse(format!(
                "targets[{target}]: the profiles of namespace {namespace:?} have {taken} cells, \
                 and may have {most} together; remove targets or profiles there"
            ));
        }
        if *self.process + cells > process {
            return refuse(format!(
                "targets[{target}]: the operator has as many cells as it may (--max-informers); \
                 ask the operator's administrator for more"
            ));
        }
        if let Some((_, taken)) = &mut self.namespace {
            **taken += cells;
        }
        *self.process += cells;
        self.profile += cells;
        Ok(())
    }
}

impl Default for InformerLimits {
    /// The defaults of the flags.
    fn default() -> Self {
        Self { process: 10_000, namespace: 1_000 }
    }
}
