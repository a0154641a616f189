//! Validation errors, with messages for the author of a profile or request.

use std::{fmt::Display, ops::RangeInclusive};

/// A validation error. For a `CacheProfile` the message begins with the JSON path of the field, and
/// ends with an instruction to the author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ValidationError {
    /// The invalid part of the validated value, such as `group` for a resource. Empty if the value
    /// is a `CacheProfile`.
    pub part: &'static str,
    message: String,
}

impl ValidationError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { part: "", message: message.into() }
    }

    pub(super) fn part(part: &'static str, message: impl Into<String>) -> Self {
        Self { part, message: message.into() }
    }

    pub(super) fn malformed(path: &str, problem: impl Display) -> Self {
        Self::new(format!("{path}: {problem}; correct it"))
    }
}

/// Checks that `number` is in `range`, and converts the number to `N`. All numbers in `range` must
/// fit into `N`, because a number that does not fit is rejected as out of range.
pub(super) fn in_range<N: TryFrom<i32>>(
    path: &str,
    number: i32,
    range: RangeInclusive<i32>,
) -> Result<N, ValidationError> {
    let within = N::try_from(number).ok().filter(|_| range.contains(&number));
    let (min, max) = range.into_inner();
    within.ok_or_else(|| {
        ValidationError::new(format!("{path} is {number}; set it to {min} to {max}"))
    })
}

pub(super) fn counted(
    path: &str,
    count: usize,
    range: RangeInclusive<usize>,
) -> Result<(), ValidationError> {
    if range.contains(&count) {
        return Ok(());
    }
    let (min, max) = range.into_inner();
    Err(ValidationError::new(format!("{path} has {count} entries; give it {min} to {max}")))
}

pub(super) fn short(path: &str, text: &str, max: usize) -> Result<(), ValidationError> {
    if text.len() <= max {
        return Ok(());
    }
    Err(ValidationError::new(format!(
        "{path} has {} bytes; shorten it to at most {max}",
        text.len()
    )))
}

/// Checks that no two entries of the list at the JSON path `path` have equal keys. `entries`
/// contains each key with its text for the error message. `field` is the path of the key inside an
/// entry, such as `.name`. The check takes quadratic time, so the list must be short.
pub(super) fn distinct<'a, K: PartialEq>(
    path: &str,
    field: &str,
    entries: impl IntoIterator<Item = (K, &'a str)>,
) -> Result<(), ValidationError> {
    let mut seen = Vec::new();
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if let Some(earlier) = seen.iter().position(|other| *other == key) {
            return Err(ValidationError::new(format!(
                "{path}[{at}]{field}: {value:?} is already in {path}[{earlier}]{field}; rename or remove one"
            )));
        }
        seen.push(key);
    }
    Ok(())
}
