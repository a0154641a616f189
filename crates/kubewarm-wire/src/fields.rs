//! Parses field selectors. The caller checks which fields a kind supports.

use super::Failure;
use kubewarm_api::model::{FieldRequirement, FieldSelector};

/// Maximum number of requirements. The API server supports some ten fields of a kind, and a store
/// has at most 32 declared indexes. Each watch keeps its requirements, and each object is compared
/// with all of them.
const MOST: usize = 64;
/// Maximum length of a value in bytes: four times the longest object name. Each watch keeps copies
/// of the values, and access reviews contain them.
const MOST_BYTES: usize = 1 << 10;
/// Operators, and whether the field must equal the value. `!=` and `==` come first, because they
/// contain `=`.
const OPERATORS: [(&str, bool); 3] = [("!=", false), ("==", true), ("=", true)];

/// Parses a field selector that is already percent-decoded.
///
/// # Errors
///
/// 400 with the API server's message. If no kind can have a field of that name, the message is the
/// one for an unsupported field. A selector above the limits of this file can still succeed at the
/// API server (`Failure::is_of_this_server_alone`).
pub(super) fn parse(text: &str) -> Result<FieldSelector, Failure> {
    let mut all: Vec<&str> = terms(text).filter(|term| !term.is_empty()).collect();
    if all.len() > MOST {
        return Err(Failure::too_much("field", MOST, "requirements"));
    }
    // The API server sorts, too. So both report the same one of several errors.
    all.sort_unstable();
    let mut read = Vec::new();
    for term in all {
        let Some((field, equals, value)) = split(term) else {
            return Err(Failure::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            )));
        };
        let value = unescaped(value)?;
        if value.len() > MOST_BYTES {
            let message = format!(
                "a value of a field selector here has at most {MOST_BYTES} bytes; ask the API server for longer ones"
            );
            return Err(Failure::bad_request(message).elsewhere());
        }
        // The term `=` selects everything.
        if !field.is_empty() || !value.is_empty() {
            read.push((field, equals, value));
        }
    }
    let requirements = read.into_iter().map(|(field, equals, value)| {
        FieldRequirement::new(field, equals, &value).map_err(|invalid| match invalid.part {
            "field" => Failure::unknown_field(field),
            _ => Failure::bad_request(format!("invalid field selector: {invalid}")),
        })
    });
    Ok(FieldSelector::new(requirements.collect::<Result<Vec<_>, _>>()?))
}

/// Splits the selector at each comma that is not escaped.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    text.split(move |c| {
        let ends = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    })
}

/// Splits a term at its first operator. The `bool` is true for `=` and `==`.
fn split(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().find_map(|(at, _)| {
        let rest = term.get(at..)?;
        OPERATORS.into_iter().find(|(operator, _)| rest.starts_with(operator)).map(|it| (at, it))
    });
    let (at, (operator, equals)) = at?;
    Some((term.get(..at)?, equals, term.get(at + operator.len()..)?))
}

fn unescaped(value: &str) -> Result<String, Failure> {
    let invalid = |sequence: &str| {
        Failure::bad_request(format!("invalid field selector: invalid escape sequence: {sequence}"))
    };
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => escaped,
                Some(other) => return Err(invalid(&format!("\\{other}"))),
                None => return Err(invalid("\\")),
            },
            ',' | '=' => {
                // The API server prints the character as a number.
                let number = u32::from(c);
                return Err(Failure::bad_request(format!(
                    "invalid field selector: unescaped character in value: {number}"
                )));
            }
            c => c,
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_are_parsed_as_in_the_api_server() {
        for (text, expected) in [
            ("", ""),
            (",,", ""),
            ("metadata.name=a", "metadata.name=a"),
            ("metadata.name==a", "metadata.name=a"),
            ("status.phase!=Succeeded,", "status.phase!=Succeeded"),
            ("b=1,a!=2", "a!=2,b=1"),
            ("a=", "a="),
            (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
            ("a=b!", "a=b!"),
            ("=,a=b,!=", "a=b"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn selectors_above_the_limits_are_refused() {
        let many = |most: usize| vec!["spec.host!=a"; most].join(",");
        assert!(parse(&many(MOST)).is_ok());
        let refused = parse(&many(MOST + 1)).unwrap_err();
        assert!(refused.code() == 400 && refused.message().contains("at most 64"), "{refused:?}");
        let long = |most: usize| format!("metadata.name={}", "a".repeat(most));
        assert!(parse(&long(MOST_BYTES)).is_ok());
        let refused = parse(&long(MOST_BYTES + 1)).unwrap_err();
        assert!(refused.code() == 400 && refused.message().contains("at most 1024 bytes"));
        assert!(refused.is_of_this_server_alone(), "the API server accepts it");
    }

    #[test]
    fn errors_have_the_messages_of_the_api_server() {
        for (text, expected) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=\", r"invalid field selector: invalid escape sequence: \"),
            ("=b", "field label not supported: "),
            ("a b=c", "field label not supported: a b"),
        ] {
            let failure = parse(text).unwrap_err();
            assert_eq!((failure.code(), failure.message()), (400, expected), "{text}");
        }
        assert_eq!(parse("a=b\nc").unwrap_err().code(), 400);
    }

    proptest! {
        #[test]
        fn no_selector_causes_a_panic(any in ".{0,60}", likely in r"[a.,=!\\é]{0,20}") {
            let _ = parse(&any);
            let _ = parse(&likely);
        }

        #[test]
        fn a_canonical_selector_parses_to_itself(likely in r"[ab,=!\\]{0,20}") {
            if let Ok(selector) = parse(&likely) {
                prop_assert_eq!(parse(&selector.to_string()).unwrap(), selector);
            }
        }
    }
}
