//! What an API server writes down of the requests that it answers.

use std::path::PathBuf;

use crate::layout::Layout;

/// Whose requests.
#[derive(Debug, Default, Clone)]
pub(crate) enum Audited {
    #[default]
    Nobody,
    Everybody,
    Group {
        name: String,
        written: Written,
        file: PathBuf,
    },
}

/// Objects that are written down as they are after whoever wrote them.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) group: String,
    pub(crate) resource: String,
}

impl Audited {
    /// Where they are written.
    pub(crate) fn log(&self, layout: &Layout) -> PathBuf {
        match self {
            Self::Group { file, .. } => file.clone(),
            Self::Nobody | Self::Everybody => layout.audit_log(),
        }
    }

    /// The policy: everything answered, without bodies other than those; requests that are still
    /// running are not of interest.
    pub(crate) fn policy(&self) -> Option<String> {
        let (written, users) = match self {
            Self::Nobody => return None,
            Self::Everybody => (String::new(), String::new()),
            Self::Group { name, written: Written { group, resource }, .. } => (
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
