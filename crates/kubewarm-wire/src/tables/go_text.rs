//! Writes values as Go does: `encoding/json` for the cells of a table, and `fmt` for the text of
//! one value.

use crate::protobuf::{write_integer, write_string};
use serde_json::{Number, Value};

/// A number as the API server decodes it: an integer of 64 bits, or else a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum GoNumber {
    Int(i64),
    Float(f64),
}

impl GoNumber {
    pub(super) fn of(number: &Number) -> Self {
        match number.as_i64() {
            Some(whole) => Self::Int(whole),
            None => Self::Float(number.as_f64().unwrap_or_default()),
        }
    }

    pub(super) const fn as_float(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "Go loses the same digits")]
        match self {
            Self::Int(whole) => whole as f64,
            Self::Float(number) => number,
        }
    }

    /// Converts to an integer, towards zero. As Go on amd64, a float outside of the range of `i64`
    /// is the smallest integer.
    pub(super) const fn as_int(self) -> i64 {
        const BEYOND: f64 = 9_223_372_036_854_775_808.0;
        match self {
            Self::Int(whole) => whole,
            #[expect(clippy::cast_possible_truncation, reason = "in range")]
            Self::Float(number) if number >= -BEYOND && number < BEYOND => number as i64,
            Self::Float(_) => i64::MIN,
        }
    }
}

/// Formats a value as `fmt.Fprint` does: a string without quotes, a list or an object as JSON, and
/// null as `<no value>`.
pub(super) fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => match GoNumber::of(number) {
            GoNumber::Int(whole) => whole.to_string(),
            GoNumber::Float(number) => text_of_float(number),
        },
        Value::Array(_) | Value::Object(_) => json(value),
    }
}

/// Returns a value as JSON in one line.
pub(super) fn json(value: &Value) -> String {
    let mut out = Vec::new();
    write_json(value, &mut out);
    // Strings and numbers are UTF-8, so this never replaces a byte.
    String::from_utf8_lossy(&out).into_owned()
}

fn write_json(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Value::Number(number) => match GoNumber::of(number) {
            GoNumber::Int(whole) => write_integer(whole, out),
            GoNumber::Float(number) => out.extend_from_slice(json_of_float(number).as_bytes()),
        },
        Value::String(text) => write_string(text.as_bytes(), out),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_json(item, out);
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            out.push(b'{');
            for (at, (name, field)) in fields.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_string(name.as_bytes(), out);
                out.push(b':');
                write_json(field, out);
            }
            out.push(b'}');
        }
    }
}

/// Formats a float as `encoding/json` does: with an exponent below 1e-6 and from 1e21 on.
fn json_of_float(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return number.to_string();
    }
    let written = format!("{number:e}");
    // Go writes the sign of each exponent.
    if size < 1.0 { written } else { written.replace('e', "e+") }
}

/// Formats a float as the verb `%v` of `fmt` does: below 1e-4 and from 1e6 on with an exponent,
/// which has at least two digits.
fn text_of_float(number: f64) -> String {
    let written = format!("{number:e}");
    let Some((digits, exponent)) = written.split_once('e') else { return written };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        Ok(_) | Err(_) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are from Go 1.26 on amd64.
    #[test]
    fn floats_are_written_as_in_go() {
        for (number, text, json, whole) in [
            (0.1, "0.1", "0.1", 0),
            (-0.5, "-0.5", "-0.5", 0),
            (100_000.0, "100000", "100000", 100_000),
            (123_456.5, "123456.5", "123456.5", 123_456),
            (1e6, "1e+06", "1000000", 1_000_000),
            (12_345_678.5, "1.23456785e+07", "12345678.5", 12_345_678),
            (1e20, "1e+20", "100000000000000000000", i64::MIN),
            (1e21, "1e+21", "1e+21", i64::MIN),
            (-1e30, "-1e+30", "-1e+30", i64::MIN),
            (0.0001, "0.0001", "0.0001", 0),
            (1.5e-5, "1.5e-05", "0.000015", 0),
            (1e-6, "1e-06", "0.000001", 0),
            (1e-7, "1e-07", "1e-7", 0),
        ] {
            let value = Value::from(number);
            assert_eq!((&*printed(&value), &*super::json(&value)), (text, json));
            assert_eq!(GoNumber::Float(number).as_int(), whole, "{number}");
        }
        // The number exceeds `i64`, so Go reads it as a float, although it fits into `u64`.
        let large: Value = serde_json::from_str("12345678901234567000").unwrap();
        assert_eq!(printed(&large), "1.2345678901234567e+19");
        assert_eq!(super::json(&large), "12345678901234567000");
    }

    #[test]
    fn lists_and_objects_are_json_without_white_space() {
        let text = r#"{"a":[1,true,null,2.50,"<"],"b":{}}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(printed(&value), r#"{"a":[1,true,null,2.5,"\u003c"],"b":{}}"#);
        assert_eq!(printed(&"<".into()), "<");
        assert_eq!(printed(&Value::Null), "<no value>");
    }
}
