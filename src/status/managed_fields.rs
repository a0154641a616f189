//! Remarks about targets that drop managedFields, for the messages of the condition `Accepted`.

use super::{informer::ObservedInformer, sentence, target::ObservedTarget};
use kubewarm_api::model::{ResolvedProfile, ResolvedTarget, keep_fields_command};
use std::collections::BTreeSet;

pub(super) fn is_dropping(target: &ResolvedTarget) -> bool {
    target.informers.iter().any(|informer| informer.key.drops_managed_fields())
}

/// Returns a remark that applies can remove fields of objects that `target` serves without
/// managedFields, and the command that keeps managedFields. Returns an empty text if the target
/// keeps managedFields.
pub(super) fn target_remark(
    target: &ResolvedTarget,
    profile: &ResolvedProfile,
    informers: &[ObservedInformer<'_>],
) -> String {
    let position = profile.targets.iter().position(|other| other.name == target.name);
    let Some(position) = position.filter(|_| is_dropping(target)) else { return String::new() };
    let command = keep_fields_command(&profile.profile, [(position, &*target.name)]);
    // The message counts users and does not name them, because a profile's author need not have the
    // permission to list users.
    let users: BTreeSet<_> =
        informers.iter().flat_map(|informer| &informer.view.appliers).collect();
    let users = match users.len() {
        0 => String::new(),
        1 => " (1 user reads it and can apply it)".to_owned(),
        count => format!(" ({count} users read it and can apply it)"),
    };
    format!(
        " without managedFields, so a client that applies what it extracts from a read object \
         removes its own fields{users}; to keep them, run `{command}`"
    )
}

/// Returns the remark that names the targets without managedFields, or an empty text.
pub(super) fn profile_remark(targets: &[ObservedTarget<'_>]) -> String {
    let dropping: Vec<_> = targets.iter().filter(|target| is_dropping(target.declared)).collect();
    let names = sentence::listed(&dropping, |target| format!("{:?}", target.declared.name));
    match dropping.len() {
        0 => String::new(),
        1 => format!("; target {names} drops managedFields; its condition Accepted explains this"),
        _ => {
            format!("; targets {names} drop managedFields; their conditions Accepted explain this")
        }
    }
}
