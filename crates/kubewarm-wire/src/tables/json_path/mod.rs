//! Parses and evaluates the `jsonPath` of a printer column, in the API server's dialect of
//! `JSONPath`.

mod operator;
#[cfg(test)]
mod tests;

use self::operator::JsonPathOperator;
use super::row_budget::RowBudget;
use serde_json::Value;

/// Maximum nesting of paths in filters. The parser and the evaluation recurse for each level.
const MAX_DEPTH: usize = 64;
/// Maximum depth to which a recursive descent (`..`) searches in an object. No parsed object is
/// deeper, so the limit changes no result.
const MAX_DESCENT: usize = 128;
/// Maximum number of values that a path can find after each of its steps. The limit is necessary,
/// because a path can find the same value many times.
const MAX_FOUND: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonPath(Vec<JsonPathStep>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum JsonPathStep {
    Field(String),
    /// Selects all members of an object, or all elements of a list.
    Any,
    /// The current value itself, and all values inside it. Scalars and empty objects and lists are
    /// not included.
    Descend,
    Slice(JsonPathSlice),
    Union(Vec<JsonPath>),
    Filter {
        left: JsonPath,
        test: Option<(JsonPathOperator, JsonPath)>,
    },
    /// A constant in a filter. The filter compares a value with it.
    Literal(Value),
}

/// `[from:to:step]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JsonPathSlice {
    from: Option<i64>,
    to: Option<i64>,
    /// Whether the brackets contain an index: `[from]` selects only the element at `from`.
    is_one: bool,
    step: Option<i64>,
}

/// The values that a path finds. `None` if a step cannot apply to its value, for example an index
/// applied to a string, or if the search exceeds its limits.
type JsonPathValues<'a> = Option<Vec<&'a Value>>;

/// The limits of one search.
#[derive(Clone, Copy)]
struct SearchLimits<'b> {
    /// How deep the path is nested in filters.
    depth: usize,
    /// Charged before a step copies or visits values, because a step can multiply their number.
    budget: &'b RowBudget,
}

impl JsonPath {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::nested(text, 0)
    }

    fn nested(text: &str, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut steps = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(behind) = rest.strip_prefix("[?(") {
                let (filter, behind) = filter(behind)?;
                steps.push(read_filter(filter, depth)?);
                rest = behind;
                continue;
            }
            if let Some(behind) = rest.strip_prefix("..") {
                if steps.last() == Some(&JsonPathStep::Descend) {
                    return None;
                }
                steps.push(JsonPathStep::Descend);
                rest = behind;
                if rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                    let (field, behind) = field(rest);
                    steps.push(field);
                    rest = behind;
                }
                continue;
            }
            let behind = rest.get(first.len_utf8()..)?;
            rest = match first {
                ' ' | '@' | '$' => behind,
                '.' => {
                    let (field, behind) = field(behind);
                    steps.push(field);
                    behind
                }
                '[' => {
                    let (within, behind) = behind.split_once(']')?;
                    steps.extend(read_brackets(within, depth)?);
                    behind
                }
                '"' | '\'' => {
                    let (text, behind) = quoted(behind, first)?;
                    steps.push(JsonPathStep::Literal(text.into()));
                    behind
                }
                '+' | '-' | '0'..='9' => {
                    let of_number = |c: char| c == '.' || c.is_ascii_digit();
                    let end = behind.find(|c| !of_number(c)).unwrap_or(behind.len());
                    let (number, behind) = rest.split_at_checked(first.len_utf8() + end)?;
                    let number = number.trim_start_matches('+');
                    let whole = number.parse::<i64>().map(Value::from);
                    let value = whole.or_else(|_| number.parse::<f64>().map(Value::from)).ok()?;
                    steps.push(JsonPathStep::Literal(value));
                    behind
                }
                _ => {
                    let end = rest.find(ends_name).unwrap_or(rest.len());
                    let (word, behind) = rest.split_at_checked(end)?;
                    steps.push(JsonPathStep::Literal(Value::Bool(word.parse().ok()?)));
                    behind
                }
            };
        }
        Some(Self(steps))
    }

    /// Returns whether the path starts at the field `metadata`, so that it finds only values in the
    /// object's metadata.
    pub(super) fn is_of_metadata(&self) -> bool {
        matches!(self.0.first(), Some(JsonPathStep::Field(name)) if name == "metadata")
    }

    /// Whether the path searches all values inside a value (`..`).
    pub(super) fn has_descent(&self) -> bool {
        self.0.iter().any(|step| match step {
            JsonPathStep::Descend => true,
            JsonPathStep::Union(paths) => paths.iter().any(Self::has_descent),
            JsonPathStep::Filter { left, test } => {
                left.has_descent() || test.as_ref().is_some_and(|(_, right)| right.has_descent())
            }
            JsonPathStep::Field(_)
            | JsonPathStep::Any
            | JsonPathStep::Slice(_)
            | JsonPathStep::Literal(_) => false,
        })
    }

    pub(super) fn first<'a>(&'a self, object: &'a Value, budget: &RowBudget) -> Option<&'a Value> {
        let found = self.find(object, SearchLimits { depth: 0, budget })?.into_iter().next();
        // A filter that the budget ended counts its last value as not found.
        found.filter(|_| !budget.is_exceeded())
    }

    fn find<'a>(&'a self, object: &'a Value, limits: SearchLimits<'_>) -> JsonPathValues<'a> {
        if limits.depth > MAX_DEPTH {
            return None;
        }
        let mut values = vec![object];
        for step in &self.0 {
            limits.budget.charge_values(values.len())?;
            values = step.take(&values, limits)?;
            if values.len() > MAX_FOUND {
                return None;
            }
        }
        Some(values)
    }
}

