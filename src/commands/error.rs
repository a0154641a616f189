//! The error of a failed command.

use kubewarm_api::{
    manifests::{ManifestError, RbacParseError},
    model::RequestFault,
    v1alpha1,
};
use kubewarm_client::ConnectError;

/// The error of a failed command. The error message can contain control characters from the
/// cluster, which the printing code must escape.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Connect(#[from] ConnectError),

    /// The API server rejected a request.
    #[error("could not read {what}: {message} (HTTP {code})")]
    Refused {
        /// The requested object or list.
        what: String,
        /// Message of the API server.
        message: String,
        code: u16,
    },

    /// Any failure except a failed connection to the API server or a request that the API server
    /// rejected.
    #[error("{text}")]
    Failed {
        /// Message that contains the failed action, the object, and what the user can do.
        text: String,
        #[source]
        source: Option<CommandErrorSource>,
    },
}

/// Cause of a [`CommandError`], such as a parser error for an invalid field of a profile.
pub(super) type CommandErrorSource = Box<dyn std::error::Error + Send + Sync>;

impl CommandError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self::Failed { text: text.into(), source: None }
    }

    pub(super) fn caused(text: impl Into<String>, source: impl Into<CommandErrorSource>) -> Self {
        Self::Failed { text: text.into(), source: Some(source.into()) }
    }

    /// Returns the error for a failed read of `what`, such as `"deployments in namespace ops"`.
    pub(super) fn of_request(what: impl Into<String>, error: kube::Error) -> Self {
        let what = what.into();
        let kube::Error::Api(status) = error else {
            return Self::caused(format!("could not read {what}"), error);
        };
        Self::Refused { what, message: status.message, code: status.code }
    }

    /// Returns the error for a failed write, such as `"apply CacheProfile shop/web"`.
    pub(super) fn of_write(what: &str, error: kube::Error) -> Self {
        // The text of the whole error contains debug output.
        let kube::Error::Api(status) = error else {
            return Self::caused(format!("cannot {what}"), error);
        };
        Self::new(format!("cannot {what}: {} (HTTP {})", status.message, status.code))
    }

    /// Returns the error for a cluster in which kubewarm's CRD is not installed.
    pub(super) fn not_installed() -> Self {
        Self::new(format!(
            "this cluster does not serve cacheprofiles.{}/{}; install it with \
             `kubewarm crd | kubectl apply -f -`",
            v1alpha1::GROUP,
            v1alpha1::VERSION
        ))
    }

    /// Returns the error for an invalid profile. `at` is the profile's position in the input, such
    /// as `document 2 of a.yaml`.
    pub(super) fn unusable(at: &str, source: CommandErrorSource) -> Self {
        Self::caused(format!("cannot use {at}"), source)
    }

    pub(super) fn of_discovery(fault: RequestFault) -> Self {
        Self::caused("could not read what the API server serves", fault)
    }
}

impl From<ManifestError> for CommandError {
    fn from(error: ManifestError) -> Self {
        Self::caused("cannot write the manifests", error)
    }
}

impl From<RbacParseError> for CommandError {
    fn from(error: RbacParseError) -> Self {
        Self::caused("cannot read the manifests back", error)
    }
}
