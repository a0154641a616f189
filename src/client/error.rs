//! Why a command could not do its work.

use super::{cache::AuthorityError, text::escape};
use crate::{
    api,
    cluster::ConnectError,
    manifests::{self, AccessError},
    model::{Fault, Invalid},
};
use std::{
    io,
    path::{Path, PathBuf},
};

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

    /// Whoever writes a status could have somebody granted to by what is printed.
    #[error(
        "the status of CacheProfile {title} names {said} as who reads, not {expected}; if that is how \
         kubewarm runs, say so with --subject"
    )]
    OtherSubject {
        /// `namespace/name`.
        title: String,
        /// Who the status says, escaped.
        said: String,
        /// Who it should be, by the command line.
        expected: String,
    },

    /// The generation is not the one that was reviewed.
    #[error(
        "CacheProfile {title} is of generation {found}, not {wanted}: it was edited; review it anew \
         with `kubewarm rbac --diff`"
    )]
    Generation {
        /// `namespace/name`.
        title: String,
        /// As it is.
        found: i64,
        /// As asked for.
        wanted: i64,
    },

    /// A profile of the cluster cannot be used.
    #[error("cannot use CacheProfile {title}")]
    Unusable {
        /// `namespace/name`.
        title: String,
        /// What is wrong with it.
        #[source]
        source: DocumentError,
    },

    /// Whoever asks may not look.
    #[error("you may not list {what}, which this needs: {message}")]
    NotAllowed {
        /// The resource, and where.
        what: String,
        /// The server's words, escaped.
        message: String,
    },

    /// What the operator needs cannot be written: a bug.
    #[error("cannot write the permissions of the operator")]
    Operator(#[source] manifests::Unwritable),

    /// A profile has no such target.
    #[error("CacheProfile {title} has no target {target}; it has {has}")]
    NoTarget {
        /// `namespace/name`.
        title: String,
        /// As asked for.
        target: String,
        /// Those that it has.
        has: String,
    },

    /// A profile in mode Plan has no forecast yet.
    #[error(
        "kubewarm has not looked at CacheProfile {0} yet; ask again in a minute, or use --live to \
         look at it yourself"
    )]
    NoForecast(String),

    /// Nobody knows what the cluster serves.
    #[error("could not read what the API server serves")]
    Discovery(#[source] Fault),

    /// Our own manifests do not parse: a bug.
    #[error("cannot read the manifests back")]
    Manifests(#[source] manifests::Unreadable),

    /// A file cannot be read.
    #[error("cannot read {}", shown(.file))]
    Read {
        /// As given.
        file: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },

    /// There is nothing to do.
    #[error("{} holds no CacheProfile of {}/{}", shown(.file), api::GROUP, api::VERSION)]
    NoProfile {
        /// As given.
        file: PathBuf,
    },

    /// A document of a file is not what it should be.
    #[error("cannot use {at} of {}", shown(.file))]
    Document {
        /// As given.
        file: PathBuf,
        /// Such as `document 2`.
        at: String,
        /// What is wrong with it.
        #[source]
        source: DocumentError,
    },

    /// No profile keeps the kind warm.
    #[error(
        "the cache serves no {kind} to you: no profile that answers there keeps it warm; `kubewarm status -A` \
         lists what is warm, --profile reads another profile's"
    )]
    NotWarm {
        /// As typed, escaped.
        kind: String,
    },

    /// A server did not answer with objects.
    #[error("{server} did not answer: {message} ({reason})")]
    Asked {
        /// Which.
        server: &'static str,
        /// What went wrong, in a word.
        reason: &'static str,
        /// Its words, escaped.
        message: String,
    },

    /// There is no certificate to know the read API by.
    #[error(transparent)]
    Authority(#[from] AuthorityError),

    /// A kubeconfig cannot be written as YAML.
    #[error("cannot write the kubeconfig")]
    Kubeconfig(#[source] serde_saphyr::SerializeError),

    /// What is there stays.
    #[error("{} exists; --overwrite replaces it", shown(.file))]
    FileExists {
        /// As given.
        file: PathBuf,
    },

    /// A file cannot be written.
    #[error("cannot write {}", shown(.file))]
    WriteFile {
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

/// What is wrong with a document that should be a profile.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is no YAML, or has not the fields of a profile.
    #[error("{0}")]
    Unreadable(String),

    /// It is a profile of another version.
    #[error("apiVersion is {found}; this kubewarm knows {}/{}", api::GROUP, api::VERSION)]
    Version {
        /// As written, escaped.
        found: String,
    },

    /// kubewarm would refuse it.
    #[error(transparent)]
    Invalid(#[from] Invalid),

    /// kubewarm would refuse one of its targets, so nothing may be granted for it.
    #[error(
        "target {target} reaches beyond the profile's own namespace, which only profiles in the \
         operator's namespace may; move the profile to {operator_namespace}, or correct \
         --operator-namespace"
    )]
    BeyondReach {
        /// The target's name.
        target: String,
        /// Where it could stand.
        operator_namespace: String,
    },

    /// kubewarm would not see it, so nothing may be granted for it.
    #[error(
        "metadata.namespace: profiles in {namespace} are not among those that --watch-namespaces has \
         kubewarm run; move the profile, or add the namespace there"
    )]
    NotWatched {
        /// Where the profile stands.
        namespace: String,
    },

    /// kubewarm would refuse one of its targets, in these words.
    #[error("{0}")]
    Refused(String),

    /// Its roles cannot be written.
    #[error(transparent)]
    Access(#[from] AccessError),
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

/// A path as a person calls it.
fn shown(file: &Path) -> String {
    if file == Path::new("-") {
        return "standard input".to_owned();
    }
    file.display().to_string()
}
