//! Formats text for error messages as Go does, because the API server formats its messages with Go.

use std::fmt::Write as _;

pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\'' => out.push('\''),
            // `escape_debug` returns printable characters unchanged, as one character. Go prints
            // the same characters without an escape.
            c if c.escape_debug().len() == 1 => out.push(c),
            c => {
                let code = u32::from(c);
                match code {
                    0..=0x7f => push(&mut out, format_args!("\\x{code:02x}")),
                    0x80..=0xffff => push(&mut out, format_args!("\\u{code:04x}")),
                    _ => push(&mut out, format_args!("\\U{code:08x}")),
                }
            }
        }
    }
    out.push('"');
    out
}

/// Returns a resource's plural name with its group, such as `pods` or `deployments.apps`.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}

/// Escapes `&`, `<` and `>` for HTML. The API server escapes only the part of a 403 message that
/// contains the user's name.
pub(super) fn without_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(super) fn because(mut message: String, reason: Option<&str>) -> String {
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        push(&mut message, format_args!(": {reason}"));
    }
    message
}

pub(super) fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _written = text.write_fmt(more);
}
