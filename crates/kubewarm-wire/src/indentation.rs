//! Indents JSON for people, as the API server does for `?pretty=true` and for the clients curl,
//! Wget and browsers.

use super::{
    accept,
    query_parameters::{QueryParameter, QueryParameters},
};
use std::mem;

/// The beginnings of the `User-Agent` of clients whose users read the response.
const READ_BY_PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];
const INDENT: &[u8] = b"  ";

/// Returns whether the client gets indented JSON: `pretty=1` in the `Accept` header decides, or
/// else the query parameter `pretty`, or else the `User-Agent`. An empty or invalid query counts as
/// a query without the parameter.
pub fn is_pretty(query: Option<&str>, accept: Option<&str>, user_agent: Option<&str>) -> bool {
    if accept::has_pretty(accept) {
        return true;
    }
    let has_name = |query: &&str| query.contains("pretty");
    let parsed = query.filter(has_name).and_then(|query| QueryParameters::parse(Some(query)).ok());
    let value = parsed.as_ref().map_or("", |query| query.text(QueryParameter::Pretty));
    if !value.is_empty() {
        return matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True");
    }
    user_agent.is_some_and(|agent| READ_BY_PEOPLE.iter().any(|name| agent.starts_with(name)))
}

/// Indents a JSON text that arrives in pieces, as `json.Indent` of Go does: with two spaces for
/// each level, and without a line feed at the end.
#[derive(Debug, Default)]
pub struct JsonIndenter {
    depth: usize,
    is_string: bool,
    is_escaped: bool,
    /// Whether the last byte opened an object or a list. If the next byte closes it, the result is
    /// `{}` or `[]` without a line feed.
    is_open: bool,
}

impl JsonIndenter {
    /// Indents the next piece of a valid JSON text, until the result has at least `bytes` bytes. A
    /// piece can end anywhere, also within a string. Returns the result, and the number of bytes of
    /// `piece` that it contains.
    ///
    /// The limit bounds memory, because deeply nested JSON is more than 1,000 times as long with
    /// indentation.
    pub fn indent(&mut self, piece: &[u8], bytes: usize) -> (Vec<u8>, usize) {
        let mut out = Vec::with_capacity((piece.len() + piece.len() / 2).min(bytes));
        for (at, &byte) in piece.iter().enumerate() {
            if out.len() >= bytes {
                return (out, at);
            }
            if self.is_string {
                out.push(byte);
                self.is_string = self.is_escaped || byte != b'"';
                self.is_escaped = !self.is_escaped && byte == b'\\';
            } else {
                self.indent_token(byte, &mut out);
            }
        }
        (out, piece.len())
    }

    /// Indents a byte that is not within a string.
    fn indent_token(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if !mem::take(&mut self.is_open) {
                    self.break_line(out);
                }
            }
            _ if mem::take(&mut self.is_open) => self.break_line(out),
            _ => {}
        }
        out.push(byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.is_open = true;
            }
            b',' => self.break_line(out),
            b':' => out.push(b' '),
            b'"' => self.is_string = true,
            _ => {}
        }
    }

    fn break_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        for _ in 0..self.depth {
            out.extend_from_slice(INDENT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn json_is_indented_as_in_go() {
        let text = b"{\"a\":{},\"b\":[ ],\"c\":[1,{\"x\":\"{[,:\\\"\"}],\"d\":null}\n";
        let expected = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    {\n      \"x\": \"{[,:\\\"\"\n    \
                        }\n  ],\n  \"d\": null\n}";
        let (whole, used) = JsonIndenter::default().indent(text, usize::MAX);
        assert_eq!((std::str::from_utf8(&whole), used), (Ok(expected), text.len()));
        for bytes in [1, 7] {
            let (mut indenter, mut rest, mut out) =
                (JsonIndenter::default(), &text[..], Vec::new());
            while !rest.is_empty() {
                let (piece, used) = indenter.indent(rest, bytes);
                out.extend(piece);
                rest = &rest[used..];
            }
            assert_eq!(std::str::from_utf8(&out), Ok(expected), "{bytes} bytes at once");
        }
    }

    #[test]
    fn the_same_clients_as_at_the_api_server_get_indented_json() {
        let is = |query, accept, agent| is_pretty(query, accept, agent);
        for (query, agent, expected) in [
            (None, None, false),
            (Some("pretty=true"), None, true),
            (Some("limit=1&pretty=1"), None, true),
            (Some("pretty=yes"), Some("curl/8"), false),
            (Some("pretty=false"), Some("curl/8"), false),
            (Some("pretty=false&pretty=true"), None, false),
            (Some("pretty="), Some("curl/8"), true),
            (Some("x=pretty"), Some("curl/8"), true),
            (None, Some("Wget/1.21"), true),
            (None, Some("Mozilla/5.0 (X11)"), true),
            (None, Some("Mozilla/4.0"), false),
            (None, Some("kubectl/v1.36 curl"), false),
        ] {
            assert_eq!(is(query, None, agent), expected, "{query:?} {agent:?}");
        }
        assert!(is(Some("pretty=0"), Some("application/json;pretty=1"), None));
        assert!(!is(None, Some("application/json;pretty=true"), None));
    }

    proptest! {
        #[test]
        fn indented_json_has_the_same_value(text in r#"[\[\]{}a",: \\0]{0,40}"#) {
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
                let (indented, _) = JsonIndenter::default().indent(text.as_bytes(), usize::MAX);
                let parsed: serde_json::Value = serde_json::from_slice(&indented).unwrap();
                prop_assert_eq!(parsed, value);
            }
        }
    }
}
