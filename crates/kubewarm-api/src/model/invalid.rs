//! Why a spec is refused, in the words of the person who wrote it.

/// What is wrong with a `CacheProfile`. Every message begins with the JSON path of the field, since
/// that is what its author edits, and says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A field that must be there is not.
    #[error("{path} is missing; set it to {expected}")]
    Missing {
        /// JSON path.
        path: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A number is out of its range.
    #[error("{path} is {found}; set it to {min} to {max}")]
    OutOfRange {
        /// JSON path.
        path: String,
        /// As written.
        found: i32,
        /// Smallest allowed.
        min: i32,
        /// Largest allowed.
        max: i32,
    },
    /// A list or a map has too few or too many entries.
    #[error("{path} has {found} entries; give it {min} to {max}")]
    WrongCount {
        /// JSON path.
        path: String,
        /// How many there are.
        found: usize,
        /// Fewest allowed.
        min: usize,
        /// Most allowed.
        max: usize,
    },
    /// A text is longer than allowed.
    #[error("{path} has {found} bytes; shorten it to at most {max}")]
    TooLong {
        /// JSON path.
        path: String,
        /// How many there are.
        found: usize,
        /// Most allowed.
        max: usize,
    },
    /// A selector is longer than what is sent with every request.
    #[error("{path} comes to {found} bytes in a request; shorten it to at most {max}")]
    LongSelector {
        /// JSON path.
        path: String,
        /// How many there are, before percent-encoding.
        found: usize,
        /// Most allowed.
        max: usize,
    },
    /// A text is not of the required form.
    #[error("{path}: {problem}; correct it")]
    Malformed {
        /// JSON path.
        path: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// An entry of a list repeats the key of an earlier one.
    #[error("{path}: {value:?} is already in {earlier}; rename or remove one")]
    Duplicate {
        /// JSON path of the later one.
        path: String,
        /// What is repeated.
        value: String,
        /// JSON path of the earlier one.
        earlier: String,
    },
    /// A member of the scope's union is missing, or does not belong to its type.
    #[error("{path} is required for, and only for, type {type_}; {advice}")]
    ScopeMember {
        /// JSON path.
        path: String,
        /// The type that it belongs to.
        type_: &'static str,
        /// Add or remove it.
        advice: &'static str,
    },
    /// Secrets whole, without leave.
    #[error(
        "{path}: secrets are cached as metadata only unless sensitiveData is Allow; set projection.type to MetadataOnly, or sensitiveData to Allow"
    )]
    SecretsWhole {
        /// JSON path of the target.
        path: String,
    },
    /// An index with both sources or none.
    #[error("{path}: exactly one of fieldPath or labelKey must be set; {advice}")]
    IndexSource {
        /// JSON path of the index.
        path: String,
        /// Add or remove one.
        advice: &'static str,
    },
    /// An index that is called as a field of the API server's.
    #[error(
        "{path} is {found:?}: that is a field label of the API server's, by which readers select; call the index otherwise"
    )]
    IndexName {
        /// JSON path.
        path: String,
        /// As written.
        found: String,
    },
    /// An index on what a metadata-only target does not hold.
    #[error(
        "{path} is {found:?}: with MetadataOnly, index paths must start with .metadata.; index another field, or set projection.type to Full"
    )]
    IndexOutsideMetadata {
        /// JSON path.
        path: String,
        /// As written.
        found: String,
    },
    /// An index on the payload of secrets.
    #[error(
        "{path} is {found:?}: the payload of secrets is not indexed; index paths must start with .metadata."
    )]
    IndexOfPayload {
        /// JSON path.
        path: String,
        /// As written.
        found: String,
    },
}

impl Invalid {
    pub(super) fn malformed(path: impl Into<String>, problem: &impl ToString) -> Self {
        Self::Malformed { path: path.into(), problem: problem.to_string() }
    }
}

/// Checks a number against its range.
pub(super) fn in_range(path: &str, found: i32, min: i32, max: i32) -> Result<u32, Invalid> {
    u32::try_from(found)
        .ok()
        .filter(|_| (min..=max).contains(&found))
        .ok_or_else(|| Invalid::OutOfRange { path: path.to_owned(), found, min, max })
}

/// Checks how many entries a list or a map has.
pub(super) fn counted(path: &str, found: usize, min: usize, max: usize) -> Result<(), Invalid> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    Err(Invalid::WrongCount { path: path.to_owned(), found, min, max })
}

/// Checks the length of a text, in bytes.
pub(super) fn short(path: &str, text: &str, max: usize) -> Result<(), Invalid> {
    if text.len() <= max {
        return Ok(());
    }
    Err(Invalid::TooLong { path: path.to_owned(), found: text.len(), max })
}
