//! Parses the label selectors of requests. Supports the API server's complete grammar.

#[cfg(test)]
mod tests;
mod validation;

use self::validation::{aggregated, key_fault, wrong_values};
use super::{StatusError, status_error::quoted};
use kubewarm_api::model::{
    LabelRequirement, LabelSelector, LabelSelectorOperator, NumericLabelRequirement,
};
use std::{cmp::Ordering, collections::BTreeSet};

/// Maximum number of requirements and values of a client's label selector, counted together. The
/// limit bounds memory: each watch keeps its selector, and each access review contains a copy of
/// the selector.
const MOST: usize = 1_024;
/// Maximum number of requirements of a client's label selector. The limit bounds CPU time: kubewarm
/// compares each event with all requirements of a watch, and each listed object with all `<` and
/// `>` requirements. For comparison, an informer's own selector has at most 32 requirements.
const MOST_REQUIREMENTS: usize = 64;

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// First characters of the operators and of the punctuation in a label selector.
const SIGNS: &str = "=!(),><";

/// A parser for label selectors. `rest` is the part of the selector that it has not parsed yet.
struct LabelSelectorParser<'a> {
    rest: &'a str,
}

/// Parses a label selector that is already percent-decoded.
///
/// # Errors
///
/// 400 with the API server's message. The API server can accept a selector that exceeds `MOST` or
/// `MOST_REQUIREMENTS`. So the 400 for such a selector permits kubewarm to forward the request.
pub(super) fn parse(text: &str) -> Result<LabelSelector, StatusError> {
    // The API server stops at a NUL character and ignores all requirements after it. kubewarm
    // rejects the complete selector instead, because without requirements a selector selects more
    // objects than the client wants.
    if text.contains('\0') {
        return Err(StatusError::bad_request("found a NUL character in the label selector"));
    }
    // Commas separate requirements and values. So the number of requirements and values is at most
    // one more than the number of commas.
    if text.matches(',').count() >= MOST {
        return Err(StatusError::too_much("label", MOST, "requirements and values"));
    }
    let selector =
        LabelSelectorParser { rest: text }.selector().map_err(StatusError::bad_request)?;
    if selector.requirements().count() + selector.comparisons().count() > MOST_REQUIREMENTS {
        return Err(StatusError::too_much("label", MOST_REQUIREMENTS, "requirements"));
    }
    Ok(selector)
}

impl<'a> LabelSelectorParser<'a> {
    fn selector(&mut self) -> Result<LabelSelector, String> {
        let (mut requirements, mut comparisons) = (Vec::new(), Vec::new());
        while !self.peek().is_empty() {
            let token = self.peek();
            if !begins_requirement(token) {
                return Err(format!(
                    "found '{token}', expected: !, identifier, or 'end of string'"
                ));
            }
            self.requirement(&mut requirements, &mut comparisons)
                .map_err(|why| format!("unable to parse requirement: {why}"))?;
            match self.take() {
                "" => break,
                "," => {}
                token => return Err(format!("found '{token}', expected: ',' or 'end of string'")),
            }
            let token = self.peek();
            if !begins_requirement(token) {
                return Err(format!("found '{token}', expected: identifier after ','"));
            }
        }
        Ok(LabelSelector::new(requirements).with_comparisons(comparisons))
    }

