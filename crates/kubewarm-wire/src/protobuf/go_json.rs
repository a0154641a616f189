//! Writes single values as Go's `encoding/json` does with Kubernetes' types.

use std::io::Write as _;

/// Appends a JSON string. As in Go, `<`, `>` and `&` are escaped, and each invalid byte becomes
/// `\ufffd`.
pub(crate) fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    // This loop has no branch for each byte, so that the compiler vectorizes it. Most strings need
    // no escape.
    if text.iter().fold(false, |any, byte| any | needs_care(*byte)) {
        escape(text, out);
    } else {
        out.extend_from_slice(text);
    }
    out.push(b'"');
}

#[inline]
const fn needs_care(byte: u8) -> bool {
    byte < 0x20 || byte >= 0x80 || matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&')
}

/// Whether [`write_compact`] can remove or replace the byte.
#[inline]
const fn changes_in_json(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'<' | b'>' | b'&' | 0xe2)
}

fn escape(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\u{8}' => out.extend_from_slice(b"\\b"),
                '\u{c}' => out.extend_from_slice(b"\\f"),
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                    let _infallible = write!(out, "\\u{:04x}", u32::from(letter));
                }
                letter => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|_| out.extend_from_slice(b"\\ufffd"));
    }
}

/// Appends JSON without white space between its tokens, and escapes its strings as [`write_string`]
/// does. Go changes the result of `MarshalJSON` in the same way.
pub(super) fn write_compact(json: &[u8], out: &mut Vec<u8>) {
    // This loop has no branch for each byte, as in `write_string`. Most JSON in objects is compact
    // already.
    if !json.iter().fold(false, |any, byte| any | changes_in_json(*byte)) {
        return out.extend_from_slice(json);
    }
    let mut is_string = false;
    let mut rest = json;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' if !is_string => {}
            b'\\' if is_string => {
                out.push(byte);
                if let Some((&escaped, behind)) = rest.split_first() {
                    out.push(escaped);
                    rest = behind;
                }
            }
            b'<' | b'>' | b'&' => {
                let _infallible = write!(out, "\\u{byte:04x}");
            }
            // The bytes of U+2028 and U+2029, which Go escapes, because they are line ends in
            // JavaScript.
            0xe2 if matches!(rest, [0x80, 0xa8 | 0xa9, ..]) => {
                let last = rest.get(1).map_or(0, |last| last & 0xf);
                out.extend_from_slice(if last == 8 { b"\\u2028" } else { b"\\u2029" });
                rest = rest.get(2..).unwrap_or_default();
            }
            _ => {
                is_string ^= byte == b'"';
                out.push(byte);
            }
        }
    }
}

/// Seconds from 0001-01-01, Go's zero time, to 1970-01-01.
pub(super) const ZERO_TIME: i64 = -62_135_596_800;

/// Appends a time in RFC 3339 with seconds or microseconds; `null` for Go's zero time.
pub(super) fn write_time(seconds: i64, microseconds: Option<i64>, out: &mut Vec<u8>) {
    if seconds == ZERO_TIME && microseconds.unwrap_or(0) == 0 {
        return out.extend_from_slice(b"null");
    }
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_date(days);
    out.push(b'"');
    if let 1_000..=9_999 = year {
        write_integer(year, out);
    } else {
        let sign = if year < 0 { "-" } else { "" };
        let _infallible = write!(out, "{sign}{:04}", year.unsigned_abs());
    }
    let parts = [month, day, second / 3_600, second / 60 % 60, second % 60];
    for (separator, part) in b"--T::".iter().zip(parts) {
        let digit = |value: i64| b'0' + u8::try_from(value % 10).unwrap_or(0);
        out.extend_from_slice(&[*separator, digit(part / 10), digit(part)]);
    }
    if let Some(microseconds) = microseconds {
        let _infallible = write!(out, ".{microseconds:06}");
    }
    out.extend_from_slice(b"Z\"");
}

/// Returns year, month and day of the day that is `days` after 1970-01-01.
///
/// The calendar repeats after 400 years, an era of 146,097 days. Years begin in March, so that the
/// leap day comes last.
fn civil_date(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097;
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH: i64 = 719_468;
    let shifted = days + EPOCH;
    let (era, day) = (shifted.div_euclid(ERA), shifted.rem_euclid(ERA));
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, is_next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + is_next_year, month, day)
}

/// Appends an integer. Objects have many integers, and `itoa` is faster than `write!`.
pub(crate) fn write_integer(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// The expected texts are from Go 1.26.
    #[test]
    fn strings_are_escaped_as_in_go() {
        for (text, expected) in [
            (&b"plain text 1"[..], r#""plain text 1""#),
            ("é😀\u{7f}".as_bytes(), "\"é😀\u{7f}\""),
            (b"<a href=\"x\">&\\", r#""\u003ca href=\"x\"\u003e\u0026\\""#),
            (b"\n\r\t\x08\x0c\x00\x1f", r#""\n\r\t\b\f\u0000\u001f""#),
            ("\u{2028}\u{2029}\u{2027}".as_bytes(), "\"\\u2028\\u2029\u{2027}\""),
            (b"a\xff\xe2\x80b", r#""a\ufffd\ufffd\ufffdb""#),
            (b"", "\"\""),
        ] {
            assert_eq!(written(|out| write_string(text, out)), expected);
        }
    }

    #[test]
    fn embedded_json_is_compacted_as_in_go() {
        for (json, expected) in [
            (" { \"a\" : [ 1 , \"x y\" ] }\n", r#"{"a":[1,"x y"]}"#),
            (r#"{"a":"\" \\","b":"<"}"#, r#"{"a":"\" \\","b":"\u003c"}"#),
            ("\"\u{2028}\u{2029}\u{2027}\"", "\"\\u2028\\u2029\u{2027}\""),
            (r#""\"#, r#""\"#),
        ] {
            assert_eq!(written(|out| write_compact(json.as_bytes(), out)), expected);
        }
    }

    #[test]
    fn times_have_their_date() {
        for (seconds, micro, expected) in [
            (0, None, "\"1970-01-01T00:00:00Z\""),
            (951_782_399, None, "\"2000-02-28T23:59:59Z\""),
            (951_782_400, None, "\"2000-02-29T00:00:00Z\""),
            (4_107_542_400, Some(7), "\"2100-03-01T00:00:00.000007Z\""),
            (ZERO_TIME, None, "null"),
            (ZERO_TIME + 1, None, "\"0001-01-01T00:00:01Z\""),
            (ZERO_TIME - 366 * 86_400 - 1, None, "\"-0001-12-31T23:59:59Z\""),
            (-1, Some(999_999), "\"1969-12-31T23:59:59.999999Z\""),
        ] {
            assert_eq!(written(|out| write_time(seconds, micro, out)), expected);
        }
        // The calendar is correct for each day of one era: it agrees with an independent
        // implementation.
        for days in (-719_162..2_932_896).step_by(13) {
            let date = jiff::Timestamp::from_second(days * 86_400).unwrap();
            let date = date.to_zoned(jiff::tz::TimeZone::UTC).date();
            let expected = (date.year().into(), date.month().into(), date.day().into());
            assert_eq!(civil_date(days), expected, "{date}");
        }
    }

    #[test]
    fn integers_are_decimal() {
        for value in [0, 9, 10, -1, i64::MAX, i64::MIN] {
            assert_eq!(written(|out| write_integer(value, out)), value.to_string());
        }
    }
}
