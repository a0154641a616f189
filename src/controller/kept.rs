//! What runs instead of a spec that cannot be run, and what it may take. Pure.

use super::{
    intake::{Found, Unrunnable},
    quota::{PER_NAMESPACE, PER_PROCESS},
};
use crate::model::{Refusal, ValidatedProfile};
use std::{collections::BTreeMap, sync::Arc};

/// Room for the last valid specs of profiles whose newest cannot be run: what those that are read
/// leave of the bounds on specs. Bounded by the namespaces that have profiles.
///
/// Without it a tenant could have as many large specs in memory as there are profiles: by making each
/// of them while there is room, and emptying it.
#[derive(Debug)]
pub(super) struct Room {
    /// The operator's own namespace, which nobody counts.
    home: Arc<str>,
    /// Bytes of specs, by namespace.
    namespaces: BTreeMap<Arc<str>, usize>,
    /// Bytes of specs of them all.
    process: usize,
}

/// The newest valid generation of a profile.
#[derive(Clone, Debug)]
pub(super) struct Valid {
    pub(super) profile: Arc<ValidatedProfile>,
    /// Bytes of its spec.
    pub(super) bytes: usize,
}

impl Room {
    /// What these profiles, which are read, leave.
    pub(super) fn beside(home: &Arc<str>, profiles: &[Found]) -> Self {
        let mut room = Self { home: Arc::clone(home), namespaces: BTreeMap::new(), process: 0 };
        for found in profiles {
            room.take(&found.profile.namespace, found.spec_bytes);
        }
        room
    }

    /// Takes this much for a spec that is kept, or says why not.
    fn keep(&mut self, namespace: &Arc<str>, bytes: usize) -> Result<(), String> {
        if *namespace == self.home {
            return Ok(());
        }
        let taken = self.namespaces.get(namespace).copied().unwrap_or(0);
        if taken.saturating_add(bytes) > PER_NAMESPACE.bytes {
            return Err(format!(
                "the last valid generation is not kept, since the specs that are read in the \
                 namespace, and those that are kept, may have {} MiB together",
                PER_NAMESPACE.bytes >> 20
            ));
        }
        if self.process.saturating_add(bytes) > PER_PROCESS.bytes {
            return Err(
                "the last valid generation is not kept, since kubewarm is at the limit of \
                        the specs that it holds of all namespaces"
                    .to_owned(),
            );
        }
        self.take(namespace, bytes);
        Ok(())
    }

    fn take(&mut self, namespace: &Arc<str>, bytes: usize) {
        if *namespace != self.home {
            let taken = self.namespaces.entry(Arc::clone(namespace)).or_default();
            *taken = taken.saturating_add(bytes);
            self.process = self.process.saturating_add(bytes);
        }
    }
}

/// Whether the last valid spec runs instead of one that cannot be run; else why not, for the author.
///
/// Not one that is read as somebody else: nobody has been asked whether the author of the new one may
/// see what that identity reads. Nor one that there is no room for: asked in the order of precedence,
/// the oldest profiles keep theirs.
pub(super) fn instead(
    Unrunnable { identity, .. }: &Unrunnable,
    last: &Valid,
    namespace: &Arc<str>,
    room: &mut Room,
) -> Result<(), String> {
    let reader = last.profile.identity();
    if identity.as_ref() != Some(&reader) {
        return Err(format!(
            "the last valid generation was read as {reader}, whom the profile names no longer"
        ));
    }
    room.keep(namespace, last.bytes)
}

/// The refusal, and what else its author is to know.
pub(super) fn with_note(refusal: &Refusal, note: Option<&str>) -> Refusal {
    let message = match note {
        Some(note) => format!("{}; {note}", refusal.message),
        None => refusal.message.clone(),
    };
    Refusal { message, ..refusal.clone() }
}
