//! The API server's audit log: which requests it contains, and in which file.

use std::path::PathBuf;

use crate::layout::Layout;

/// The users whose requests the audit log contains.
#[derive(Debug, Default, Clone)]
pub(crate) enum Audited {
    #[default]
    NoUsers,
    AllUsers,
    Group {
        name: String,
        written: AuditedResource,
        file: PathBuf,
    },
}

/// A resource whose objects the audit log contains after each write, by any user.
#[derive(Debug, Clone)]
pub(crate) struct AuditedResource {
    pub(crate) group: String,
    pub(crate) resource: String,
}

impl Audited {
    /// The file of the audit log.
    pub(crate) fn log(&self, layout: &Layout) -> PathBuf {
        match self {
            Self::Group { file, .. } => file.clone(),
            Self::NoUsers | Self::AllUsers => layout.audit_log(),
        }
    }

    /// The audit policy, or `None` without an audit log. The log contains each request once its
    /// response is complete. It contains bodies only of [`AuditedResource`] objects.
    pub(crate) fn policy(&self) -> Option<String> {
        let (written, users) = match self {
            Self::NoUsers => return None,
            Self::AllUsers => (String::new(), String::new()),
            Self::Group { name, written: AuditedResource { group, resource }, .. } => (
                format!(
                    "- level: RequestResponse
  verbs: [create, update, patch]
  resources: [{{group: '{group}', resources: ['{resource}']}}]
  omitManagedFields: true
"
                ),
                format!("  userGroups: ['{name}']\n"),
            ),
        };
        Some(format!(
            "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
{written}- level: Metadata
{users}"
        ))
    }
}
