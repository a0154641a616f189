//! Formats ages. Parses times as Go's `time.Parse` does with the layout of RFC 3339.

use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, DateTime, Time},
    tz::TimeZone,
};

pub(super) const UNKNOWN: &str = "<unknown>";
pub(super) const INVALID: &str = "<invalid>";
/// Go's zero time, which the API server prints as an absent time.
const ZERO: DateTime = DateTime::constant(1, 1, 1, 0, 0, 0, 0);
/// The longest duration in Go: 292 years.
const LONGEST: SignedDuration = SignedDuration::from_nanos(i64::MAX);

/// Formats the time since `time`, such as `2d3h`. An absent or invalid time results in `<unknown>`.
pub(super) fn since(time: &str, now: Timestamp) -> String {
    parse(time).map_or_else(|| UNKNOWN.to_owned(), |time| since_time(time, now))
}

/// Formats the time since `time` for a column of type `date`. An absent time results in
/// `<unknown>`, an invalid time in `<invalid>`.
pub(super) fn since_date(time: &str, now: Timestamp) -> String {
    match time {
        "" | "null" => UNKNOWN.to_owned(),
        time => parse(time).map_or_else(|| INVALID.to_owned(), |time| since_time(time, now)),
    }
}

fn since_time(time: DateTime, now: Timestamp) -> String {
    if time == ZERO {
        return UNKNOWN.to_owned();
    }
    human(TimeZone::UTC.to_datetime(now).duration_since(time))
}