    fn requirement(
        &mut self,
        requirements: &mut Vec<LabelRequirement>,
        comparisons: &mut Vec<NumericLabelRequirement>,
    ) -> Result<(), String> {
        let is_negated = self.peek() == "!";
        if is_negated {
            self.take();
        }
        let key = self.word()?;
        if LabelRequirement::new(key, LabelSelectorOperator::Exists, []).is_err() {
            return Err(format!("<nil>: Invalid value: {}: {}", quoted(key), key_fault(key)));
        }
        if is_negated || ends_requirement(self.peek()) {
            let operator = if is_negated {
                LabelSelectorOperator::DoesNotExist
            } else {
                LabelSelectorOperator::Exists
            };
            requirements.push(checked(key, operator, &BTreeSet::new())?);
            return Ok(());
        }
        match self.take() {
            "in" => requirements.push(checked(key, LabelSelectorOperator::In, &self.values()?)?),
            "notin" => {
                requirements.push(checked(key, LabelSelectorOperator::NotIn, &self.values()?)?);
            }
            "=" | "==" => {
                requirements.push(checked(key, LabelSelectorOperator::In, &self.exact_value()?)?);
            }
            "!=" => {
                requirements.push(checked(
                    key,
                    LabelSelectorOperator::NotIn,
                    &self.exact_value()?,
                )?);
            }
            ">" => comparisons.push(compared(key, Ordering::Greater, &self.exact_value()?)?),
            "<" => comparisons.push(compared(key, Ordering::Less, &self.exact_value()?)?),
            token => {
                return Err(format!("found '{token}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        }
        Ok(())
    }

    /// Parses the values of a requirement, such as `(x,y,z)`. `()` contains one empty value. A
    /// missing value next to a comma is an empty value, too.
    fn values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let open = self.take();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let first = self.peek();
        if first == ")" {
            self.take();
            return Ok(BTreeSet::from([""]));
        }
        if !is_word(first) && first != "," {
            return Err(format!("found '{first}', expected: ',', ')' or identifier"));
        }
        let mut values = BTreeSet::new();
        loop {
            let token = self.take();
            let next = self.peek();
            if is_word(token) {
                values.insert(token);
                if !matches!(next, "," | ")") {
                    return Err(format!("found '{next}', expected: ',' or ')'"));
                }
            } else if token == "," {
                if values.is_empty() || matches!(next, "," | ")") {
                    values.insert("");
                }
            } else {
                return Err(format!("found '{token}', expected: ',', or identifier"));
            }
            if next == ")" {
                self.take();
                return Ok(values);
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let value = if ends_requirement(self.peek()) { "" } else { self.word()? };
        Ok(BTreeSet::from([value]))
    }

    fn word(&mut self) -> Result<&'a str, String> {
        let token = self.take();
        if is_word(token) {
            return Ok(token);
        }
        Err(format!("found '{token}', expected: identifier"))
    }

    fn peek(&self) -> &'a str {
        LabelSelectorParser { rest: self.rest }.take()
    }

    /// Consumes the next token: a word, or one of `= == != ! > < ( ) ,`. At the end of the
    /// selector, returns an empty text.
    fn take(&mut self) -> &'a str {
        let text = self.rest.trim_start_matches(SPACES);
        let length = match text.as_bytes() {
            [b'=' | b'!', b'=', ..] => 2,
            [first, ..] if SIGNS.contains(char::from(*first)) => 1,
            _ => {
                let ends = |c| SPACES.contains(&c) || SIGNS.contains(c);
                text.find(ends).unwrap_or(text.len())
            }
        };
        let (token, rest) = text.split_at_checked(length).unwrap_or_default();
        self.rest = rest;
        token
    }
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(|first| SIGNS.contains(first))
}

fn begins_requirement(token: &str) -> bool {
    is_word(token) || token == "!"
}

fn ends_requirement(token: &str) -> bool {
    matches!(token, "" | ",")
}

fn checked(
    key: &str,
    operator: LabelSelectorOperator,
    values: &BTreeSet<&str>,
) -> Result<LabelRequirement, String> {
    LabelRequirement::new(key, operator, values.iter().copied()).map_err(|invalid| {
        let faults = wrong_values(key, values);
        if faults.is_empty() { invalid.to_string() } else { aggregated(&faults) }
    })
}

/// Returns a requirement with the operator `<` or `>`. `values` must contain exactly one value.
fn compared(
    key: &str,
    order: Ordering,
    values: &BTreeSet<&str>,
) -> Result<NumericLabelRequirement, String> {
    let value = values.first().copied().unwrap_or_default();
    let bound = value.parse().ok();
    let mut faults = Vec::new();
    if bound.is_none() {
        let value = quoted(value);
        faults.push(format!(
            "values[0]: Invalid value: {value}: for 'Gt', 'Lt' operators, the value must be an \
             integer"
        ));
    }
    // A label value cannot begin with `-`, so `wrong_values` reports a negative number as invalid.
    faults.extend(wrong_values(key, values));
    match bound {
        Some(bound) if faults.is_empty() => {
            NumericLabelRequirement::new(key, order, bound).map_err(|invalid| invalid.to_string())
        }
        _ => Err(aggregated(&faults)),
    }
}
