//! Creates the error messages for invalid label keys and values, with the API server's text.

use crate::status_error::quoted;
use kubewarm_api::model::{LabelRequirement, LabelSelectorOperator};
use std::collections::BTreeSet;

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                    end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                    '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Maximum number of invalid label values that an error message quotes. If there are more, the
/// message ends with the number of omitted values. The error text about a value can be 100 times as
/// long as the value. So without this limit, a short request from an unauthenticated client could
/// cause a long response.
const NAMED: usize = 16;

/// Returns one message for each of the first `NAMED` invalid label values. If there are more, the
/// last message contains the number of omitted values.
pub(super) fn wrong_values(key: &str, values: &BTreeSet<&str>) -> Vec<String> {
    let is_wrong =
        |value: &str| LabelRequirement::new("a", LabelSelectorOperator::In, [value]).is_err();
    let mut wrong = values.iter().enumerate().filter(|(_, value)| is_wrong(value));
    let mut faults: Vec<_> = wrong
        .by_ref()
        .take(NAMED)
        .map(|(at, value)| {
            let (value, fault) = (quoted(value), value_fault(value));
            format!("values[{at}][{key}]: Invalid value: {value}: {fault}")
        })
        .collect();
    let more = wrong.count();
    if more > 0 {
        faults.push(format!("and {more} more"));
    }
    faults
}

/// Joins messages as `errors.NewAggregate` of apimachinery does.
pub(super) fn aggregated(faults: &[String]) -> String {
    match faults {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

pub(super) fn key_fault(key: &str) -> String {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            return format!(
                "a valid label key {NAME} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            );
        }
    };
    let mut faults = Vec::new();
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            let with = format!("{prefix}/a");
            if LabelRequirement::new(&with, LabelSelectorOperator::Exists, []).is_err() {
                faults.push(
                    "prefix part a lowercase RFC 1123 subdomain must consist of lower case \
                     alphanumeric characters, '-' or '.', and must start and end with an \
                     alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                        .to_owned(),
                );
            }
        }
        None => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        faults.push(format!("name part {NAME}"));
    }
    faults.join("; ")
}

fn value_fault(value: &str) -> String {
    let mut faults = Vec::new();
    if value.len() > 63 {
        faults.push("must be no more than 63 bytes");
    }
    if !is_name(value) {
        faults.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
             or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
             'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        );
    }
    faults.join("; ")
}

fn is_name(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}
