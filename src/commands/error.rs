//! Why a command could not do its work.

use kubewarm_api::{
    manifests::{Unreadable, Unwritable},
    model::Fault,
    v1alpha1,
};
use kubewarm_client::ConnectError;

/// Why a command could not do its work. Whoever prints it makes it safe for a terminal: it holds texts of
/// the cluster as they are.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no cluster to ask.
    #[error(transparent)]
    Connect(#[from] ConnectError),

    /// The API server refused a request.
    #[error("could not read {what}: {message} (HTTP {code})")]
    Refused {
        /// What was asked for.
        what: String,
        /// The server's words.
        message: String,
        /// The HTTP status.
        code: u16,
    },

    /// Anything else: a sentence for a person, and what it is caused by.
    #[error("{text}")]
    Failed {
        /// What failed, with which object, and what to do.
        text: String,
        /// Why.
        #[source]
        source: Option<Cause>,
    },
}

/// The cause of an [`Error`]: for documents, what is wrong with a profile.
pub(super) type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Error {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self::Failed { text: text.into(), source: None }
    }

    pub(super) fn caused(text: impl Into<String>, source: impl Into<Cause>) -> Self {
        Self::Failed { text: text.into(), source: Some(source.into()) }
    }

    /// The failure of reading `what`.
    pub(super) fn of_request(what: impl Into<String>, error: kube::Error) -> Self {
        let what = what.into();
        let kube::Error::Api(status) = error else {
            return Self::caused(format!("could not read {what}"), error);
        };
        Self::Refused { what, message: status.message, code: status.code }
    }

    /// The cluster does not serve profiles.
    pub(super) fn not_installed() -> Self {
        Self::new(format!(
            "this cluster does not serve cacheprofiles.{}/{}; install it with \
             `kubewarm crd | kubectl apply -f -`",
            v1alpha1::GROUP,
            v1alpha1::VERSION
        ))
    }

    /// The document `at` that place is no profile that kubewarm would run.
    pub(super) fn unusable(at: &str, source: Cause) -> Self {
        Self::caused(format!("cannot use {at}"), source)
    }

    /// Nobody knows what the server serves.
    pub(super) fn of_discovery(fault: Fault) -> Self {
        Self::caused("could not read what the API server serves", fault)
    }
}

impl From<Unwritable> for Error {
    fn from(error: Unwritable) -> Self {
        Self::caused("cannot write the manifests", error)
    }
}

impl From<Unreadable> for Error {
    fn from(error: Unreadable) -> Self {
        Self::caused("cannot read the manifests back", error)
    }
}
