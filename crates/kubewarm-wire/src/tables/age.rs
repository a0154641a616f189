use jiff::{SignedDuration, Timestamp};

pub(super) const UNKNOWN: &str = "<unknown>";
pub(super) const INVALID: &str = "<invalid>";

/// Formats the time since `time`, such as `2d3h`. An invalid time results in `<unknown>`.
pub(super) fn since(time: &str, now: Timestamp) -> String {
    time.parse().map_or_else(|_| UNKNOWN.to_owned(), |time| human(now.duration_since(time)))
}

/// Formats the time since `time` for a column of type `date`. An absent time results in
/// `<unknown>`, an invalid time in `<invalid>`.
pub(super) fn since_date(time: &str, now: Timestamp) -> String {
    match time {
        "" | "null" => UNKNOWN.to_owned(),
        time => {
            time.parse().map_or_else(|_| INVALID.to_owned(), |time| human(now.duration_since(time)))
        }
    }
}

/// Formats a duration as `HumanDuration` of apimachinery does: with at most two units, such as `2d3h`.
pub(super) fn human(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    // The clocks of two machines can differ, so a time up to one second in the future counts as now.
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
        assert_eq!(since_date("2026-01-01T00:01:00+00:00", now), "60s");
    }
}
