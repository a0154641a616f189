//! Why a process stops to decide by RBAC rules.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReviewSpec};
use kubewarm_api::model::escape;
use std::fmt::{self, Write as _};

/// Why a process no longer decides by RBAC rules, and sends access reviews instead until it
/// restarts.
#[derive(Clone, Debug, PartialEq)]
pub enum RbacFallback {
    /// RBAC rules allow a request that the API server denies, so another authorizer decides too.
    Disagreement {
        /// The name of the request's user.
        user: String,
        /// The request.
        access: Box<SelfSubjectAccessReviewSpec>,
    },
    /// The rules need more memory than they may have.
    Memory {
        /// The limit, in bytes.
        max_bytes: usize,
    },
}

impl RbacFallback {
    /// The values of [`Self::reason`].
    pub const REASONS: [&'static str; 2] = ["disagreement", "memory"];

    /// The value of the label `reason` in metrics.
    pub const fn reason(&self) -> &'static str {
        let [disagreement, memory] = Self::REASONS;
        match self {
            Self::Disagreement { .. } => disagreement,
            Self::Memory { .. } => memory,
        }
    }
}

impl fmt::Display for RbacFallback {
    /// Writes the reason for logs and Events, on one line. The text names the request, and contains
    /// no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disagreement { user, access } => {
                let mut request = format!("user {user} may ");
                write_access(access, &mut request)?;
                write!(
                    f,
                    "by RBAC rules, {}, but three access reviews in 10 s denied it",
                    escape(&request)
                )
            }
            Self::Memory { max_bytes } => {
                write!(f, "the RBAC rules of the cluster need more than {max_bytes} bytes")
            }
        }
    }
}

fn write_access(access: &SelfSubjectAccessReviewSpec, out: &mut String) -> fmt::Result {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    if let Some(path) = &access.non_resource_attributes {
        return write!(out, "{} {}", text(&path.verb), text(&path.path));
    }
    let ResourceAttributes { verb, group, resource, subresource, namespace, name, .. } =
        access.resource_attributes.clone().unwrap_or_default();
    write!(out, "{} {}", text(&verb), text(&resource))?;
    for (before, part) in [("/", subresource), (".", group)] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            write!(out, "{before}{part}")?;
        }
    }
    for (before, part) in [(" named ", name), (" in namespace ", namespace)] {
        if let Some(part) = part {
            write!(out, "{before}{part}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disagreement_names_the_request_on_one_line() {
        let attributes = ResourceAttributes {
            verb: Some("get".to_owned()),
            group: Some("apps".to_owned()),
            resource: Some("deployments".to_owned()),
            subresource: Some("scale".to_owned()),
            namespace: Some("shop".to_owned()),
            name: Some("web".to_owned()),
            ..ResourceAttributes::default()
        };
        let access = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            non_resource_attributes: None,
        };
        let fallback =
            RbacFallback::Disagreement { user: "jane\nERROR".to_owned(), access: access.into() };
        let expected = r"by RBAC rules, user jane\nERROR may get deployments/scale.apps named web in namespace shop, but three access reviews in 10 s denied it";
        assert_eq!(fallback.to_string(), expected);
    }
}
