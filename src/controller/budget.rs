//! How many cells one profile, and the profiles of one namespace together, may have.

use crate::model::{Refusal, RefusalReason};
use std::{collections::BTreeMap, sync::Arc};

/// Most cells of one profile: what a selector of namespaces comes to in a large cluster. Beyond it
/// one watch of all namespaces costs less.
pub(super) const PER_PROFILE: usize = 2_048;
/// Most cells of all profiles of one namespace together. Profiles are easily made by the thousand;
/// each cell is a connection's stream here and a watch there.
pub(super) const PER_NAMESPACE: usize = 8_192;

/// What the profiles of each namespace have taken in one run.
#[derive(Debug, Default)]
pub(super) struct Budgets(BTreeMap<Arc<str>, usize>);

/// What one profile may still take.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    profile: usize,
    namespace: Option<(&'a str, &'a mut usize)>,
}

impl Budgets {
    /// For the next profile of `namespace`. Those of the operator's own namespace have no bound in
    /// common: whoever may write there is trusted with the operator.
    pub(super) fn of<'a>(&'a mut self, namespace: &'a Arc<str>, operators: &str) -> Budget<'a> {
        if **namespace == *operators {
            return Budget { profile: 0, namespace: None };
        }
        let taken = self.0.entry(Arc::clone(namespace)).or_default();
        Budget { profile: 0, namespace: Some((namespace, taken)) }
    }
}

impl Budget<'_> {
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
        if let Some((namespace, taken)) = &mut self.namespace {
            if **taken + cells > PER_NAMESPACE {
                return refuse(format!(
                    "targets[{target}]: the profiles of namespace {namespace:?} have {taken} cells, \
                     and may have {PER_NAMESPACE} together; remove targets or profiles there"
                ));
            }
            **taken += cells;
        }
        self.profile += cells;
        Ok(())
    }
}