impl JsonPathStep {
    fn take<'a>(&'a self, values: &[&'a Value], limits: SearchLimits<'_>) -> JsonPathValues<'a> {
        let mut results = Vec::new();
        let budget = limits.budget;
        let inner = SearchLimits { depth: limits.depth + 1, budget };
        let set = values.iter().copied().filter(|value| !value.is_null());
        match self {
            Self::Field(name) => results.extend(set.filter_map(|value| value.get(name))),
            Self::Any => {
                for value in set {
                    let members = within(value);
                    budget.charge_values(members.len())?;
                    results.extend(members);
                }
            }
            Self::Descend => {
                for value in set {
                    descend(value, &mut results, 0, budget)?;
                }
            }
            Self::Slice(slice) => {
                for value in set {
                    let chosen = slice.of(value.as_array()?)?;
                    budget.charge_values(chosen.len())?;
                    results.extend(chosen);
                }
            }
            Self::Union(paths) => {
                for path in paths {
                    for value in values {
                        results.extend(path.find(value, inner)?);
                    }
                }
            }
            Self::Filter { left, test } => {
                for value in values {
                    let items = value.as_array()?;
                    budget.charge_values(items.len())?;
                    for item in items {
                        if passes(item, left, test.as_ref(), inner)? {
                            results.push(item);
                        }
                    }
                }
            }
            Self::Literal(value) => results.extend(values.iter().map(|_| value)),
        }
        Some(results)
    }
}

fn passes(
    item: &Value,
    left: &JsonPath,
    test: Option<&(JsonPathOperator, JsonPath)>,
    limits: SearchLimits<'_>,
) -> Option<bool> {
    let left = left.find(item, limits);
    let Some((compare, right)) = test else {
        return Some(left.is_some_and(|values| !values.is_empty()));
    };
    match (left?.as_slice(), right.find(item, limits)?.as_slice()) {
        ([left], [right]) => compare.holds(left, right),
        ([], [] | [_]) | ([_], []) => Some(false),
        _ => None,
    }
}

impl JsonPathSlice {
    fn of(self, items: &[Value]) -> Option<impl ExactSizeIterator<Item = &Value>> {
        let len = i64::try_from(items.len()).ok()?;
        let from = self.from.unwrap_or(0);
        let from = if from < 0 { from + len } else { from };
        let to = match (self.to, self.is_one) {
            (_, true) => from.checked_add(1)?,
            (None, false) => len,
            (Some(to), false) if to < 0 => to + len,
            (Some(to), false) => to,
        };
        let step = self.step.unwrap_or(1);
        let chosen = if from == to {
            &[][..]
        } else {
            let bound = |at: i64| usize::try_from(at).ok();
            let (from, to) = (bound(from)?, bound(to)?);
            items.get(from..to).filter(|chosen| !chosen.is_empty())?
        };
        let step = usize::try_from(step).ok().filter(|step| *step > 0)?;
        Some(chosen.iter().step_by(step))
    }
}

