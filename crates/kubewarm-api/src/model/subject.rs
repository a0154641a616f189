use std::{fmt, sync::Arc};

/// Subject of a RoleBinding or ClusterRoleBinding.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A ServiceAccount.
    ServiceAccount {
        /// Namespace of the ServiceAccount.
        namespace: Arc<str>,
        /// Name of the ServiceAccount.
        name: Arc<str>,
    },
    /// A user, for example the common name of a client certificate.
    User(Arc<str>),
    /// A group.
    Group(Arc<str>),
}

impl Subject {
    /// Parses the user name in a `SelfSubjectReview`. The name
    /// `system:serviceaccount:<namespace>:<name>` is a ServiceAccount, every other name is a user.
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
    /// Writes the user name of a user or ServiceAccount, such as
    /// `system:serviceaccount:shop:reader`. Writes a group as `group:<name>`.
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
    fn user_names_of_service_accounts_are_parsed() {
        let account = Subject::from_username("system:serviceaccount:shop:kubewarm");
        let expected =
            Subject::ServiceAccount { namespace: "shop".into(), name: "kubewarm".into() };
        assert_eq!(account, expected);
        assert_eq!(account.to_string(), "system:serviceaccount:shop:kubewarm");
        let admin = Subject::from_username("system:admin");
        assert_eq!(admin, Subject::User("system:admin".into()));
    }
}
