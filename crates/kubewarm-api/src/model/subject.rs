//! Who reads upstream, as RBAC names them.

use std::{fmt, sync::Arc};

/// The subject of a role binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A ServiceAccount.
    ServiceAccount {
        /// Its namespace.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// A user, such as the one of a client certificate.
    User(Arc<str>),
    /// A group.
    Group(Arc<str>),
}

impl Subject {
    /// Reads the user name that a `SelfSubjectReview` answers:
    /// `system:serviceaccount:<namespace>:<name>` is a ServiceAccount, anything else a user.
    #[must_use]
    pub fn from_username(username: &str) -> Self {
        username
            .strip_prefix("system:serviceaccount:")
            .and_then(|rest| rest.split_once(':'))
            .map_or_else(
                || Self::User(username.into()),
                |(namespace, name)| Self::ServiceAccount {
                    namespace: namespace.into(),
                    name: name.into(),
                },
            )
    }
}

impl fmt::Display for Subject {
    /// The user name as the API server's messages write it; a group as `group:<name>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceAccount { namespace, name } => {
                write!(f, "system:serviceaccount:{namespace}:{name}")
            }
            Self::User(name) => f.write_str(name),
            Self::Group(name) => write!(f, "group:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_of_service_accounts_are_recognised() {
        let account = Subject::from_username("system:serviceaccount:shop:kubewarm");
        let expected =
            Subject::ServiceAccount { namespace: "shop".into(), name: "kubewarm".into() };
        assert_eq!(account, expected);
        assert_eq!(account.to_string(), "system:serviceaccount:shop:kubewarm");
        let admin = Subject::from_username("system:admin");
        assert_eq!(admin, Subject::User("system:admin".into()));
    }
}