/// Parses a time, and converts it to UTC. Go accepts more than RFC 3339: an hour with one digit, a
/// comma before the fraction, and an offset of up to `24:60`. Go accepts no lower-case letters, and
/// no leap seconds.
fn parse(text: &str) -> Option<DateTime> {
    let mut rest = text.as_bytes();
    let mut year = 0_i16;
    for _ in 0..4 {
        year = year * 10 + i16::from(take_digit(&mut rest)?);
    }
    take(&mut rest, b'-')?;
    let month = take_number(&mut rest)?;
    take(&mut rest, b'-')?;
    let day = take_number(&mut rest)?;
    take(&mut rest, b'T')?;
    let first = take_digit(&mut rest)?;
    let hour = take_digit(&mut rest).map_or(first, |second| first * 10 + second);
    take(&mut rest, b':')?;
    let minute = take_number(&mut rest)?;
    take(&mut rest, b':')?;
    let second = take_number(&mut rest)?;
    let mut nanosecond = 0;
    if let [b'.' | b',', b'0'..=b'9', ..] = rest {
        rest = rest.get(1..)?;
        let mut unit = 100_000_000;
        while let Some(digit) = take_digit(&mut rest) {
            nanosecond += i32::from(digit) * unit;
            unit /= 10;
        }
    }
    let offset = match rest {
        b"Z" => SignedDuration::ZERO,
        [sign @ (b'+' | b'-'), behind @ ..] => {
            rest = behind;
            let hours = take_number(&mut rest).filter(|hours| *hours <= 24)?;
            take(&mut rest, b':')?;
            let minutes = take_number(&mut rest).filter(|minutes| *minutes <= 60)?;
            let offset = SignedDuration::from_mins(i64::from(hours) * 60 + i64::from(minutes));
            if !rest.is_empty() {
                return None;
            }
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    let date = Date::new(year, month, day).ok()?;
    let time = Time::new(hour, minute, second, nanosecond).ok()?;
    date.to_datetime(time).checked_sub(offset).ok()
}

fn take(rest: &mut &[u8], expected: u8) -> Option<()> {
    let (_, behind) = rest.split_first().filter(|(first, _)| **first == expected)?;
    *rest = behind;
    Some(())
}

fn take_digit(rest: &mut &[u8]) -> Option<i8> {
    let (digit, behind) = rest.split_first().filter(|(first, _)| first.is_ascii_digit())?;
    *rest = behind;
    i8::try_from(digit - b'0').ok()
}

/// Parses two digits.
fn take_number(rest: &mut &[u8]) -> Option<i8> {
    Some(take_digit(rest)? * 10 + take_digit(rest)?)
}

/// Formats a duration as `HumanDuration` of apimachinery does: with at most two units, such as
/// `2d3h`.
pub(super) fn human(span: SignedDuration) -> String {
    let seconds = span.min(LONGEST).as_secs();
    // The clocks of two machines can differ, so a time up to one second in the future counts as
    // now.
    if seconds < -1 {
        return INVALID.to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |large: i64, of: &str, small: i64, rest: &str| match small {
        0 => format!("{large}{of}"),
        small => format!("{large}{of}{small}{rest}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(days, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{days}d"),
        () if hours < 24 * 365 * 8 => two(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        let (m, h, d) = (60, 3600, 86400);
        for (seconds, expected) in [
            (-5, INVALID),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (10 * m, "10m"),
            (179 * m, "179m"),
            (3 * h, "3h"),
            (3 * h + 5 * m, "3h5m"),
            (8 * h + 5 * m, "8h"),
            (47 * h, "47h"),
            (2 * d, "2d"),
            (2 * d + 3 * h, "2d3h"),
            (8 * d + 3 * h, "8d"),
            (729 * d, "729d"),
            (730 * d, "2y"),
            (740 * d, "2y10d"),
            (9 * 365 * d, "9y"),
        ] {
            assert_eq!(human(SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn an_invalid_time_is_unknown_and_an_invalid_date_is_invalid() {
        let now: Timestamp = "2026-01-01T00:02:00.9Z".parse().unwrap();
        assert_eq!(since("2026-01-01T00:01:00Z", now), "60s");
        assert_eq!(since("2026-01-01T00:01:00.123456Z", now), "60s");
        assert_eq!((since("", now), since("x", now)), (UNKNOWN.to_owned(), UNKNOWN.to_owned()));
        assert_eq!((since_date("", now), since_date("x", now)), (UNKNOWN.into(), INVALID.into()));
    }

    /// The expected ages are from Go 1.26. `tests/e2e/cases/reads/cells.rs` compares many more with
    /// a running API server's.
    #[test]
    fn times_are_parsed_as_in_go() {
        let now: Timestamp = "2026-01-01T00:02:00.9Z".parse().unwrap();
        for (time, expected) in [
            ("2026-01-01T00:01:00+00:00", "60s"),
            ("2026-01-01T01:01:00+01:00", "60s"),
            ("2025-12-31T23:01:00-01:00", "60s"),
            ("2026-01-02T01:01:00+24:60", "60s"),
            ("2026-01-01T0:01:00Z", "60s"),
            ("2026-01-01T00:01:00,9Z", "60s"),
            ("2026-01-01T00:01:00.99999999999999999999Z", "59s"),
            ("0001-01-01T00:00:00Z", UNKNOWN),
            ("0001-01-01T01:00:00+01:00", UNKNOWN),
            ("0001-01-01T00:00:01Z", "292y"),
            ("0000-01-01T00:00:00+24:60", "292y"),
            ("9999-12-31T23:59:59-24:00", INVALID),
            ("2026-01-01 00:01:00Z", INVALID),
            ("2026-01-01t00:01:00Z", INVALID),
            ("2026-01-01T00:01:00z", INVALID),
            ("2026-01-01T00:01Z", INVALID),
            ("2026-01-01T00:01:00", INVALID),
            ("2026-01-01T00:01:00+0000", INVALID),
            ("2026-01-01T00:01:00+25:00", INVALID),
            ("2026-01-01T00:01:00+00:61", INVALID),
            ("2026-01-01T00:01:00+00:00Z", INVALID),
            ("2026-01-01T00:01:00.Z", INVALID),
            ("2026-01-01T00:00:60Z", INVALID),
            ("2025-12-31T24:00:00Z", INVALID),
            ("2025-02-29T00:00:00Z", INVALID),
            ("2025-2-09T00:00:00Z", INVALID),
            ("+2025-02-09T00:00:00Z", INVALID),
        ] {
            assert_eq!(since_date(time, now), expected, "{time}");
        }
    }
}
