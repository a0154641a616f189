//! The user or client address whose limits a request uses. Each pod of an agents' ServiceAccount is
//! such a user.

use super::{
    caller_digest::{CallerDigest, DigestKey},
    network::network,
};
use kubewarm_api::model::{RequestFault, Subject, is_dns_label, is_dns_subdomain};
use kubewarm_client::CallerInfo;
use std::{fmt, net::IpAddr, str::FromStr, sync::Arc};

/// The key in a user's `extra` with the UID of the pod to which the user's token is bound.
pub(super) const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// The key by which kubewarm counts a request, watch or connection in its limits per user or client
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitKey {
    /// A client address, as long as kubewarm does not know the user. As the name of a group, all
    /// addresses of an IPv6 /64 together.
    Address(IpAddr),
    /// A user. All tokens of the user count together.
    User(CallerDigest),
    /// A user of an agents' ServiceAccount.
    Agent {
        /// The pod, or the ServiceAccount itself for callers without a pod.
        agent: CallerDigest,
        /// The position of the ServiceAccount in [`ListenerLimits::agents`].
        ///
        /// [`ListenerLimits::agents`]: super::ListenerLimits::agents
        account: usize,
    },
    /// All users of an agents' ServiceAccount together. No single caller has this key.
    Agents {
        /// The position of the ServiceAccount, as in [`Self::Agent`].
        account: usize,
    },
}

/// A ServiceAccount whose pods count as one user each: an entry of `--agents`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentAccount {
    namespace: String,
    name: String,
}

/// The text names no ServiceAccount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the namespace and the name of a ServiceAccount, such as monitoring/node-agent")]
pub struct AgentAccountError;

/// Computes the keys of callers.
#[derive(Clone)]
pub(super) struct LimitKeys {
    key: Arc<DigestKey>,
    /// As many as the administrator names.
    agents: Arc<[AgentAccount]>,
}

impl LimitKey {
    /// The key of all users of the caller's ServiceAccount together, if it is an agents'
    /// ServiceAccount.
    pub(super) const fn agents(&self) -> Option<Self> {
        match *self {
            Self::Agent { account, .. } => Some(Self::Agents { account }),
            Self::Address(_) | Self::User(_) | Self::Agents { .. } => None,
        }
    }

    /// The key of all addresses of the caller's IPv6 /64 together. `None` for users and IPv4.
    pub(super) fn network(&self) -> Option<Self> {
        match self {
            Self::Address(address) => network(address).map(Self::Address),
            Self::User(_) | Self::Agent { .. } | Self::Agents { .. } => None,
        }
    }
}

impl LimitKeys {
    pub(super) fn new(key: Arc<DigestKey>, agents: Arc<[AgentAccount]>) -> Self {
        Self { key, agents }
    }

    /// Returns the key of `user`, which must be the result of kubewarm's own TokenReview. Only in
    /// this result does the API server vouch for the pod in `extra`.
    pub(super) fn of_token_review(&self, user: &CallerInfo) -> Result<LimitKey, RequestFault> {
        self.of(user, pod_uid(user))
    }

    /// The key of the user in a client certificate.
    pub(super) fn of_certificate(&self, user: &CallerInfo) -> Result<LimitKey, RequestFault> {
        self.of(user, None)
    }

    /// The agents' ServiceAccount at this position.
    pub(super) fn agents(&self, account: usize) -> Option<&AgentAccount> {
        self.agents.get(account)
    }

    fn of(&self, user: &CallerInfo, pod: Option<&str>) -> Result<LimitKey, RequestFault> {
        let subject = Subject::from_username(&user.name);
        let Some(account) = self.agents.iter().position(|agents| agents.is_subject(&subject))
        else {
            return Ok(LimitKey::User(self.key.of_name(user)?));
        };
        let agent = match pod {
            Some(uid) => self.key.of_pod(user, uid)?,
            None => self.key.of_name(user)?,
        };
        Ok(LimitKey::Agent { agent, account })
    }
}

fn pod_uid(user: &CallerInfo) -> Option<&str> {
    match user.extra.get(POD_UID)?.as_slice() {
        [uid] if !uid.is_empty() => Some(uid),
        // The API server writes one UID. So other values are not from its ServiceAccount tokens.
        _ => None,
    }
}

impl AgentAccount {
    fn is_subject(&self, subject: &Subject) -> bool {
        match subject {
            Subject::ServiceAccount { namespace, name } => {
                (&**namespace, &**name) == (&*self.namespace, &*self.name)
            }
            Subject::User(_) | Subject::Group(_) => false,
        }
    }
}

impl FromStr for AgentAccount {
    type Err = AgentAccountError;

    fn from_str(text: &str) -> Result<Self, AgentAccountError> {
        let (namespace, name) = text.split_once('/').ok_or(AgentAccountError)?;
        if !is_dns_label(namespace) || !is_dns_subdomain(name) {
            return Err(AgentAccountError);
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for AgentAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, pods: &[&str]) -> CallerInfo {
        let pods = pods.iter().map(|&uid| uid.to_owned()).collect();
        let extra = [(POD_UID.to_owned(), pods)].into();
        CallerInfo { name: name.to_owned(), extra, ..CallerInfo::default() }
    }

    #[test]
    fn only_pods_of_an_agents_account_are_users_of_their_own() {
        let agents = ["shop/agent", "shop/other"].map(|text| text.parse().unwrap());
        let keys = LimitKeys::new(Arc::new(DigestKey::generate().unwrap()), agents.into());
        let of = |name: &str, pods: &[&str]| keys.of_token_review(&user(name, pods)).unwrap();
        let name = "system:serviceaccount:shop:agent";
        let without_pod = of(name, &[]);
        let distinct = [
            without_pod,
            of(name, &["1"]),
            of(name, &["2"]),
            of("system:serviceaccount:shop:other", &["1"]),
            of("system:serviceaccount:shop:reader", &["1"]),
            of("shop:agent", &["1"]),
        ];
        for (at, key) in distinct.iter().enumerate() {
            assert!(!distinct[..at].contains(key), "{at}");
        }
        let groups = distinct.map(|key| key.agents().is_some());
        assert_eq!(groups, [true, true, true, true, false, false]);
        assert_eq!(of(name, &["1"]).agents(), without_pod.agents());
        assert_ne!(of("system:serviceaccount:shop:other", &[]).agents(), without_pod.agents());
        for pods in [&[""] as &[_], &["1", "2"]] {
            assert_eq!(of(name, pods), without_pod, "{pods:?}");
        }
        let certified = keys.of_certificate(&user(name, &["1"])).unwrap();
        assert_eq!(certified, without_pod, "a certificate names no pod");
        let reader = "system:serviceaccount:shop:reader";
        assert_eq!(of(reader, &["1"]), of(reader, &["2"]), "the pods of others are one user");
    }

    #[test]
    fn an_entry_is_a_namespace_and_a_name() {
        let parsed: AgentAccount = "shop/node.agent".parse().unwrap();
        assert_eq!(parsed.to_string(), "shop/node.agent");
        for text in ["", "agent", "/agent", "shop/", "Shop/agent", "shop/a/b", "a.b/agent", "*/a"] {
            assert_eq!(text.parse::<AgentAccount>(), Err(AgentAccountError), "{text}");
        }
    }
}
