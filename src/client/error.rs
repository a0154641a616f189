//! Why a command could not do its work.

use super::text::escape;
use crate::{api, cluster::ConnectError};
use std::{io, path::PathBuf};

/// Why a command could not do its work. Texts of the cluster in it are escaped.
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
        /// The server's words, escaped.
        message: String,
        /// The HTTP status.
        code: u16,
    },

    /// A request got no answer that makes sense.
    #[error("could not read {what}")]
    Unanswered {
        /// What was asked for.
        what: String,
        /// The transport's error.
        #[source]
        source: Box<kube::Error>,
    },

    /// The cluster does not know what a profile is.
    #[error(
        "this cluster does not serve cacheprofiles.{}/{}; install it with \
         `kubewarm crd | kubectl apply -f -`",
        api::GROUP,
        api::VERSION
    )]
    NotInstalled,

    /// There is no such profile.
    #[error("there is no CacheProfile {0}; `kubewarm status -A` shows all")]
    NotFound(String),

    /// A file of profiles cannot be read.
    #[error("cannot read {}", .file.display())]
    Read {
        /// As given.
        file: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },

    /// The output cannot be written.
    #[error("cannot write the output")]
    Write(#[source] io::Error),

    /// A status cannot be written as JSON.
    #[error("cannot write the status as JSON")]
    Json(#[source] serde_json::Error),

    /// A status cannot be written as YAML.
    #[error("cannot write the status as YAML")]
    Yaml(#[source] serde_saphyr::SerializeError),
}

impl Error {
    /// Classifies the failure of reading `what`.
    pub(super) fn of_request(what: String, error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Unanswered { what, source: Box::new(error) };
        };
        // The path itself is unknown: not even the group is served.
        if status.code == 404 {
            return Self::NotInstalled;
        }
        Self::Refused { what, message: escape(&status.message).into_owned(), code: status.code }
    }
}
