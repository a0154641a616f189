//! Checks the query parameter `timeout`. As the API server, kubewarm rejects an invalid duration.
//! kubewarm does not apply the duration, because it answers or rejects each read within its own
//! time limits.

use super::{StatusError, status_error::quoted};

/// Checks that `text` is a duration of Go, such as `1m30s`. An empty text is valid.
///
/// # Errors
///
/// 400 with the API server's message.
pub(super) fn check(text: &str) -> Result<(), StatusError> {
    let Err(why) = parse(text) else { return Ok(()) };
    let message = "invalid timeout specified in the request URL - time";
    Err(StatusError::bad_request(format!("{message}: {why} duration {}", quoted(text))))
}

/// Parses a duration as `time.ParseDuration` of Go does, with at most 18 digits behind a point.
fn parse(text: &str) -> Result<(), String> {
    const LONGEST: u128 = 1 << 63;
    let invalid = || "invalid".to_owned();
    let is_number = |c: char| c == '.' || c.is_ascii_digit();
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if matches!(rest, "0") || text.is_empty() {
        return Ok(());
    }
    let mut total = 0_u128;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, behind) = rest.split_at_checked(digits).unwrap_or_default();
        let (fraction, behind) = match behind.strip_prefix('.') {
            None => ("", behind),
            Some(behind) => {
                let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
                behind.split_at_checked(digits).unwrap_or_default()
            }
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let (unit, behind) = behind
            .split_at_checked(behind.find(is_number).unwrap_or(behind.len()))
            .unwrap_or_default();
        let scale = match unit {
            "" => return Err("missing unit in".to_owned()),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            unit => return Err(format!("unknown unit {} in", quoted(unit))),
        };
        let whole = if whole.is_empty() { Ok(0) } else { whole.parse::<u128>() };
        let whole = whole.ok().filter(|whole| *whole <= LONGEST).ok_or_else(invalid)?;
        let fraction = fraction.get(..18).unwrap_or(fraction);
        let tenths = fraction.bytes().fold((0, 1), |(sum, divisor), digit| {
            (sum * 10 + u128::from(digit - b'0'), divisor * 10)
        });
        total += whole * scale + tenths.0 * scale / tenths.1;
        if total > LONGEST || (behind.is_empty() && total == LONGEST && !is_negative) {
            return Err(invalid());
        }
        if behind.is_empty() {
            return Ok(());
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for text in [
            "",
            "0",
            "+0",
            "-0",
            "30s",
            "1m30s",
            "-1.5h",
            ".5s",
            "1.s",
            "1us",
            "1µs",
            "1μs",
            "0.1ns",
            "2562047.7h",
            "9223372036854775807ns",
            "-9223372036854775808ns",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, expected) in [
            ("30", r#"missing unit in duration "30""#),
            ("1m30", r#"missing unit in duration "1m30""#),
            ("x", r#"invalid duration "x""#),
            ("-", r#"invalid duration "-""#),
            (".s", r#"invalid duration ".s""#),
            ("1d", r#"unknown unit "d" in duration "1d""#),
            ("1s ", r#"unknown unit "s " in duration "1s ""#),
            ("2562047.99h", r#"invalid duration "2562047.99h""#),
            ("9223372036854775808ns", r#"invalid duration "9223372036854775808ns""#),
            ("99999999999999999999999999999999999999999h", "invalid duration"),
        ] {
            let failure = check(text).unwrap_err();
            let prefix = "invalid timeout specified in the request URL - time: ";
            let why = failure.message().strip_prefix(prefix).unwrap_or_default();
            assert!(failure.code() == 400 && why.starts_with(expected), "{text}: {failure}");
        }
    }
}
