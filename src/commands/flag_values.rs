//! Parsers of flag values: names, sizes, durations.

use kubewarm_api::model::{is_dns_label, parse_quantity};
use std::time::Duration;

/// Maximum value of a duration flag. A longer value is a typing error. It could also overflow when
/// kubewarm adds it to the current time.
const MAX_DURATION: Duration = Duration::from_hours(7 * 24);

pub(crate) fn namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        return Ok(text.to_owned());
    }
    Err("expected the name of a namespace: lower-case letters, digits and '-'".to_owned())
}

pub(crate) fn dns_name(text: &str) -> Result<String, String> {
    if text.split('.').all(is_dns_label) {
        return Ok(text.to_owned());
    }
    Err("expected a name of DNS: lower-case letters, digits, '-' and '.'".to_owned())
}

/// Parses a number of bytes in the format of a Kubernetes quantity, such as `512Mi`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_quantity(text)
        .ok_or_else(|| "expected bytes, as a quantity such as 512Mi or 1.5Gi".to_owned())
}

/// Parses whole seconds (`90`), or numbers with units (`500ms`, `5m`, `1h30m`).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let length = long_duration(text)?;
    if length > MAX_DURATION {
        return Err("expected at most 7 days (168h)".to_owned());
    }
    Ok(length)
}

/// The same without a maximum.
pub(crate) fn long_duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => text.parse::<jiff::SignedDuration>().ok().and_then(|d| d.try_into().ok()),
    };
    let expected = "expected seconds, or a number with a unit such as 500ms, 90s or 5m";
    parsed.ok_or_else(|| expected.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_have_units() {
        for (text, millis) in [("0", 0), ("90", 90_000), ("500ms", 500), ("1h30m", 5_400_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-1", "-5s", "soon", "5 parsecs", "169h", "1e3"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_units() {
        let sizes = ["0", "512Mi", "1G", "1.5Gi"].map(size);
        assert_eq!(sizes, [0, 512 << 20, 1_000_000_000, 3 << 29].map(Ok));
        for text in ["", "-1", "much", "16Ei"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
