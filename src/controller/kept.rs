//! What runs instead of a spec that cannot be run.

use super::{
    admission::{Admission, PER_NAMESPACE, PER_PROCESS},
    intake::Unrunnable,
};
use kubewarm_api::model::{ProfileRef, Refusal, ValidatedProfile};
use std::sync::Arc;

/// The newest valid generation of a profile.
#[derive(Clone, Debug)]
pub(super) struct Valid {
    pub(super) profile: Arc<ValidatedProfile>,
    /// Bytes of its spec.
    pub(super) bytes: usize,
}

/// Whether the last valid spec runs instead of one that cannot be run; else why not, for the author.
///
/// Not one that is read as somebody else: nobody has been asked whether the author of the new one may
/// see what that identity reads. Nor one that does not fit beside the specs that are held: else a tenant
/// could have as many large specs in memory as there are profiles, by emptying one after the other.
pub(super) fn instead(
    of: &ProfileRef,
    Unrunnable { identity, .. }: &Unrunnable,
    last: &Valid,
    admission: &Admission,
) -> Result<(), String> {
    let reader = last.profile.identity();
    match identity {
        None => {
            Err("the last valid generation does not run either, because it is not known as whom \
                     the newest one reads"
                .to_owned())
        }
        Some(named) if *named != reader => Err(format!(
            "the last valid generation was read as {reader}, whom the profile names no longer"
        )),
        Some(_) if admission.keep(of, last.bytes) => Ok(()),
        Some(_) => Err(format!(
            "the last valid generation is not kept, since the specs that are held of one namespace may \
             have {} MiB together, and those of all namespaces {} MiB",
            PER_NAMESPACE.bytes >> 20,
            PER_PROCESS.bytes >> 20
        )),
    }
}

/// The refusal, and what else its author is to know.
pub(super) fn with_note(refusal: &Refusal, note: Option<&str>) -> Refusal {
    let message = match note {
        Some(note) => format!("{}; {note}", refusal.message),
        None => refusal.message.clone(),
    };
    Refusal { message, ..refusal.clone() }
}
