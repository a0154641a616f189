//! Resource versions: decimal versions have an order, opaque versions have none.

use serde::{Serialize, Serializer};
use std::{cmp::Ordering, fmt};

/// `metadata.resourceVersion` of an object or of a list.
///
/// KEP-5504 defines that versions of one resource compare as decimal integers of any length. A
/// version that is not decimal is opaque. It can be equal to another version, but it is neither
/// older nor newer than another version. So [`PartialOrd`] returns `None` for an opaque version and
/// another version, and kubewarm skips checks that need an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceVersion(VersionRepr);

/// Versions below 2^64, as etcd assigns them, are stored as a number, which saves an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum VersionRepr {
    Number(u64),
    Text(Box<str>),
}

impl ResourceVersion {
    /// Parses a version as the API server wrote it. Returns `None` for the empty string, which
    /// means that there is no version.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        // Rust parses `+1` and `01` as the number 1. Such versions are stored as text, so that
        // kubewarm writes them unchanged.
        let is_canonical = is_decimal(text) && (text == "0" || !text.starts_with('0'));
        Some(Self(match text.parse() {
            Ok(number) if is_canonical => VersionRepr::Number(number),
            _ => VersionRepr::Text(text.into()),
        }))
    }

    /// Returns the version as a number, if it is decimal, below 2^64 and without leading zeros.
    pub fn as_u64(&self) -> Option<u64> {
        match self.0 {
            VersionRepr::Number(number) => Some(number),
            VersionRepr::Text(_) => None,
        }
    }

    /// Whether the version is not a decimal number. Such a version has no order.
    pub fn is_opaque(&self) -> bool {
        matches!(&self.0, VersionRepr::Text(text) if !is_decimal(text))
    }

    /// Whether `self` is older than `other`; `false` if one of the versions is not decimal.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Less)
    }
}

impl From<u64> for ResourceVersion {
    fn from(number: u64) -> Self {
        Self(VersionRepr::Number(number))
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (VersionRepr::Number(a), VersionRepr::Number(b)) => Some(a.cmp(b)),
            _ if self == other => Some(Ordering::Equal),
            _ if self.is_opaque() || other.is_opaque() => None,
            _ => {
                let (a, b) = (self.to_string(), other.to_string());
                let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
                Some(a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
            }
        }
    }
}

impl Serialize for ResourceVersion {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            VersionRepr::Number(number) => write!(f, "{number}"),
            VersionRepr::Text(text) => f.write_str(text),
        }
    }
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> ResourceVersion {
        ResourceVersion::parse(text).unwrap()
    }

    #[test]
    fn decimal_versions_compare_as_integers_of_any_length() {
        let ascending =
            ["0", "9", "10", "18446744073709551615", "18446744073709551616", "9".repeat(40).leak()];
        for pair in ascending.windows(2) {
            assert!(version(pair[0]).is_older_than(&version(pair[1])), "{pair:?}");
            assert!(!version(pair[1]).is_older_than(&version(pair[0])), "{pair:?}");
        }
    }

    #[test]
    fn opaque_versions_are_equal_or_have_no_order() {
        for text in ["abc", "12-3", "v7", "1.5", "-1"] {
            let opaque = version(text);
            assert!(opaque.is_opaque(), "{text}");
            assert_eq!(opaque.partial_cmp(&version("5")), None, "{text}");
            assert_eq!(opaque.partial_cmp(&version(text)), Some(Ordering::Equal), "{text}");
        }
    }

    #[test]
    fn versions_are_written_unchanged() {
        for text in ["0", "7", "007", "+1", "18446744073709551616", "x"] {
            assert_eq!(version(text).to_string(), text);
        }
        assert_eq!(ResourceVersion::parse(""), None);
        assert_eq!(version("007").partial_cmp(&version("7")), Some(Ordering::Equal));
    }
}
