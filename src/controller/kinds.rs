//! What discovery said last of each declared kind, kept over an answer that is not complete.

use kubewarm_api::model::{GroupResource, Refusal, RefusalReason, ResolvedTarget};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long a kind may be missing before it counts as gone: two polls of discovery while it hurries.
/// An API server that has just started lists the groups of custom resources a little late.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a target names a kind.
type Name = (GroupResource, Option<Arc<str>>);

/// The kinds of all targets. Bounded by the targets that exist.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<Name, Kind>);

#[derive(Debug)]
struct Kind {
    resolved: ResolvedTarget,
    missing_since: Option<Duration>,
    /// Whether a target named it in this run.
    named: bool,
}

impl Kinds {
    /// What a kind comes to, now that discovery has answered `answer`: what it came to before, if it
    /// has been missing for less than 10 s.
    pub(super) fn believe(
        &mut self,
        of: &GroupResource,
        version: Option<&Arc<str>>,
        answer: Result<ResolvedTarget, Refusal>,
        now: Duration,
    ) -> Result<ResolvedTarget, Refusal> {
        let name = (of.clone(), version.cloned());
        match answer {
            Ok(resolved) => {
                let kind = Kind { resolved: resolved.clone(), missing_since: None, named: true };
                self.0.insert(name, kind);
                Ok(resolved)
            }
            Err(refusal) if refusal.reason == RefusalReason::UnknownResource => {
                let Some(kind) = self.0.get_mut(&name) else { return Err(refusal) };
                let since = *kind.missing_since.get_or_insert(now);
                if now.saturating_sub(since) < PATIENCE {
                    kind.named = true;
                    return Ok(kind.resolved.clone());
                }
                self.0.remove(&name);
                Err(refusal)
            }
            Err(refusal) => {
                self.0.remove(&name);
                Err(refusal)
            }
        }
    }

    /// Whether discovery does not list the kind, and the last answer still counts.
    pub(super) fn is_missed(&self, of: &GroupResource, version: Option<&Arc<str>>) -> bool {
        let kind = self.0.get(&(of.clone(), version.cloned()));
        kind.is_some_and(|kind| kind.missing_since.is_some())
    }

    /// The kind is gone: no answer from before counts any more.
    pub(super) fn forget(&mut self, of: &GroupResource, version: Option<&Arc<str>>) {
        self.0.remove(&(of.clone(), version.cloned()));
    }

    /// Whether any kind is missed.
    pub(super) fn is_any_missed(&self) -> bool {
        self.0.values().any(|kind| kind.missing_since.is_some())
    }

    /// Ends a run: kinds that no target named are forgotten.
    pub(super) fn end_run(&mut self) {
        self.0.retain(|_, kind| std::mem::take(&mut kind.named));
    }
}