fn within(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// Adds `value` and all values inside it to `results`, except scalars and empty objects and lists.
/// Returns `None` if the search exceeds `budget`.
fn descend<'a>(
    value: &'a Value,
    results: &mut Vec<&'a Value>,
    depth: usize,
    budget: &RowBudget,
) -> Option<()> {
    let members = within(value);
    if members.is_empty() || depth > MAX_DESCENT || results.len() > MAX_FOUND {
        return Some(());
    }
    budget.charge_values(members.len())?;
    results.push(value);
    for value in members {
        descend(value, results, depth + 1, budget)?;
    }
    Some(())
}

fn ends_name(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// Parses a field name up to the next delimiter. A backslash escapes the next character. Returns
/// the field's step and the rest of the path.
fn field(text: &str) -> (JsonPathStep, &str) {
    let mut is_escaped = false;
    let end = text.find(|c| {
        let is_end = !is_escaped && ends_name(c);
        is_escaped = !is_escaped && c == '\\';
        is_end
    });
    let (name, behind) = text.split_at(end.unwrap_or(text.len()));
    let step =
        if name == "*" { JsonPathStep::Any } else { JsonPathStep::Field(name.replace('\\', "")) };
    (step, behind)
}

/// Parses a quoted text up to its closing quote. Returns the text and the rest of the path.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            }),
            c if c == quote => return Some((value, text.get(at + 1..)?)),
            c => value.push(c),
        }
    }
    None
}

/// Splits the text after `[?(` into the filter and the rest of the path, which follows `)]`.
fn filter(text: &str) -> Option<(&str, &str)> {
    let (mut quote, mut last) = (None, ' ');
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open && last != '\\' => quote = None,
            (None, ')') => {
                let behind = text.get(at + 1..)?.strip_prefix(']')?;
                return Some((text.get(..at)?, behind));
            }
            _ => {}
        }
        last = c;
    }
    None
}

fn read_filter(text: &str, depth: usize) -> Option<JsonPathStep> {
    let is_sign = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let Some(at) = text.find(is_sign) else {
        return Some(JsonPathStep::Filter { left: JsonPath::nested(text, depth + 1)?, test: None });
    };
    let (left, rest) = text.split_at_checked(at)?;
    let (sign, right) = rest.split_at_checked(rest.find(|c| !is_sign(c))?)?;
    let compare = match sign {
        "==" => JsonPathOperator::Equal,
        "!=" => JsonPathOperator::Different,
        "<" => JsonPathOperator::Less,
        "<=" => JsonPathOperator::AtMost,
        ">" => JsonPathOperator::Greater,
        ">=" => JsonPathOperator::AtLeast,
        _ => return None,
    };
    let (left, right) = (JsonPath::nested(left, depth + 1)?, JsonPath::nested(right, depth + 1)?);
    Some(JsonPathStep::Filter { left, test: Some((compare, right)) })
}

/// Parses the text between the brackets of a path step: a union, a quoted name, an index or a
/// slice.
fn read_brackets(text: &str, depth: usize) -> Option<Vec<JsonPathStep>> {
    if text == "*" {
        return read_brackets(":", depth);
    }
    if text.contains(',') {
        let all = text
            .split(',')
            .map(|part| JsonPath::nested(&format!("[{}]", part.trim_matches(' ')), depth + 1));
        return Some(vec![JsonPathStep::Union(all.collect::<Option<_>>()?)]);
    }
    let name = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    if let Some(name) = name {
        return JsonPath::nested(&format!(".{name}"), depth + 1).map(|path| path.0);
    }
    let mut parts = text.split(':');
    let mut number = || match parts.next() {
        None => Some((false, None)),
        Some("") => Some((true, None)),
        Some(number) => number.parse().ok().map(|number| (true, Some(number))),
    };
    let ((_, from), (has_to, to), (_, step)) = (number()?, number()?, number()?);
    let is_one = !has_to;
    (parts.next().is_none() && !text.is_empty())
        .then(|| vec![JsonPathStep::Slice(JsonPathSlice { from, to, is_one, step })])
}
