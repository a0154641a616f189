//! Label selectors in the API server's whole grammar.

mod fault;
#[cfg(test)]
mod tests;

use self::fault::{aggregated, key_fault, wrong_values};
use super::{Failure, failure::quoted};
use kubewarm_api::model::{LabelComparison, LabelRequirement, LabelSelector, Operator};
use std::{cmp::Ordering, collections::BTreeSet};

/// A word, or one of the signs `= == != ! > < ( ) ,`; at the end, the empty sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'a> {
    kind: Sort,
    text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Sign,
    Word,
}

/// Requirements and values: each watch holds its own, and the API server is asked about them with each decision.
const MOST: usize = 1_024;
/// Requirements: every event that a watch comes past is looked at by all of them, and so is every object of a list by
/// comparisons. Cells have 32 at the most.
const MOST_REQUIREMENTS: usize = 64;

/// What may stand between tokens.
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// A selector as far as it has been read.
struct Parser<'a> {
    rest: &'a str,
}

/// Reads a selector, decoded.
///
/// # Errors
///
/// 400 with the server's text.
pub(super) fn parse(text: &str) -> Result<LabelSelector, Failure> {
    // The server reads no further than a NUL, so that the rest would not select.
    if text.contains('\0') {
        return Err(Failure::bad_request("found a NUL character in the label selector"));
    }
    // Each ends with a comma, but for the last.
    if text.matches(',').count() >= MOST {
        return Err(Failure::too_much("label", MOST, "requirements and values"));
    }
    let selector = Parser { rest: text }.selector().map_err(Failure::bad_request)?;
    if selector.requirements().count() + selector.comparisons().count() > MOST_REQUIREMENTS {
        return Err(Failure::too_much("label", MOST_REQUIREMENTS, "requirements"));
    }
    Ok(selector)
}

impl<'a> Parser<'a> {
    fn selector(&mut self) -> Result<LabelSelector, String> {
        let (mut requirements, mut comparisons) = (Vec::new(), Vec::new());
        while !self.peek().is("") {
            let first = self.peek();
            if !first.begins_requirement() {
                let found = first.text;
                return Err(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                ));
            }
            self.requirement(&mut requirements, &mut comparisons)
                .map_err(|why| format!("unable to parse requirement: {why}"))?;
            let behind = self.take();
            if behind.is("") {
                break;
            }
            if !behind.is(",") {
                let found = behind.text;
                return Err(format!("found '{found}', expected: ',' or 'end of string'"));
            }
            let next = self.peek();
            if !next.begins_requirement() {
                let found = next.text;
                return Err(format!("found '{found}', expected: identifier after ','"));
            }
        }
        Ok(LabelSelector::new(requirements).with_comparisons(comparisons))
    }

    fn requirement(
        &mut self,
        requirements: &mut Vec<LabelRequirement>,
        comparisons: &mut Vec<LabelComparison>,
    ) -> Result<(), String> {
        let is_negated = self.peek().is("!");
        if is_negated {
            self.take();
        }
        let key = self.word()?;
        if LabelRequirement::new(key, Operator::Exists, []).is_err() {
            return Err(format!("<nil>: Invalid value: {}: {}", quoted(key), key_fault(key)));
        }
        if is_negated || self.peek().ends_requirement() {
            let operator = if is_negated { Operator::DoesNotExist } else { Operator::Exists };
            requirements.push(checked(key, operator, &BTreeSet::new())?);
            return Ok(());
        }
        match self.take().text {
            "in" => requirements.push(checked(key, Operator::In, &self.values()?)?),
            "notin" => requirements.push(checked(key, Operator::NotIn, &self.values()?)?),
            "=" | "==" => requirements.push(checked(key, Operator::In, &self.exact_value()?)?),
            "!=" => requirements.push(checked(key, Operator::NotIn, &self.exact_value()?)?),
            ">" => comparisons.push(compared(key, Ordering::Greater, &self.exact_value()?)?),
            "<" => comparisons.push(compared(key, Ordering::Less, &self.exact_value()?)?),
            found => {
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        }
        Ok(())
    }

    /// `(x,y,z)`; `()` is the empty value, and so is what is missing around a comma.
    fn values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let open = self.take();
        if !open.is("(") {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        let first = self.peek();
        if first.is(")") {
            self.take();
            return Ok(BTreeSet::from([""]));
        }
        if first.kind == Sort::Sign && !first.is(",") {
            return Err(format!("found '{}', expected: ',', ')' or identifier", first.text));
        }
        let mut values = BTreeSet::new();
        loop {
            let token = self.take();
            let next = self.peek();
            if token.kind == Sort::Word {
                values.insert(token.text);
                if !next.is(",") && !next.is(")") {
                    return Err(format!("found '{}', expected: ',' or ')'", next.text));
                }
            } else if token.is(",") {
                if values.is_empty() || next.is(",") || next.is(")") {
                    values.insert("");
                }
            } else {
                return Err(format!("found '{}', expected: ',', or identifier", token.text));
            }
            if next.is(")") {
                self.take();
                return Ok(values);
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let value = if self.peek().ends_requirement() { "" } else { self.word()? };
        Ok(BTreeSet::from([value]))
    }

    fn word(&mut self) -> Result<&'a str, String> {
        match self.take() {
            Token { kind: Sort::Word, text } => Ok(text),
            Token { kind: Sort::Sign, text } => {
                Err(format!("found '{text}', expected: identifier"))
            }
        }
    }

    fn peek(&self) -> Token<'a> {
        Parser { rest: self.rest }.take()
    }

    fn take(&mut self) -> Token<'a> {
        let text = self.rest.trim_start_matches(SPACES);
        let (kind, length) = match text.as_bytes() {
            [] => (Sort::Sign, 0),
            [b'=' | b'!', b'=', ..] => (Sort::Sign, 2),
            [b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<', ..] => (Sort::Sign, 1),
            _ => {
                let ends = |c| SPACES.contains(&c) || "=!(),><".contains(c);
                (Sort::Word, text.find(ends).unwrap_or(text.len()))
            }
        };
        let (text, rest) = text.split_at_checked(length).unwrap_or_default();
        self.rest = rest;
        Token { kind, text }
    }
}

impl Token<'_> {
    fn is(self, sign: &str) -> bool {
        self.kind == Sort::Sign && self.text == sign
    }

    fn begins_requirement(self) -> bool {
        self.kind == Sort::Word || self.is("!")
    }

    fn ends_requirement(self) -> bool {
        self.is("") || self.is(",")
    }
}

fn checked(
    key: &str,
    operator: Operator,
    values: &BTreeSet<&str>,
) -> Result<LabelRequirement, String> {
    LabelRequirement::new(key, operator, values.iter().copied()).map_err(|invalid| {
        let faults = wrong_values(key, values);
        if faults.is_empty() { invalid.to_string() } else { aggregated(&faults) }
    })
}

/// A comparison with the one value that was written.
fn compared(
    key: &str,
    order: Ordering,
    values: &BTreeSet<&str>,
) -> Result<LabelComparison, String> {
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
    // A label's value does not begin with a sign, so that no bound is negative.
    faults.extend(wrong_values(key, values));
    match bound {
        Some(bound) if faults.is_empty() => {
            LabelComparison::new(key, order, bound).map_err(|invalid| invalid.to_string())
        }
        _ => Err(aggregated(&faults)),
    }
}
