//! Appends a command to a message about a missing permission, and removes this command again for
//! outputs that need only the permission. The command prints the RBAC objects to apply.

/// Text between the message about a missing permission and the command.
const SEPARATOR: &str = "; run `";

/// Appends `command` to the message `permission` about a missing permission.
pub fn with_next_step(permission: &str, command: &str) -> String {
    format!("{permission}{SEPARATOR}{command}`")
}

/// Returns `message` without the command that [`with_next_step`] appended, and without all text
/// after the command.
pub fn without_next_step(message: &str) -> &str {
    message.split_once(SEPARATOR).map_or(message, |(permission, _)| permission)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_step_is_removed_with_everything_after_it() {
        let message = with_next_step("not allowed to list pods", "kubectl warm rbac a -n b --diff");
        assert_eq!(message, "not allowed to list pods; run `kubectl warm rbac a -n b --diff`");
        assert_eq!(
            without_next_step(&format!("{message} (forbidden)")),
            "not allowed to list pods"
        );
        assert_eq!(without_next_step("no next step"), "no next step");
    }
}
