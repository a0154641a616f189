//! Finds the names in a `PromQL` expression. promtool checks whether the expression is valid.

use std::collections::BTreeSet;

/// Keywords that are followed by labels.
const GROUPING: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Keywords and functions that are not metrics.
const WORDS: &[&str] =
    &["and", "or", "unless", "bool", "offset", "sum", "min", "max", "count", "group"];

/// A metric and its label matchers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) metric: String,
    /// The label and the value of each matcher, without the operator.
    pub(crate) matchers: Vec<(String, String)>,
}

/// The names in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) selectors: Vec<Selector>,
    /// The labels of groupings and joins.
    pub(crate) labels: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Symbol(char),
}

/// Finds the names in an expression.
pub(crate) fn names(expression: &str) -> Names {
    let mut tokens = tokens(expression).into_iter().peekable();
    let mut names = Names::default();
    while let Some(token) = tokens.next() {
        let Token::Word(word) = token else { continue };
        let opens = tokens.peek() == Some(&Token::Symbol('('));
        if GROUPING.contains(&&*word) {
            if opens {
                let list = tokens.by_ref().take_while(|token| *token != Token::Symbol(')'));
                names.labels.extend(list.filter_map(|token| match token {
                    Token::Word(label) => Some(label),
                    Token::Text(_) | Token::Symbol(_) => None,
                }));
            }
            continue;
        }
        if opens || WORDS.contains(&&*word) {
            continue;
        }
        let mut matchers = Vec::new();
        if tokens.next_if_eq(&Token::Symbol('{')).is_some() {
            let mut label = None;
            for token in tokens.by_ref().take_while(|token| *token != Token::Symbol('}')) {
                match token {
                    Token::Word(word) => label = Some(word),
                    Token::Text(value) => matchers.extend(label.take().map(|label| (label, value))),
                    Token::Symbol(_) => {}
                }
            }
        }
        names.selectors.push(Selector { metric: word, matchers });
    }
    names
}

fn tokens(expression: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
        let (token, after) = if starts(first) {
            let goes_on = |c: char| starts(c) || c.is_ascii_digit() || c == ':';
            let end = rest.find(|c| !goes_on(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            (Some(Token::Word(word.to_owned())), after)
        } else if first == '"' {
            let (text, after) = rest[1..].split_once('"').expect("a text ends");
            (Some(Token::Text(text.to_owned())), after)
        } else if first == '[' {
            (None, rest.split_once(']').expect("a range ends").1)
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.');
            (None, &rest[end.unwrap_or(rest.len())..])
        } else {
            (Some(Token::Symbol(first)), &rest[first.len_utf8()..])
        };
        tokens.extend(token);
        rest = after.trim_start();
    }
    tokens
}

#[test]
fn metrics_matchers_and_labels_are_found_and_nothing_else() {
    let names = names(
        r#"histogram_quantile(0.9, sum by (le, x) (rate(a_bucket{job=~"$j",x!="1"}[$__rate_interval])))
           and on (y) (max_over_time(b[1h]) > 0) or vector(0) / ignoring (z) group_left a:b:c offset 5m"#,
    );
    let matchers = [("job", "$j"), ("x", "1")].map(|(l, v)| (l.to_owned(), v.to_owned())).into();
    let metrics: Vec<_> = names.selectors.iter().map(|selector| &*selector.metric).collect();
    assert_eq!(metrics, ["a_bucket", "b", "a:b:c"]);
    assert_eq!(names.selectors[0], Selector { metric: "a_bucket".to_owned(), matchers });
    assert_eq!(names.labels, ["le", "x", "y", "z"].map(str::to_owned).into());
}
