//! Parser of Kubernetes quantities, such as `200Mi`, `1.5Gi` or `2e9`.

/// Parses a quantity to an integer. Fractions are rounded up, as in `resource.Quantity.Value`.
///
/// Returns `None` for text that Kubernetes rejects, for negative quantities, and for quantities
/// above `u64::MAX`.
pub fn parse_quantity(text: &str) -> Option<u64> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let is_numeric = |at: char| at.is_ascii_digit() || at == '.';
    let (number, suffix) =
        text.split_at(text.find(|at: char| !is_numeric(at)).unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("0{whole}{fraction}").parse::<u128>().ok()?;
    let (factor, exponent) = multiplier(suffix)?;
    let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let units = digits.checked_mul(factor)?;
    let power = 10_u128.checked_pow(exponent.unsigned_abs());
    let value = match power {
        _ if units == 0 => 0,
        Some(power) if exponent < 0 => units.div_ceil(power),
        // The power of ten does not fit into a `u128`, so it is greater than `units`. The quotient
        // is below 1 and is rounded up to 1.
        None if exponent < 0 => 1,
        power => units.checked_mul(power?)?,
    };
    if is_negative && value > 0 {
        return None;
    }
    u64::try_from(value).ok()
}

/// Returns the factor and the exponent of ten that a suffix stands for: `(1024, 0)` for `Ki`, `(1,
/// 3)` for `k`. Returns `None` if Kubernetes has no such suffix.
fn multiplier(suffix: &str) -> Option<(u128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_fractions_suffixes_and_exponents_are_parsed() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("+1", 1),
            ("64Ki", 64 << 10),
            ("200Mi", 200 << 20),
            ("2Gi", 2 << 30),
            ("1Ti", 1 << 40),
            ("1Pi", 1 << 50),
            ("15Ei", 15 << 60),
            ("1k", 1_000),
            ("5M", 5_000_000),
            ("3G", 3_000_000_000),
            ("1T", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1.5Gi", 3 << 29),
            ("1.", 1),
            (".5k", 500),
            ("1.50", 2),
            ("1e3", 1_000),
            ("1.5E+3", 1_500),
            ("25e-1", 3),
            ("1500m", 2),
            ("2000000u", 2),
            ("1n", 1),
            ("0.0000000000000000000000000000000000000000000001Ei", 1),
            ("1e-60", 1),
            ("0e60", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_quantity(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_negative_and_too_large_quantities_are_rejected() {
        let rejected = [
            "",
            ".",
            "-",
            "Mi",
            "-1",
            "-1m",
            "1 Mi",
            " 1",
            "1.2.3",
            "1mi",
            "1Ki2",
            "1e",
            "1e1.5",
            "1e99999999999",
            "1e60",
            "16Ei",
            "18446744073709551616",
            "9999999999E",
            "+-1",
            "\u{b2}",
            "lots",
            "NaN",
            "0x10",
        ];
        for text in rejected {
            assert_eq!(parse_quantity(text), None, "{text}");
        }
    }
}
